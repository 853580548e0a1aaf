"""background/elsewhere: sinks and massive activations on other tokens than the first, and which of the two comes first.

Sun et al. (2024) find massive activations on the first full stop or line break too, and Kiya et al. (2026) that the first token's
activation comes one layer before its sink. Here each delimiter, and frequent words beside them, are looked at where the text has
them, and are put at one position of every prompt by an edit of the embedding; controls put random tokens there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.rules import Estimate, Quantity, constant
from sinkjax.config_files.checks import MIN_QUERIES, at_least, refuse, seen
from sinkjax.report.figures.points import Point
from sinkjax.studies.papers.background._massive import RATIO, THRESHOLD, state_median
from sinkjax.studies.papers.background._spectra import correlation
from sinkjax.studies.papers.background._tokens import FREQUENT, NATURAL, in_text, label, ranked

TEXT, PLACED, PUT = "natural", "placed", "put there"
SINKS, SIZE = "heads that sink there (%)", "largest |h| there over that of the median position"
CARRIED = ("largest", "second-largest", "third-largest")  # frequent tokens that are named
ACTIVATION_RATIOS, SINK_SHARES = (5.0, 10.0, 20.0), (0.25, 0.5)  # what may count as an onset
LEAST_RATIO, LEAST_SHARE = 10.0, 0.25  # the onset on another token: times the median position, share of a layer's heads
# Depths from the one that enters a layer at which its activation is compared with the layer's sink.
LAGS = {-2: "two layers earlier", -1: "one layer earlier", 0: "entering the layer", 1: "leaving the layer"}


@dataclass(frozen=True, kw_only=True)
class Elsewhere(st.ControlledSinks):
    """Sinks and massive activations on other tokens than the first, and which of the two comes first (Sun et al. 2024)."""

    delimiters: tuple[str, ...] = (".", "\n", ",", ";", ":")
    """tokens of which it is claimed; each must be one token of the model"""
    words: tuple[str, ...] = (" the", " of", " and")
    """frequent words beside them"""
    place: int = 8
    """position at which each of these tokens is put, in place of the text's own"""
    placed_prompts: int = 16
    """prompts in which they are put there"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8, place=1, placed_prompts=1)
        seen(self, self.place, "place")
        wrong = not self.delimiters or "" in self.tokens
        refuse(wrong, "delimiters lists at least one token, and none of the tokens may be empty")

    @property
    def tokens(self) -> tuple[str, ...]:
        """The delimiters and the words."""
        return (*self.delimiters, *self.words)


def there(token: str) -> str:
    return f"{label(token)} {PUT}"


def put(config: Elsewhere, row: NDArray) -> sinkjax.Edit:
    return sinkjax.edit("embed", "set", row, queries=config.place)


def placed(config: Elsewhere, architecture: Any, rows: Sequence[NDArray]) -> Iterator[st.Condition]:
    """No edit, and each token put at the place. rows: their embeddings."""
    yield st.no_edit()
    for token, row in zip(config.tokens, rows, strict=True):
        yield st.Condition(put(config, row).named(there(token)), PUT, budget=1)


def random_tokens(config: Elsewhere, architecture: Any, rows: Sequence[NDArray]) -> Iterator[st.Condition]:
    for draw, row in enumerate(rows):
        yield st.Condition(put(config, row).named(f"control {draw}: random token"), st.CONTROL, budget=1)


def embeddings(model: Any, ids: Any) -> NDArray:
    return np.asarray(model.params["embed"][np.asarray(ids)], np.float32)


def ids_of(config: Elsewhere, model: Any) -> list[int]:
    """The ids that the tokens have behind a word. Errors: a text that is no single token of the model."""
    found = []
    for token in config.tokens:
        found.append(model.tokenizer.encode(f"a{token}")[-1])
        other = model.tokenizer.tokens(found[-1:]) != [token]
        refuse(other, f"{token!r} is not one token of this model's tokenizer; choose other delimiters and words")
    return found


def random_rows(config: Elsewhere, model: Any, batch: st.Batch) -> NDArray:
    """The embeddings of random tokens that are neither special nor among those under study."""
    vocabulary = np.arange(model.config.vocab_size or 0)
    ordinary = np.setdiff1d(vocabulary, [*model.tokenizer.special, *ids_of(config, model)])
    rng = intervals.generator(config.seed, "background/elsewhere controls")
    return embeddings(model, rng.choice(ordinary, config.controls, replace=False))


def sinks(data: Any, eps: float) -> NDArray:
    """Heads that sink on each key, in per cent: float[..., prompt, key]."""
    return 100 * (np.asarray(data["attention_received"]) > eps).mean(axis=(-3, -2))


def over_median(data: Any) -> NDArray:
    """The largest |h| at each position over that of the median position: float[..., prompt, depth, position]."""
    largest = np.asarray(data["resid_max"])
    return largest / np.nanmedian(largest, axis=-1, keepdims=True)


def sizes(data: Any) -> NDArray:
    """Its largest value over depths: float[..., prompt, position]."""
    return over_median(data).max(axis=-2)


def measures(config: Elsewhere) -> tuple[st.Measure, st.Measure]:
    note = f"""Sizes are the largest over depths of max |h| at a position over that of the prompt's median position, as in deep
        layers every position's largest |h| is high. A head sinks on a key if its mean attention to it is above {config.eps}."""
    return (
        st.Measure(SINKS, lambda data: sinks(data, config.eps)[..., config.place], unit="percentage points"),
        st.Measure(SIZE, lambda data: sizes(data)[..., config.place], note=note),
    )


