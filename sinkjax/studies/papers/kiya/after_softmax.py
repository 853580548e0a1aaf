"""kiya/after-softmax: the edits of kiya/mask and kiya/self on the weights instead of the logits (footnote 8): does the output
collapse?

Weights that are set to 0 leave rows that sum to less than 1; renormalised, they are the weights that the logits would have given.
Controls, edited in the same way in all layers: another key is masked, or a random query sees one other key.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis.intervals import generator
from sinkjax.config_files.checks import MIN_QUERIES, at_least, refuse
from sinkjax.studies.specs import CONTROLS
from sinkjax.studies.study import control_prompts

if TYPE_CHECKING:
    import jax

    from sinkjax.probes.statistics import PairView

ALL = "all layers"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {  # way -> site, and what else `sinkjax.edit` takes
    "logits": ("logits", {"value": -np.inf}),
    "weights, renormalised": ("weights", {"value": 0.0, "renormalise": True}),
    "weights": ("weights", {"value": 0.0}),
}
BEFORE, RENORMALISED, AFTER = WAYS
APART = (BEFORE, AFTER)  # weights renormalised are those of the edited logits; a finding gives the largest difference


@dataclass(frozen=True, kw_only=True)
class AfterSoftmax(st.ControlledSinks, st.Mapped):
    """The edits of kiya/mask and kiya/self on the weights after the softmax, with and without renormalising (footnote 8)."""

    key: int = 0
    """the key that is masked; the new place of its sink is the next one"""
    position: int = 8
    """the position whose query attends to itself alone"""
    first_layers: tuple[int, ...] = (1, 3, 12, 20)
    """numbers n of first layers that are edited together, beside all; those that a model has no more of than n are left out"""
    eps: float = 0.3
    """share of attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 20
    """random controls for each edit and way: another key, or a query that sees one other key instead of itself, in all layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, position=1, length=MIN_QUERIES + 2)
        last = self.length - MIN_QUERIES - 1
        for name, place in (("key + 1", self.key + 1), ("position", self.position)):
            refuse(place > last, f"{name} is {place}, beyond {last}: a sink needs {MIN_QUERIES} later queries")
        for count in self.first_layers:
            refuse(count < 1, f"first_layers has {count}; the smallest number of layers is 1")

    @property
    def edits(self) -> tuple[str, str]:
        """The names of the edits of kiya/mask and of kiya/self."""
        return f"key {self.key} masked", f"query {self.position} alone"


def label(what: str, way: str, where: str = ALL) -> str:
    return f"{what} in {where} ({way})"


def change(way: str, **selected: Any) -> sinkjax.Edit:
    """No weight from the selected queries to the selected keys, in one of the `WAYS`. selected: as for `sinkjax.edit`."""
    site, how = WAYS[way]
    return sinkjax.edit(site, "set", **how, **selected)


def depths(config: AfterSoftmax, L: int) -> dict[str, int]:
    """The sets of first layers that are edited together, all of them last: their name -> how many there are."""
    some = {"layer 0" if n == 1 else f"layers 0 to {n - 1}": n for n in sorted(set(config.first_layers)) if n < L}
    return {**some, ALL: L}


def conditions(config: AfterSoftmax, architecture: Any) -> Iterator[st.Condition]:
    """No edit, then for each edit and way the first layers and all; those of all layers have controls of their own kind."""
    yield st.no_edit(at=(config.key + 1, config.position))
    selections = (({"keys": config.key}, config.key + 1), ({"queries": config.position}, config.position))
    for what, (selected, place) in zip(config.edits, selections, strict=True):
        for way in WAYS:
            for where, count in depths(config, architecture.layers).items():
                edit = change(way, layers=range(count), relation="others", **selected).named(label(what, way, where))
                series = f"{what}, {way}"
                yield st.Condition(edit, series, count, series if where == ALL else None, (place,))


def at_random(config: AfterSoftmax, architecture: Any) -> Iterator[st.Condition]:
    """In each way and all layers: another key that some later query sees masked, and a random query that sees one earlier key."""
    rng = generator(config.seed, "kiya/after-softmax controls")
    yield st.no_edit(at=(config.key + 1, config.position))
    others = [key for key in range(config.length - 1) if key != config.key]
    for draw in range(config.controls):
        key, query = int(rng.choice(others)), int(rng.integers(1, config.length - MIN_QUERIES))
        seen = int(rng.integers(query))
        hidden = [key for key in range(query + 1) if key != seen]
        for way in WAYS:
            mask, alone = change(way, keys=key, relation="others"), change(way, queries=query, keys=hidden)
            drawn = ((f"key {key}", mask, config.key + 1), (f"query {query} on key {seen}", alone, query))
            for what, (name, edit, place) in zip(config.edits, drawn, strict=True):
                named = edit.named(f"control {draw}: {name} ({way})")
                yield st.Condition(named, st.CONTROL, budget=f"{what}, {way}", at=(place,))


def row_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of a row's weights, mean over heads: [B]."""
    import jax.numpy as jnp

    return jnp.where(view.real_rows[..., 0], weights.sum(axis=-1), 0).sum(axis=2).mean(axis=1)


