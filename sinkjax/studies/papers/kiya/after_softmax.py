"""kiya/after-softmax: the edits of kiya/mask and kiya/self on the weights instead of the logits (footnote 8).

Weights that are set to 0 leave rows that sum to less than 1; renormalised, they are the weights that the edited logits give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis.intervals import generator
from sinkjax.config_files.checks import MIN_QUERIES, at_least, refuse
from sinkjax.studies.papers.kiya._masks import ALL, FIRST, layer_sets, placed_measures, zero_added
from sinkjax.studies.specs import CONTROLS

if TYPE_CHECKING:
    import jax

    from sinkjax.probes.statistics import PairView

WAYS: dict[str, dict[str, Any]] = {  # what `sinkjax.edit` takes
    "logits": {"site": "logits", "op": "set", "value": -np.inf},
    "weights, renormalised": {"site": "weights", "op": "set", "value": 0.0, "renormalise": True},
    "weights": {"site": "weights", "op": "set", "value": 0.0},
}
BEFORE, RENORMALISED, AFTER = WAYS
ROUNDING = 0.01  # nats: differences of one token's loss in float32 stay below it
APART = (BEFORE, AFTER)  # the ways that are drawn: renormalised weights are those of the edited logits


@dataclass(frozen=True, kw_only=True)
class AfterSoftmax(st.ControlledSinks, st.Mapped):
    """The edits of kiya/mask and kiya/self on the weights after the softmax, with and without renormalising (footnote 8)."""

    key: int = 0
    """the key that is masked; the new place of its sink is the next one"""
    position: int = 8
    """the position whose query attends to itself alone"""
    first_layers: tuple[int, ...] = (1, 3, 12, 20)
    """numbers n of first layers that are edited together, besides all; values not below the model's number of layers are
    skipped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, position=1, length=MIN_QUERIES + 2)
        last = self.length - MIN_QUERIES - 1
        for name, place in (("key + 1", self.key + 1), ("position", self.position)):
            refuse(place > last, f"{name} is {place}, beyond {last}: a sink needs {MIN_QUERIES} later queries")
        for count in self.first_layers:
            refuse(count < 1, f"first_layers has {count}; the smallest number of layers is 1")

    @property
    def edits(self) -> dict[str, tuple[dict[str, Any], int]]:
        """The edits of kiya/mask and of kiya/self: name -> what `sinkjax.edit` selects, and the new place of the sink."""
        return {
            f"key {self.key} masked": ({"keys": self.key}, self.key + 1),
            f"query {self.position} alone": ({"queries": self.position}, self.position),
        }


def label(what: str, way: str, where: str = ALL) -> str:
    return f"{what} in {where} ({way})"


def conditions(config: AfterSoftmax, architecture: Any) -> Iterator[st.Condition]:
    """No edit, then for each edit and way the first layers and all; those of all layers have controls of their own kind."""
    yield st.no_edit(at=(config.key + 1, config.position))
    for what, (selected, place) in config.edits.items():
        for way in WAYS:
            series = f"{what}, {way}"
            for where, layers in edited_layers(config, architecture).items():
                edit = sinkjax.edit(**WAYS[way], **selected, layers=layers, relation="others").named(label(what, way, where))
                yield st.Condition(edit, series, len(layers), series if where == ALL else None, (place,))


def edited_layers(config: AfterSoftmax, architecture: Any) -> dict[str, range]:
    sets = layer_sets(architecture.layers, config.first_layers)
    return sets[FIRST] | sets[ALL]


def at_random(config: AfterSoftmax, architecture: Any) -> Iterator[st.Condition]:
    """In each way and all layers: another key masked, and a random query that sees one random earlier key alone."""
    rng = generator(config.seed, "kiya/after-softmax controls")
    others = [key for key in range(config.length - 1) if key != config.key]
    masked, alone = config.edits

    def sees() -> tuple[int, int]:
        query = int(rng.integers(1, config.length - MIN_QUERIES))
        return query, int(rng.integers(query))

    def conditions(draw: int, what: str, name: str, place: int, **selected: Any) -> Iterator[st.Condition]:
        for way, options in WAYS.items():
            edit = sinkjax.edit(**options, **selected).named(f"control {draw}: {name} ({way})")
            yield st.Condition(edit, st.CONTROL, budget=f"{what}, {way}", at=(place,))

    yield st.no_edit(at=(config.key + 1, config.position))
    for draw, key in enumerate(st.without_replacement(config.controls, lambda: int(rng.choice(others)))):
        yield from conditions(draw, masked, f"key {key}", config.key + 1, keys=key, relation="others")
    for draw, (query, seen) in enumerate(st.without_replacement(config.controls, sees)):
        hidden = [key for key in range(query + 1) if key != seen]
        yield from conditions(draw, alone, f"query {query} on key {seen}", query, queries=query, keys=hidden)


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
    note = f"""The new place of the sink is position {config.key + 1} for the masked key, and position {config.position} for the
        query alone. A head sinks on a key if the share of attention that it gives it, averaged over all later queries, is above
        {config.eps:g} (Gu et al. 2025); shares, because without renormalising the rows do not sum to 1."""
    sink, size, on_first = placed_measures("the new place", note)
    left = st.Measure(
        "attention left (% of a row)", lambda data: 100 * data["row_sum"].mean("layer").values, unit="percentage points"
    )
    return st.loss(), sink, on_first, size, left


