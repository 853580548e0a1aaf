"""background/elsewhere: sinks and massive activations on other tokens than the first.

Each delimiter, and frequent words for comparison, are measured where the text has them, and where an edit of the embedding puts
them: at one position of every prompt. Controls put random tokens there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import MIN_QUERIES, at_least, refuse, seen
from sinkjax.studies.papers.background._massive import state_median
from sinkjax.studies.papers.background._spectra import correlation
from sinkjax.studies.papers.background._tokens import FREQUENT, NATURAL, in_text, label, ranked

TEXT, PLACED, PUT = "natural", "placed", "put there"
SINKS, SIZE = "heads that sink there (%)", "largest |h| there over that of the median position"
MOST, SINK = 0.5, 1.0  # share of prompts; per cent of heads from which on a token is a sink
ACTIVATION_RATIOS, SINK_SHARES = (5.0, 10.0, 20.0), (0.25, 0.5)  # what may count as an onset
# Depths from the one that enters a layer at which its activation is compared with the layer's sink.
LAGS = {-2: "two layers earlier", -1: "one layer earlier", 0: "entering the layer", 1: "leaving the layer"}


@dataclass(frozen=True, kw_only=True)
class Elsewhere(st.ControlledSinks):
    """Sinks and massive activations on other tokens than the first (Sun et al. 2024)."""

    controls: int = 100
    """random control tokens; with five delimiters at least 99 are needed for significance (Bonferroni)"""
    delimiters: tuple[str, ...] = (".", "\n", ",", ";", ":")
    """tokens that the claims are about; each must be one token of the model"""
    words: tuple[str, ...] = (" the", " of", " and")
    """frequent words, for comparison"""
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
    """The ids that the tokens have after a word. Errors: a text that is no single token of the model."""
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
    refuse(ordinary.size < config.controls, f"{config.controls} controls are more than the model's {ordinary.size} other tokens")
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


def rows(results: st.Results) -> Iterator[st.Row]:
    """The tokens where the text has them."""
    data, config = text(results), results.config
    values = {SINKS: sinks(data, config.eps), SIZE: sizes(data)}
    clusters = results.clusters(data.sizes["prompt"], TEXT)
    for token in config.tokens:
        yield from in_text(config, data, token, values, clusters)


def sinking(data: Any, place: int, eps: float) -> NDArray:
    """Share of each layer's heads that sink on a position: float[..., prompt, layer]."""
    return metrics.sink_rate(data, place, eps, per="layer")


def onsets(data: Any, place: int, eps: float, least: float = 10.0, share: float = 0.25) -> tuple[NDArray, NDArray]:
    """The layer that writes the activation of a position, and the first layer that sinks on it: float[..., prompt], inf if none.

    A depth has the activation if its largest |h| is more than `least` times that of the median position (layer -1 writes that of
    the embedding); a layer sinks if more than the share of its heads do.
    """
    return metrics.onset(over_median(data)[..., place], least) - 1, metrics.onset(sinking(data, place, eps), share)


def gap(least: float, share: float) -> st.Quantity:
    def of(results: st.Results) -> NDArray:
        writer, sink = onsets(text(results), 0, results.config.eps, least, share)
        return np.subtract(sink, writer, out=np.full(sink.shape, np.nan), where=np.isfinite(writer) & np.isfinite(sink))

    name = f"layers from the activation of position 0 ({least:g} times the median position) to its sink ({share:.0%} of heads)"
    return st.quantity(name, of)


def correlations(results: st.Results) -> dict[int, NDArray]:
    """Lag -> correlation over layers l of log activation ratio at depth l + lag and the share of heads that sink on key 0.

    Lag 0: the stream that enters the layer, written by the one before it; lag 1: the stream that leaves the layer. All lags are
    over the same layers. Float[prompt], NaN where the sink is the same in every layer or there are too few layers.
    """
    ratio, first = np.log(over_median(text(results))[..., 0]), -min(LAGS)
    rates = sinking(text(results), 0, results.config.eps)[:, first:]
    return {lag: correlation(ratio[:, lag + first :][:, : rates.shape[-1]], rates) for lag in LAGS}


