"""gu/sink-rate: how many heads sink on the first key of natural text, of random tokens and of one token repeated (Table 1)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import refuse
from sinkjax.studies.papers.gu._first_token import ALIKE, NOTHING, FirstTokenSinks, note, own_first_tokens, positions

INPUTS = {kind: st.Inputs(kind) for kind in ("text", "random", "repeat")}  # by the names of their stores
KINDS = {store: inputs.name for store, inputs in INPUTS.items()}
LEAST = 10.0  # per cent of heads: above this a model has a sink
SOURCE = "Gu et al. 2025, Table 1"
NORM, RATE = "largest ||h|| of position 0 over the others' mean", "heads that sink on key 0 (%)"
THRESHOLDS = np.linspace(0.05, 0.95, 19)
REPORTED: dict[str, Any] = {"model": str, "inputs": str, "eps": (int, float), "rate": (int, float), "source": str}


@dataclass(frozen=True, kw_only=True)
class SinkRate(FirstTokenSinks):
    """The share of heads that sink on the first key of natural text, of random tokens and of one token repeated (Table 1)."""

    prompts: int = 84
    """sequences of each kind; the confirm half of the packaged text has as many documents"""
    other_eps: tuple[float, ...] = (0.2, 0.8)
    """further thresholds (0.8: Barbero et al. 2025)"""
    published: tyro.conf.Suppress[tuple[Mapping[str, Any], ...]] = ()
    """rates that papers give: model, inputs, eps, rate in per cent, and source"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for eps in self.other_eps:
            wrong = not 0 < eps < 1 or eps == self.eps
            refuse(wrong, f"other_eps must lie between 0 and 1 and differ from eps, but contains {eps}")
        for entry in self.published:
            whole = set(entry) == set(REPORTED) and all(isinstance(entry[key], kind) for key, kind in REPORTED.items())
            refuse(not whole, f"an entry of published needs {', '.join(REPORTED)} and is {dict(entry)}")
            kind = entry["inputs"]
            refuse(kind not in INPUTS, f"the inputs of an entry of published must be one of {', '.join(INPUTS)}, not {kind}")

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Every eps, the main one first."""
        return (self.eps, *self.other_eps)

    def published_at(self, kind: str, eps: float) -> list[Mapping[str, Any]]:
        """The papers' rates for a kind of input at one threshold."""
        return [entry for entry in self.published if (entry["inputs"], entry["eps"]) == (kind, eps)]


def measure(eps: float) -> str:
    return f"heads that sink on key 0, eps {eps:g} (%)"


def rate(results: st.Results, store: str, eps: float, key: int = 0, per: str = "prompt") -> NDArray:
    """Per cent of heads that sink on a key: float[prompt], or float[prompt, layer] with per="layer"."""
    return 100 * metrics.sink_rate(results[store].isel(edit=0), key, eps, per=per)


def by_key(results: st.Results, store: str, eps: float, keys: Sequence[int]) -> NDArray:
    return np.stack([rate(results, store, eps, key) for key in keys], axis=-1)


def rows(results: st.Results) -> Iterator[st.Row]:
    config = results.config

    def of(store: str, measure: str, values: NDArray, elsewhere: NDArray | None = None) -> list[st.Row]:
        clusters, others = results.clusters(len(values), store), None if elsewhere is None else elsewhere[None]
        return st.own_rows([KINDS[store]], "inputs", measure, values[None], config.seed, others, clusters=clusters)

    for eps in config.thresholds:
        for store in KINDS:
            rates = by_key(results, store, eps, positions(config))
            yield from of(store, measure(eps), rates[..., 0], rates[..., 1:])
    for store in KINDS:
        yield from of(store, NORM, metrics.norm_ratio(results[store].isel(edit=0), 0).max(axis=-1))


def claims(config: SinkRate, architecture: Any) -> Iterator[st.Claim]:
    text, random, repeat = (
        st.listed(kind, measure(config.eps), f"the share of heads that sink on key 0 of {kind}", "%") for kind in KINDS.values()
    )
    gap = st.quantity("the share on random tokens less half of that on natural text", less_half, "percentage points", signed=True)

    def claim(store: str, statement: str, rule: st.Rule, given: st.Rule | None = None, **options: Any) -> st.Claim:
        papers = [f"{entry['model']} {entry['rate']:.2f} %" for entry in config.published_at(store, config.eps)]
        return st.Claim(statement, rule, given, SOURCE, ", ".join(papers), **options)

    sinks = st.all_of(st.above(text, LEAST), st.above_controls(text))
    stays = st.all_of(st.above(random, LEAST), st.above_controls(random), st.above(gap))
    yield claim(
        "text", f"On natural text more than {LEAST:g} % of heads of trained language models sink on the first token.", sinks
    )
    yield claim(
        "random",
        f"On random tokens more than {LEAST:g} % of heads sink on the first one, and at least half as many as on text.",
        stays,
        own_first_tokens(config, sinks),
    )
    yield claim(
        "repeat",
        f"With one token repeated, less than {NOTHING:g} % of heads sink on the first in a model without absolute positions.",
        st.below(repeat, NOTHING),
        ALIKE,
    )