def text(results: st.Results) -> Any:
    return results[TEXT].isel(edit=0)


def natural(results: st.Results, token: str) -> list[st.Row]:
    """The rows of a token where the text has it, one for each measure."""
    data = text(results)
    return in_text(results.config, data, token, {SINKS: sinks(data, results.config.eps), SIZE: sizes(data)})


def gaps(results: st.Results, least: float, share: float) -> NDArray:
    """Layers between the one that writes the activation of position 0 and the first that sinks on it: float[prompt].

    A depth has the activation if the largest |h| exceeds that of the median position `least` times; a layer sinks if more than
    the share of its heads do. NaN where either never happens.
    """
    writer, sink = onsets(text(results), 0, results.config.eps, least, share)
    return np.subtract(sink, writer, out=np.full(len(sink), np.nan), where=np.isfinite(writer) & np.isfinite(sink))


def onsets(data: Any, place: int, eps: float, least: float = LEAST_RATIO, share: float = LEAST_SHARE) -> tuple[NDArray, NDArray]:
    """The layer that writes the activation of a position, and the first layer that sinks on it: float[..., prompt], inf if none.

    An activation that the embedding has is written by layer -1.
    """
    writer = metrics.onset(over_median(data)[..., place], least) - 1
    return writer, metrics.onset(metrics.sink_rate(data, place, eps, per="layer"), share)


def correlations(results: st.Results) -> dict[int, NDArray]:
    """Lag -> correlation over layers l of log activation ratio at depth l + lag and the share of heads that sink on key 0.

    Lag 0: the stream that enters the layer, written by the one before it; lag 1: the stream that the layer itself leaves. All
    lags are over the same layers. Float[prompt], NaN where the sink is the same in every layer or there are too few layers.
    """
    ratio, first = np.log(over_median(text(results))[..., 0]), -min(LAGS)
    rates = metrics.sink_rate(text(results), 0, results.config.eps, per="layer")[:, first:]
    return {lag: correlation(ratio[:, lag + first :][:, : rates.shape[-1]], rates) for lag in LAGS}


def lagged(lag: int) -> st.Quantity:
    name = f"r over layers of heads that sink on key 0 with log |h| of position 0 {LAGS[lag]}"
    return st.quantity(name, lambda results: correlations(results)[lag])


def closer_than(lag: int) -> st.Quantity:
    """How much closer the sink goes with the stream that enters the layer than with another one."""
    name = f"r with |h| {LAGS[0]} minus r with |h| {LAGS[lag]}"
    return st.quantity(name, lambda results: correlations(results)[0] - correlations(results)[lag], signed=True)


def gap(least: float, share: float) -> st.Quantity:
    name = f"layers from the activation of position 0 ({least:g} times the median position) to its sink ({share:.0%} of heads)"
    return st.quantity(name, lambda results: gaps(results, least, share))


def obeying(token: str) -> st.Quantity:
    def share(results: st.Results) -> float:
        run = results[PLACED].sel(edit=there(token))
        largest, median = run["resid_max"].values[..., results.config.place], run["state_median"].values
        return ((largest > THRESHOLD) & (largest > RATIO * median)).any(axis=-1).mean()

    return st.number(f"the share of prompts in which {there(token)} obeys Sun et al.'s definition", share)