def lagged(lag: int) -> st.Quantity:
    name = f"r over layers of heads that sink on key 0 with log |h| of position 0 {LAGS[lag]}"
    return st.quantity(name, lambda results: correlations(results)[lag])


def obeying(token: str) -> st.Quantity:
    """1 or 0 for each prompt: whether a token put there has a massive activation after any layer."""

    def massive(results: st.Results) -> NDArray:
        run = results[PLACED].sel(edit=there(token))
        return np.nanmax(metrics.massive_activations(run, results.config.place), axis=-1)

    return st.quantity(f"the share of prompts in which {there(token)} obeys Sun et al.'s definition", massive)


def claims(config: Elsewhere, architecture: Any) -> Iterator[st.Claim]:
    share, size = measures(config)
    stops = [token for token in (".", "\n") if token in config.delimiters]
    missing = st.never("the full stop or the line break is among the delimiters")
    effects = {token: st.effect(share, there(token)) for token in config.delimiters}
    sinks_there = [
        st.all_of(st.above_controls(effect), st.above(st.value(share, there(token)), SINK)) for token, effect in effects.items()
    ]
    yield st.Claim(
        f"A full stop or a line break put at position {config.place} gets a massive activation in most prompts.",
        st.any_of(*(st.above(obeying(token), MOST) for token in stops or config.delimiters)),
        given=None if stops else missing,
        source="Sun et al. 2024, section 2.2",
        paper="Llama-2-7B: dims 1415 and 2533, there as large as on the first token",
        also=tuple(st.value(size, there(token)) for token in stops),
    )
    criterion = "more than 1 % of heads sink on it, and more than with every random token put there"
    yield st.Claim(
        f"One or more of the delimiters put at position {config.place} are the sinks of more than {SINK:g} % of"
        " heads, and of more than random tokens there.",
        st.some_of(sinks_there, "delimiters", criterion),
        source="Sun et al. 2024, section 4",
        also=tuple(effects.values()),
    )


def findings(config: Elsewhere, architecture: Any) -> Iterator[st.Quantity]:
    yield st.quantity(f"{SIZE} (position 0)", lambda results: sizes(text(results))[:, 0])
    yield from map(lagged, LAGS)
    yield from (gap(least, share) for least in ACTIVATION_RATIOS for share in SINK_SHARES)
    writer = st.Measure("layer that writes the activation there", lambda data: onsets(data, config.place, config.eps)[0])
    first = st.Measure("first layer that sinks there", lambda data: onsets(data, config.place, config.eps)[1])
    yield from (st.median(measure, there(token)) for token in config.tokens for measure in (writer, first))


def by_token(measure: str, results: st.Results) -> dict[str, list[st.Point]]:
    """A measure of each token, in the text and put there."""
    table, config = results.table | results.own, results.config
    kinds = {label(token): "delimiter" if token in config.delimiters else "frequent word" for token in config.tokens}
    return {
        where: [st.Point(name, table[f"{name} {where}", measure].value, kind) for name, kind in kinds.items()]
        for where in (NATURAL, PUT)
    }


def by_layer(name: str, lines: Mapping[str, str], place: int, store: str, about: str = "") -> st.Figure:
    """The activation that enters each layer at a position, and the heads of the layer that sink there. lines: name -> label."""

    def grid(results: st.Results) -> list[list[Any]]:
        runs = {line: results[store].sel(edit=edit) for line, edit in lines.items()}
        ratios = {line: over_median(run)[:, : results.architecture.layers, place] for line, run in runs.items()}
        rates = {line: 100 * sinking(run, place, results.config.eps) for line, run in runs.items()}
        return [
            [results.panel("", "largest |h| entering layer l,\nover that of the median position", ratios, log=True)],
            [results.panel("", f"heads of layer l that sink\non position {place} (%)", rates)],
        ]

    return st.curves(
        name,
        "layer l (0-based)",
        grid,
        f"""{about} Top: the largest |h| at position {place} of the stream that enters layer l, over that of the median position.
        Bottom: heads of layer l that sink there. The activation that enters layer l was
        written by an earlier one.""",
        store=store,
        legend_above=True,
    )


