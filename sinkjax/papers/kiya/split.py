"""kiya/split: several tokens that see only themselves share the attention with the first one (ours, on Fig. 5).

Equal keys get equal weights, so k isolated tokens and the visible first token should receive 1 / (k + 1) each of their attention.
The tokens are the text's own, or copies of the first token.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Probe, Site, Statistic, compose, edit
from sinkjax.analysis.judgement import SMALL
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import positions, refuse
from sinkjax.papers._shared import exact_rows
from sinkjax.probes.statistics import PairView, column_sums
from sinkjax.report.figures.dots import Cloud, scatter
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import later_attention_to, strongest_later_attention

WORST = 5  # heads that are named
DRAWN = 3  # numbers of isolated tokens that are drawn


@dataclass(frozen=True, kw_only=True)
class Settings(Judged, Sinks):
    prompts: int = 16
    places: tuple[int, ...] = (8, 14, 20, 26, 32)
    """positions of the isolated tokens, the first k of them at a time"""
    counts: tuple[int, ...] = (1, 2, 3, 5)
    """how many tokens are isolated"""

    def check(self) -> None:
        positions(self, "places")
        wrong = 0 in self.places or len({*self.places}) < len(self.places)
        refuse(wrong, f"places is {self.places}, and must be different positions behind the first token")
        wrong = not all(1 <= count <= len(self.places) for count in self.counts)
        refuse(wrong, f"counts is {self.counts}, and each must be from 1 to the {len(self.places)} places")


def study(lab: Lab, s: Settings) -> None:
    """Attention that is split between equal keys."""
    lab.needs("softmax", "causal mask")
    first = lab.donor("first", first_embedding, np.zeros((lab.prompts, lab.architecture.width)), of_edited=True)
    share, total = (own("tokens", partial(of, s.places, max(s.places))) for of in (first_share, together))

    def alone(count: int) -> Edit:
        return edit("logits", "set", -np.inf, queries=s.places[:count], relation="others")

    def copies(count: int) -> Edit:
        return compose(edit("embed", "set", first, queries=s.places[:count]), alone(count))

    source, columns = "ours, on Kiya et al. 2026, Fig. 5", (share, total)
    for name, title, make in (("text", "the text's own tokens", alone), ("copies", "copies of the first token", copies)):
        sweep = lab.sweep(name, {ALL.at(tokens=count): make(count) for count in s.counts}, columns, title=title)
        sinks = is_sink(later_attention_to(0, lab.half), sweep, strongest_later_attention(0, lab.half))
        lab.claim(name, source, equal(share, sweep.every), sinks, stays=True, took=ISOLATED)
        lab.describe(f"{name}-keys", "ours", partial(by_key, sweep, s))
        lab.describe(f"{name}-heads", "ours", partial(by_head, sweep, s))
        lab.draw(share_by_head, sweep, s)


def first_embedding(run: Unedited) -> NDArray[Any]:
    """The first token's vector as it enters the stream: float[prompt, width]."""
    return np.asarray(run.captured(Capture(Site.EMBED, positions=(0,), name="first"))["first"][0])


@functools.cache
def attention_from(last: int) -> Probe:
    """Ask for the attention of the queries behind a position, by head and key."""

    def sums(weights: jax.Array, view: PairView) -> jax.Array:
        return column_sums(jnp.where((view.rows > last)[:, None], weights, 0), view)

    def mean(sums: jax.Array, lengths: jax.Array) -> jax.Array:
        return sums / jnp.maximum(lengths - 1 - last, 1)[:, None, None]

    return Probe(extra=(Statistic("attention_from", Site.WEIGHTS, sums, ("prompt", "layer", "head", "key"), mean),))


def to_keys(data: xarray.Dataset, *keys: int) -> NDArray[Any]:
    """Attention of the last queries to key 0 and others: float[edit, prompt, layer, head, key]."""
    return np.asarray(data["attention_from"].values[..., [0, *keys]])