def claims(config: Elsewhere, architecture: Any) -> Iterator[st.Claim]:
    sinking, size = measures(config)
    stops = [token for token in (".", "\n") if token in config.delimiters]
    yield st.Claim(
        "Massive activations also appear on the first full stop or line break (Sun et al. 2024, section 2.2).",
        st.any_of(*(st.more_than(obeying(token), 0.5) for token in stops)),
        given=st.Rule("the full stop or the line break is among the delimiters", lambda results: (bool(stops), ())),
        paper="Llama-2-7B: dims 1415 and 2533, there as large as on the first token",
        also=tuple(st.value(size, there(token)) for token in stops),
    )
    found = {token: st.effect(sinking, there(token)) for token in config.delimiters}
    yield st.Claim(
        "Delimiters are sinks too (Sun et al. 2024, section 4).",
        st.some_of(
            [
                st.all_of(st.above_controls(effect), st.more_than(st.value(sinking, there(token)), 1))
                for token, effect in found.items()
            ],
            "delimiters",
            "more than 1 % of heads sink on it, and more than with every random token put there",
        ),
        also=tuple(found.values()),
    )
    yield st.Claim(
        "The massive activation of the first token appears before its sink, one layer earlier (Kiya et al. 2026, Fig. 2).",
        st.all_of(*(st.above(closer_than(lag)) for lag in (1, -1, -2))),
        given=st.defined(closer_than(1)),
        paper="Llama-3.2-3B: activation at layer 2, sink at layer 3 (layers counted from 1)",
        also=(lagged(0), lagged(1), lagged(-1)),
    )


def carried(number: int) -> Quantity:
    """One of the frequent tokens with the largest activations, which only the text tells."""
    name = f"{CARRIED[number]} |h| over that of the median position among tokens that the text has {FREQUENT} times or more"

    def of(results: st.Results) -> Estimate:
        found = ranked(text(results), sizes(text(results)))[number : number + 1]
        mean, _, token = found[0] if found else (np.nan, 0, "")
        return Estimate(f"{name} ({label(token)})" if found else name, constant(mean))

    return Quantity(name, of)


def onset(token: str, number: int) -> Quantity:
    """The median layer that writes the activation on a token (0), or the first that sinks on it (1)."""
    name = f"{('layer that writes the activation on', 'first layer that sinks on')[number]} {there(token)} (median)"

    def of(results: st.Results) -> Estimate:
        layers = onsets(results[PLACED].sel(edit=there(token)), results.config.place, results.config.eps)[number]
        reached = layers[np.isfinite(layers)]
        median = float(np.median(reached)) if reached.size else np.nan
        return Estimate(name, constant(median), f"({reached.size} of {layers.size} prompts)")

    return Quantity(name, of)


def in_the_text(measure: st.Measure, number: int, token: str) -> st.Quantity:
    return st.quantity(f"{measure.name} ({label(token)} {NATURAL})", lambda results: natural(results, token)[number])


def findings(config: Elsewhere, architecture: Any) -> Iterator[st.Quantity]:
    for number, measure in enumerate(measures(config)):
        for token in config.tokens:
            yield from (in_the_text(measure, number, token), st.value(measure, there(token)))
    yield st.quantity(f"{SIZE} (position 0)", lambda results: sizes(text(results))[:, 0])
    yield from (carried(number) for number in range(len(CARRIED)))
    yield from (lagged(lag) for lag in (0, 1, -1))
    yield from (gap(least, share) for least in ACTIVATION_RATIOS for share in SINK_SHARES)
    yield from (onset(token, number) for token in config.tokens for number in (0, 1))


def figures(config: Elsewhere, architecture: Any) -> Iterator[st.Figure]:
    yield st.curves(
        *("activation-before-sink", "layer l (0-based)", order),
        """Top: the largest |h| of the stream that enters layer l (depth l). Bottom: heads of layer l that sink on key 0. A sink
        that begins where the activation has just entered follows it by one layer.""",
        store=TEXT,
    )
    for number, name in enumerate(("sinks-by-token", "activations-by-token")):
        measure = measures(config)[number].name
        yield st.points(
            *(name, measure, functools.partial(by_token, number)),
            f"""{measure[0].upper()}{measure[1:]}: where the text has the token, and where it is put at position {config.place}
            of the first {min(config.placed_prompts, config.prompts)} prompts.""",
            store=TEXT,
        )
    for name, tokens in (("delimiters-by-layer", config.delimiters), ("words-by-layer", config.words)):
        if tokens:
            yield st.curves(
                *(name, "layer l (0-based)", functools.partial(by_layer, tokens)),
                f"""Tokens put at position {config.place}: top, the largest |h| of the stream that enters layer l there, over that
                of the median position; bottom, heads of layer l that sink there.""",
                store=PLACED,
                legend_above=True,
            )


