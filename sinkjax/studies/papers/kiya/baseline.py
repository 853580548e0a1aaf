"""kiya/baseline: sink and massive activation of the unedited model by layer, without and with a BOS (Figs. 1a and 6).

Nothing is edited, so the controls of position 0 are the other positions of the same prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import activations, metrics
from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, share
from sinkjax.studies.papers.kiya import _bos
from sinkjax.studies.papers.kiya._bos import STORES
from sinkjax.studies.papers.kiya._masks import SOME
from sinkjax.studies.papers.kiya._readout import FIRST_LAYERS, attention_to, received

POINTS, TIMES = "percentage points", "times that of a typical position"
Massive = Callable[[Any], NDArray]  # data of a run -> whether position 0 is massive after each layer, bool[prompt, layer]


@dataclass(frozen=True, kw_only=True)
class Baseline(st.Mapped):
    """Measure the unedited model, without and with a BOS before the same text: `bos` if a token id, else the model's own."""

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    onset: float = 0.5
    """share of a layer's heads that must sink on position 0 for the layer to count as the sink's onset"""
    massive: float = 10.0
    """how many times larger |h| must be at position 0 than at a typical (the median) other position to be massive"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        share(self, "eps")
        share(self, "onset")


def times_typical(data: Any) -> NDArray:
    """|h| at position 0 after each layer, over that at a typical position: float[prompt, layer]."""
    return _bos.prominence(data, 0)[0, :, 1:]


def by_sun(data: Any) -> NDArray[np.bool_]:
    """Whether |h| at position 0 is massive as Sun et al. (2024) define it, after each layer: bool[prompt, layer]."""
    return np.asarray(metrics.massive_activations(data, 0)[0, :, 1:] == 1)


def lead(config: Baseline, massive: Massive, data: Any) -> NDArray:
    """Layers from the activation's onset to the sink's: float[prompt], NaN for a prompt that lacks either."""
    sink, onset = metrics.sink_onset(data, 0, config.eps, share=config.onset)[0], metrics.onset(massive(data), 0.5)
    have_both = np.isfinite(sink) & np.isfinite(onset)
    if not have_both.any():
        raise st.Absent("no prompt has both a sink and a massive activation on position 0")
    return np.subtract(sink, onset, out=np.full(sink.shape, np.nan), where=have_both)


def comes_before(config: Baseline, massive: Massive, data: Any) -> NDArray:
    """1.0 for a prompt whose sink comes exactly one layer after its activation, else 0.0: float[prompt], NaN as `lead`."""
    layers = lead(config, massive, data)
    return np.where(np.isfinite(layers), layers == 1, np.nan)


def has_both(config: Baseline, massive: Massive, data: Any) -> NDArray:
    """1.0 for a prompt with a sink and a massive activation on position 0, else 0.0: float[prompt]."""
    sink = np.isfinite(metrics.sink_onset(data, 0, config.eps, share=config.onset)[0])
    return np.asarray(sink & massive(data).any(axis=-1), float)


def agreement(config: Baseline, massive: Massive, lag: int, data: Any) -> float:
    """Share of layers l, over prompts, that have a sink if and only if |h| is massive after layer l - lag."""
    lead(config, massive, data)  # absent for a run that lacks either
    sink, large = metrics.sink_rate(data, 0, config.eps, per="layer")[0] > config.onset, massive(data)
    return float((sink[:, lag:] == large[:, : sink.shape[1] - lag]).mean())


def measures(config: Baseline) -> tuple[st.Measure, ...]:
    """Sink and largest activation at position 0 and elsewhere, the onsets of both, the loss."""
    sinks, prominence = partial(_bos.sink_rates, eps=config.eps), partial(_bos.prominence, position=0)
    return (
        st.sink_rate(0, config.eps),
        st.Measure("heads that sink on the strongest other key (%)", lambda data: sinks(data)[1:].max(axis=0)),
        st.largest_activation(0),
        st.largest_elsewhere(0),
        st.Measure("largest |h| / median |h| at position 0", lambda data: np.nanmax(metrics.top1_over_median(data, 0), axis=-1)),
        st.Measure("layer of the sink's onset", lambda data: metrics.sink_onset(data, 0, config.eps, share=config.onset)),
        st.Measure("layer of the massive activation's onset", lambda data: metrics.onset(prominence(data), config.massive) - 1),
        st.loss(),
        attention_to(0),
    )


def rows(results: st.Results) -> list[st.Row]:
    """Position 0 in each run, compared with the run without a BOS, and ranked among the other positions."""
    config, found = results.config, _bos.runs(results)
    at_key, _, largest, *_ = (measure.name for measure in measures(config))
    keys = [_bos.sink_rates(data, config.eps)[:, 0] for data in found.values()]
    elsewhere = {
        at_key: np.stack([each[1:].T for each in keys]),
        largest: np.stack([st.largest(data)[0, :, 1 : len(keys[0])] for data in found.values()]),
    }
    columns = []
    for measure in measures(config):
        values, others = np.stack([measure.of(data)[0] for data in found.values()]), elsewhere.get(measure.name)
        clusters = results.clusters(values.shape[1])
        columns.append(st.own_rows(tuple(found), st.NO_EDIT, measure.name, values, config.seed, others, True, clusters))
    return [row for run in zip(*columns, strict=True) for row in run]


def claims(config: Baseline, architecture: Any) -> Iterator[st.Claim]:
    """The paper's statements, on each run apart: a model meets a BOS in training, or it does not."""
    at_key, strongest, half = *measures(config)[:2], architecture.layers // 2

    def rates(data: Any) -> NDArray:
        return 100 * metrics.sink_rate(data, 0, config.eps, per="layer")[0]

    def growth(values: Callable[[Any], NDArray]) -> Callable[[Any], NDArray]:
        return lambda data: values(data)[:, half:].mean(-1) - values(data)[:, 0]

    gap = "the share of heads that sink on position 0 minus that on the strongest other key"
    bounds = f"|h| above {activations.THRESHOLD:g} and {activations.RATIO:,.0f} medians"
    sun = f"the share of prompts with {bounds} somewhere (Sun et al.)"
    exactly = "the share of prompts whose sink comes exactly one layer after the massive activation, of those with both"
    both = "the share of prompts with a sink and a massive activation (Sun et al.) on position 0"

    def layer(data: Any) -> float:
        shares = by_sun(data).mean(axis=0)
        return float(shares.argmax()) if shares.any() else float("nan")

    for run in STORES:
        of, known = partial(_bos.number, run), _bos.meets(run)
        yield st.Claim(
            f"Without an edit the attention sink is on the first token, {run}.",
            st.above(of(gap, lambda data: (at_key.of(data) - strongest.of(data))[0], POINTS, True)),
            given=known,
            source="Kiya et al. 2026, Figs. 1a, 6",
        )
        yield st.Claim(
            f"Without an edit the massive activation is on the first token, {run}.",
            st.all_of(
                st.above(of("the largest |h|", lambda data: times_typical(data).max(axis=-1), TIMES), config.massive),
                st.above(of(sun, lambda data: by_sun(data).any(axis=-1).astype(float)), 0.5),
            ),
            given=known,
            source="Kiya et al. 2026, Figs. 1a, 6",
            also=(of("the layer with most of these prompts", layer, exact=True),),
        )
        yield st.Claim(
            f"Without an edit less than {100 * config.onset:g} % of the first layer's heads sink on the first token,"
            f" whose |h| there is less than {config.massive:g} times a typical one, and both grow with depth, {run}.",
            st.all_of(
                st.below(of("the share of heads that sink in layer 0 (%)", lambda data: rates(data)[:, 0]), 100 * config.onset),
                st.below(of("|h| after layer 0", lambda data: times_typical(data)[:, 0], TIMES), config.massive),
                st.above(of("the growth of that share from layer 0 to the second half of layers", growth(rates), POINTS, True)),
                st.above(of("the growth of |h| from layer 0 to the second half of layers", growth(times_typical), TIMES, True)),
            ),
            given=st.all_of(known, st.above(of(at_key.name, lambda data: at_key.of(data)[0]), SOME)),
            source="Kiya et al. 2026, Fig. 6",
            paper="so in Llama-2-7B",
        )
        numbers: dict[str, Callable[[Any], Any]] = {
            "the layers from the onset of the activation to that of the sink": partial(lead, config, by_sun),
            **{f"agreement at k = {lag}": partial(agreement, config, by_sun, lag) for lag in range(min(3, architecture.layers))},
            f"those layers, massive as {config.massive:g} times a typical position": partial(
                lead, config, lambda data: times_typical(data) > config.massive
            ),
        }
        yield st.Claim(
            "The first massive activation of the first token (Sun et al.) comes one layer before its first sink in"
            f" most prompts, {run}.",
            st.above(of(exactly, partial(comes_before, config, by_sun)), 0.5),
            given=st.all_of(known, st.above(of(both, partial(has_both, config, by_sun)), 0.5)),
            source="Kiya et al. 2026, Figs. 2c, 2e",
            paper="1 layer (Llama-3.2-3B)",
            also=tuple(of(name, values) for name, values in numbers.items()),
        )


