"""kiya/baseline: where sink and massive activation are without an edit, by layer, without and with a BOS (Figs. 1a and 6).

The same passages run twice: as they are, and after the BOS, cut to the same length. Nothing is edited, so the controls of
position 0 are the other positions of the same prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, share
from sinkjax.studies.papers.kiya import _bos
from sinkjax.studies.papers.kiya._bos import STORES, in_every_run

THRESHOLD, RATIO = 100.0, 1000.0  # Sun et al. 2024, section 2
POINTS, TIMES = "percentage points", "times that of a typical position"


@dataclass(frozen=True, kw_only=True)
class Baseline(st.Mapped):
    """No edit: attention and activations by layer, once without and once with the BOS before the same text (Figs. 1a and 6).

    The BOS is `bos` if that is a token id, else the one that the model's files name; a model without one runs without.
    """

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


def strongest_other(config: Baseline, data: Any) -> NDArray:
    """Share of heads, in per cent, that sink on the key other than 0 on which most heads do: float[condition, prompt]."""
    return _bos.sink_rates(data, config.eps)[1:].max(axis=0)


def rates(config: Baseline, data: Any) -> NDArray:
    """Share of heads, in per cent, that sink on position 0 in each layer: float[prompt, layer]."""
    return 100 * metrics.sink_rate(data, 0, config.eps, per="layer")[0]


def times_typical(data: Any) -> NDArray:
    """|h| at position 0 after each layer, over that at a typical position: float[prompt, layer]."""
    return _bos.prominence(data, 0)[0, :, 1:]


def by_sun(data: Any) -> NDArray[np.bool_]:
    """Whether |h| at position 0 is massive as Sun et al. (2024) define it, after each layer: bool[prompt, layer].

    The median of the whole hidden state is that of the median position, as the store holds one median a position.
    """
    largest, medians = data["resid_max"].values[0, :, 1:, 0], data["resid_median"].values[0, :, 1:]
    return (largest > THRESHOLD) & (largest > RATIO * np.nanmedian(medians, axis=-1))


def layer_by_sun(data: Any) -> float:
    """The layer after which it is massive by that definition in most prompts; NaN if it never is."""
    share = by_sun(data).mean(axis=0)
    return float(share.argmax()) if share.any() else float("nan")


def over_median(data: Any) -> NDArray:
    """|h| at position 0 over its median, at the depth where this is largest: float[condition, prompt]."""
    return np.nanmax(metrics.top1_over_median(data, 0), axis=-1)


def sink_onset(config: Baseline, data: Any) -> NDArray:
    """The first layer in which enough heads sink on position 0: float[prompt], inf if none."""
    return metrics.sink_onset(data, 0, config.eps, share=config.onset)[0]


def massive_onset(config: Baseline, data: Any) -> NDArray:
    """The first layer after which |h| at position 0 is massive: float[prompt], inf if none; the embedding would be -1."""
    return metrics.onset(_bos.prominence(data, 0), config.massive)[0] - 1


def lead(config: Baseline, massive: Callable[[Any], NDArray], data: Any) -> NDArray:
    """Layers from the activation's onset to the sink's, of the prompts that have both: float[prompt]."""
    sink, onset = sink_onset(config, data), metrics.onset(massive(data), 0.5)
    both = np.isfinite(sink) & np.isfinite(onset)
    if not both.any():
        raise st.Absent("no prompt has both a sink and a massive activation on position 0")
    return sink[both] - onset[both]


def agreement(config: Baseline, massive: Callable[[Any], NDArray], lag: int, data: Any) -> float:
    """Share of layers l, over prompts, that have a sink if and only if |h| is massive after layer l - lag."""
    lead(config, massive, data)  # nothing is said of runs that lack either
    sink, large = metrics.sink_rate(data, 0, config.eps, per="layer")[0] > config.onset, massive(data)
    return float((sink[:, lag:] == large[:, : sink.shape[1] - lag]).mean())


def measures(config: Baseline) -> tuple[tuple[st.Measure, Callable[[int], st.Measure] | None], ...]:
    """Sink and largest activation at position 0 and elsewhere, the onsets of both, the loss; some for any other position too."""
    sinks, largest = partial(st.sink_rate, eps=config.eps), st.largest_activation
    return (
        (sinks(0), sinks),
        (st.Measure("heads that sink on the strongest other key (%)", partial(strongest_other, config)), None),
        (largest(0), largest),
        (st.largest_elsewhere(0), None),
        (st.Measure("largest |h| / median |h| at position 0", over_median), None),
        (st.Measure("layer of the sink's onset", lambda data: sink_onset(config, data)[None]), None),
        (st.Measure("layer of the massive activation's onset", lambda data: massive_onset(config, data)[None]), None),
        (st.loss(), None),
    )


def rows(results: st.Results) -> list[st.Row]:
    """Position 0 in each run, compared with the run without a BOS, and ranked among the other positions."""
    found, columns = _bos.runs(results), []
    for measure, of in measures(results.config):
        values, others = np.stack([measure.of(data)[0] for data in found.values()]), None
        if of is not None:
            elsewhere = [[of(int(key)).of(data)[0] for key in _bos.searched(data)[1:]] for data in found.values()]
            others = np.moveaxis(np.array(elsewhere), 1, -1)
        seed = results.config.seed
        columns.append(st.own_rows(tuple(found), st.NO_EDIT, measure.name, values, seed, others, compared=True))
    return [row for run in zip(*columns, strict=True) for row in run]


def claims(config: Baseline, architecture: Any) -> Iterator[st.Claim]:
    """The paper's statements; a rule must hold in every run."""
    rate, half = partial(rates, config), architecture.layers // 2

    def beyond(data: Any) -> NDArray:
        return (100 * metrics.sink_rate(data, 0, config.eps) - strongest_other(config, data))[0]

    def deeper(values: Callable[[Any], NDArray]) -> Callable[[Any], NDArray]:
        return lambda data: values(data)[:, half:].mean(-1) - values(data)[:, 0]

    gap = "the share of heads that sink on position 0 minus that on the strongest other key"
    yield st.Claim(
        "Without an edit the attention sink is on the first token (Kiya et al. 2026, Figs. 1a and 6).",
        in_every_run(lambda of: st.above(of(gap, beyond, POINTS, True))),
    )
    sun = f"the largest share of prompts, over layers, with |h| above {THRESHOLD:g} and {RATIO:,.0f} medians (Sun et al.)"
    yield st.Claim(
        "Without an edit the massive activation is on the first token (Figs. 1a and 6).",
        in_every_run(
            lambda of: st.all_of(
                st.above(of("the largest |h|", lambda data: times_typical(data).max(axis=-1), TIMES), config.massive),
                st.more_than(of(sun, lambda data: by_sun(data).mean(axis=0).max(), exact=True), 0.5),
            )
        ),
        also=tuple(_bos.number(run, "the layer with most of these prompts", layer_by_sun, exact=True) for run in STORES),
    )
    yield st.Claim(
        "The first layer has neither sink nor massive activation, and both grow with depth (Fig. 6, Llama-2-7B).",
        in_every_run(
            lambda of: st.all_of(
                st.below(of("the share of heads that sink in layer 0 (%)", lambda data: rate(data)[:, 0]), 100 * config.onset),
                st.below(of("|h| after layer 0", lambda data: times_typical(data)[:, 0], TIMES), config.massive),
                st.above(of("the growth of that share from layer 0 to the second half of layers", deeper(rate), POINTS, True)),
                st.above(of("the growth of |h| from layer 0 to the second half of layers", deeper(times_typical), TIMES, True)),
            )
        ),
    )
    yield order(config, range(min(3, architecture.layers)))


