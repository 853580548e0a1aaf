"""A zip is unpacked whole into its own folder, or nothing of it is left."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from sinkjax.config_files import archives
from sinkjax.config_files.archives import unpack
from sinkjax.errors import SinkjaxError


def packed(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def special(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (mode | 0o777) << 16
    return entry


def refused(archive: Path, *words: str) -> None:
    """It is refused in one sentence, and the folder beside the archive has what it had."""
    before = {path: path.read_bytes() for path in archive.parents[1].rglob("*") if path.is_file()}
    with pytest.raises(SinkjaxError) as caught:
        unpack(archive)
    said = str(caught.value)
    assert str(archive.with_suffix("")) in said
    assert all(word in said for word in words), said
    assert "\n" not in said
    assert {path: path.read_bytes() for path in archive.parents[1].rglob("*") if path.is_file()} == before
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "sent.zip"


CONFIG = ("config.yaml", b"experiment: kiya/mask\n")


@pytest.mark.parametrize("prefix", ["", "mask/"])
def test_a_folder_or_its_content_is_unpacked(prefix, sent):
    packed(sent, (f"{prefix}config.yaml", b"a: 1\n"), (f"{prefix}x.zarr/.zattrs", b"{}"), (f"{prefix}figures/", b""))
    folder = unpack(sent)
    assert folder == sent.with_suffix("")
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {"config.yaml", "x.zarr", "x.zarr/.zattrs", "figures"}
    assert sorted(path.name for path in sent.parent.iterdir()) == ["sent", "sent.zip"]
    with pytest.raises(SinkjaxError, match="already exists"):
        unpack(sent)


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/outside", "a\\..\\outside", "C:/outside", "..", "."])
def test_no_name_leaves_the_folder(name, sent):
    refused(packed(sent, CONFIG, (name, b"text")), "outside of its folder")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_are_refused(kind, sent):
    refused(packed(sent, CONFIG, (special("odd", kind), b"/etc/passwd")), "a link or a device", "'odd'")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["config.yaml", "./config.yaml"])
def test_a_name_that_stands_twice_is_refused(name, sent):
    refused(packed(sent, CONFIG, (name, b"other")), "of the same name")


def test_a_bomb_is_refused_before_it_is_unpacked(sent):
    refused(packed(sent, CONFIG, ("zeros", bytes(archives.ALWAYS + 1))), "would unpack to 100,000,023 bytes")


def test_a_bomb_that_lies_about_its_size_is_refused(sent):
    packed(sent, CONFIG, ("zeros", bytes(5_000_000)))
    content = sent.read_bytes().replace(struct.pack("<I", 5_000_000), struct.pack("<I", 5))
    sent.write_bytes(content)
    refused(sent)


def test_a_damaged_zip_leaves_nothing_and_can_be_tried_again(sent):
    good = packed(sent, CONFIG, ("x", os.urandom(5000)), ("y", bytes(range(256)) * 40)).read_bytes()
    for place in range(0, len(good), 97):
        sent.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        refused(sent)
    for end in range(0, len(good), 501):
        sent.write_bytes(good[:end])
        refused(sent, "complete zip file")
    sent.write_bytes(good)
    assert (unpack(sent) / "x").stat().st_size == 5000


def test_an_interruption_leaves_nothing(sent, monkeypatch):
    packed(sent, CONFIG, ("x", b"text"))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zipfile.ZipFile.extractall", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unpack(sent)
    assert [path.name for path in sent.parent.iterdir()] == ["sent.zip"]


def test_too_many_entries_are_refused(sent, monkeypatch):
    monkeypatch.setattr(archives, "MOST_ENTRIES", 2)
    refused(packed(sent, CONFIG, ("a", b""), ("b", b"")), "3 entries, but the limit is 2")
