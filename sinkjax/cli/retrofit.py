"""`sinkjax retrofit`: a model whose sink is a learned key and value, beside the one that it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import sinkjax
from sinkjax.cli.common import Options
from sinkjax.cli.options import Model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.data.corpora import checked
from sinkjax.data.reading import Division
from sinkjax.model.names import Dtype
from sinkjax.report.terminal import show
from sinkjax.runtime import extras
from sinkjax.runtime.backend import start_jax, use_all_cores

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model as InMemory

HELD_OUT = 8  # one document of so many is not trained on
WINDOW = 16


@dataclass(frozen=True, kw_only=True)
class RetrofitOptions(Options):
    """Give a model a learned key and value per layer and key-value head, in place of a sink on its first token; train only these
    and save it. The table compares both models on documents that were left out of the training, every eighth."""

    model: Model
    """preset, folder, hub id or .gguf file"""
    text: str = "packaged"
    """"packaged" (synthetic documents), or a file or folder of your own: plain text with one passage per line, or records"""
    out: Path
    """folder for the new model, which `sinkjax.load` reads"""
    field: str = "text"
    """name of the field with the text in a file of records"""
    documents: Division = "auto"
    """documents of a plain text: file, line, article below a heading like = Title =, or auto"""
    steps: int = 200
    """updates; 0 keeps the keys and values of a token that sees only itself"""
    value: Literal["learned", "zero"] = "learned"
    """"zero": only the key is learned, and its value is 0"""
    batch: int = 8
    """blocks of text in an update"""
    length: int = 128
    """tokens of a block"""
    learning_rate: float = 1e-3
    """of the first update"""
    seed: int = 0
    """seed of the order of the blocks"""
    dtype: Dtype = "float32"
    """dtype of parameters and activations"""


def retrofit(options: RetrofitOptions) -> None:
    """replace a model's sink by a learned key and value, and show what that costs and saves"""
    documents, source = checked(options.text, HELD_OUT, "all", 1, options.field, options.documents)
    texts = ["\n".join(document.passages) for document in documents]
    refuse(len(texts) < HELD_OUT, f"the text has {len(texts)} documents, and every eighth is left out to compare on")
    if options.steps:
        extras.require("training", "train")
    out = user_path(options.out)
    use_all_cores()
    start_jax(options.platform, options.dtype)
    from sinkjax.checkpoints.native import MODEL_TYPE, check_place

    check_place(out, MODEL_TYPE)  # before hours of work
    model = sinkjax.load(options.model, dtype=options.dtype)
    held_out = texts[::HELD_OUT]
    trained = [text for number, text in enumerate(texts) if number % HELD_OUT]
    same = {name: getattr(options, name) for name in ("steps", "value", "batch", "length", "learning_rate", "seed")}
    made = sinkjax.retrofit(model, trained, **same)
    sinkjax.save(made, out)
    columns = [_numbers(model, held_out, options.length, "auto"), _numbers(made, held_out, options.length, "none")]
    rows = [(name, before, columns[1][name]) for name, before in columns[0].items()]
    show(
        f"{options.model}, retrofitted",
        ("", "as it is", "retrofitted"),
        rows,
        f"{len(held_out)} documents of {source}; losses in nats per token",
    )
    print(out)


def _numbers(model: InMemory, texts: list[str], length: int, bos: str) -> dict[str, str]:
    """Return the losses of a model on texts, and its largest activation, as text."""
    same: dict[str, Any] = {"bos": bos, "length": length}
    plain = sinkjax.evaluate(model, texts, **same).loss
    eight = sinkjax.evaluate(model, texts, weights=8, activations=8, kv=8, **same).loss
    few = sinkjax.evaluate(model, texts, cache=sinkjax.Streaming(0, WINDOW), bos=bos).loss
    tokens, lengths = sinkjax.encode(model, [text[:length] for text in texts], bos=bos)  # fewer tokens than characters
    record = sinkjax.forward(model, tokens, probe=sinkjax.Probe(resid_max=True), lengths=lengths, logits=False).record
    return {
        "loss": f"{plain:.4f}",
        "added by 8 bits, a scale per tensor": f"{eight - plain:+.3f}",
        f"added by a window of {WINDOW} keys": f"{few - plain:+.3f}",
        "largest activation": f"{np.nanmax(record['resid_max']):,.0f}",
    }
