"""A file is written whole or not at all."""

from __future__ import annotations

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sinkjax.config_files import files, temporary
from sinkjax.config_files.files import claim_folder, write, write_new
from sinkjax.errors import SinkjaxError


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_scrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "a.txt", "old")

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SinkjaxError, match=r"a\.txt: No space .*3 bytes"):
        write(tmp_path / "a.txt", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_several_may_write_one_file(tmp_path: Path):
    contents = [bytes([number]) * 200_000 for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(write, tmp_path / "a"), contents * 20))
    assert (tmp_path / "a").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("links", [True, False])
def test_of_several_that_make_one_file_the_first_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool):
    if not links:

        def link(*paths: Path) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(files.os, "link", link)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(partial(write_new, tmp_path / "a"), "abcd"))
    assert (tmp_path / "a").read_text() in "abcd"
    assert made.count(True) == 1 or not links
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_several_may_begin_in_one_folder_if_they_want_the_same(tmp_path: Path):
    def begin(entry: tuple[int, str]) -> str:
        number, document = entry
        folder = tmp_path / str(number)
        try:
            claim_folder(folder, document, lambda there: [] if there == document else ["it differs"], "study")
        except SinkjaxError as error:
            return str(error)
        (folder / "store").mkdir(exist_ok=True)  # what is there next
        return document

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(begin, [(number, "one") for number in range(100) for _ in range(4)]))
        assert {*said} == {"one"}
    assert re.search(rf"{tmp_path / '0'} .*another study \(it differs\); .*--out", begin((0, "two")))


def test_what_killed_processes_left_is_removed_and_what_live_ones_hold_is_not(tmp_path: Path):
    for name in (".a.01234567.new", ".b.01234567.new", ".a.new", "a.01234567.new", ".a.b.01234567.new"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".a.01234567.old").mkdir()
    (tmp_path / "a").write_text("old")
    (tmp_path / ".a.76543210.new").symlink_to(tmp_path / "a.01234567.new")
    with temporary.named_after(tmp_path / "a", tmp_path) as held:
        write(tmp_path / "a", "whole")
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {held.name, "a", ".b.01234567.new", ".a.new", "a.01234567.new", ".a.b.01234567.new", ".a.76543210.new"}
    assert not held.exists()


def test_a_temporary_folder_is_removed_by_the_next_process_after_a_kill(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{temporary.FOLDERS}left").mkdir()
    (tmp_path / "sinkjax-others").mkdir()
    with temporary.temporary_folder() as first, temporary.temporary_folder() as second:
        assert {*tmp_path.iterdir()} == {first, second, tmp_path / "sinkjax-others"}
    assert [*tmp_path.iterdir()] == [tmp_path / "sinkjax-others"]
