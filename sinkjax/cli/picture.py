"""`sinkjax picture`: one figure of a model on a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

import sinkjax
from sinkjax.cli.common import Options
from sinkjax.cli.options import Model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path, write
from sinkjax.errors import one_of
from sinkjax.model.names import Attention, Dtype
from sinkjax.report.figures.picture import picture as drawn
from sinkjax.report.figures.style import render
from sinkjax.runtime import extras
from sinkjax.runtime.backend import start_jax, use_all_cores
from sinkjax.runtime.folding import folded

KINDS = ("svg", "png")
EPS = 0.3  # mean attention of later queries above which a head sinks on the first token (Gu et al. 2025)


@dataclass(frozen=True, kw_only=True)
class PictureOptions(Options):
    """Draw the attention to the first token by head, the strongest layer's map, and the largest activations, in one figure."""

    model: Model
    """preset, folder, hub id or .gguf file"""
    text: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TEXT")]]
    """the text itself"""
    out: Path = Path("picture.svg")
    """the figure's file, .svg or .png"""
    length: int = 24
    """maximum number of tokens to draw, including the BOS; a longer text is cut"""
    bos: str = "auto"
    """token before the text: auto (the one that the model was trained with), model, tokenizer, none or a token id"""
    dtype: Dtype = "float32"
    """dtype of parameters and activations"""
    attention_impl: Attention = "auto"
    """implementation of attention; one that returns no map to draw is an error"""


def picture(options: PictureOptions) -> None:
    """draw a model's sink on a text: attention by head, one layer's map, largest activations"""
    out = user_path(options.out)
    one_of("kind of figure", out.suffix.removeprefix("."), KINDS)
    extras.require("a picture", "report")
    use_all_cores()
    start_jax(options.platform, options.dtype)
    model = sinkjax.load(options.model, dtype=options.dtype)
    bos = int(options.bos) if options.bos.isdigit() else options.bos
    refuse(options.length < 2, f"--length must be at least 2, not {options.length}")
    tokens, lengths = sinkjax.encode(model, [options.text], bos=bos, length=min(options.length, model.config.context))
    ids = tokens[:, : int(lengths[0])]
    refuse(ids.shape[1] < 2, "the text has one token, so no later one attends to it")
    probe, how = sinkjax.Probe(attention=True, resid_max=True), options.attention_impl
    record = sinkjax.forward(model, ids, probe=probe, logits=False, attention_impl=how).record
    attention = np.asarray(record["attention"], np.float32)[0]
    assert model.tokenizer
    texts = model.tokenizer.tokens(np.asarray(ids[0]).tolist())
    share = float((attention[:, :, 1:, 0].mean(axis=-1) > EPS).mean())
    name = str(model.source.get("title") or model.source["name"]).partition(",")[0]
    title = f"{name}: {share:.0%} of heads give more than {EPS:.0%} of their attention to the first token, {texts[0]!r}"
    figure = drawn(attention, np.asarray(record["resid_max"], np.float32)[0].max(axis=0), texts, title)
    write(out, render(figure, out.suffix.removeprefix(".")))
    print(folded(f"{out}: {title}", hang="  "))