def order(config: Baseline, lags: Sequence[int]) -> st.Claim:
    """Whether the massive activation comes first, by both definitions, in the runs that have both sink and activation."""
    definitions: dict[str, Callable[[Any], NDArray]] = {
        f"{config.massive:g} times a typical position": lambda data: times_typical(data) > config.massive,
        "Sun et al.": by_sun,
    }

    def judged(run: str, how: str) -> tuple[st.Rule, list[st.Quantity]]:
        of, gap = partial(_bos.number, run, detail=f", {how}"), partial(lead, config, definitions[how])
        mean = of("the layers from the onset of the activation to that of the sink", gap, signed=True)
        middle = of("their median", lambda data: np.median(gap(data)), exact=True)
        once = of("the share of prompts with exactly one layer", lambda data: (gap(data) == 1).mean(), exact=True)
        agreeing = (of(f"agreement at k = {lag}", partial(agreement, config, definitions[how], lag), exact=True) for lag in lags)
        return st.all_of(st.above(mean), st.equals(middle, 1)), [once, *agreeing]

    found = [judged(run, how) for run in STORES for how in definitions]
    return st.Claim(
        "The massive activation of the first token comes one layer before its sink (Figs. 2c and 2e, Llama-3.2-3B).",
        st.all_present([rule for rule, _ in found], "in every run, by either definition of massive that any prompt obeys"),
        paper="1 layer",
        also=tuple(quantity for _, beside in found for quantity in beside),
    )