def first_share(places: tuple[int, ...], last: int, count: int) -> Measure:
    """Key 0's share of the attention to it and to the first `count` places, all heads together, in per cent."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        by_key = to_keys(data, *places[:count]).sum(axis=(-3, -2))
        return np.asarray(100 * by_key[..., 0] / by_key.sum(axis=-1))

    name = "share of key 0 in the attention to it and the isolated tokens (%)"
    note = f"Attention of the queries behind position {last}, the last place, summed over all heads."
    return percentage(name, of, attention_from(last), note=note)


def together(places: tuple[int, ...], last: int, count: int) -> Measure:
    """Attention to key 0 and the first `count` places together, mean over heads, in per cent."""

    name, asks = "attention to key 0 and the isolated tokens, mean over heads (%)", attention_from(last)
    return percentage(name, lambda data: 100 * to_keys(data, *places[:count]).sum(axis=-1).mean(axis=(-2, -1)), asks)


@from_results
def equal(read: Numbers, share: Measure, where: Selection) -> Parts:
    """Return key 0's share minus the mean share of the isolated tokens, which is the whole; both are means over their numbers."""
    counts = np.array([case["tokens"] for case in where.cases if case is not None])
    found = read.edited(share, where).reshape(-1, len(counts))
    others = (100 - found) / counts
    label, why = f"{share.name}, minus an isolated token's", "equal shares are the comparison"
    apart, whole = (one.mean(axis=1) for one in (found - others, others))  # the numbers of tokens are chosen, no sample
    return Parts(apart, None, whole, share.range, share.unit, label, where=where, uncontrolled=why)


def _to_sharers(read: Numbers, sweep: Sweep, s: Settings, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return mean attention to key 0 and the isolated tokens, [layer, head, key], and whether a head sinks on key 0 unedited."""
    data, row = read.data(sweep.name), read.rows(sweep.name)[ALL.at(tokens=count)]
    return to_keys(data.isel(edit=row), *s.places[:count]).mean(axis=0), to_keys(data.isel(edit=0))[..., 0].mean(axis=0) > s.eps


def by_key(sweep: Sweep, s: Settings, read: Numbers) -> list[Row]:
    """List the share of each key, all heads together."""
    rows = list[Row]()
    for count in s.counts:
        found = _to_sharers(read, sweep, s, count)[0].sum(axis=(0, 1))
        for key, share in zip((0, *s.places), found / found.sum(), strict=False):
            label = f"{sweep.title}, {count} isolated, key {key}"
            rows += exact_rows(label, sweep.title, {"share of the attention to all of them (%)": 100 * share})
    return rows


def by_head(sweep: Sweep, s: Settings, read: Numbers) -> list[Row]:
    """List how many sinking heads share equally, the median error, and the heads that share least equally."""
    rows = list[Row]()
    for count in s.counts:
        attention, sinks = _to_sharers(read, sweep, s, count)
        share, label = (count + 1) * attention[..., 0] / attention.sum(axis=-1), f"{sweep.title}, {count} isolated"
        error = np.where(sinks, np.abs(share - 1), -1.0)
        numbers = {"heads that sink on key 0 without an edit": sinks.sum()}
        if sinks.any():
            numbers["of these, with a share within 1/10 of an equal one (%)"] = 100 * float((error[sinks] < SMALL).mean())
            numbers["error of key 0's share over an equal one, median (%)"] = 100 * float(np.median(error[sinks]))
        rows += exact_rows(label, sweep.title, numbers)
        for worst in np.argsort(-error, axis=None)[: min(WORST, sinks.sum())]:
            layer, head = np.unravel_index(worst, error.shape)
            numbers = {"key 0's share over an equal one (%)": 100 * share[layer, head]}
            rows += exact_rows(f"{label}, layer {layer}, head {head}", sweep.title, numbers)
    return rows


def share_by_head(read: Numbers, sweep: Sweep, s: Settings) -> Drawing:
    """Draw key 0's share in every head that sinks, by layer, next to equal shares."""
    columns = {}
    for count in s.counts[:DRAWN]:
        found, sinks = _to_sharers(read, sweep, s, count)
        share, layers = found[..., 0] / found.sum(axis=-1), np.arange(len(found))
        fair = Cloud("equal shares", layers, np.full(len(layers), 1 / (count + 1)), faint=True)
        columns[f"{count} isolated"] = [fair, Cloud("a head that sinks", np.nonzero(sinks)[0], share[sinks])]
    figure = scatter(columns, "layer", "share of key 0", limits=(None, (0, 1)))
    caption = f"Share of key 0 among itself and the isolated tokens ({sweep.title}), in each head that sinks on it unedited."
    return read.drawing(f"shares-{sweep.name}", figure, caption, sweep.name, bands=False)