def per_query(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of a prompt, divided by their number: [B]."""
    return sums / lengths


def probe(config: AfterSoftmax) -> sinkjax.Probe:
    from sinkjax.probes.statistics import sinking_heads

    row_sum = sinkjax.Statistic("row_sum", sinkjax.Site.WEIGHTS, row_sums, ("prompt", "layer"), per_query)
    return sinkjax.Probe(resid_max=True, nll=True, extra=(sinking_heads(config.eps, shares=True), row_sum))


def measures(config: AfterSoftmax) -> tuple[st.Measure, ...]:
    """The loss; sinks on the new place and on key 0; the largest |h| at the new place; how much attention is left."""
    note = f"""The new place of the sink is position {config.key + 1} for the masked key, and position {config.position} for the
        query alone. A head sinks on a key if the share of attention that it gives it, averaged over all later queries, is above
        {config.eps:g} (Gu et al. 2025); shares, because without renormalising the rows do not sum to 1."""
    points = "percentage points"
    return (
        st.loss(),
        st.Measure("heads that sink on the new place (%)", st.heads_on, unit=points, note=note, placed=True),
        st.Measure("heads that sink on key 0 (%)", lambda data: st.heads_on(data)[..., 0], unit=points),
        st.Measure("largest |h| at the new place", st.largest, placed=True),
        st.Measure("attention left (% of a row)", lambda data: 100 * data["row_sum"].mean("layer").values, unit=points),
    )


def claims(config: AfterSoftmax, architecture: Any) -> Iterator[st.Claim]:
    """Whether either edit of the weights, in all layers, leaves no more information than guessing."""
    loss = measures(config)[0]
    guess = st.quantity("the loss of guessing evenly among all tokens", lambda results: math.log(architecture.vocab_size), "nats")
    guesses = st.at_least(st.value(loss, st.NO_EDIT), guess)
    better = dataclasses.replace(st.not_(guesses), words="the model without an edit has a lower loss than guessing evenly")
    for way in (AFTER, RENORMALISED):
        yield st.Claim(
            f"Edits after the softmax collapse the output (footnote 8): {way}.",
            st.any_of(*(st.at_least(st.value(loss, label(what, way)), guess) for what in config.edits)),
            given=better,
            also=(
                *(
                    st.difference(loss, label(what, way), label(what, BEFORE), f"{what}, {way} minus logits")
                    for what in config.edits
                ),
                st.value(loss, st.NO_EDIT),
            ),
        )


def findings(config: AfterSoftmax, architecture: Any) -> Iterator[st.Quantity]:
    loss, sink, on_first, size, left = measures(config)
    yield from (st.value(loss, st.NO_EDIT), st.value(on_first, st.NO_EDIT))
    for what in config.edits:
        for way in APART:
            edited = label(what, way)
            yield from (st.effect(loss, edited), *(st.value(measure, edited) for measure in (loss, sink, size, left)))
    yield st.quantity("largest difference of any token's loss between logits and renormalised weights", apart, "nats")


def apart(results: st.Results) -> float:
    nll, config = results.data["nll"], results.config
    pairs = [(label(what, BEFORE), label(what, RENORMALISED)) for what in config.edits]
    return max(float(np.nanmax(np.abs(nll.sel(edit=one) - nll.sel(edit=two)))) for one, two in pairs)


def figures(config: AfterSoftmax, architecture: Any) -> Iterator[st.Figure]:
    (loss, sink, _, size, _), L = measures(config), architecture.layers
    where = depths(config, L)

    def row(ylabel: str, measure: st.Measure, **options: Any) -> list[st.Panel]:
        return [
            st.Panel(ylabel, {way: (measure, [label(what, way, name) for name in where]) for way in APART}, what, **options)
            for what in config.edits
        ]

    yield st.lines(
        *("by-edited-layers", "edited layers: the first n"),
        [
            row("rise of the loss\n(nats per token)", loss, effect=True),
            row("heads that sink on\nthe new place (%)", sink),
            row("largest |h| at\nthe new place", size, log=True),
        ],
        """The same two edits of the first n layers, before the softmax (logits) and after it (weights set to 0). Weights that are
        renormalised give the numbers of the logits, and are not drawn. The new place is the next key (left) and the query's own
        (right).""",
        legend_above=True,
    )
    yield st.attention_maps("attention-maps", config.drawn_layers(L), lambda label: label.replace(" (", "\n("))
    yield st.activations(
        "largest-activation",
        lambda results: {st.NO_EDIT: st.NO_EDIT} | {label(what, way): f"{what}, {way}" for what in config.edits for way in APART},
    )


def noop(config: AfterSoftmax, architecture: Any) -> dict[str, sinkjax.Edit]:
    """For each way, 0 added to the logits that a mask hides, or their weights times 1."""

    def same(site: str, op: str, value: float, renormalise: bool = False) -> sinkjax.Edit:
        return sinkjax.edit(site, op, value, keys=config.key, relation="others", renormalise=renormalise)

    return {
        f"0 added to the logits towards key {config.key}": same("logits", "add", 0.0),
        f"weights of key {config.key} times 1, renormalised": same("weights", "scale", 1.0, renormalise=True),
        f"weights of key {config.key} times 1": same("weights", "scale", 1.0),
    }


STUDY = st.Study(
    name="kiya/after-softmax",
    config=AfterSoftmax,
    title="Editing attention after the softmax",
    question="""Kiya et al. 2026, footnote 8: the same edits on the probabilities after the softmax make the output collapse, so
        that only edits of logits are reported.""",
    needs=("softmax",),
    probe=probe,
    conditions=conditions,
    controls=(st.Sweep(CONTROLS, at_random, prompts=control_prompts),),
    measures=measures,
    claims=claims,
    findings=findings,
    featured=lambda results: (
        *(st.NO_EDIT,),
        *(label(what, way) for what in results.config.edits for way in WAYS),
    ),
    figures=figures,
    noop=noop,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, *(label(config.edits[0], way) for way in WAYS)),
        config.drawn_layers(architecture.layers),
        start=config.key + 1,
    ),
    notes=lambda config, results: (
        "The paper does not say whether rows were renormalised, nor in which layers; both are shown.",
        """Controls mask another key, or let the query at a random position see one random earlier key in place of itself, in all
        layers; each edit and way has its own. Edits of first layers have none.""",
    ),
)
