"""background/patch: which values carry the sink, by activation patching from a run whose sink was moved.

In the donor run no query may attend to the first key, in any layer, so that the sink and a massive activation stand at the second
position (Kiya et al. 2026, Fig. 4). What that run has at this position is put into the unedited run: the residual stream, the
outputs of attention and MLP, keys (before the rotation) and values, in one layer or in all. Controls put there what the donor
run has at random later positions. A second sweep patches one position at a time: were the sink carried by another position than
the one on which it stands, that one's values would bring it there as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import at_least, refuse

DONOR, SINGLE, ALL = "donor run: key masked in all layers", "one layer", "all layers"
RESID, ATTENTION, MLP, KEYS, VALUES = "resid", "attn_out", "mlp_out", "key", "value"
SITES = {
    RESID: "residual stream",
    ATTENTION: "attention output",
    MLP: "MLP output",
    KEYS: "keys",
    VALUES: "values",
}
STEPS = (0, 1, 2, 3, 5, 9, 17, 33)  # positions after the masked key that are patched alone
POSITIONS = "positions"
MOVED = 10.0  # percentage points of heads by which the donor's sink must move, for its values to be worth a patch
Donor = Mapping[str, NDArray]  # site -> [L, B, d], or [L, B, K, D] of keys and values: what goes to a position


@dataclass(frozen=True, kw_only=True)
class Patch(st.ControlledSinks):
    """Values of a run whose sink was moved by a mask, put into the unedited run by layer and site (activation patching)."""

    prompts: int = 16
    """passages of text; each has its own donor"""
    control_prompts: int = 4
    """prompts on which the controls are measured, the first of all; there are ten kinds of them"""
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


def put(place: int, site: str, value: NDArray, layers: Sequence[int]) -> sinkjax.Edit:
    """A donor's values at one site of a position."""
    where: dict[str, Any] = {"keys" if site in (KEYS, VALUES) else "queries": place}
    return sinkjax.edit(site, "set", value, layers=layers, **where)


def single(site: str, layer: int) -> str:
    return f"{SITES[site]}, layer {layer}"


def everywhere(site: str) -> str:
    return f"{SITES[site]}, {ALL}"


def of_position(site: str, place: int) -> str:
    return f"{SITES[site]} of position {place}, all layers"


def conditions(config: Patch, architecture: Any, donor: Donor) -> Iterator[st.Condition]:
    """No edit, the donor run, each site in one layer, each site in all layers. A budget is a site, and one layer or all."""
    layers, target = range(architecture.layers), config.key + 1
    yield st.no_edit()
    yield st.Condition(sinkjax.mask_key(config.key).named(DONOR), DONOR)
    for site, name in SITES.items():
        for layer in layers:
            edit = put(target, site, donor[site], [layer]).named(single(site, layer))
            yield st.Condition(edit, f"{name}, {SINGLE}", layer, budget=(site, SINGLE))
    for site in SITES:
        edit = put(target, site, donor[site], layers).named(everywhere(site))
        yield st.Condition(edit, everywhere(site), budget=(site, ALL))


def random_positions(config: Patch, architecture: Any, donors: Sequence[Donor]) -> Iterator[st.Condition]:
    """Each site of a random position of the donor run, in one random layer and in all."""
    rng, L = intervals.generator(config.seed, "background/patch control layers"), architecture.layers
    for draw, donor in enumerate(donors):
        for site, name in SITES.items():
            layer = int(rng.integers(L))
            for where, layers in ((f"layer {layer}", [layer]), (ALL, range(L))):
                edit = put(config.key + 1, site, donor[site], layers)
                label = f"control {draw}: {name} of a random position, {where}"
                yield st.Condition(edit.named(label), st.CONTROL, budget=(site, ALL if where == ALL else SINGLE))


def single_positions(config: Patch, architecture: Any, donors: Sequence[Donor]) -> Iterator[st.Condition]:
    """No edit, and each site of each position. donors: one for each position."""
    yield st.no_edit()
    for site, name in SITES.items():
        for place, donor in zip(config.places, donors, strict=True):
            edit = put(place, site, donor[site], range(architecture.layers)).named(of_position(site, place))
            yield st.Condition(edit, f"{name}, one position", place)


def noop(config: Patch, architecture: Any, own: Donor) -> dict[str, sinkjax.Edit]:
    """The run's own values put at all sites of the position, in all layers."""
    same = sinkjax.compose(*(put(config.key + 1, site, own[site], range(architecture.layers)) for site in SITES))
    return {"the run's own values at every site and layer": same}


def blank(config: Patch, architecture: Any, prompts: int) -> Donor:
    L, head = architecture.layers, (architecture.kv_heads, architecture.head_dim)
    return {site: np.zeros((L, prompts, *(head if site in (KEYS, VALUES) else (architecture.width,)))) for site in SITES}


