"""A section as data in the folder of its run, for pages of results whose study is a program that does not run here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from sinkjax.config_files import documents
from sinkjax.config_files.files import plain_name, read_text, regular, write
from sinkjax.config_files.locations import Location
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing, Section
from sinkjax.viewing.maps import KeptMaps

FILE = "section.json"
LARGEST = 100_000_000  # maximum bytes of the file, and of a figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure, by the name of its files. See `Drawing`."""

    name: str
    caption: str
    source: str


FIELDS = [field.name for field in dataclasses.fields(Section) if field.name != "blocks"]  # of the file


def keep(section: Section, folder: Location) -> None:
    """Write a section into the folder of its run, beside the figures that are there already.

    Args:
        section: The section.
        folder: The folder.

    Raises:
        SinkjaxError: No permission or no space.
    """
    fields = {name: getattr(section, name) for name in FIELDS}
    fields["drawings"] = tuple(Picture(name=each.name, caption=each.caption, source=each.source) for each in section.drawings)
    fields["views"] = tuple(KeptMaps(view.name, view.said, view.contents()) for view in section.views)
    write(folder / FILE, json.dumps(documents.plain(fields), default=_no_array, ensure_ascii=False))


def _no_array(value: Any) -> Any:
    """A number of NumPy as Python's; arrays, the samples behind an interval, are left out."""
    return value.item() if getattr(value, "ndim", None) == 0 else None


def kept(folder: Location, figures: str) -> Section:
    """Read the section that a run kept.

    Args:
        folder: The folder of the run.
        figures: The folder of the figures in it.

    Returns:
        The section; its numbers and texts are whatever the folder says.

    Raises:
        SinkjaxError: The folder has no section, or a file is damaged, too large or missing.
    """
    file = folder / FILE
    text = read_text(file, LARGEST)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SinkjaxError(f"{file} is damaged: {error}") from None
    documents.convert(values, Mapping[str, Any], str(file))
    pictures = documents.convert(values.get("drawings"), tuple[Picture, ...], f"{file}: drawings")
    views = documents.convert(values.get("views"), tuple[KeptMaps, ...], f"{file}: views")
    section = documents.build(Section, {**values, "drawings": (), "views": (), "blocks": ()}, str(file))
    return dataclasses.replace(section, drawings=tuple(_drawing(each, folder / figures) for each in pictures), views=views)


def _drawing(picture: Picture, folder: Location) -> Drawing:
    """A figure from its files."""
    plain_name(picture.name)
    drawing = Drawing(picture.name, None, picture.caption, picture.source)  # type: ignore[arg-type]
    for suffix in ("svg", "png"):
        file = folder / f"{picture.name}.{suffix}"
        regular(file, LARGEST)
        vars(drawing)[suffix] = file.read_bytes()  # in place of drawing it
    return drawing