def order(results: st.Results) -> list[list[Any]]:
    """The activation that enters each layer at position 0, and the sink that the layer makes of it."""
    data, eps = text(results), results.config.eps
    largest = data["resid_max"].values[:, : results.architecture.layers]
    lines = {"position 0": largest[..., 0], "median position": np.nanmedian(largest, axis=-1)}
    rates = {"key 0": 100 * metrics.sink_rate(data, 0, eps, per="layer")}
    return [
        [results.panel("", "largest |h| entering layer l", lines, log=True)],
        [results.panel("", "heads of layer l that sink\non key 0 (%)", rates)],
    ]


def by_token(number: int, results: st.Results) -> dict[str, list[Any]]:
    """One measure of each token, in the text and put there."""
    config, measure = results.config, measures(results.config)[number]
    columns: dict[str, list[Any]] = {NATURAL: [], PUT: []}
    for token in config.tokens:
        kind = "delimiter" if token in config.delimiters else "frequent word"
        columns[NATURAL].append(Point(label(token), natural(results, token)[number].value, kind))
        columns[PUT].append(results.point(label(token), measure, there(token), kind))
    return columns


def by_layer(tokens: Sequence[str], results: st.Results) -> list[list[Any]]:
    """Where along the layers tokens that are put at the place have an activation or a sink, beside the text's own token there."""
    place, eps, L = results.config.place, results.config.eps, results.architecture.layers
    names = {"the text's own": st.NO_EDIT} | {label(token): there(token) for token in tokens}
    runs = {name: results[PLACED].sel(edit=edit) for name, edit in names.items()}
    ratios = {name: over_median(run)[:, :L, place] for name, run in runs.items()}
    rates = {name: 100 * metrics.sink_rate(run, place, eps, per="layer") for name, run in runs.items()}
    return [
        [results.panel("", "largest |h| entering layer l,\nover that of the median position", ratios, log=True)],
        [results.panel("", f"heads of layer l that sink\non position {place} (%)", rates)],
    ]


PLACED_SWEEP = st.Sweep(
    *(PLACED, placed, measures),
    prompts=lambda config: min(config.placed_prompts, config.prompts),
    values=st.Values(
        lambda config, architecture, prompts: np.zeros((len(config.tokens), architecture.width)),
        lambda config, model, batch: embeddings(model, ids_of(config, model)),
    ),
    controls=(
        st.Sweep(
            *("controls", random_tokens),
            prompts=st.control_prompts,
            values=st.Values(lambda config, architecture, prompts: np.zeros((config.controls, architecture.width)), random_rows),
        ),
    ),
)

STUDY = st.Study(
    name="background/elsewhere",
    config=Elsewhere,
    title="Sinks and massive activations on other tokens than the first",
    question="""Sun et al. 2024: massive activations appear on the first token and on the first full stop or line break. Kiya et
        al. 2026: the activation of the first token appears one layer before its sink.""",
    probe=lambda config: sinkjax.Probe(attention_received=True, resid_max=True, resid_norm=True, extra=(state_median(),)),
    more=lambda config, architecture: (
        st.Sweep(TEXT, lambda config, architecture: (st.no_edit(),)),
        PLACED_SWEEP,
    ),
    rows=lambda results: [row for token in results.config.tokens for row in natural(results, token)],
    claims=claims,
    findings=findings,
    featured=lambda results: results.labels(PLACED),
    figures=figures,
    noop=lambda config, architecture, rows: {f"the text's own token put at position {config.place}": put(config, rows)},
    noop_values=st.Values(
        lambda config, architecture, prompts: np.zeros((prompts, architecture.width)),
        lambda config, model, batch: embeddings(model, batch.tokens[:, config.place]),
    ),
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, *map(there, (*config.tokens[:2], *config.words[:1]))), start=config.place + 1, sweeps=(PLACED_SWEEP,)
    ),
    notes=lambda config, results: (
        "A token is put there by its embedding alone; the following tokens stay as they are.",
        f"""For tokens in the text, the controls are as many random other positions of the same prompts, {config.controls} draws.
        Keys seen by fewer than {MIN_QUERIES} queries are left out.""",
        """The order is judged by correlations over layers since a first look at SmolLM2, whose activation comes in two steps, had
        shown that the onset depends on the thresholds; what the thresholds give is stated beside the verdict.""",
    ),
)
