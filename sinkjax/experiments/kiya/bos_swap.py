"""kiya/bos-swap: the embedding of the first token changes places with that of a later one (Figs. 2 and 7).

If the sink and the massive activation belong to the token, they go with it; if they belong to the position, the new first token
has them. The swap is made once with a BOS in front and once without, and read in every layer. Controls swap two other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import MIN_QUERIES, layers_below
from sinkjax.experiments import identity, illustrations
from sinkjax.experiments.base import Arm, Calculation, Inputs, Job, Section
from sinkjax.experiments.kiya import bos
from sinkjax.experiments.kiya.bos_swap_claims import claims
from sinkjax.experiments.kiya.bos_swap_figures import drawings
from sinkjax.experiments.kiya.config import BosSwap
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Row
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("plain", "bos", "plain-controls", "bos-controls", "plain-maps", "bos-maps")
EXTRAS = (
    illustrations.MAPS,
    "maps-bos",
    illustrations.TEXTS,
    identity.STORE,
)
RUNS = {bos.WITHOUT: "plain", bos.WITH: "bos"}
STATISTICS = ("attention_received", "resid_max", "nll")
NONE, SWAP, CONTROL = "no edit", "swap", "control"
SINK_FIRST, SINK_NEW = "heads that sink on key 0 (%)", "heads that sink on the moved token's key (%)"
LARGEST_FIRST, LARGEST_NEW = "largest |h| at position 0", "largest |h| at the moved token"
LOSS = "loss (nats per token)"
CLAIM = (
    "Kiya et al. 2026: when the embedding of BOS changes places with that of another token, the first layer's sink and massive"
    " activation follow BOS, so its embedding is a cause; from the third layer on (Llama-3.2-3B), or as soon as there are any"
    " (Llama-2-7B), the new first token has both."
)


def jobs(config: BosSwap, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The swaps on all prompts, the controls on some and maps of one prompt; all of it without a BOS and with it."""
    needs("kiya/bos-swap", architecture)
    layers_below(config, "map_layers", architecture.layers)
    found, probe = bos.of_study(config), Probe.of(*STATISTICS)
    drawn = tuple(arm for arm in arms(config) if arm.place in (0, config.shown))
    plain = Inputs(bos="none")
    made = (
        Job("plain", arms(config), probe, config.prompts, plain),
        Job("plain-controls", controls(config), probe, min(config.control_prompts, config.prompts), plain),
        Job("plain-maps", drawn, Probe(attention=config.map_layers), 1, plain),
    )
    shown = illustrations.maps(config, architecture, drawn, inputs=plain)
    with_bos = (bos.with_bos(job, job.name.replace("plain", "bos"), found) for job in made)
    first = Inputs(bos=found.id) if found else plain
    same = {f"token {config.shown} swapped with itself": sinkjax.swap_embeddings(config.shown, config.shown)}
    return (
        *(*made, *with_bos, shown, bos.with_bos(shown, EXTRAS[1], found)),
        illustrations.texts(config, drawn, start=config.shown + 2, inputs=first),
        identity.job(config, probe, same, inputs=plain),
    )


def arms(config: BosSwap) -> tuple[Arm, ...]:
    """No edit, and a swap of position 0 with each position asked for. place: where the first token then is."""
    none = Arm(sinkjax.compose(label=NONE), NONE, place=0)
    swaps = (
        Arm(sinkjax.swap_embeddings(0, place).named(f"first token to {place}"), SWAP, place, budget=1)
        for place in config.positions
    )
    return (none, *swaps)


def controls(config: BosSwap) -> tuple[Arm, ...]:
    """Swaps of two random positions, neither of them 0. place: that of the second."""
    rng = intervals.generator(config.seed, "kiya/bos-swap controls")
    drawn = []
    for draw in range(config.controls):
        i, j = (int(position) for position in rng.choice(np.arange(1, config.length - MIN_QUERIES + 1), 2, replace=False))
        edit = sinkjax.swap_embeddings(i, j).named(f"control {draw}: token {i} to {j}")
        drawn.append(Arm(edit, CONTROL, j, budget=1))
    return tuple(drawn)