def values_of(edit: sinkjax.Edit, model: Any, batch: st.Batch, positions: tuple[int, ...] | None) -> dict[str, NDArray]:
    """What an edited run has at each site of some positions, all by default: [L, B, positions, ...]."""
    capture = tuple(sinkjax.Capture(sinkjax.Site(site), positions=positions, name=f"donor_{site}") for site in SITES)
    probe = sinkjax.Probe(capture=capture)
    record = sinkjax.forward(model.params, batch.tokens, model.config, edit, probe, batch.lengths, logits=False).record
    return {site: np.moveaxis(np.asarray(record[f"donor_{site}"]), 1, 0) for site in SITES}


def values_at(edit: sinkjax.Edit, model: Any, batch: st.Batch, positions: Sequence[int]) -> list[Donor]:
    """What an edited run has at each of some positions."""
    values = values_of(edit, model, batch, tuple(positions))
    return [{site: array[:, :, number] for site, array in values.items()} for number in range(len(positions))]


def random_values(config: Patch, model: Any, batch: st.Batch) -> list[Donor]:
    """What the donor run has at random later positions, one for each prompt and draw."""
    values = values_of(sinkjax.mask_key(config.key), model, batch, None)
    rng, prompts = intervals.generator(config.seed, "background/patch control positions"), np.arange(len(batch.lengths))
    drawn = [rng.integers(config.key + 2, batch.lengths) for _ in range(config.controls)]
    return [{site: array[:, prompts, at] for site, array in values.items()} for at in drawn]


def measures(config: Patch) -> tuple[st.Measure, ...]:
    return st.sink_rate(config.key + 1, config.eps), st.largest_activation(config.key + 1), st.loss()


def best(measure: st.Measure, site: str, layers: int, among: str = "") -> Any:
    """The single layer of a site with the largest effect."""
    said = f"the best single layer{among} for the {SITES[site]}"
    return st.largest_effect(measure, [single(site, layer) for layer in range(layers)], said)


