"""gu/sink-rate: how many heads sink on the first key of natural text, of random tokens and of one token repeated (Table 1).

Nothing is edited. The sink rate of the first key is ranked among those of other, random keys.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import refuse
from sinkjax.studies.papers.gu._first_token import FirstTokenSinks, note, positions

INPUTS = {kind: st.Inputs(kind) for kind in ("text", "random", "repeat")}  # store -> what it is measured on
KINDS = {store: inputs.name for store, inputs in INPUTS.items()}
LEAST, NOTHING = 10.0, 1.0  # per cent of heads: from here on a model has a sink; below this it has none
NORM, RATE = "largest ||h|| of position 0 over the others' mean", "heads that sink on key 0 (%)"
RATE_OF_KEY = "heads that sink on the key (%)"
THRESHOLDS = np.linspace(0.05, 0.95, 19)
REPORTED: dict[str, Any] = {"model": str, "inputs": str, "eps": (int, float), "rate": (int, float), "source": str}


@dataclass(frozen=True, kw_only=True)
class SinkRate(FirstTokenSinks):
    """The share of heads that sink on the first key of natural text, of random tokens and of one token repeated (Table 1)."""

    prompts: int = 100
    """sequences of each kind"""
    other_eps: tuple[float, ...] = (0.2, 0.8)
    """further thresholds (0.8: Barbero et al. 2025)"""
    published: tyro.conf.Suppress[tuple[Mapping[str, Any], ...]] = ()
    """rates that papers give: model, inputs, eps, rate in per cent, and source"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for eps in self.other_eps:
            wrong = not 0 < eps < 1 or eps == self.eps
            refuse(wrong, f"other_eps must lie between 0 and 1 and differ from eps, and holds {eps}")
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


def rates(data: Any, keys: Sequence[int], eps: float) -> NDArray:
    """Per cent of heads that sink on each of some keys of an unedited run: float[prompt, key]."""
    return 100 * np.stack([metrics.sink_rate(data.isel(edit=0), key, eps) for key in keys], axis=-1)


def rows(results: st.Results) -> Iterator[st.Row]:
    config, labels = results.config, tuple(KINDS.values())
    for eps in config.thresholds:
        values = np.stack([rates(results[store], positions(config), eps) for store in KINDS])
        yield from st.own_rows(labels, "inputs", measure(eps), values[..., 0], config.seed, elsewhere=values[..., 1:])
    ratios = np.stack([metrics.norm_ratio(results[store].isel(edit=0), 0).max(axis=-1) for store in KINDS])
    yield from st.own_rows(labels, "inputs", NORM, ratios, config.seed)


def claims(config: SinkRate, architecture: Any) -> Iterator[st.Claim]:
    text, random, repeat = (
        st.as_point(st.listed(kind, measure(config.eps), f"the share of heads that sink on key 0 of {kind}", "%"))
        for kind in KINDS.values()
    )

    def sinks(rate: st.Quantity) -> st.Rule:
        return st.all_of(st.at_or_above(rate, LEAST), st.above_controls(rate))

    def published(kind: str) -> str:
        return ", ".join(f"{entry['model']} {entry['rate']:.2f} %" for entry in config.published_at(kind, config.eps))

    yield st.Claim(
        "Trained language models sink on the first token of natural text (Gu et al. 2025, Table 1).",
        sinks(text),
        paper=published("text"),
    )
    yield st.Claim(
        "The sink stays when all tokens are drawn at random (Gu et al. 2025, Table 1).",
        st.all_of(sinks(random), st.at_least(random, text.times(0.5, "half of that of natural text"))),
        given=sinks(text),
        paper=published("random"),
    )
    yield st.Claim(
        "The sink vanishes when one token is repeated, without absolute positions (Gu et al. 2025, Table 1).",
        st.below(repeat, NOTHING),
        given=sinks(text),
        paper=published("repeat"),
    )


def findings(config: SinkRate, architecture: Any) -> Iterator[st.Quantity]:
    def layers(store: str, results: st.Results) -> Any:
        return (by_layer(results, store, config.eps).mean(axis=0) > 50).sum()

    for store, kind in KINDS.items():
        name = f"layers in which more than half of the heads sink on key 0, {kind}"
        yield st.quantity(name, functools.partial(layers, store))


def by_layer(results: st.Results, store: str, eps: float) -> NDArray:
    """Per cent of each layer's heads that sink on key 0: float[prompt, layer]."""
    return 100 * metrics.sink_rate(results[store].isel(edit=0), 0, eps, per="layer")


def figures(config: SinkRate, architecture: Any) -> Iterator[st.Figure]:
    ascending = sorted(config.thresholds)

    def beside_papers(results: st.Results) -> dict[str, list[st.Point]]:
        model = results["text"].attrs["sweep"]["model"]["name"]
        columns = {}
        for store, kind in KINDS.items():
            for eps in config.thresholds:
                papers = config.published_at(store, eps)
                others = [
                    st.Point(entry["model"], st.constant(entry["rate"]), f"published ({entry['source']})") for entry in papers
                ]
                if papers or eps == config.eps:
                    columns[f"{kind}\neps {eps:g}"] = [st.Point(model, results.own[kind, measure(eps)].value, "here"), *others]
        return columns

    yield st.points(
        *("sink-rate-beside-papers", RATE, beside_papers),
        """Heads that sink on the first key, in per cent, of this model and of models in papers, for each kind of input and
        threshold for which a paper gives a number. Secondary: not from the paper's text.""",
        store=tuple(KINDS),
        limits=(-4, 104),
    )
    yield st.curves(
        *("sink-rate-by-layer", "layer (0-based)"),
        lambda results: [
            [results.panel(f"eps {eps:g}", RATE, {KINDS[one]: by_layer(results, one, eps) for one in KINDS}) for eps in ascending]
        ],
        "Share of a layer's heads that sink on the first key, by kind of input and threshold eps.",
        store=tuple(KINDS),
        legend_above=True,
    )
    keys = range(config.length // 2 + 1)
    yield st.curves(
        *("sink-rate-by-key", "position of the key (0-based)"),
        lambda results: [
            [
                results.panel(kind, RATE_OF_KEY, {f"eps {eps:g}": rates(results[store], keys, eps) for eps in ascending})
                for store, kind in KINDS.items()
            ]
        ],
        """Share of all heads that sink on a key, by its position, for the first half of the positions, which at least half of
        the queries see.""",
        store=tuple(KINDS),
        legend_above=True,
    )

    def by_threshold(results: st.Results) -> dict[str, NDArray]:
        rate = {kind: [rates(results[store], [0], eps)[:, 0] for eps in THRESHOLDS] for store, kind in KINDS.items()}
        return {kind: np.stack(values, axis=-1) for kind, values in rate.items()}

    yield st.curves(
        *("sink-rate-by-threshold", "threshold eps (attention received, 0 to 1)"),
        lambda results: [[results.panel("all layers and heads", RATE, by_threshold(results), THRESHOLDS.round(2).tolist())]],
        "Share of all heads whose mean attention to the first key exceeds eps, against eps.",
        store=tuple(KINDS),
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
        2025; their eps is 0.3, with {config.length} tokens here and 64 there). The threshold is applied in each sequence and
        head before anything is averaged.""",
        note(config),
        """Random tokens: each position a draw of its own from the vocabulary without special tokens. One token repeated: one
        draw a prompt. If a BOS is asked for, it stands before either, and the first key is the BOS.""",
        "Published rates are those of their models and texts; secondary: taken from a summary of the paper, not from its text.",
    ),
)
