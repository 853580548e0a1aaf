"""Files that are something else than their name says, by their first bytes."""

from __future__ import annotations

from sinkjax.config_files.checks import refuse

READ = 1024  # bytes that `refuse_other` looks at
MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
SIGNATURES = {
    b"version https://git-lfs": "a git-lfs pointer, not the file itself; run `git lfs pull` in its folder, or download it again",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a zip archive, as torch.save, numpy.savez and Word write it",
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), "a pickle, as torch.save writes it"),
    b"\x89HDF": "an HDF5 file, as Keras writes it",
    **dict.fromkeys((b"GGUF\x02", b"GGUF\x03"), "a GGUF file, whose name must end in .gguf"),
    b"\x1f\x8b": "compressed by gzip (the name of such a text must end in .gz)",
    b"BZh9": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstandard",
    b"%PDF": "a PDF; extract its text",
    b"{\\rtf": "RTF; save it as plain text",
    b"SQLite format 3": "an SQLite database",
    b"PAR1": "parquet, whose name must end in .parquet",
    b"ARROW1": "arrow, whose name must end in .arrow",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16; convert it to UTF-8"),
    **dict.fromkeys((b"<!doctype html", b"<html", b"<?xml"), "a page of HTML or XML, perhaps a server's answer"),
}


def refuse_other(start: bytes, path: object, wanted: str) -> None:
    """Raise if a file begins as one of another kind does. start: its first bytes. wanted: the kind that it should be."""
    start = start.removeprefix(MARK).lstrip()
    for signature, kind in SIGNATURES.items():
        begins = (start.lower() if signature.startswith(b"<") else start).startswith(signature)
        refuse(begins, f"{path} is not {wanted} but {kind}")
