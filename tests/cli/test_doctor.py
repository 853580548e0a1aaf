"""`sinkjax doctor` says what is there, and a hub, a device or a folder that is not there is a line of it, not an error."""

from __future__ import annotations

import time

import flax
import jax
import pytest

import sinkjax
from sinkjax.cli import doctor
from sinkjax.cli import main as cli


def test_it_shows_versions_devices_and_caches_on_one_screen(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 40
    words = " ".join(shown.split())
    for expected in (sinkjax.__version__, f"jax {jax.__version__}", f"flax {flax.__version__}", "cpu, 1 x cpu", "HF_HUB_OFFLINE"):
        assert expected in words
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("answers", [True, False])
def test_the_hub_is_asked_once_and_not_for_long(answers, monkeypatch):
    from huggingface_hub import constants

    def head(self: object, url: str, timeout: float) -> object:
        assert url == constants.ENDPOINT
        if not answers:
            time.sleep(30)
        return type("Response", (), {"status_code": 200})

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_session", lambda: type("Session", (), {"head": head})())
    monkeypatch.setattr("sinkjax.data.corpora.PATIENCE_SECONDS", 0.2)
    started = time.monotonic()
    assert ("did not respond within" in doctor._hub()) is not answers
    assert time.monotonic() - started < 10


def test_a_device_and_a_package_that_are_not_there_are_lines_of_it(monkeypatch):
    def broken() -> str:
        raise RuntimeError("no plugin\nand more")

    monkeypatch.setattr(jax, "default_backend", broken)
    monkeypatch.setattr(doctor, "PACKAGES", ("jax", "no-such-package"))
    found = dict(doctor.facts())
    assert found["devices"] == "none: no plugin"
    assert found["packages"].startswith(f"jax {jax.__version__}, no-such-package is missing")
