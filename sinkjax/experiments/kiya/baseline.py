"""kiya/baseline: where sink and massive activation are without an edit, by layer, without and with a BOS (Figs. 1a and 6).

The same passages run twice: as they are, and after the BOS, cut to the same length. Nothing is edited, so the controls of
position 0 are the other positions of the same prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.intervals import Interval
from sinkjax.config_files.checks import MIN_QUERIES, layers_below
from sinkjax.experiments import illustrations, measures
from sinkjax.experiments.base import Arm, Calculation, Claim, Inputs, Job, Section
from sinkjax.experiments.kiya import bos
from sinkjax.experiments.kiya.baseline_figures import drawings
from sinkjax.experiments.kiya.config import Baseline
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Row
from sinkjax.experiments.words import above, below, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("plain", "bos", "plain-maps", "bos-maps")
EXTRAS = (
    illustrations.MAPS,
    "maps-bos",
)
RUNS = {bos.WITHOUT: ("plain", "plain-maps"), bos.WITH: ("bos", "bos-maps")}
STATISTICS = ("attention_received", "resid_max", "resid_median", "nll")
THRESHOLD, RATIO = 100.0, 1000.0  # Sun et al. 2024, section 2
CLAIM = (
    "Kiya et al. 2026: without an edit the first token has the attention sink and the massive activation; in Llama-2-7B the first"
    " layer has neither, and both grow with depth; the massive activation comes one layer before the sink."
)


def jobs(config: Baseline, architecture: Config) -> tuple[Job | Calculation, ...]:
    """One run without a BOS and one with it, and the attention maps of the first prompts of each."""
    needs("kiya/baseline", architecture)
    layers_below(config, "map_layers", architecture.layers)
    found = bos.of_study(config)
    arms = (Arm(sinkjax.compose(label="no edit"), "no edit"),)
    plain = Job("plain", arms, Probe.of(*STATISTICS), config.prompts, Inputs(bos="none"))
    maps = Job("plain-maps", arms, Probe(attention=config.map_layers), 1, Inputs(bos="none"))
    shown = illustrations.maps(config, architecture, arms, inputs=Inputs(bos="none"))
    return (
        *(plain, bos.with_bos(plain, "bos", found), maps, bos.with_bos(maps, "bos-maps", found)),
        *(shown, bos.with_bos(shown, EXTRAS[1], found)),
    )


def section(config: Baseline, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary of both runs, the figures, and what the paper's statements come to."""
    found = bos.present(stores)
    runs = {name: found[store].load() for name, (store, _) in RUNS.items() if store in found}
    maps = {name: found[store].load() for name, (_, store) in RUNS.items() if store in found}
    rows = _rows(config, runs)
    return Section(
        experiment="kiya/baseline",
        title="Sink and massive activation without an edit",
        claim=CLAIM,
        findings=_findings(config, runs, rows),
        rows=rows,
        featured=tuple(runs),
        drawings=drawings(config, runs, maps),
        notes=_notes(config, runs),
        provenance=results.provenance(runs[bos.WITHOUT]),
        claims=_claims(config, runs),
    )


def sink_onset(config: Baseline, data: xarray.Dataset) -> NDArray:
    """The first layer in which enough heads sink on position 0: float[prompt], inf if none."""
    return metrics.sink_onset(data, 0, config.eps, share=config.onset)[0]


def massive_onset(config: Baseline, data: xarray.Dataset) -> NDArray:
    """The first layer after which |h| at position 0 is massive: float[prompt], inf if none; the embedding would be -1."""
    return metrics.onset(bos.prominence(data, 0), config.massive)[0] - 1


def by_sun(data: xarray.Dataset) -> NDArray[np.bool_]:
    """Whether |h| at position 0 is massive as Sun et al. (2024) define it, after each layer: bool[prompt, layer].

    The median of the whole hidden state is that of the median position, as the store holds one median a position.
    """
    largest, medians = data["resid_max"].values[0, :, 1:, 0], data["resid_median"].values[0, :, 1:]
    return (largest > THRESHOLD) & (largest > RATIO * np.nanmedian(medians, axis=-1))


def strongest_other(data: xarray.Dataset, eps: float) -> NDArray:
    """Share of heads, in per cent, that sink on the key other than 0 on which most heads do: float[edit, prompt]."""
    return bos.sink_rates(data, eps)[1:].max(axis=0)


def _measures(config: Baseline) -> tuple[tuple[Measure, Callable[[int], Measure] | None], ...]:
    """Each measure of position 0, and the same measure of another position where there is one."""
    sinks, largest = (lambda key: measures.sink_rate(key, config.eps)), measures.largest_activation
    return (
        (sinks(0), sinks),
        (Measure("heads that sink on the strongest other key (%)", lambda data: strongest_other(data, config.eps)), None),
        (largest(0), largest),
        (measures.largest_elsewhere(0), None),
        (
            Measure("largest |h| / median |h| at position 0", lambda data: np.nanmax(metrics.top1_over_median(data, 0), axis=-1)),
            None,
        ),
        (Measure("layer of the sink's onset", lambda data: sink_onset(config, data)[None]), None),
        (Measure("layer of the massive activation's onset", lambda data: massive_onset(config, data)[None]), None),
        (measures.loss(), None),
    )


