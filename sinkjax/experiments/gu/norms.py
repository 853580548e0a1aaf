"""gu/norms: L2 norms of hidden states, queries, keys and values by layer, the first token against the others.

Nothing is edited. The ratio of position 0 to the mean of the others is ranked among the same ratio of other, random positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.experiments.base import Claim, Drawing, Job, Section, unedited
from sinkjax.experiments.captions import origin
from sinkjax.experiments.gu.config import Norms
from sinkjax.experiments.gu.first_token import alone, control_positions, ranked, spread, stretches
from sinkjax.experiments.illustrations import MAPS, maps
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import LEVEL, Row, Table
from sinkjax.experiments.words import high, low, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.figures import layers
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("norms",)
EXTRAS = (MAPS,)
HIDDEN, QUERIES, KEYS, VALUES = "hidden state", "queries", "keys", "values"
STATISTICS = {HIDDEN: "resid_norm", QUERIES: "query_norm", KEYS: "key_norm", VALUES: "value_norm"}
FIRST, OTHERS, RATIO = "L2 norm at position 0", "L2 norm at the other positions, mean", "ratio of the two"
ALL = "all layers"
LARGE, SMALL = 3.0, 0.75  # ratios from which on a norm counts as far larger, and below which as smaller
CLAIM = (
    "Gu et al. 2025: from an early block on, the first token's hidden state is far larger than the others', while its keys and,"
    " above all, its values are smaller."
)


@dataclass(frozen=True)
class Measured:
    """Norms of one kind of vector, means over heads.

    first, others: float[layer, prompt], at position 0 and as a mean over the other positions. ratios: float[layer, prompt,
    position], of each chosen position to the mean of all others but position 0, position 0 first. Layers are depths for hidden
    states.
    """

    first: NDArray
    others: NDArray
    ratios: NDArray


def jobs(config: Norms, architecture: Config) -> tuple[Job, ...]:
    """One unedited run."""
    needs("gu/norms", architecture)
    norms = Job("norms", unedited(), Probe.of(*STATISTICS.values()), config.prompts)
    return norms, maps(config, architecture, unedited())


def section(config: Norms, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Norms and ratios by layer, with controls."""
    data = stores["norms"].load().isel(edit=0)
    positions = (0, *control_positions(int(data.sizes["position"]), config.controls, config.seed))
    found = {name: measured(data[statistic], positions) for name, statistic in STATISTICS.items()}
    rows = [row for name, entry in found.items() for row in summary(name, entry, config.seed)]
    table = {(row.arm, row.measure): row for row in rows}
    return Section(
        experiment="gu/norms",
        title="Norms of the first token and of the others",
        claim=CLAIM,
        findings=_findings(found, table),
        rows=tuple(rows),
        featured=tuple(f"{name}, {ALL}" for name in found),
        drawings=_drawings(found, data, config),
        notes=_notes(config, len(positions) - 1),
        provenance=results.provenance(stores["norms"]),
        claims=_claims(table),
    )


def measured(norms: Any, positions: tuple[int, ...]) -> Measured:
    """The norms of the first token and of the others, from [prompt, layer, (head,) position], NaN beyond a prompt."""
    values = np.asarray(norms, np.float64)
    values = np.moveaxis(values.mean(axis=2) if values.ndim == 4 else values, 0, 1)  # layer, prompt, position
    later = values[..., 1:]
    total, count = np.nansum(later, axis=-1), np.isfinite(later).sum(-1)
    chosen = values[..., positions]
    own = np.array([position > 0 for position in positions])  # a position is no part of what it is compared with
    others = (total[..., None] - np.where(own, chosen, 0)) / np.maximum(count[..., None] - own, 1)
    return Measured(chosen[..., 0], others[..., 0], chosen / others)


def summary(name: str, found: Measured, seed: int) -> list[Row]:
    """Rows of one kind of vector: the mean over layers (but for the embedding), then each layer."""
    what, after_embedding = ("depth", slice(1, None)) if name == HIDDEN else ("layer", slice(None))
    labels = (f"{name}, {ALL}", *(f"{name}, {what} {number}" for number in range(len(found.first))))

    def with_mean(values: NDArray) -> NDArray:
        return np.concatenate([values[after_embedding].mean(axis=0, keepdims=True), values])

    return [
        *alone(labels, name, FIRST, with_mean(found.first), seed),
        *alone(labels, name, OTHERS, with_mean(found.others), seed),
        *ranked(labels, name, RATIO, with_mean(found.ratios), seed),
    ]


