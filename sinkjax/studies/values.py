"""Values that decide what a study does, written once into its run and read by every other process, a resumed run and its page."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from sinkjax.config_files.files import read_text, write_new
from sinkjax.config_files.places import Place
from sinkjax.lab.results import VALUES


class RunValues(dict[str, Any]):
    """Name -> value, as JSON. The first process to finish one decides it for all."""

    def __init__(self, folder: Place):
        self.folder = folder / VALUES
        super().__init__({file.stem: json.loads(read_text(file)) for file in sorted(self.folder.glob("*.json"))})

    def __setitem__(self, name: str, value: object) -> None:
        file = self.folder / f"{name}.json"
        write_new(file, json.dumps(value, default=_plain))
        super().__setitem__(name, json.loads(read_text(file)))


def _plain(value: object) -> object:
    """Turn NumPy's numbers and arrays into JSON's."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a value must be a number, a text or a list of these, not {type(value).__name__}")