def _rows(config: Baseline, runs: Mapping[str, xarray.Dataset]) -> tuple[Row, ...]:
    """The measures of each run, compared with the run without a BOS, and ranked among the other positions."""
    rows = []
    for name, data in runs.items():
        for measure, elsewhere in _measures(config):
            values, plain = measure.of(data)[0], measure.of(runs[bos.WITHOUT])[0]
            others = [elsewhere(int(position)).of(data)[0].mean() for position in bos.searched(data)[1:]] if elsewhere else []
            rank = float(intervals.percentile_among(values.mean(), others)) if others else None
            effect = intervals.paired_differences(values[None], plain, seed=config.seed)[0]
            rows.append(
                Row(name, "no edit", measure.name, intervals.interval(values, seed=config.seed), effect, rank, len(others))
            )
    return tuple(rows)


def _findings(config: Baseline, runs: Mapping[str, xarray.Dataset], rows: Sequence[Row]) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    table = {(row.arm, row.measure): row for row in rows}
    sinks, other, at_0, elsewhere, ratio, *_ = (measure.name for measure, _ in _measures(config))
    sentences = []
    for name, data in runs.items():
        sentences.append(
            f"{name[0].upper()}{name[1:]}, {interval(table[name, sinks].value)} % of all heads sink on position 0 (on the"
            f" strongest other key: {interval(table[name, other].value)} %); the largest |h| there is"
            f" {interval(table[name, at_0].value)}, {interval(table[name, ratio].value)} times the median of its hidden state,"
            f" and elsewhere {interval(table[name, elsewhere].value)}."
        )
        sink, massive = sink_onset(config, data), massive_onset(config, data)
        sentences.append(
            f"{name[0].upper()}{name[1:]}, {_onset(massive, 'the massive activation is there after layer')}, and"
            f" {_onset(sink, f'more than {config.onset:.0%} of a layer’s heads sink on it from layer')}."
        )
    if bos.WITH in runs:
        effects = {name: interval(table[bos.WITH, name].effect, signed=True) for name in (sinks, at_0)}
        sentences.append(
            f"A BOS before the text changes the share of heads that sink on position 0 by {effects[sinks]} percentage points"
            f" and the largest |h| there by {effects[at_0]}."
        )
    else:
        sentences.append("The model's files name no BOS token, so it ran without one only; a token id can be given as `bos`.")
    return tuple(sentences)


def _onset(layers: NDArray, what: str) -> str:
    reached = layers[np.isfinite(layers)]
    if not reached.size:
        return f"in no prompt {what.replace('is there after layer', 'appears').replace(' from layer', '')}"
    return f"{what} {np.median(reached):.0f} (median; {reached.size} of {layers.size} prompts)"


def _claims(config: Baseline, runs: Mapping[str, xarray.Dataset]) -> tuple[Claim, ...]:
    """The paper's statements; a rule must hold in every run."""

    def judge(statement: str, rule: str, tests: Mapping[str, tuple[bool, str]], paper: str = "") -> Claim:
        holds = all(passed for passed, _ in tests.values())
        words = "; ".join(f"{name}: {found}" for name, (_, found) in tests.items())
        return Claim(statement, verdict(holds), f"Rule: {rule}. {words}.", paper)

    def of(values: NDArray) -> Interval:
        return intervals.interval(values, seed=config.seed)

    def sink(data: xarray.Dataset) -> tuple[bool, str]:
        gap = of((100 * metrics.sink_rate(data, 0, config.eps) - strongest_other(data, config.eps))[0])
        return above(gap, 0), f"{interval(gap, signed=True)} percentage points"

    def massive(data: xarray.Dataset) -> tuple[bool, str]:
        times, share = of(bos.prominence(data, 0)[0, :, 1:].max(axis=-1)), by_sun(data).mean(axis=0)
        passed = above(times, config.massive) and share.max() > 0.5
        where = f" after layer {share.argmax()}" if share.any() else ""
        return passed, f"{interval(times)} times, and by Sun et al. in {share.max():.0%} of prompts{where}"

    def growth(data: xarray.Dataset) -> tuple[bool, str]:
        rate = 100 * metrics.sink_rate(data, 0, config.eps, per="layer")[0]
        times = bos.prominence(data, 0)[0, :, 1:]
        half = rate.shape[-1] // 2
        first, grows = of(rate[:, 0]), of(rate[:, half:].mean(-1) - rate[:, 0])
        small, larger = of(times[:, 0]), of(times[:, half:].mean(-1) - times[:, 0])
        passed = below(first, 100 * config.onset) and below(small, config.massive) and above(grows, 0) and above(larger, 0)
        return passed, (
            f"in layer 0 {interval(first)} % of heads sink and |h| is {interval(small)} times a typical position's; over the"
            f" second half of layers {interval(grows, signed=True)} percentage points and {interval(larger, signed=True)} times"
        )

    return (
        judge(
            "Without an edit the attention sink is on the first token (Kiya et al. 2026, Figs. 1a and 6).",
            "the share of heads that sink on position 0 exceeds that of the strongest other key, interval above 0",
            {name: sink(data) for name, data in runs.items()},
        ),
        judge(
            "Without an edit the massive activation is on the first token (Figs. 1a and 6).",
            f"at some depth |h| at position 0 is more than {config.massive:g} times that of a typical position, by its interval,"
            f" and after some layer it is massive in most prompts as Sun et al. define it (above {THRESHOLD:g} and {RATIO:,.0f}"
            " times the median)",
            {name: massive(data) for name, data in runs.items()},
        ),
        judge(
            "The first layer has neither sink nor massive activation, and both grow with depth (Fig. 6, Llama-2-7B).",
            f"in layer 0 at most {config.onset:.0%} of heads sink and |h| is at most {config.massive:g} times that of a typical"
            " position, and the second half of layers has more of both, all by their intervals",
            {name: growth(data) for name, data in runs.items()},
        ),
        _order(config, runs),
    )


