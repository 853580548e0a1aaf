"""background/circuit: does a circuit of the first two blocks make the first token a sink (Peng et al. 2026, arXiv 2603.06591)?

The study patches paths from the first two blocks, and from the layer where the activation forms, at the first token. The paper
does not intervene, so the claims are ours. Controls replace the outputs of the same components in two later layers, or change a
reader's input by as much in a random direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Edit, compose, edit
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import refuse
from sinkjax.report.figures import heatmaps
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import typical_activation

EARLY, BOTH, REST = 2, "both blocks", "the rest"  # number of early blocks; the sender that combines them
COMPONENTS = ("attention 0", "MLP 0", "attention 1", "MLP 1", "late attention", "late MLP")  # in the order of the forward
RECEIVERS = (*COMPONENTS[1:], REST)
SENDERS = (*COMPONENTS, BOTH)
LATE = ("late attention", "late MLP", REST)
PATHS = [f"{sender} to {receiver}" for number, sender in enumerate(COMPONENTS) for receiver in RECEIVERS[number:]]
PATHS += [f"{BOTH} to {receiver}" for receiver in LATE]
DONORS = ("mean", "other")  # over the other positions of a prompt, or one of them at random


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    prompts: int = 16


def study(lab: Lab, s: Settings) -> None:
    """Paths from the first two blocks to the first token's sink."""
    lab.needs("MLP", "pre-norm")
    refuse(lab.layers <= EARLY, f"the circuit needs a layer after the first two, and this model has {lab.layers}")
    sink, size = sink_rate(0, s.eps), largest_activation(0)

    forms = lab.onset("forms", lambda layers: largest_activation(0, layers))
    circuit = Circuit(lab.captured("written", compose(), ("attn_out", "mlp_out")), max(forms, EARLY), s.seed)

    def other_layers(rng: np.random.Generator, case: Layers) -> Edit:
        return circuit.replace_in_others(rng, case["sender"], case["donor"])

    def random_direction(rng: np.random.Generator, case: Layers) -> Edit:
        return circuit.patch(case["path"], case["donor"], rng)

    replaced = {ALL.at(sender=one, donor=donor): circuit.replace(one, donor) for one in SENDERS for donor in DONORS}
    nodes = lab.sweep("nodes", replaced, [sink, size], other_layers, title="for all readers")
    patched = {ALL.at(path=path, donor=donor): circuit.patch(path, donor) for path in PATHS for donor in DONORS}
    paths = lab.sweep("paths", patched, [sink, size], random_direction, title="for one reader")
    lab.noop(edit("resid", "add", 0.0, queries=0))

    def node(sender: str, donor: str = "mean") -> Selection:
        return nodes.at(sender=sender, donor=donor)

    def to(receiver: str) -> Selection:
        return paths.at(path=f"{BOTH} to {receiver}", donor="mean")

    def others(measure: Measure) -> list[Contrast]:
        """The effects of another donor, and of only the late MLP."""
        return [effect(measure, node(BOTH, "other")), effect(measure, node("late MLP"), controls=False)]

    source, massive, both = "ours, on Peng et al. 2026", reaches(size, nodes, MASSIVE_SIZE), node(BOTH)
    first_two = unedited(attention_to(0, 1), nodes, minus=strongest_other_attention(0, 1))
    lab.claim("early", "Peng et al. 2026, within two blocks", first_two)
    sinks = is_sink(attention_to(0, lab.half), nodes, strongest_other_attention(0, lab.half))
    lab.claim("sink", source, effect(sink, both), sinks, others(sink), sign=-1, took=WRITTEN)
    lab.claim("activation", source, effect(size, both, above=typical_activation()), massive, others(size), sign=-1, took=WRITTEN)
    beside = [part(sink, to(one), both, falls=True) for one in ("late MLP", REST)]
    lab.claim("direct", source, part(size, to("late MLP"), both, falls=True), massive, beside, took=WRITTEN)

    lab.draw(effects_of_paths, sink, size, over=paths)
    lab.draw(dots, sink, size, over=nodes)
    lab.maps(both, to("late MLP"))


