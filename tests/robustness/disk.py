"""A file system that can be full; where none can be mounted, its tests are skipped, and the summary says why."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOM = 1 << 26  # bytes of a disk that has grown


class Disk:
    """A small file system in memory, where tests may mount one."""

    def __init__(self, folder: Path, size: int):
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def grow(self) -> None:
        self._mount("-o", f"remount,size={ROOM}")

    def _mount(self, *options: str) -> None:
        if subprocess.run(["mount", *options, str(self.folder)], capture_output=True).returncode:
            pytest.skip("nothing can be mounted here; the limit on file sizes is tested instead")
