"""background/streaming: a window of the last keys, with and without the first tokens (Xiao et al. 2024, Figs. 3 and Tables 1, 2).

The window is compared with one that is recomputed for each token, which has lost the same context and harms nothing else.
Beside the claim, as many random early tokens are kept in place of the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Edit, Probe, add_logit, compose, edit, sweep
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import among, refuse
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import Batch, Calculation, read_measure

BIN = 8  # positions that share a point of a curve


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Mapped):
    length: int = 128
    cache: int = 32
    """keys that a query sees in the claims, first and last ones together"""
    keep: int = 4
    """first tokens that are kept in the claims"""
    caches: tuple[int, ...] = (8, 16, 32)
    """all sizes of the cache; none is larger than `cache`"""
    keeps: tuple[int, ...] = (0, 1, 2, 4)
    """how many first tokens are kept; the last ones fill the rest of the cache"""

    def check(self) -> None:
        among(self, "keep", "keeps")
        among(self, "cache", "caches")


def study(lab: Lab, s: Settings) -> None:
    """A window of keys, with and without the first tokens."""
    nll = loss(s.cache)
    sizes = [ALL.at(size=size, first=first) for size in s.caches for first in s.keeps]

    def other_tokens(rng: np.random.Generator, case: Layers) -> Edit:
        """Keep as many random early tokens, none of the first ones."""
        size, first = case["size"], case["first"]
        refuse(size - first < first, f"positions {first} to {size - 1} are fewer than the {first} that a control draws")
        return window(size, sorted((first + rng.choice(size - first, first, replace=False)).tolist()), s.length)

    windows = lab.sweep("windows", {case: window(case["size"], case["first"], s.length) for case in sizes}, [nll], other_tokens)
    declared = {"recomputed_window": s.cache}
    best = lab.calculate("recomputed", partial(recomputed_window, s.cache), ["nll"], declared, s.control_prompts)
    lab.noop(add_logit(0, 0.0))

    alone, one, kept = (windows.at(size=s.cache, first=first) for first in (0, 1, s.keep))
    paper, above = "Xiao et al. 2024, Fig. 3, Table 1", above_recomputed(nll, kept, best)
    lab.claim("window", paper, above_recomputed(nll, alone, best), took=MASKED)
    random = undone(nll, alone, kept, best, matched=True)
    lab.claim("first", paper, undone(nll, alone, kept, best), beside=[above, random], took=MASKED)
    lab.claim("one", "Xiao et al. 2024, Table 2", undone(nll, alone, one, best), took=MASKED)
    lab.claim("more", "Xiao et al. 2024, Table 2", undone(nll, one, kept, best), took=MASKED)

    lab.draw(loss_by_position, windows.at(size=s.cache), best)
    lab.draw(lines_along, "first", nll, over=windows, by="size", effect=True)
    lab.maps(alone, kept)


def window(size: int, keep: int | Sequence[int], length: int) -> Edit:
    """Hide all keys except each query's most recent ones and some that every query keeps (Xiao et al. 2024).

    Args:
        size: Number of keys that each query sees, both kept and recent.
        keep: Positions that stay visible, or the number of first positions that stay visible.
        length: Number of positions.

    Raises:
        SinkjaxError: The kept keys leave no room for a recent one, or the window is never full.
    """
    count = keep if isinstance(keep, int) else len(keep)
    refuse(count >= size, f"a cache of {size} keys cannot keep {count} of them and a last one")
    refuse(size + 2 > length, f"a cache of {size} keys is never full in {length} tokens")
    hidden = slice(keep, None) if isinstance(keep, int) else [key for key in range(length) if key not in keep]
    return edit("logits", "set", -np.inf, keys=hidden, distances=slice(size - count, None))


def recomputed_window(size: int, model: Model, batch: Batch) -> xarray.Dataset:
    """The loss of each next token if the model reads only the last `size` tokens, with positions from 0.

    A window of prompts with a BOS begins with it too, as the model expects of any text, and then has one token less.

    Returns:
        nll: float[prompt, position], NaN where fewer than `size` + 1 tokens precede the next one.
    """
    tokens = np.asarray(batch.tokens)
    nll = np.full(tokens.shape, np.nan)
    queries = np.arange(size, tokens.shape[1] - 1)
    rows = queries[:, None] + np.arange(1 - size, 2)  # the window of each query, and the token that it predicts
    if batch.study["bos"] != "none":
        rows[:, 0] = 0
    for number, (prompt, length) in enumerate(zip(tokens, batch.lengths, strict=True)):
        inside = queries < length - 1
        lengths = np.full(inside.sum(), size + 1, np.int32)
        found = sweep(model, prompt[rows[inside]], [compose()], Probe(nll=True), lengths, memory=batch.memory, progress=False)
        nll[number, queries[inside]] = found["nll"].values[0, :, size - 1]
    return xarray.Dataset({"nll": (("prompt", "position"), nll)})


@from_results
def above_recomputed(read: Numbers, measure: Measure, where: Selection, best: Calculation) -> Parts:
    """Return the loss under some conditions minus the loss with recomputed windows; the whole is the latter."""
    edited, whole = read.edited(measure, where), recomputed(read, measure, best)
    label = f"{measure.name} minus the same with recomputed windows, {where.text}"
    why = "the recomputed windows are the comparison"
    return Parts(edited[: len(whole)] - whole, None, whole, None, "nats", label, uncontrolled=why)


@from_results
def undone(
    read: Numbers, measure: Measure, harmed: Selection, kept: Selection, best: Calculation, matched: bool = False
) -> Parts:
    """Return the part of a window's damage that some kept tokens undo; the whole is the difference from recomputed windows.

    Args:
        read: The results.
        measure: The loss.
        harmed: A window.
        kept: The same window with some tokens kept.
        best: The recomputed windows.
        matched: Whether `kept` is compared with random kept tokens. These take the place of recent ones and so do harm of their
            own, by which nothing is judged.
    """
    worst, better = read.edited(measure, harmed), read.edited(measure, kept)
    controls = read.controls(measure, kept) if matched else None
    best_of_all = recomputed(read, measure, best)  # last: while a study is traced, reading ends here
    random, n = None if controls is None else worst[: controls.shape[1]] - controls, len(best_of_all)
    label = f"part of the damage that is undone, {kept.text}" + ", net of random keys" * matched
    why, exhausted = "the window without kept tokens is the comparison", matched and read.exhausted(kept)
    return Parts((worst - better)[:n], random, worst[:n] - best_of_all, None, "nats", label, exhausted, kept, why, recovery=True)


def recomputed(read: Numbers, measure: Measure, best: Calculation) -> NDArray[Any]:
    """Return a measure of the loss with recomputed windows: float[document]."""
    return np.asarray(read_measure(measure, read.data(best.name).expand_dims("edit"))[0])


def loss_by_position(read: Numbers, where: Selection, best: Calculation) -> Drawing:
    """Draw the loss along the text above the loss with all keys, in bins of positions, next to recomputed windows."""
    store = where.sweep.name
    rows, nll = read.rows(store), read[store]["nll"].values[..., :-1]
    excess = {where.sweep.label(case): nll[rows[case]] - nll[0] for case in where.cases if case is not None}
    of_best = read.data(best.name)["nll"].values[:, :-1]
    excess["recomputed window"] = of_best - nll[0, : len(of_best)]
    bins, lines = nll.shape[-1] // BIN, []
    for name, values in excess.items():
        means = values[:, : bins * BIN].reshape(len(values), bins, BIN).mean(axis=-1)
        defined = np.flatnonzero(np.isfinite(means).all(axis=0))
        found = intervals.intervals(means[:, defined].T, seed=read.settings.seed)
        lines.append(Line(name, (BIN * defined + (BIN - 1) / 2).tolist(), [*found]))
    panel = Panel("", "loss above that with all keys (nats)", lines, signed=True)
    figure = line_figure([[panel]], "position of the query (0-based)", legend="above")
    caption = f"Loss above that with all keys, along the text, in bins of {BIN} positions; recomputed windows on fewer texts."
    return read.drawing("loss-by-position", figure, caption, store, best.name)
