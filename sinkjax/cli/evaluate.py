"""`sinkjax evaluate`: the loss or the task scores of a model under quantisation or cache eviction, one row per setting."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

import sinkjax
from sinkjax.cli.common import Options
from sinkjax.cli.options import Model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.documents import parse
from sinkjax.config_files.files import read_text, user_path, write
from sinkjax.config_files.tables import csv_text
from sinkjax.data.reading import Division, documents_of, files_of, one_text
from sinkjax.model.names import Attention, Dtype
from sinkjax.report.terminal import show
from sinkjax.runtime import extras
from sinkjax.runtime.backend import start_jax, use_all_cores

if TYPE_CHECKING:
    from sinkjax.evaluation import Evaluation

Bits = int | Literal["nvfp4", "mxfp4"]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """Print the loss of a model on a text, or its scores in tasks of lm-eval, as it is and quantised, with a cache policy or
    edited. Several values of weights, activations, kv, scale and caches make a row each, in all combinations."""

    model: Model
    """preset, folder, hub id or .gguf file"""
    text: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="[TEXT]")]] = None
    """file or folder of plain text (.txt, .md, .raw, ...) or of records (.jsonl, .json, .csv, .tsv, .parquet, .arrow), also
    with .gz; or else --tasks"""
    tasks: tuple[str, ...] = ()
    """tasks of lm-eval to score instead of a text, or sinkjax_choice, sinkjax_last_word, sinkjax_text, sinkjax_copy"""
    include_path: Path | None = None
    """folder with further tasks of lm-eval, as YAML files"""
    limit: int | None = None
    """number of questions per task, from the first; if none, all"""
    field: str = "text"
    """name of the field with the text in a file of records"""
    documents: Division = "auto"
    """texts to evaluate separately, each with its BOS: a record or a file, a line, or an article below a heading like = Title =;
    auto: none, the whole text is one, and each record or file of a folder ends with a line break. With a single text, rows of a
    cache policy have no interval, because the text is one piece"""
    weights: tuple[Bits, ...] = ()
    """bits of the matrices of attention and the MLP, 2 to 16, or nvfp4 or mxfp4, 4-bit floats in blocks; if none, no rounding"""
    activations: tuple[Bits, ...] = ()
    """bits of the inputs that these matrices multiply, or nvfp4 or mxfp4"""
    kv: tuple[Bits, ...] = ()
    """bits of keys and values, or nvfp4 or mxfp4"""
    scale: tuple[Literal["tensor", "channel", "token"], ...] = ("tensor",)
    """unit that shares a scale: tensor, channel or token"""
    rotate: bool = False
    """rotate by a Hadamard matrix before rounding"""
    keep: tuple[int | Literal["sinks"], ...] = ()
    """positions that are not rounded, or sinks: the sinks of each piece"""
    sinks: int | None = None
    """number of first tokens whose keys are kept, in addition to `window`"""
    window: tuple[int, ...] = ()
    """number of last tokens whose keys are kept; if none, all"""
    h2o: tuple[int, ...] = ()
    """number of keys that H2O keeps: the last and the most attended ones"""
    key_norm: tuple[int, ...] = ()
    """number of keys that a cache by key norm keeps: the last ones, and keys of low norm"""
    snapkv: tuple[int, ...] = ()
    """number of keys that SnapKV keeps: the last half, and keys that the last queries attend to most"""
    edits: Path | None = None
    """YAML file with a list `edits`, which are applied together"""
    clamp: Path | None = None
    """clamp.json of a card, which limits the activation that stands out"""
    past: Path | None = None
    """prefix.safetensors of a card, keys and values in front of each text or question"""
    bos: str = "auto"
    """token before the text: the one that the model was trained with (auto), the one that its files name (model), its tokenizer's
    prefix (tokenizer), none or a token id"""
    length: int | None = None
    """positions per piece without a cache policy, or per question with its answer; if none, the context of the model"""
    dtype: Dtype = "float32"
    """dtype of parameters and activations"""
    attention_impl: Attention = "auto"
    """implementation of attention; auto: the fastest here that supports the rest"""
    out: Path | None = None
    """file for the table (.csv)"""


COLUMNS = ("setting", "loss (nats)", "perplexity", "tokens", "minus the first row")
TASK_COLUMNS = ("task", "metric", "setting", "score", "minus as it is", "questions")


def evaluate(options: EvaluateOptions) -> None:
    """print the loss or task scores of a model in use: quantised, with an evicting cache, edited; one row per setting"""
    refuse(
        options.sinks is not None and not options.window, "--sinks needs --window, the number of last tokens whose keys are kept"
    )
    given = [f"--{name.replace('_', '-')}" for name in ("window", "h2o", "key_norm", "snapkv") if getattr(options, name)]
    refuse(len(given) > 1, f"{' and '.join(given[:2])} are two cache policies; choose one")
    named = {"scale": options.scale != ("tensor",), "rotate": options.rotate, "keep": bool(options.keep)}
    idle = " and ".join(f"--{name}" for name, asked in named.items() if asked)
    rounded = bool(options.weights or options.activations or options.kv)
    refuse(bool(idle) and not rounded, f"{idle} changes rounding, which needs --weights, --activations or --kv")
    refuse("sinks" in options.keep and len(options.keep) > 1, "--keep takes positions or sinks, not both")
    least = min((*options.h2o, *options.key_norm, *options.snapkv), default=2)
    refuse(least < 2, f"{''.join(given)} must be at least 2, not {least}")
    both = "evaluate takes either TEXT, whose loss it prints, or --tasks, whose scores it prints"
    refuse(bool(options.tasks) == (options.text is not None), both)
    extra = [name for name in ("include_path", "limit") if getattr(options, name) is not None]
    refuse(bool(extra) and not options.tasks, f"--{''.join(extra[:1]).replace('_', '-')} is for --tasks, not for a text")
    folder = options.include_path
    refuse(folder is not None and not folder.is_dir(), f"--include-path: there is no folder {folder}")
    refuse(options.limit is not None and options.limit < 1, f"--limit must be at least 1, not {options.limit}")
    if options.tasks:
        extras.require("a task of lm-eval", "eval", "lm_eval")
    text = None if options.text is None else _text(options, options.text)
    listed = () if options.edits is None else parse(read_text(options.edits), str(options.edits)).get("edits", ())
    use_all_cores()
    start_jax(options.platform, options.dtype)
    from sinkjax.data.prompts import bos_ids
    from sinkjax.edits.edit_list import read_edits

    model, bos = sinkjax.load(options.model, dtype=options.dtype), int(options.bos) if options.bos.isdigit() else options.bos
    edits = read_edits(listed) if options.edits else []
    edits += [] if options.clamp is None else [sinkjax.load_clamp(options.clamp, model)]
    past = None if options.past is None else sinkjax.load_prefix(options.past)
    same: dict[str, Any] = {"bos": bos, "attention_impl": options.attention_impl}
    changes = [({**setting, "edits": edits, "past": past}, label) for setting, label in _settings(options)]
    rows: list[tuple[Any, ...]]
    columns: tuple[str, ...]
    if text is None:
        columns, on = TASK_COLUMNS, ", ".join(options.tasks)
        rows = list(_scores(options, model, same | {"max_length": options.length}, changes))
    else:
        columns, on = COLUMNS, str(options.text.name if options.text else "")
        plain = sinkjax.evaluate(model, text, length=options.length, **same)
        rows = [("as it is", *_numbers(plain), "")]
        results = ((label, sinkjax.evaluate(model, text, length=options.length, **setting, **same)) for setting, label in changes)
        rows += [(label, *_numbers(result), _difference(result, plain)) for label, result in results]
    before = " ".join(map(repr, model.tokenizer.tokens(bos_ids(model, bos)))) if model.tokenizer else ""
    show(f"{options.model} on {on}", columns, rows, f"BOS: {before or 'none'}; {options.dtype}")
    if options.out is not None:
        write(user_path(options.out), csv_text([columns, *rows]))


def _text(options: EvaluateOptions, file: Path) -> str | list[str]:
    """Read the text. Errors: it does not exist, or is empty."""
    path = user_path(file)
    refuse(not path.exists(), f"there is no file or folder {file}")
    if options.documents == "auto":
        text: str | list[str] = one_text(path, options.field)
    else:
        text = [part for each in files_of(path).values() for part in documents_of(each, options.field, options.documents)]
    refuse(not text, f"{path} holds no text")
    return text


def _scores(
    options: EvaluateOptions, model: Any, same: dict[str, Any], changes: list[tuple[dict[str, Any], str]]
) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each task, metric and setting: its score, and the difference from the model as it is."""
    from sinkjax.interop.lm_eval import LM, compared, scored

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it would warn of each task's own way to read its questions
    of, settings = (options.tasks, options.include_path, options.limit), [{}, *(setting for setting, _ in changes)]
    results = [scored(LM(model, **setting, **same), *of) for setting in settings]
    tables = [list(compared(results[0], result)) for result in results]
    for rows in zip(*tables, strict=True):
        for label, row in zip(["as it is", *(label for _, label in changes)], rows, strict=True):
            ends = "" if np.isnan(row["low"]) else f" [{row['low']:+.4f}, {row['high']:+.4f}]"
            change = "" if row is rows[0] else f"{row['difference']:+.4f}{ends}"
            yield row["task"], row["metric"], label, f"{row['score']:.4f}", change, row["questions"]