def findings(config: Baseline, architecture: Any) -> Iterator[st.Quantity]:
    """Position 0 in both runs, and what the BOS changes."""
    sinks, other, at_0, elsewhere, ratio, sink, massive, _ = (measure for measure, _ in measures(config))
    for run in STORES:
        yield from (st.listed(run, measure.name) for measure in (sinks, other, at_0, ratio, elsewhere))
        yield from (st.median(measure, f"{run}: {st.NO_EDIT}") for measure in (massive, sink))
    for name in (sinks.name, at_0.name):
        effect = lambda results, name=name: results.own_row(_bos.WITH, name).effect  # noqa: E731
        yield st.quantity(f"effect of the BOS on {name}", effect, signed=True)


def by_layer(results: st.Results) -> list[list[Any]]:
    """Sinks and largest activations, at position 0 and elsewhere, in each layer."""

    def sinks(data: Any) -> dict[str, NDArray]:
        found = _bos.sink_rates(data, results.config.eps, per="layer")[:, 0]
        return {"key 0": found[0], "strongest other key": found[1:].max(axis=0)}

    def largest(data: Any) -> dict[str, NDArray]:
        found = data["resid_max"].values[0, :, 1:]
        return {"position 0": found[..., 0], "largest of the other positions": np.nanmax(found[..., 1:], axis=-1)}

    runs = _bos.runs(results)
    return [
        [results.panel(run, "heads that sink on the key (%)", sinks(data)) for run, data in runs.items()],
        [results.panel(run, "largest |h| after the layer", largest(data), log=True) for run, data in runs.items()],
    ]


def figures(config: Baseline, architecture: Any) -> Iterator[st.Figure]:
    yield st.curves(
        *("by-layer", "layer (0-based)", by_layer),
        """Share of a layer's heads that sink on position 0 and on the other position with most of them (top), and the largest |h|
        there and at the other positions (bottom).""",
        store=_bos.SWEEPS,
    )
    yield from _bos.figures(config.drawn_layers(architecture.layers), (st.NO_EDIT,))


STUDY = st.Study(
    name="kiya/baseline",
    config=Baseline,
    title="Sink and massive activation without an edit",
    question="""Kiya et al. 2026: without an edit the first token has the attention sink and the massive activation; in Llama-2-7B
        the first layer has neither, and both grow with depth; the massive activation comes one layer before the sink.""",
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "resid_median", "nll"),
    inputs=lambda config: _bos.PLAIN,
    more=lambda config, architecture: _bos.both(st.unedited("sweep")),
    rows=rows,
    claims=claims,
    findings=findings,
    figures=figures,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT,), config.drawn_layers(architecture.layers), sweeps=_bos.SWEEPS, texts=False
    ),
    notes=lambda config, results: (
        "Effects are differences of the run with a BOS from the one without, paired by passage. " + st.sink_note(config.eps),
        f"""Controls: the other {_bos.searched(results["plain"]).size - 1} positions that at least {MIN_QUERIES} queries see; a
        percentile says how many of them have a smaller mean than position 0. Nothing is edited, so there is no identity edit.""",
        f"""The sink's onset is the first layer in which more than {config.onset:.0%} of the heads sink on position 0; the massive
        activation's onset, the first layer after which the largest |h| at position 0 is more than {config.massive:g} times that
        of a typical (the median) other position. Prompts without an onset are left out and counted.""",
        """Agreement at k is the share of layers l, over prompts, that have a sink if and only if the activation is massive after
        layer l - k.""",
        """The paper gives no threshold. That of a typical position was taken after a first look had shown that some other token
        often has a massive activation too and that Sun et al.'s definition finds the onset much later on SmolLM2;
        since then a verdict that a definition decides asks for both. background/elsewhere tests the order without any.""",
    ),
)