def claims(config: AfterSoftmax, architecture: Any) -> Iterator[st.Claim]:
    """An output has collapsed if its loss is no lower than that of guessing, for either edit in all layers."""
    loss = measures(config)[0]
    guess = st.number("the loss of guessing evenly among all tokens", lambda results: math.log(architecture.vocab_size), "nats")
    edited = {what: label(what, AFTER) for what in config.edits}
    rises = (st.difference(loss, at, label(what, BEFORE), f"{what}, weights minus logits") for what, at in edited.items())
    yield st.Claim(
        "Attention weights set to 0 after the softmax make the output collapse: its loss is no lower than that of guessing.",
        st.any_of(*(st.at_least(st.value(loss, at), guess) for at in edited.values())),
        given=st.below(st.value(loss, st.NO_EDIT), guess),
        source="Kiya et al. 2026, footnote 8",
        also=(*rises, *(st.effect(loss, at) for at in edited.values())),
    )

    def apart(results: st.Results) -> float:
        nll = results.data["nll"]
        before, renormalised = (nll.sel(edit=[label(what, way) for what in config.edits]) for way in (BEFORE, RENORMALISED))
        return float(np.nanmax(np.abs(before.values - renormalised.values)))

    yield st.Claim(
        "Weights set to 0 and renormalised are those of the masked logits.",
        st.below(
            st.number("largest difference of any token's loss between logits and renormalised weights", apart, "nats"), ROUNDING
        ),
        kind="identity",
    )


def figures(config: AfterSoftmax, architecture: Any) -> Iterator[st.Figure]:
    loss, sink, _, size, _ = measures(config)
    where = edited_layers(config, architecture)

    def row(ylabel: str, measure: st.Measure, **options: Any) -> list[st.Panel]:
        return [
            st.Panel(ylabel, {way: (measure, [label(what, way, name) for name in where]) for way in APART}, what, **options)
            for what in config.edits
        ]

    yield st.lines(
        "by-edited-layers",
        "edited layers: the first n",
        [
            row("rise of the loss\n(nats per token)", loss, effect=True),
            row("heads that sink on\nthe new place (%)", sink),
            row("largest |h| at\nthe new place", size, log=True),
        ],
        """The two edits of the first n layers, before the softmax (logits) and after it (weights set to 0). Renormalised weights
        give the numbers of the logits and are not drawn. The new place is the next key (left) and the query's own (right).""",
        legend_above=True,
    )
    yield st.attention_maps("attention-maps", config.drawn_layers(architecture.layers), lambda label: label.replace(" (", "\n("))
    yield st.activations(
        "largest-activation",
        lambda results: {st.NO_EDIT: st.NO_EDIT} | {label(what, way): f"{what}, {way}" for what in config.edits for way in APART},
    )


def noop(config: AfterSoftmax, architecture: Any) -> dict[str, sinkjax.Edit]:
    same = partial(sinkjax.edit, "weights", "scale", 1.0, keys=config.key, relation="others")
    weights = f"weights of key {config.key} times 1"
    masked = zero_added(f"towards key {config.key}", keys=config.key)
    return {**masked, f"{weights}, renormalised": same(renormalise=True), weights: same()}


STUDY = st.Study(
    name="kiya/after-softmax",
    config=AfterSoftmax,
    title="Editing attention after the softmax",
    question="""Kiya et al. 2026, footnote 8: the same edits on the probabilities after the softmax make the output collapse, so
        that only edits of logits are reported.""",
    needs=("softmax",),
    probe=probe,
    conditions=conditions,
    controls=(st.Sweep(CONTROLS, at_random, prompts=st.control_prompts),),
    measures=measures,
    claims=claims,
    featured=lambda results: [st.NO_EDIT, *(label(what, way) for what in results.config.edits for way in WAYS)],
    figures=figures,
    noop=noop,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, *(label(f"key {config.key} masked", way) for way in WAYS)),
        config.drawn_layers(architecture.layers),
        start=config.key + 1,
    ),
    notes=lambda config, results: (
        """The paper says neither whether rows were renormalised, nor in which layers, nor what counts as a collapse. By algebra
        renormalised weights are those of the masked logits; after a review on 2026-11-22, with results known, this became an
        identity instead of a second claim about a collapse.""",
        """Controls mask another key, or let a query at a random position see one random earlier key instead of itself, in all
        layers; each edit and way has its own. Edits of first layers have none.""",
    ),
)