def _settings(options: EvaluateOptions) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the arguments of each row that is not the model as it is, and its label."""
    bits = {name: getattr(options, name) or (None,) for name in ("weights", "activations", "kv")}
    keep: Any = "sinks" if "sinks" in options.keep else options.keep
    caches: list[Any] = [sinkjax.Streaming(options.sinks or 0, window) for window in options.window]
    caches += [sinkjax.H2O(k) for k in options.h2o] + [sinkjax.KeyNorm(k) for k in options.key_norm]
    caches += [sinkjax.SnapKV(k, window=max(1, k // 2)) for k in options.snapkv]
    for *rounded, scale, cache in itertools.product(*bits.values(), options.scale, caches or [None]):
        given = dict(zip(bits, rounded, strict=True))
        label = [f"{name} {size}{' bits' * isinstance(size, int)}" for name, size in given.items() if size]
        label += [f"a scale per {scale}"] * any(isinstance(size, int) for size in given.values()) + ["rotated"] * options.rotate
        label += [f"positions {', '.join(map(str, options.keep))} not rounded"] * bool(options.keep)
        label += [str(cache)] * (cache is not None) + ["edited"] * (options.edits is not None)
        label += ["clamped"] * (options.clamp is not None) + ["behind a prefix"] * (options.past is not None)
        if label:
            yield {**given, "scale": scale, "rotate": options.rotate, "keep": keep, "cache": cache}, ", ".join(label)


def _numbers(result: Evaluation) -> tuple[str, str, str]:
    return f"{result.loss:.4f}", f"{result.perplexity:.4g}", f"{result.tokens:,}"


def _difference(result: Evaluation, plain: Evaluation) -> str:
    """Return the difference of two losses with its interval over texts, or over the pieces of one text; paired."""
    sums = []
    for each in (result, plain):
        text = each.text if each.text.max() else np.arange(len(each.text))
        sums += [np.bincount(text, np.nansum(each.nll, axis=1)), np.bincount(text, (~np.isnan(each.nll)).sum(axis=1))]
    shown = f"{result.loss - plain.loss:+.4f}"
    if len({len(part) for part in sums}) > 1:  # a cache policy reads the text as one piece
        return shown
    samples = np.stack(sums, axis=1)
    samples = samples[(samples[:, 1::2] > 0).all(axis=1)]
    if len(samples) < 2:
        return shown
    values = sinkjax.intervals.pseudo_values(samples, lambda mean: mean[..., 0] / mean[..., 1] - mean[..., 2] / mean[..., 3])
    ends = sinkjax.intervals.interval(values)
    return shown if ends.low is None else f"{shown} [{ends.low:+.4f}, {ends.high:+.4f}]"
