"""A zip is unpacked whole into its own folder, or nothing of it is left."""

from __future__ import annotations

import io
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


def test_one_that_lies_deeper_is_found(sent):
    packed(sent, ("a/read.me", b""), ("a/b/config.yaml", b"a: 1\n"), ("a/b/c/config.yaml", b"a: 2\n"))
    assert unpack(sent) == sent.with_suffix("") / "a" / "b"


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/outside", "a\\..\\outside", "C:/outside", "..", "."])
def test_no_name_leaves_the_folder(name, sent):
    refused(packed(sent, CONFIG, (name, b"text")), "outside of its folder")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_are_refused(kind, sent):
    refused(packed(sent, CONFIG, (special("odd", kind), b"/etc/passwd")), "a link or a device", "'odd'")


def test_no_file_is_executable(sent):
    packed(sent, CONFIG, (special("run", stat.S_IFREG), b"#!/bin/sh\n"))
    assert not (unpack(sent) / "run").stat().st_mode & 0o111


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["config.yaml", "./config.yaml"])
def test_a_name_that_stands_twice_is_refused(name, sent):
    refused(packed(sent, CONFIG, (name, b"other")), "of the same name")


@pytest.mark.parametrize("order", [("a", "a/b"), ("a/b", "a")])
def test_a_file_that_is_a_folder_too_is_refused(order, sent):
    refused(packed(sent, CONFIG, *((name, b"") for name in order)))


def test_a_bomb_is_refused_before_it_is_unpacked(sent):
    refused(packed(sent, CONFIG, ("zeros", bytes(archives.ALWAYS + 1))), "would unpack to 100,000,023 bytes")


def test_a_bomb_that_lies_about_its_size_is_refused(sent):
    packed(sent, CONFIG, ("zeros", bytes(5_000_000)))
    content = sent.read_bytes().replace(struct.pack("<I", 5_000_000), struct.pack("<I", 5))
    sent.write_bytes(content)
    refused(sent)


def test_too_many_entries_are_refused(sent, monkeypatch):
    monkeypatch.setattr(archives, "MOST_ENTRIES", 2)
    refused(packed(sent, CONFIG, ("a", b""), ("b", b"")), "3 entries, but the limit is 2")
    monkeypatch.setattr(archives, "DIRECTORY", 100)
    refused(sent, "lists more entries")


@pytest.mark.parametrize("content", [b"no zip", b""], ids=("text", "empty"))
def test_what_is_no_zip_is_refused(content, sent):
    sent.write_bytes(content)
    refused(sent, "complete zip file")


def test_a_zip_without_results_is_refused(sent):
    refused(packed(sent, ("a/b.txt", b"text"), ("config.yaml/", b"")), "it has no config.yaml")


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


def test_an_encrypted_zip_is_refused(sent):
    content = bytearray(packed(sent, CONFIG).read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(mark) + place] |= 1
    sent.write_bytes(content)
    refused(sent, "encrypted")


def test_an_interruption_leaves_nothing(sent, monkeypatch):
    packed(sent, CONFIG, ("x", b"text"))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(archives, "_extract", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unpack(sent)
    assert [path.name for path in sent.parent.iterdir()] == ["sent.zip"]


def test_the_list_of_a_zip_of_64_bits_is_measured(sent):
    tail = b"PK\x06\x06" + bytes(36) + struct.pack("<Q", 10**9) + b"PK\x05\x06" + bytes(8) + b"\xff" * 4 + bytes(6)
    assert archives._directory_bytes(io.BytesIO(b"x" * 100_000 + tail)) >= 10**9
