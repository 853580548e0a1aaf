"""`sinkjax explore` as a process: it prints the address of its page, serves it, and ends cleanly when it is asked to."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_serves_its_page_until_a_signal_ends_it(sent, code, tmp_path: Path):
    command = [sys.executable, "-m", "sinkjax", "explore", "mini-softmax", "--no-browser", "--out", str(tmp_path / "kept")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address) as page:
                assert "sinkjax explorer" in page.read().decode()
            process.send_signal(sent)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == code
    assert errors.splitlines()[-1] == "sinkjax: interrupted"
    assert "Traceback" not in errors
    assert not (tmp_path / "kept").exists()