@dataclass(frozen=True, eq=False)
class Circuit:
    """Edits of components at the first token.

    Attributes:
        written: "attn_out" and "mlp_out" -> the unedited outputs, float[layer, prompt, position, dim].
        late: The late layer.
        seed: Seed of the random other positions.
    """

    written: Mapping[str, NDArray[Any]]
    late: int
    seed: int

    def sites(self, sender: str) -> list[tuple[str, int]]:
        """Return the kind ("attn" or "mlp") and the layer of a component, or of each component of both early blocks."""
        names = COMPONENTS[: 2 * EARLY] if sender == BOTH else (sender,)
        layers = [self.late if name.startswith("late") else int(name.split(" ")[1]) for name in names]
        return [("attn" if "attention" in name else "mlp", layer) for name, layer in zip(names, layers, strict=True)]

    def output(self, kind: str, layer: int, donor: str) -> NDArray[Any]:
        """Return a component's mean output over the positions after the first, or at one of them: float[prompt, dim]."""
        values = self.written[f"{kind}_out"][layer][:, 1:]
        if donor == "mean":
            return np.asarray(np.nanmean(values, axis=1))
        (prompts, T, _), rng = values.shape, intervals.generator(self.seed, "background/circuit other positions")
        return np.asarray(values[np.arange(prompts), rng.integers(0, T, prompts)])

    def replace(self, sender: str, donor: str, sites: Sequence[tuple[str, int]] = ()) -> Edit:
        """Replace a component's output for all its readers. sites: other components to replace, under this name."""
        edits = [
            edit(f"{kind}_out", "set", self.output(kind, layer, donor), layers=layer, queries=0)
            for kind, layer in sites or self.sites(sender)
        ]
        return compose(*edits, label=sender)

    def replace_in_others(self, rng: np.random.Generator, sender: str, donor: str) -> Edit:
        """Replace the same components in random layers, not the first two nor, if others are left, the late one."""
        others = [layer for layer in range(EARLY, len(self.written["mlp_out"])) if layer != self.late] or [self.late]
        ranks = sorted(rng.choice(len(others), EARLY, replace=len(others) < EARLY).tolist())
        sites = dict.fromkeys((kind, others[ranks[layer if layer < EARLY else 0]]) for kind, layer in self.sites(sender))
        # ranks, because a plan does not know the late layer
        return self.replace(f"{sender} of other layers, numbers {', '.join(map(str, ranks))}", donor, [*sites])

    def patch(self, path: str, donor: str, rng: np.random.Generator | None = None) -> Edit:
        """Replace a component's output for only one of its readers.

        Args:
            path: One of `PATHS`, from a sender to a receiver. "the rest" means everything that reads the stream after the late
                block.
            donor: One of `DONORS`.
            rng: Random numbers for a change of the reader's input in a random direction instead, drawn for each prompt.
        """
        sender, _, receiver = path.partition(" to ")
        sites = [(kind, at, self.written[f"{kind}_out"][at][:, 0]) for kind, at in self.sites(sender)]
        change = np.sum([self.output(kind, at, donor) - unedited for kind, at, unedited in sites], axis=0)
        if rng is not None:
            turned = rng.standard_normal(change.shape)
            change = turned * np.linalg.norm(change, axis=-1, keepdims=True) / np.linalg.norm(turned, axis=-1, keepdims=True)
            path = f"random direction {rng.integers(10**6)}"
        if receiver == REST:
            return edit("resid", "add", change, layers=self.late, queries=0, label=path)
        ((kind, layer),) = self.sites(receiver)
        return edit(f"{kind}_in", "inject", change, layers=layer, queries=0, label=path)


def effects_of_paths(read: Numbers, *measures: Measure, over: Sweep) -> Drawing:
    """Draw heat maps of the effects of paths on measures: one row per measure and one column per donor."""
    rows = []
    for measure in measures:
        maps = np.full((len(DONORS), len(RECEIVERS), len(SENDERS)), np.nan)
        for case in over.edits:
            sender, _, receiver = case["path"].partition(" to ")
            edited, unedited = (read.edited(measure, over[case], edited) for edited in (True, False))
            maps[DONORS.index(case["donor"]), RECEIVERS.index(receiver), SENDERS.index(sender)] = np.mean(edited - unedited)
        most = float(np.nanmax(np.abs(maps))) or 1.0
        name = f"effect on {'log of ' if measure.log else ''}{measure.name}"
        rows.append(heatmaps.MapRow([*maps], name, (-most, most), signed=True))
    columns = [heatmaps.MapColumn(f"donor: {donor}", list(RECEIVERS), "reads") for donor in DONORS]
    figure = heatmaps.grids(columns, rows, list(SENDERS), "writes")
    what = " and ".join(measure.name for measure in measures)
    caption = f"""Change of {what} when one component's output at the first token (vertical axis) is replaced for only one reader
        (horizontal axis), by its mean over the other positions or by another one's. Grey cells are not paths."""
    return read.drawing("circuit", figure, caption, over.name, bands=False)