def claims(config: Patch, architecture: Any) -> Iterator[st.Claim]:
    sinks, activation, _ = measures(config)
    L = architecture.layers
    moved = st.above(st.effect(sinks, DONOR), MOVED)

    def parts(measure: st.Measure, label: Any, whose: str) -> list[st.Quantity]:
        """An effect as parts of two wholes: in the donor run the sink has no other key to go to, in the unedited run it has."""
        wholes = {DONOR: "the donor run's effect", everywhere(RESID): "the whole stream's effect"}
        on = "sinks" if measure == sinks else "the activation"
        return [st.part_of(measure, label, whole, f"{whose} part of {name} on {on}") for whole, name in wholes.items()]

    def most(measure: st.Measure, label: Any, whose: str) -> st.Rule:
        found = st.effect(measure, label)
        halves = (st.more_than(part, 0.5) for part in parts(measure, label, whose))
        return st.all_of(st.above(found), st.above_controls(found), *halves)

    def hardly(measure: st.Measure, label: Any, whose: str, bound: float = 0.1) -> st.Rule:
        return st.all_of(*(st.mean_within(part, -bound, bound) for part in parts(measure, label, whose)))

    keys = most(sinks, everywhere(KEYS), "the keys'")
    stream = best(sinks, RESID, max(L // 4, 1), " of the first quarter")
    yield st.Claim(
        "What early layers write decides where later layers put the sink (Kiya et al. 2026, section 4).",
        most(sinks, stream, "its"),
        given=moved,
    )
    yield st.Claim(
        "The key makes the sink, not the value (Gu et al. 2025, section 7).",
        st.all_of(keys, hardly(sinks, everywhere(VALUES), "the values'")),
        given=moved,
        also=(st.effect(sinks, everywhere(VALUES)),),
    )
    yield st.Claim(
        "The sink needs no massive activation once the keys are given (after Gu et al. 2025, section 4: angles, not norms).",
        st.all_of(keys, hardly(activation, everywhere(KEYS), "the keys'")),
        given=moved,
        also=(st.effect(activation, everywhere(KEYS)),),
    )
    mlp, attention = (best(activation, site, L) for site in (MLP, ATTENTION))
    yield st.Claim(
        "The MLP, not attention, writes the massive activation (Queipo-de-Llano et al. 2026; Li et al. 2026).",
        st.all_of(
            most(activation, mlp, "the MLP output's"),
            hardly(activation, attention, "the attention output's", bound=0.5),
        ),
        given=st.all_of(moved, st.above(st.effect(activation, DONOR))),
        also=(st.effect(activation, attention), st.effect(activation, everywhere(ATTENTION))),
    )


def positions_by_effect(results: st.Results) -> list[tuple[str, int]]:
    """(site, position) of the single positions, by falling size of their effect on the sinks."""
    sinks = measures(results.config)[0]
    pairs = [(site, place) for site in SITES for place in results.config.places]
    return sorted(pairs, key=lambda pair: -abs(results.row(sinks, of_position(*pair)).effect.mean or 0.0))


def strongest_position(results: st.Results) -> str:
    """The single position with the largest effect."""
    return of_position(*positions_by_effect(results)[0])


def strongest_other(results: st.Results) -> str:
    """The other position with the largest effect."""
    (_, first), *rest = positions_by_effect(results)
    return of_position(*next((site, place) for site, place in rest if place != first))


def findings(config: Patch, architecture: Any) -> Iterator[st.Quantity]:
    sinks, activation, loss = measures(config)
    for measure in (sinks, activation):
        yield from (st.value(measure, label) for label in (st.NO_EDIT, DONOR))
    for measure in (sinks, activation, loss):
        yield from (st.effect(measure, everywhere(site)) for site in SITES)
    for site, name in SITES.items():
        said = f"largest effect of a single layer's {name} on heads that sink on key {config.key + 1}"
        yield st.effect(sinks, best(sinks, site, architecture.layers), said)
    yield st.effect(sinks, strongest_position, "largest effect of a single position on them")
    yield st.effect(sinks, strongest_other, "largest effect of any other position")


def figures(config: Patch, architecture: Any) -> Iterator[st.Figure]:
    sinks, activation, _ = measures(config)
    target = config.key + 1
    labels = {name: [single(site, layer) for layer in range(architecture.layers)] for site, name in SITES.items()}

    def panel(measure: st.Measure, log: bool) -> list[st.Panel]:
        return [st.Panel(measure.name, {name: (measure, row) for name, row in labels.items()}, log=log)]

    yield st.lines(
        *("by-patched-layer", "patched layer l (0-based)", [panel(sinks, log=False), panel(activation, log=True)]),
        f"""Heads that sink on key {target} (top) and the largest |h| there (bottom) when the donor run's value of one site is put
        at position {target} of one layer.""",
        legend_above=True,
    )

    def by_site(results: st.Results) -> dict[str, list[Any]]:
        shown = [("no edit", st.NO_EDIT, "whole run"), ("donor run", DONOR, "whole run")]
        for site, name in SITES.items():
            shown.append((name, everywhere(site), "patched in all layers"))
            shown.append((name, best(sinks, site, architecture.layers)(results), "patched in its best single layer"))
        return {"": [results.point(name, sinks, label, kind) for name, label, kind in shown]}

    yield st.points(
        *("by-site", sinks.name, by_site),
        f"Heads that sink on key {target} when the donor run's values of one site are patched there.",
    )

    def by_position(results: st.Results) -> dict[str, list[Any]]:
        pairs = ((site, place) for place in config.places for site in SITES)
        return {"": [results.point(f"position {place}", sinks, of_position(site, place), SITES[site]) for site, place in pairs]}

    yield st.points(
        *("by-patched-position", sinks.name, by_position),
        f"""Heads that sink on key {target} when what the donor run has at one position, at one site in all layers, is put there
        in the unedited run; a later position acts on an earlier key through its own query alone.""",
        store=POSITIONS,
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
    values=st.Values(
        blank, lambda config, model, batch: values_at(sinkjax.mask_key(config.key), model, batch, [config.key + 1])[0]
    ),
    controls=(
        st.Sweep(
            *("controls", random_positions),
            prompts=st.control_prompts,
            values=st.Values(
                lambda config, architecture, prompts: [blank(config, architecture, prompts)] * config.controls, random_values
            ),
        ),
    ),
    measures=measures,
    more=lambda config, architecture: (
        st.Sweep(
            *(POSITIONS, single_positions, lambda config: measures(config)[:2]),
            values=st.Values(
                lambda config, architecture, prompts: [blank(config, architecture, prompts)] * len(config.places),
                lambda config, model, batch: values_at(sinkjax.mask_key(config.key), model, batch, config.places),
            ),
        ),
    ),
    claims=claims,
    findings=findings,
    featured=lambda results: (
        *(st.NO_EDIT, DONOR, *map(everywhere, SITES)),
        *(best(measures(results.config)[0], site, results.architecture.layers)(results) for site in SITES),
    ),
    figures=figures,
    noop=noop,
    noop_values=st.Values(blank, lambda config, model, batch: values_at(sinkjax.compose(), model, batch, [config.key + 1])[0]),
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, DONOR, *map(everywhere, (RESID, KEYS, VALUES))), start=config.key + 2
    ),
    notes=lambda config, results: (
        f"""The donor is the same prompt with the logits towards key {config.key} at minus infinity in all layers. Keys are
        patched before the rotation, so that they get the rotation of position {config.key + 1}, where they come from too. The
        residual stream is patched after its layer, everything else within it.""",
        f"""In the unedited run key {config.key} stays visible and keeps a part of the sink. For that reason parts were taken of
        what the whole stream does, instead of the donor run, after a first look at SmolLM2; since a second reading a verdict asks
        for both. That MLP and attention are compared in single layers was chosen after that look too: in all layers the attention
        output rebuilds the whole stream, of which the MLPs are a function.""",
        """The random positions of the controls are later ones of the same prompt, drawn for each prompt.""",
    ),
)