def section(config: BosSwap, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary of both runs, the figures, and what the paper's statements come to."""
    found = bos.present(stores)
    runs = {name: found[store].load() for name, store in RUNS.items() if store in found}
    random = {name: found[f"{store}-controls"].load() for name, store in RUNS.items() if store in found}
    maps = {name: found[f"{store}-maps"].load() for name, store in RUNS.items() if store in found}
    rows = tuple(row for name in runs for row in _rows(config, name, runs[name], random[name]))
    return Section(
        experiment="kiya/bos-swap",
        title="The first token's embedding elsewhere",
        claim=CLAIM,
        findings=_findings(config, runs, rows),
        rows=rows,
        featured=tuple(_label(name, arm) for name in runs for arm in arms(config)),
        drawings=drawings(config, runs, maps),
        notes=_notes(config, runs),
        provenance=results.provenance(runs[bos.WITHOUT]),
        claims=claims(config, runs),
    )


def _label(run: str, arm: Arm) -> str:
    return f"{run}: {arm.edit.label}"


def _measures(config: BosSwap) -> dict[str, Callable[[xarray.Dataset, NDArray], NDArray]]:
    """Name -> a number per edit and prompt; the second argument is the place of the moved token in each edit."""

    def largest(data: xarray.Dataset, place: NDArray) -> NDArray:
        return np.take_along_axis(data["resid_max"].values.max(axis=-2), place[:, None, None], axis=-1)[..., 0]

    def sinks(data: xarray.Dataset, place: NDArray) -> NDArray:
        return 100 * metrics.sink_rate(data, np.repeat(place[:, None], data.sizes["prompt"], axis=1), config.eps)

    return {
        SINK_FIRST: lambda data, place: sinks(data, 0 * place),
        SINK_NEW: sinks,
        LARGEST_FIRST: lambda data, place: largest(data, 0 * place),
        LARGEST_NEW: largest,
        LOSS: lambda data, place: metrics.mean_nll(data),
    }


def _rows(config: BosSwap, run: str, data: xarray.Dataset, random: xarray.Dataset) -> list[Row]:
    """Each arm's measures; an effect is the difference from the same place without an edit, and so is a control's."""
    swaps, draws = arms(config), controls(config)
    unedited = data.isel(edit=np.zeros(len(swaps), int))
    few = data.isel(edit=np.zeros(len(draws), int), prompt=slice(random.sizes["prompt"]))
    columns = []
    for name, of in _measures(config).items():
        place, other = (np.array([arm.place for arm in group]) for group in (swaps, draws))
        values, before = of(data, place), of(unedited, place)
        effects = intervals.paired_differences(values, before, seed=config.seed)
        shared = (values - before)[:, : random.sizes["prompt"]].mean(axis=1)
        others = (of(random, other) - of(few, other)).mean(axis=1)
        ranks = [None, *intervals.percentile_among(shared[1:], others)]
        columns.append(
            [
                Row(_label(run, arm), arm.group, name, mean, effect, rank, 0 if rank is None else len(draws))
                for arm, mean, effect, rank in zip(
                    swaps, intervals.intervals(values, seed=config.seed), effects, ranks, strict=True
                )
            ]
        )
    return [row for rows in zip(*columns, strict=True) for row in rows]


def _findings(config: BosSwap, runs: Mapping[str, xarray.Dataset], rows: Sequence[Row]) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    table = {(row.arm, row.measure): row for row in rows}
    sentences = []
    for run in runs:
        none, *swaps = (_label(run, arm) for arm in arms(config))
        shown = next(_label(run, arm) for arm in arms(config) if arm.place == config.shown)
        sentences.append(
            f"{run[0].upper()}{run[1:]}, {interval(table[none, SINK_FIRST].value)} % of heads sink on position 0 without an edit."
            f" With the first token's embedding at {config.shown}, {interval(table[shown, SINK_FIRST].value)} % sink on position"
            f" 0 and {interval(table[shown, SINK_NEW].value)} % on position {config.shown}; over all places that it was moved to,"
            f" {_span(table, swaps, SINK_FIRST)} % and {_span(table, swaps, SINK_NEW)} %."
        )
        sentences.append(
            f"{run[0].upper()}{run[1:]}, the largest |h| at position 0 is {interval(table[none, LARGEST_FIRST].value)} without an"
            f" edit and {_span(table, swaps, LARGEST_FIRST)} after the swaps; at the moved token it is then"
            f" {_span(table, swaps, LARGEST_NEW)}."
        )
    if bos.WITH not in runs:
        sentences.append("The model's files name no BOS token, so it ran without one only; a token id can be given as `bos`.")
    return tuple(sentences)


def _span(table: Mapping[tuple[str, str], Row], labels: Sequence[str], measure: str) -> str:
    """The smallest and the largest mean among some arms."""
    from sinkjax.report.table import number

    means = [table[label, measure].value.mean or 0.0 for label in labels]
    low, high = number(min(means)), number(max(means))
    return low if low == high else f"{low} to {high}"


def _notes(config: BosSwap, runs: Mapping[str, xarray.Dataset]) -> tuple[str, ...]:
    """How the numbers were made."""
    return (
        f"Values are means over {runs[bos.WITHOUT].sizes['prompt']} prompts with bootstrap 95 % intervals over prompts (BCa,"
        " 2,000 resamples). An effect is the mean difference from what the same position has without an edit, paired by prompt.",
        "Only the input embeddings change places: positions, masks and the targets of the loss stay, so the loss rises for that"
        " reason too.",
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {config.eps} (Gu et"
        " al. 2025). Shares are of all heads of all layers.",
        f"Controls: {config.controls} swaps of two random positions other than 0. A percentile says how many of them have a"
        f" smaller effect, at position 0 or at the place to which the first of the two went, on the same"
        f" {min(config.control_prompts, config.prompts)} prompts.",
    )
