"""The questions of the tasks in this folder, as lm-eval reads them (`custom_dataset` of their YAML files)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(name: str, **_: Any) -> Any:
    """Return the questions in NAME.jsonl as the split "test"."""
    import datasets

    lines = Path(__file__).with_name(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return datasets.DatasetDict({"test": datasets.Dataset.from_list([json.loads(line) for line in lines])})
