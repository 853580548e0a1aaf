"""background/patch: which values carry the sink, by activation patching from a run whose sink was moved.

In the donor run no query may attend to the first key, in any layer, so that the sink and a massive activation are at the second
position (Kiya et al. 2026, Fig. 4). The values at this position are put into the unedited run, in one layer or in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.papers.background._position import growth

DONOR, SINGLE, ALL = "donor run: key masked in all layers", "one layer", "all layers"
RESID, ATTENTION, MLP, KEYS, VALUES = "resid", "attn_out", "mlp_out", "key", "value"
NAMES = ("residual stream", "attention output", "MLP output", "keys", "values")
SITES = dict(zip((RESID, ATTENTION, MLP, KEYS, VALUES), NAMES, strict=True))
STEPS = (0, 1, 2, 3, 5, 9, 17, 33)  # distances from the masked key of the positions that are patched alone
POSITIONS = "positions"
HARDLY, HALF = 0.1, 0.5  # parts of an effect below which a site hardly has it, or not the most of it
MOVED = 10.0  # percentage points of heads by which the donor's sink must move, for its values to be worth a patch
Donor = Mapping[str, NDArray]  # site -> [L, B, d], or [L, B, K, D] of keys and values: what is put at a position


@dataclass(frozen=True, kw_only=True)
class Patch(st.ControlledSinks):
    """Values of a run whose sink was moved by a mask, put into the unedited run by layer and site (activation patching)."""

    prompts: int = 16
    """passages of text; each has its own donor"""
    control_prompts: int = 4
    """prompts on which the controls are measured, the first of all; there are controls for more than thirty sites and layers"""
    key: int = 0
    """the key that is masked in the donor run; values are patched at key + 1, where its sink is then"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8, key=0)
        few = self.key + 3 > self.length
        refuse(few, f"key {self.key} of {self.length} positions leaves none to patch and another for the controls")

    @property
    def places(self) -> list[int]:
        """The positions that are patched alone: the masked key, the next one, and later ones of the first two thirds."""
        return [self.key + step for step in STEPS if step < 2 or self.key + step <= 2 * self.length // 3]


def put(place: int, site: str, donor: Donor, layers: Sequence[int]) -> sinkjax.Edit:
    """The values of a donor at one site of a position."""
    where: dict[str, Any] = {"keys" if site in (KEYS, VALUES) else "queries": place}
    return sinkjax.edit(site, "set", donor[site], layers=layers, **where)


def single(site: str, layer: int) -> str:
    return f"{SITES[site]}, layer {layer}"


def everywhere(site: str) -> str:
    return f"{SITES[site]}, {ALL}"


def of_position(site: str, place: int) -> str:
    return f"{SITES[site]} of position {place}, all layers"


def budgets(architecture: Any) -> dict[tuple[str, Any], Sequence[int]]:
    """What has controls, a site and its layers: the stream where claims read it, the MLP output in each layer, all in all."""
    L = architecture.layers
    of_layers = {(RESID, early(architecture)): [early(architecture)]} | {(MLP, layer): [layer] for layer in range(L)}
    return of_layers | {(site, ALL): range(L) for site in SITES}


def conditions(config: Patch, architecture: Any, donors: Sequence[Donor]) -> Iterator[st.Condition]:
    """No edit, the donor run, each site in one layer, each site in all layers."""
    layers, target, (donor,) = range(architecture.layers), config.key + 1, donors
    controlled = budgets(architecture)
    yield st.no_edit()
    yield st.Condition(sinkjax.mask_key(config.key).named(DONOR), DONOR)
    for site, name in SITES.items():
        for layer in layers:
            edit = put(target, site, donor, [layer]).named(single(site, layer))
            budget = (site, layer) if (site, layer) in controlled else None
            yield st.Condition(edit, f"{name}, {SINGLE}", layer, budget=budget)
    for site in SITES:
        edit = put(target, site, donor, layers).named(everywhere(site))
        yield st.Condition(edit, everywhere(site), budget=(site, ALL))


def random_positions(config: Patch, architecture: Any, donors: Sequence[Donor]) -> Iterator[st.Condition]:
    """The values of a random position of the donor run, at the same site of the same layers."""
    for draw, donor in enumerate(donors):
        for (site, where), layers in budgets(architecture).items():
            said = ALL if where == ALL else f"layer {where}"
            label = f"control {draw}: {SITES[site]} of a random position, {said}"
            yield st.Condition(put(config.key + 1, site, donor, layers).named(label), st.CONTROL, budget=(site, where))


def single_positions(config: Patch, architecture: Any, donors: Sequence[Donor]) -> Iterator[st.Condition]:
    """No edit, and each site of each position. donors: one for each position."""
    yield st.no_edit()
    for site, name in SITES.items():
        for place, donor in zip(config.places, donors, strict=True):
            edit = put(place, site, donor, range(architecture.layers)).named(of_position(site, place))
            yield st.Condition(edit, f"{name}, one position", place)


def noop(config: Patch, architecture: Any, own: Sequence[Donor]) -> dict[str, sinkjax.Edit]:
    same = sinkjax.compose(*(put(config.key + 1, site, own[0], range(architecture.layers)) for site in SITES))
    return {"the run's own values at every site and layer": same}


def blank(architecture: Any, count: int, prompts: int) -> list[Donor]:
    """Stand-ins for some donors."""
    heads = (architecture.kv_heads, architecture.head_dim)
    shapes = {site: heads if site in (KEYS, VALUES) else (architecture.width,) for site in SITES}
    return [{site: np.zeros((architecture.layers, prompts, *shape)) for site, shape in shapes.items()}] * count


def values_of(edit: sinkjax.Edit, model: Any, batch: st.Batch, positions: tuple[int, ...] | None) -> dict[str, NDArray]:
    """The values of an edited run at each site of some positions, or of all: [L, B, positions, ...]."""
    capture = tuple(sinkjax.Capture(sinkjax.Site(site), positions=positions, name=f"donor_{site}") for site in SITES)
    probe = sinkjax.Probe(capture=capture)
    record = sinkjax.forward(model.params, batch.tokens, model.config, edit, probe, batch.lengths, logits=False).record
    return {site: np.moveaxis(np.asarray(record[f"donor_{site}"]), 1, 0) for site in SITES}


def donors(
    places: Callable[[Patch], Sequence[int]] = lambda config: [config.key + 1],
    edit: Callable[[Patch], sinkjax.Edit] = lambda config: sinkjax.mask_key(config.key),
) -> st.Values:
    """The values of an edited run, by default the donor run, at each of some positions."""

    def compute(config: Patch, model: Any, batch: st.Batch) -> list[Donor]:
        values = values_of(edit(config), model, batch, tuple(places(config)))
        return [{site: array[:, :, number] for site, array in values.items()} for number in range(len(places(config)))]

    return st.Values(lambda config, architecture, prompts: blank(architecture, len(places(config)), prompts), compute)


def drawn_controls(config: Patch, prompts: int) -> int:
    """How many different positions, one in each prompt, are drawn: one for each control, or all that there are."""
    return min(config.controls, (config.length - config.key - 2) ** prompts)


def random_values(config: Patch, model: Any, batch: st.Batch) -> list[Donor]:
    """The donor run's values at random later positions, one for each prompt and draw."""
    values = values_of(sinkjax.mask_key(config.key), model, batch, None)
    rng, prompts = intervals.generator(config.seed, "background/patch control positions"), np.arange(len(batch.lengths))
    drawn = st.without_replacement(
        drawn_controls(config, len(prompts)), lambda: rng.integers(config.key + 2, batch.lengths), lambda places: tuple(places)
    )
    return [{site: array[:, prompts, at] for site, array in values.items()} for at in drawn]


def measures(config: Patch) -> tuple[st.Measure, ...]:
    return st.sink_rate(config.key + 1, config.eps), st.largest_activation(config.key + 1), st.loss()


def early(architecture: Any) -> int:
    """The last layer of the first quarter, after which the stream holds all that early layers wrote."""
    return max(architecture.layers // 4, 1) - 1


def writer(results: st.Results) -> str:
    """The MLP output of the layer in which the donor run's |h| grows most."""
    labels = results.labels()
    return single(MLP, growth(results.data["resid_max"].values[labels.index(DONOR)], results.config.key + 1))


def claims(config: Patch, architecture: Any) -> Iterator[st.Claim]:
    sinks, activation, _ = measures(config)
    moved = st.above(st.effect(sinks, DONOR), MOVED)
    activated = st.all_of(moved, st.above(st.effect(activation, DONOR)))

    def parts(measure: st.Measure, label: Any, whose: str) -> list[st.Quantity]:
        """An effect as parts of two wholes: in the donor run the sink has no other key to go to, in the unedited run it has."""
        wholes = {DONOR: "the donor run's effect", everywhere(RESID): "the whole stream's effect"}
        on = "sinks" if measure == sinks else "the activation"
        return [st.part_of(measure, label, whole, f"{whose} part of {name} on {on}") for whole, name in wholes.items()]

    def most(measure: st.Measure, label: Any, whose: str) -> st.Rule:
        found = st.effect(measure, label)
        halves = (st.above(part, 0.5) for part in parts(measure, label, whose))
        return st.all_of(st.above(found), st.above_controls(found), *halves)

    def hardly(measure: st.Measure, label: Any, whose: str, bound: float = HARDLY) -> st.Rule:
        return st.all_of(*(st.within(part, -bound, bound) for part in parts(measure, label, whose)))

    keys = most(sinks, everywhere(KEYS), "the keys'")
    stream = f"the stream's (after layer {early(architecture)}, fixed beforehand)"
    yield st.Claim(
        "What the first quarter of the layers writes into the stream brings more than half of a moved sink with it.",
        most(sinks, single(RESID, early(architecture)), stream),
        given=moved,
        source="Kiya et al. 2026, section 4",
    )
    yield st.Claim(
        f"The keys of a moved sink bring more than half of it with them, its values less than {HARDLY:g} of it.",
        st.all_of(keys, hardly(sinks, everywhere(VALUES), "the values'")),
        given=moved,
        source="Gu et al. 2025, section 7",
        also=(st.effect(sinks, everywhere(VALUES)),),
    )
    yield st.Claim(
        f"The keys of a moved sink bring more than half of it with them, and less than {HARDLY:g} of its massive activation.",
        st.all_of(keys, hardly(activation, everywhere(KEYS), "the keys'")),
        given=activated,
        source="after Gu et al. 2025, section 4: angles, not norms",
        also=(st.effect(activation, everywhere(KEYS)),),
    )
    attention = [
        hardly(activation, single(ATTENTION, layer), f"layer {layer}'s attention output's", HALF)
        for layer in range(architecture.layers)
    ]
    small = "the attention output's part of both wholes' effects on the activation lies between -0.5 and 0.5"
    largest = st.largest_effect(activation, [single(ATTENTION, layer) for layer in range(architecture.layers)], "the best layer")
    yield st.Claim(
        "The MLP output of one layer brings more than half of the massive activation, and the attention output of no layer does.",
        st.all_of(most(activation, writer, "the MLP output's"), st.every(attention, "layers", small)),
        given=activated,
        source="Queipo-de-Llano et al. 2026; Li et al. 2026",
        also=(
            st.effect(activation, largest, "largest effect of one layer's attention output on the activation"),
            st.effect(activation, everywhere(ATTENTION)),
        ),
    )


def findings(config: Patch, architecture: Any) -> Iterator[st.Quantity]:
    target, sinks = config.key + 1, measures(config)[0]
    others = [of_position(site, place) for site in SITES for place in config.places if place != target]
    largest = st.largest_effect(sinks, others, f"the position, other than {target}, and site that brings most sinks")
    yield st.effect(sinks, largest, f"largest effect on {sinks.name} of a position other than {target}")


def figures(config: Patch, architecture: Any) -> Iterator[st.Figure]:
    sinks, activation, _ = measures(config)
    labels = {name: [single(site, layer) for layer in range(architecture.layers)] for site, name in SITES.items()}

    def panel(measure: st.Measure, log: bool) -> list[st.Panel]:
        curves = {name: (measure, row) for name, row in labels.items()}
        return [st.Panel(measure.name, curves, baseline=st.NO_EDIT, log=log)]

    yield st.lines(
        "by-patched-layer",
        "patched layer l (0-based)",
        [panel(sinks, log=False), panel(activation, log=True)],
        f"""Heads that sink on key {config.key + 1} (top) and the largest |h| there (bottom) when the donor run's value of one
        site is put at position {config.key + 1} of one layer. Dashed: no edit.""",
        legend_above=True,
    )

    def by_position(results: st.Results) -> dict[str, list[Any]]:
        pairs = ((site, place) for place in config.places for site in SITES)
        return {"": [results.point(f"position {place}", sinks, of_position(site, place), SITES[site]) for site, place in pairs]}

    yield st.points(
        "by-patched-position",
        sinks.name,
        by_position,
        f"""Heads that sink on key {config.key + 1} when the donor run's values at one position, at one site in all layers, are
        put there in the unedited run; a later position acts on an earlier key through its own query alone.""",
        store=POSITIONS,
    )


def featured(results: st.Results) -> list[str]:
    sinks, layers = measures(results.config)[0], range(results.architecture.layers)
    best = [st.largest_effect(sinks, [single(site, layer) for layer in layers], "") for site in SITES]
    return [st.NO_EDIT, DONOR, *map(everywhere, SITES), *(label(results) for label in best)]


RANDOM_VALUES = st.Values(
    lambda config, architecture, prompts: blank(architecture, drawn_controls(config, prompts), prompts), random_values
)
STUDY = st.Study(
    name="background/patch",
    config=Patch,
    title="Values of a moved sink, put at the position after key {key} of the unedited run",
    question="""Kiya et al. 2026: the stream of an early layer decides where later layers put the sink. Gu et al. 2025: a sink is
        made by its key's direction, not by its value. Queipo-de-Llano et al. 2026: the MLP writes the massive activation.""",
    needs=("MLP",),
    probe=lambda config: sinkjax.Probe(attention_received=True, resid_max=True, nll=True),
    conditions=conditions,
    values=donors(),
    headline=lambda config, architecture: [(RESID, early(architecture))],
    controls=(st.Sweep("controls", random_positions, prompts=st.control_prompts, values=RANDOM_VALUES),),
    measures=measures,
    more=lambda config, architecture: (
        st.Sweep(POSITIONS, single_positions, lambda config: measures(config)[:2], values=donors(lambda config: config.places)),
    ),
    claims=claims,
    findings=findings,
    featured=featured,
    figures=figures,
    noop=noop,
    noop_values=donors(edit=lambda config: sinkjax.compose()),
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, DONOR, *map(everywhere, (RESID, KEYS, VALUES))), start=config.key + 2
    ),
    notes=lambda config, results: (
        f"""The donor is the same prompt with the logits towards key {config.key} at -inf in all layers. Keys are patched before
        the rotation, the residual stream after its layer, everything else within it. Controls patch the donor run's values at a
        random later position, drawn for each prompt, at the same site of the same layers: of the stream and the MLP output in
        single layers, and of each site in all layers.""",
        f"""In the unedited run key {config.key} stays visible and keeps a part of the sink. After a first look at SmolLM2,
        effects were therefore divided by that of the whole stream instead of that of the donor run; since a second reading a
        verdict needs both. The same look led to comparing MLP and attention in single layers: in all layers the attention
        output rebuilds the whole stream, of which the MLPs are a function. The rules have been frozen since then, and are
        judged on the confirm split only.""",
        f"""No layer is chosen by its effect: for the stream it is layer {early(results.architecture)}, the last of the first
        quarter; for the MLP, the layer in which the donor run's |h| grows most; for attention, every layer is tested.""",
    ),
)
