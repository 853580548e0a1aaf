"""Files that are something else than their name says, by their first bytes."""

from __future__ import annotations

from sinkjax.errors import SinkjaxError

READ = 64  # bytes that `refuse_other` looks at
SIGNATURES = {
    b"version https://git-lfs": "a git-lfs pointer, not the file itself; run `git lfs pull` in its folder, or download it again",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a zip archive, as torch.save and numpy.savez write it",
    b"\x80\x02": "a pickle, as torch.save writes it",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"\x89HDF": "an HDF5 file, as Keras writes it",
    b"GGUF": "a GGUF file, whose name must end in .gguf",
    b"\x1f\x8b": "compressed by gzip",
    b"<": "a page of HTML or XML, perhaps the answer of a server in place of the file",
}


def refuse_other(start: bytes, path: object, wanted: str) -> None:
    """Raise if a file begins as one of another kind does. start: its first bytes. wanted: the kind that it should be."""
    for signature, kind in SIGNATURES.items():
        if start.lstrip().startswith(signature):
            raise SinkjaxError(f"{path} is not {wanted} but {kind}")
