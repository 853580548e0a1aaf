"""The part of kiya/self that asks whether it must be itself that a query sees: one random other key in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.edits.site import Site
from sinkjax.experiments.base import Arm, Claim
from sinkjax.experiments.kiya.config import SelfOnly
from sinkjax.experiments.summary import Measure, Measured, Row, summarise
from sinkjax.experiments.words import above, verdict
from sinkjax.report.table import interval

ALL, OTHER = "all layers", "another key, all layers"


@dataclass(frozen=True)
class Compared:
    """What one other key does, for the section of kiya/self.

    rows: its lines of the summary. sinks, activations: of each draw, mean over prompts, float[draw].
    """

    finding: str
    claim: Claim
    rows: tuple[Row, ...]
    sinks: NDArray
    activations: NDArray


def arms(config: SelfOnly) -> tuple[Arm, ...]:
    """Random positions whose query sees one random earlier key instead of itself, in all layers."""
    rng = intervals.generator(config.seed, "kiya/self other keys")
    found = []
    for draw in range(config.controls):
        place = int(rng.choice(config.positions))
        seen = int(rng.integers(place))
        hidden = [key for key in range(place + 1) if key != seen]
        edit = sinkjax.edit(Site.LOGITS, "set", -np.inf, queries=place, keys=hidden)
        found.append(Arm(edit.named(f"draw {draw}: position {place} sees key {seen} in {ALL}"), OTHER, place))
    return tuple(found)


def compare(config: SelfOnly, sweep: Measured, random: Measured, measured: Sequence[Measure]) -> Compared:
    """One other key against the query itself and against random links, in all layers, on the prompts of the random arms.

    random: an unedited arm, the controls and the arms of this part. measured: sinks and activations at each arm's position.
    """
    prompts, L = random.data.sizes["prompt"], sweep.data.sizes["layer"]
    alone = [number for number, arm in enumerate(sweep.arms) if arm.group == ALL]
    links = [number for number, arm in enumerate(random.arms) if arm.budget == L]
    other = [number for number, arm in enumerate(random.arms) if arm.group == OTHER]
    (sinks, sink), (activations, _) = ((measure.of(random.data), measure.of(sweep.data)[:, :prompts]) for measure in measured)

    def say(values: NDArray) -> str:
        return interval(intervals.interval(values.mean(axis=0), seed=config.seed))

    difference = intervals.interval(sink[alone].mean(axis=0) - sinks[other].mean(axis=0), seed=config.seed)
    needed = above(difference, 0) and 2 * sinks[other].mean() < sink[alone].mean()
    kept = [random.arms[0], *(random.arms[number] for number in other)]
    table = summarise(Measured(random.data.sel(edit=[arm.edit.label for arm in kept]), kept), measured, config.seed)
    return Compared(
        finding=(
            f"A query that sees one random other key instead of itself, in all layers, gets a sink from {say(sinks[other])} %"
            f" of heads and an |h| of {say(activations[other])}; alone with itself {say(sink[alone])} %, on the same {prompts}"
            f" prompts; with as many random links taken away {say(sinks[links])} %."
        ),
        claim=Claim(
            "The cause is that the token attends to itself (property 3): one other key in its place does less than half.",
            verdict(needed),
            f"Heads that sink on the position, edited in all layers: {say(sink[alone])} % for the query alone with itself,"
            f" {say(sinks[other])} % for the query alone with one random other key; difference"
            f" {interval(difference, signed=True)} percentage points. Rule: a difference with an interval above 0, and less than"
            " half of the sink with the other key.",
        ),
        rows=tuple(row for row in table.values() if row.arm != kept[0].edit.label),
        sinks=sinks[other].mean(axis=1),
        activations=activations[other].mean(axis=1),
    )