def _findings(found: Mapping[str, Measured], table: Table) -> tuple[str, ...]:
    sentences = [
        f"The {name} of the first token: norm {interval(table[arm, FIRST].value)}, the others'"
        f" {interval(table[arm, OTHERS].value)}, ratio {_ratio(table[arm, RATIO])}; mean over layers."
        for name, arm in ((name, f"{name}, {ALL}") for name in found)
    ]
    ratios = found[HIDDEN].ratios[..., 0].mean(axis=1)
    largest = int(ratios.argmax())
    grown = stretches(np.flatnonzero(ratios > LARGE).tolist())
    where = f"it exceeds {LARGE:g} at depths {grown}" if grown else f"it exceeds {LARGE:g} at no depth"
    return (
        *sentences,
        f"The ratio of hidden states is largest at depth {largest}, {number(float(ratios[largest]))}; {where}.",
    )


def _ratio(row: Row) -> str:
    rank = "" if row.percentile is None else f" (percentile {row.percentile:.0f} among {row.controls} other positions)"
    return f"{interval(row.value)}{rank}"


def _claims(table: Table) -> tuple[Claim, ...]:
    hidden, keys, values = (table[f"{name}, {ALL}", RATIO] for name in (HIDDEN, KEYS, VALUES))
    larger = low(hidden.value) > LARGE and hidden.percentile == 100

    def smaller(name: str, row: Row, paper: str) -> Claim:
        return Claim(
            f"The first token's {name} are smaller than the others' (Gu et al. 2025, figure for LLaMA3-8B).",
            verdict(high(row.value) < SMALL and row.percentile == 0),
            f"Ratio {_ratio(row)}, mean over layers and heads; rule: the upper bound is below {SMALL:g} and the"
            " ratio below that of every control position.",
            paper,
        )

    return (
        Claim(
            "The first token's hidden state is far larger than the others' (Gu et al. 2025, figure for LLaMA3-8B).",
            verdict(larger),
            f"Ratio {_ratio(hidden)}, mean over depths after the embedding; rule: the lower bound is above {LARGE:g} and the"
            " ratio above that of every control position.",
            "LLaMA3-8B, read off a figure: about 370 in blocks 2 to 31, the others below 60",
        ),
        smaller(KEYS, keys, "LLaMA3-8B, read off a figure: 3 to 5, the others about 20"),
        smaller(VALUES, values, "LLaMA3-8B, read off a figure: below 1, the others 2 to 6"),
    )


def _drawings(found: Mapping[str, Measured], data: Any, config: Norms) -> tuple[Drawing, ...]:
    bands = f"Bands: bootstrap 95 % intervals over {data.sizes['prompt']} prompts; of the other positions' ratios, their range."

    def norms(name: str) -> layers.Panel:
        entry = found[name]
        lines = [
            layers.Line(label, range(len(values)), list(intervals.intervals(values, level=LEVEL, seed=config.seed)))
            for label, values in (("position 0", entry.first), ("other positions", entry.others))
        ]
        return layers.Panel(name, "L2 norm", lines, log=True)

    def ratios(name: str) -> layers.Panel:
        values = found[name].ratios
        x = range(len(values))
        first = list(intervals.intervals(values[..., 0], level=LEVEL, seed=config.seed))
        others = [spread(np.nanmean(layer, axis=0)) for layer in values[..., 1:]]
        lines = [layers.Line("position 0", x, first), layers.Line("other positions", x, others)]
        return layers.Panel(name, "ratio to the mean of\nthe other positions", lines, log=True)

    heads = (QUERIES, KEYS, VALUES)
    return (
        Drawing(
            "hidden-state-norms",
            layers.lines([[norms(HIDDEN)], [ratios(HIDDEN)]], "depth (0: embedding, l + 1: after layer l)", legend_above=True),
            f"L2 norms of hidden states (top) and their ratio to the mean of the other positions (bottom). {bands}"
            f" {origin(data)}.",
        ),
        Drawing(
            "query-key-value-norms",
            layers.lines(
                [[norms(name) for name in heads], [ratios(name) for name in heads]], "layer (0-based)", legend_above=True
            ),
            f"L2 norms of queries, keys and values, mean over heads (top), and their ratio to the mean of the other positions"
            f" (bottom), before the rotation, which keeps norms. {bands} {origin(data)}.",
        ),
    )


def _notes(config: Norms, controls: int) -> tuple[str, ...]:
    return (
        f"Means over {config.prompts} prompts with bootstrap 95 % intervals. Norms of queries, keys and values are those of"
        " single heads, averaged over heads; the mean over layers of hidden states leaves out the embedding.",
        "The ratio is that of the norm at a position to the mean norm of the prompt's other positions, position 0 never among"
        " them, taken in each prompt and layer before anything is averaged.",
        f"Controls: the same ratio of {controls} other positions, drawn at random from the first half of a prompt; a percentile"
        " says how many of them have a smaller ratio. Nothing is edited, so the identity edit is the run itself.",
    )