def less_half(results: st.Results) -> NDArray:
    """Two independent samples of one size: their difference in any pairing has the spread of the difference of their means."""
    return rate(results, "random", results.config.eps) - rate(results, "text", results.config.eps) / 2


def findings(config: SinkRate, architecture: Any) -> Iterator[st.Quantity]:
    def layers(store: str, results: st.Results) -> Any:
        return (rate(results, store, config.eps, per="layer").mean(axis=0) > 50).sum()

    for store, kind in KINDS.items():
        name = f"layers in which more than half of the heads sink on key 0, {kind}"
        yield st.quantity(name, functools.partial(layers, store))


def figures(config: SinkRate, architecture: Any) -> Iterator[st.Figure]:
    ascending, keys = sorted(config.thresholds), range(config.length // 2 + 1)

    def beside_papers(results: st.Results) -> dict[str, list[st.Point]]:
        model, columns = results["text"].attrs["sweep"]["model"]["name"], {}
        for (store, kind), eps in itertools.product(KINDS.items(), config.thresholds):
            papers = [
                st.Point(entry["model"], st.constant(entry["rate"]), f"published ({entry['source']})")
                for entry in config.published_at(store, eps)
            ]
            if papers or eps == config.eps:
                here = st.Point(model, results.own[kind, measure(eps)].value, "here")
                columns[f"{kind}\neps {eps:g}"] = [here, *papers]
        return columns

    def lines(results: st.Results, of: Callable[[str], NDArray], x: Sequence[float] | None = None) -> dict[str, Any]:
        """A line for each kind of input, its intervals by the documents of its own store. of: store -> float[prompt, x]."""
        values = {store: of(store) for store in KINDS}
        return {KINDS[store]: results.curve(KINDS[store], x or range(y.shape[-1]), y, store) for store, y in values.items()}

    def by_layer(results: st.Results, eps: float) -> Any:
        return results.panel(f"eps {eps:g}", RATE, lines(results, lambda store: rate(results, store, eps, per="layer")))

    def along_keys(results: st.Results, store: str) -> Any:
        curves = {f"eps {eps:g}": by_key(results, store, eps, keys) for eps in ascending}
        found = {name: results.curve(name, keys, values, store) for name, values in curves.items()}
        return results.panel(KINDS[store], "heads that sink on the key (%)", found)

    def by_threshold(results: st.Results) -> Any:
        def of(store: str) -> NDArray:
            return np.stack([rate(results, store, eps) for eps in THRESHOLDS], axis=-1)

        return results.panel("all layers and heads", RATE, lines(results, of, THRESHOLDS.round(2).tolist()))

    yield st.points(
        "sink-rate-beside-papers",
        RATE,
        beside_papers,
        """Heads that sink on the first key, in per cent, of this model and of models in papers, for each kind of input and
        threshold for which a paper gives a number. Secondary: not from the paper's text.""",
        tuple(KINDS),
        limits=(-4, 104),
    )
    curves = functools.partial(st.curves, store=tuple(KINDS), legend_above=True)
    yield curves(
        "sink-rate-by-layer",
        "layer (0-based)",
        lambda results: [[by_layer(results, eps) for eps in ascending]],
        "Share of a layer's heads that sink on the first key, by kind of input and threshold eps.",
    )
    yield curves(
        "sink-rate-by-key",
        "position of the key (0-based)",
        lambda results: [[along_keys(results, store) for store in KINDS]],
        "Share of all heads that sink on a key, for the keys of the first half, which at least half of the queries see.",
    )
    yield curves(
        "sink-rate-by-threshold",
        "threshold eps (attention received, 0 to 1)",
        lambda results: [[by_threshold(results)]],
        "Share of all heads whose mean attention to the first key exceeds eps, against eps.",
    )


STUDY = st.Study(
    name="gu/sink-rate",
    config=SinkRate,
    title="Heads that sink on the first key",
    question="""Gu et al. 2025, Table 1: in trained language models most heads sink on the first token, of natural text and of
        random tokens alike; with one token repeated the sink vanishes in models without absolute positions.""",
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_norm"),
    more=lambda config, architecture: [st.unedited(store, inputs) for store, inputs in INPUTS.items()],
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: tuple(KINDS.values()),
    figures=figures,
    shown=lambda config, architecture: st.Shown((st.NO_EDIT,), sweeps=tuple(KINDS), texts=False),
    notes=lambda config, results: (
        f"""A head sinks on a key if its attention to it, averaged over all queries that see the key, is above eps (Gu et al.
        2025, who use eps 0.3 and 64 tokens; here prompts have {config.length}). The threshold is applied in each sequence and
        head before averaging.""",
        note(config),
        """Random tokens: each position is drawn from the vocabulary without special tokens. One token repeated: one token is
        drawn for each prompt. If there is a BOS, it precedes both and is the first key; the claims about random tokens, and
        those of Propositions 1 to 4 about one token repeated, are then not judged.""",
        "Published rates are those of their models and texts; secondary: taken from a summary of the paper, not from its text.",
    ),
)
