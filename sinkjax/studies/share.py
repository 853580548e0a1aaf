"""Results that somebody sent as a zip: unpacked beside it, so that their report can be rebuilt."""

from __future__ import annotations

import zipfile
from pathlib import Path

from sinkjax.config_files.files import CONFIG_FILE, cannot_write
from sinkjax.errors import SinkjaxError

SUFFIX = ".zip"
LARGEST = 50_000_000_000  # bytes, unpacked


def unpack(archive: Path) -> Path:
    """Unpack the results of a run into a folder beside the archive, of its name without the suffix.

    Args:
        archive: A zip of one folder that contains config.yaml, or of its content.

    Returns:
        The folder of the results.

    Raises:
        SinkjaxError: It is not a zip, is damaged, or holds no results; unpacked it would take more than LARGEST bytes; the folder
            beside it is there already; no permission or room.
    """
    folder = archive.with_suffix("")
    if folder.exists():
        raise SinkjaxError(f"{folder} is there already; use it (sinkjax report {folder}), or move it out of the way of {archive}")
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = packed.infolist()
            found = sorted((entry.filename for entry in entries if Path(entry.filename).name == CONFIG_FILE), key=len)
            if not found:
                raise SinkjaxError(f"{archive} holds no results: no {CONFIG_FILE} is in it")
            if (size := sum(entry.file_size for entry in entries)) > LARGEST:
                raise SinkjaxError(f"{archive} would take {size:,} bytes, and at most {LARGEST:,} are unpacked")
            packed.extractall(folder)  # which keeps every name inside the folder
        inner = folder / Path(found[0]).parent
        if inner != folder and inner.parent == folder and len(list(folder.iterdir())) == 1:  # a zip of the folder itself
            inner.rename(aside := folder.with_name(f"{folder.name}.unpacked"))
            folder.rmdir()
            inner = aside.rename(folder)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise SinkjaxError(f"{archive} is not a whole zip file: {error}") from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    return inner