def findings(config: Baseline, architecture: Any) -> Iterator[st.Quantity]:
    *_, sink, massive, _, seen = measures(config)
    for run in STORES:
        yield from (st.median(measure, f"{run}: {st.NO_EDIT}") for measure in (massive, sink))
        yield st.value(seen, f"{run}: {st.NO_EDIT}")
        for layer in range(min(FIRST_LAYERS, architecture.layers)):  # Figs. 2 and 6
            name = f"attention to key 0 in layer {layer}, mean over heads (%)"
            yield _bos.number(run, name, partial(at_first, layer))


def at_first(layer: int, data: Any) -> NDArray:
    """The readout of key 0 in one layer: float[prompt]."""
    return np.asarray(received(data, layer)[0, :, 0])


def figures(config: Baseline, architecture: Any) -> Iterator[st.Figure]:
    places = {"position 0": (0, 0), "strongest other position": (0, None)}
    caption = """Share of a layer's heads that sink on position 0 and on the other position with most of them (top), and the
        largest |h| at position 0 and at the other positions (bottom)."""
    yield _bos.by_layer(config.eps, places, caption)
    yield from _bos.maps(config.drawn_layers(architecture.layers), (st.NO_EDIT,))


STUDY = st.Study(
    name="kiya/baseline",
    config=Baseline,
    title="Sink and massive activation without an edit",
    question="""Kiya et al. 2026: without an edit the first token has the attention sink and the massive activation; in Llama-2-7B
        the first layer has neither, and both grow with depth; the massive activation comes one layer before the sink.""",
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "resid_median", "nll"),
    more=lambda config, architecture: _bos.both(st.unedited("sweep")),
    rows=rows,
    claims=claims,
    findings=findings,
    figures=figures,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT,), config.drawn_layers(architecture.layers), sweeps=_bos.SWEEPS, texts=False
    ),
    notes=lambda config, results: (
        *_bos.about(results),
        "Effects are differences of the run with a BOS from the one without, paired by passage. " + st.sink_note(config.eps),
        f"""Controls: the other {results["plain"].sizes["key"] - MIN_QUERIES} positions that at least {MIN_QUERIES} queries see; a
        percentile says how many of them have a smaller mean than position 0. Nothing is edited, so there is no identity edit.""",
        f"""The sink's onset is the first layer in which more than {config.onset:.0%} of the heads sink on position 0; the massive
        activation's onset, the first layer after which the largest |h| at position 0 is more than {config.massive:g} times that
        of a typical (the median) other position. Prompts without an onset are left out and counted.""",
        """Agreement at k is the share of layers l, over prompts, that have a sink if and only if the activation is massive after
        layer l - k.""",
        """The paper gives no threshold for massive. The one relative to a typical position was chosen after a first look at
        SmolLM2, which showed that another token often has a massive activation too. The order of the onsets is judged by Sun et
        al.'s definition alone; the order by the other one is only reported. A prompt without both onsets says nothing about
        their order and is left out; the claim applies only where most prompts have both.""",
        """Until 2026-11-22 a rule had to hold in both runs. After a review, with results known, each run has its own claims, as a
        model that was trained with a BOS in front says little without it. Since 2026-11-23, after another, they are not
        applicable to prompts that the model did not meet in training: without BOS if `bos` is model, or with one that opens a
        chat. The order is that of the first onset of each; a sink may form more than once.""",
    ),
)
