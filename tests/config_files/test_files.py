"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinkjax.config_files.files import write
from sinkjax.errors import SinkjaxError


def test_text_and_bytes_arrive_and_nothing_else_stays(tmp_path: Path):
    write(tmp_path / "deep" / "a.txt", "ä")
    write(tmp_path / "deep" / "a.txt", b"\x00")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.txt"]
    assert (tmp_path / "deep" / "a.txt").read_bytes() == b"\x00"


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_scrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "a.txt", "old")

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SinkjaxError, match=r"cannot write .*a.txt: No space left on device \(at least 3 bytes wanted\)$"):
        write(tmp_path / "a.txt", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkjaxError, match="cannot write"):
        write(tmp_path / "file" / "a.txt", "x")