def figures(config: Elsewhere, architecture: Any) -> Iterator[st.Figure]:
    yield by_layer("activation-before-sink", {"position 0": st.NO_EDIT}, 0, TEXT)
    for name, measure in zip(("sinks-by-token", "activations-by-token"), measures(config), strict=True):
        yield st.points(
            name,
            measure.name,
            functools.partial(by_token, measure.name),
            f"""{measure.name[0].upper()}{measure.name[1:]}: where the text has the token, and where it is put at position
            {config.place} of the first {min(config.placed_prompts, config.prompts)} prompts.""",
            store=TEXT,
        )
    for name, tokens in (("delimiters-by-layer", config.delimiters), ("words-by-layer", config.words)):
        if tokens:
            lines = {"the text's own": st.NO_EDIT} | {label(token): there(token) for token in tokens}
            yield by_layer(name, lines, config.place, PLACED, f"Tokens put at position {config.place}.")


def carried(results: st.Results) -> str:
    """The frequent tokens of the text with the largest activations."""
    found = ranked(text(results), sizes(text(results)))[:3]
    return ", ".join(f"{label(token)} {mean:.3g}" for mean, _, token in found) or "none"


def more(config: Elsewhere, architecture: Any) -> tuple[st.Sweep, ...]:
    def embedded(count: int, compute: Callable[..., NDArray]) -> st.Values:
        return st.Values(lambda config, architecture, prompts: np.zeros((count, architecture.width)), compute)

    def those_of_tokens(config: Elsewhere, model: Any, batch: st.Batch) -> NDArray:
        return embeddings(model, ids_of(config, model))

    values, random_values = embedded(len(config.tokens), those_of_tokens), embedded(config.controls, random_rows)
    controls = st.Sweep("controls", random_tokens, prompts=st.control_prompts, values=random_values)
    prompts = min(config.placed_prompts, config.prompts)
    sweep = st.Sweep(PLACED, placed, measures, prompts=lambda config: prompts, controls=(controls,), values=values)
    return st.unedited(TEXT), sweep


STUDY = st.Study(
    name="background/elsewhere",
    config=Elsewhere,
    title="Sinks and massive activations on other tokens than the first",
    question="""Sun et al. 2024: massive activations appear on the first token and on the first full stop or line break.""",
    probe=lambda config: sinkjax.Probe(attention_received=True, resid_max=True, resid_norm=True, extra=(state_median(),)),
    more=more,
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: (*results.labels(PLACED), *(row.condition for row in results.own.values())),
    figures=figures,
    noop=lambda config, architecture, rows: {f"the text's own token put at position {config.place}": put(config, rows)},
    noop_values=st.Values(
        lambda config, architecture, prompts: np.zeros((prompts, architecture.width)),
        lambda config, model, batch: embeddings(model, batch.tokens[:, config.place]),
    ),
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, *map(there, (*config.tokens[:2], *config.words[:1]))), start=config.place + 1, sweeps=(PLACED,)
    ),
    notes=lambda config, results: (
        "A token is put there by its embedding alone; the following tokens stay as they are.",
        f"""For tokens in the text, the controls are as many random other positions of the same prompts, {config.controls} draws.
        Keys seen by fewer than {MIN_QUERIES} queries are left out. Of the tokens that the text has {FREQUENT} times or more, the
        largest |h| over that of the median position have: {carried(results)}.""",
        """Which comes first at position 0, the activation or its sink, is judged by kiya/baseline. The findings describe it by
        correlations over layers and by onsets for several thresholds: a first look at SmolLM2, whose activation grows in two
        steps, showed that the onset depends on them.""",
    ),
)
