"""`sinkjax evaluate`: the loss of a model under quantisation or cache eviction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from sinkjax.cli.common import Options
from sinkjax.cli.options import read
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.documents import parse
from sinkjax.config_files.files import read_text, user_path
from sinkjax.data.reading import Division, documents_of, files_of, one_text
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Attention, Dtype
from sinkjax.runtime.backend import start_jax, use_all_cores


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """Print the loss of a model on a text, quantised, with a cache policy or edited."""

    model: tyro.conf.Positional[str]
    """preset, folder, hub id or .gguf file"""
    text: tyro.conf.Positional[Path]
    """file or folder of plain text (.txt, .md, .raw, ...) or of records (.jsonl, .json, .csv, .tsv, .parquet, .arrow), also
    with .gz"""
    field: str = "text"
    """name of the field with the text in a file of records"""
    documents: Division = "auto"
    """texts that start anew, each with its BOS: a record or a file, a line, or an article below a heading like = Title =; auto:
    none, the whole text is one, and each record or file of a folder ends with a line break"""
    weights: int | None = None
    """bits of the matrices of attention and the MLP, 2 to 16; if none, no rounding"""
    activations: int | None = None
    """bits of the inputs that these matrices multiply"""
    kv: int | None = None
    """bits of keys and values"""
    scale: str = "tensor"
    """unit that shares a scale: tensor, channel or token"""
    rotate: bool = False
    """rotate by a Hadamard matrix before rounding"""
    keep: tuple[int, ...] = ()
    """positions that are not rounded"""
    sinks: int | None = None
    """number of first tokens whose keys are kept, in addition to `window`"""
    window: int | None = None
    """number of last tokens whose keys are kept; if none, all"""
    h2o: int | None = None
    """number of keys that H2O keeps: the last and the most attended ones"""
    edits: Path | None = None
    """YAML file with a list `edits`, which are applied together"""
    bos: str = "model"
    """token before the text: model, tokenizer, none or a token id"""
    length: int | None = None
    """positions per piece without a cache policy; if none, the context of the model"""
    dtype: Dtype = "float32"
    """dtype of parameters and activations"""
    attention_impl: Attention = "auto"
    """implementation of attention; auto: the fastest here that supports the rest"""


def evaluate(arguments: Sequence[str]) -> None:
    """print the loss of a model in use: quantised, with an evicting cache, edited"""
    options = read(EvaluateOptions, arguments, "evaluate")
    if options.sinks is not None and options.window is None:
        raise SinkjaxError("--sinks needs --window, the number of last tokens whose keys are kept")
    refuse(options.h2o is not None and options.window is not None, "--h2o and --window are two cache policies; choose one")
    path = user_path(options.text)
    if options.documents == "auto":
        text: str | list[str] = one_text(path, options.field)
    else:
        text = [one for file in files_of(path).values() for one in documents_of(file, options.field, options.documents)]
    refuse(not text, f"{path} holds no text")
    listed = () if options.edits is None else parse(read_text(options.edits), str(options.edits)).get("edits", ())
    use_all_cores()
    start_jax(options.platform, options.dtype)
    import sinkjax
    from sinkjax.edits.edit_list import read_edits
    from sinkjax.report.terminal import show

    cache: sinkjax.Streaming | sinkjax.H2O | None = None
    if options.window is not None:
        cache = sinkjax.Streaming(options.sinks or 0, options.window)
    elif options.h2o is not None:
        cache = sinkjax.H2O(options.h2o)
    found = sinkjax.evaluate(
        sinkjax.load(options.model, dtype=options.dtype),
        text,
        **{name: getattr(options, name) for name in ("weights", "activations", "kv", "scale", "rotate", "keep")},
        cache=cache,
        edits=read_edits(listed) if options.edits else (),
        bos=int(options.bos) if options.bos.isdigit() else options.bos,
        length=options.length,
        attention_impl=options.attention_impl,
    )
    rows = [(f"{found.loss:.4f}", f"{found.perplexity:.4g}", f"{found.tokens:,}")]
    show(f"{options.model} on {options.text.name}", ("loss (nats)", "perplexity", "tokens"), rows)