def _order(config: Baseline, runs: Mapping[str, xarray.Dataset]) -> Claim:
    """Whether the massive activation comes first, by both definitions, in the runs that have both sink and activation."""
    words, passed = [], []
    for name, data in runs.items():
        sink = sink_onset(config, data)
        large = {
            f"{config.massive:g} times a typical position": bos.prominence(data, 0)[0, :, 1:] > config.massive,
            "by Sun et al.": by_sun(data),
        }
        for how, massive in large.items():
            onset = metrics.onset(massive, 0.5)
            both = np.isfinite(sink) & np.isfinite(onset)
            gap = sink[both] - onset[both]
            if gap.size:
                mean = intervals.interval(gap, seed=config.seed)
                passed.append(above(mean, 0) and np.median(gap) == 1)
                shares = enumerate(_agreement(config, data, massive))
                agree = ", ".join(f"{share:.0%} of cases for k = {lag}" for lag, share in shares)
                words.append(
                    f"{name}, {how}: {interval(mean, signed=True)} layers, exactly 1 in {(gap == 1).sum()} of {gap.size} prompts"
                    " (over all layers, the sink is in layer l if and only if the activation is massive after layer l - k in"
                    f" {agree})"
                )
    return Claim(
        "The massive activation of the first token comes one layer before its sink (Figs. 2c and 2e, Llama-3.2-3B).",
        verdict(all(passed), bool(passed)),
        "Rule: the layer of the sink's onset less the layer after which the activation is massive is above 0 by its interval, and"
        " 1 in the median prompt, by either definition of massive that any prompt obeys. "
        + ("; ".join(words) if passed else "No prompt has both a sink and a massive activation on position 0")
        + ".",
        "1 layer",
    )


def _agreement(config: Baseline, data: xarray.Dataset, massive: NDArray[np.bool_]) -> list[float]:
    """Share of layers l, over prompts, that have a sink if and only if |h| is massive after layer l - lag, for lags 0, 1, 2.

    massive: bool[prompt, layer].
    """
    sink = metrics.sink_rate(data, 0, config.eps, per="layer")[0] > config.onset
    L = sink.shape[1]
    return [float((sink[:, lag:] == massive[:, : L - lag]).mean()) for lag in range(min(3, L))]


def _notes(config: Baseline, runs: Mapping[str, xarray.Dataset]) -> tuple[str, ...]:
    """How the numbers were made."""
    data = runs[bos.WITHOUT]
    return (
        f"Values are means over {data.sizes['prompt']} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000"
        " resamples); a difference is that from the run without BOS, paired by passage.",
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {config.eps} (Gu et"
        " al. 2025). Shares are of all heads of all layers.",
        f"Controls: the other {bos.searched(data).size - 1} positions that at least {MIN_QUERIES} queries see; a percentile says"
        " how many of them have a smaller mean than position 0. Nothing is edited, so the identity edit is the run itself.",
        f"The sink's onset is the first layer in which more than {config.onset:.0%} of the heads sink on position 0; the massive"
        f" activation's onset, the first layer after which the largest |h| at position 0 is more than {config.massive:g} times"
        " that of a typical (the median) other position. Prompts without an onset are left out and counted.",
        "The paper gives no threshold. That of a typical position was taken after a first look had shown that some other token"
        " often has a massive activation too and that Sun et al.'s definition finds the onset much later on SmolLM2;"
        " since then a verdict that a definition decides asks for both. background/elsewhere tests the order without any.",
    )
