"""li/isolate: a token that may attend to itself alone; does it become a sink? (Li et al. 2026, intervention 1.)

The paper's reason is that such a token's head outputs are no average. The controls take the same number of keys away, but leave
another one than the token itself: they average nothing either. The opposite edit spreads the token's attention evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import sinkjax
import sinkjax.studies as st
from sinkjax.studies.papers.li._token import OneToken

SAME = "identity (0 added to every score)"
SINGLE, FIRST, ALL, OTHER, EVEN = "one layer", "layers 0 to l", "all layers", "another key alone", "even attention"
COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of first layers that are edited together
GROWN = 10  # times its unedited size, from which an activation counts as massive


@dataclass(frozen=True, kw_only=True)
class Isolate(OneToken):
    """One token may attend to nothing but itself; does it become a sink?

    Chosen here: the layers (each one alone, the first ones together, all).
    """

    controls: int = 20
    """random controls for each budget of layers: the token may attend to one other key instead of itself"""


def only(position: int, key: int, layers: Sequence[int] | int | None = None) -> sinkjax.Edit:
    """The query at `position` sees `key` and nothing else."""
    hidden = [other for other in range(position + 1) if other != key]
    return sinkjax.edit("logits", "set", -np.inf, queries=position, keys=hidden, layers=layers)


def conditions(config: Isolate, architecture: Any) -> Iterator[st.Condition]:
    """Nothing, isolation in each layer, the first ones and all, and its opposites; a budget is a number of layers."""
    k, L = config.position, architecture.layers

    def isolated(series: str, layers: range, label: str, budget: int | None = None) -> st.Condition:
        return st.Condition(sinkjax.attend_self(k, layers=layers).named(label), series, layers[-1], budget)

    yield st.no_edit()
    yield st.Condition(sinkjax.edit("logits", "add", 0.0, queries=k, label=SAME), SAME)
    yield from (isolated(SINGLE, range(layer, layer + 1), f"layer {layer}", budget=1) for layer in range(L))
    yield from (isolated(FIRST, range(n), f"layers 0 to {n - 1}") for n in COUNTS if n < L)
    yield isolated(ALL, range(L), ALL, budget=L)
    yield from (st.Condition(only(k, key).named(f"key {key} alone, {ALL}"), OTHER, key) for key in sorted({0, k // 2, k - 1}))
    yield st.Condition(sinkjax.edit("logits", "set", 0.0, queries=k, label=f"{EVEN}, {ALL}"), EVEN)


def another_key(rng: np.random.Generator, config: Isolate, architecture: Any, budget: int) -> sinkjax.Edit:
    """The token sees one other key alone: in one random layer, or in all, another one in a random half of them."""
    k, L = config.position, architecture.layers
    if budget == 1:
        layer, key = int(rng.integers(L)), int(rng.integers(k))
        return only(k, key, layer).named(f"key {key} alone in layer {layer}")
    keys, order = rng.integers(k, size=2).tolist(), rng.permutation(L).tolist()
    halves = (only(k, key, sorted(half)) for key, half in zip(keys, (order[: L // 2], order[L // 2 :]), strict=True))
    return sinkjax.compose(*halves, label=f"keys {keys[0]} and {keys[1]} alone in half of the layers")


def measures(config: Isolate) -> tuple[st.Measure, ...]:
    """Sinks on the token and on the first one, the largest |h| at both, and the loss."""
    keys = config.position, 0
    return (*(st.sink_rate(key, config.eps) for key in keys), *map(st.largest_activation, keys), st.loss())


def claims(config: Isolate, architecture: Any) -> Iterator[st.Claim]:
    sinks, first_sinks, size, first_size, _ = measures(config)
    isolated, even = st.effect(sinks, ALL), st.effect(sinks, f"{EVEN}, {ALL}")
    usual, before = st.value(first_sinks, st.NO_EDIT), st.value(size, st.NO_EDIT)
    half = isolated.times(0.5, "half of the effect of isolation")
    yield st.Claim(
        f"Token {config.position}, attending to itself alone, becomes a sink.",
        st.all_of(
            st.above(isolated),
            st.at_least(st.value(sinks, ALL), usual.times(0.5, "half of the heads that sink on key 0 without an edit")),
        ),
        also=(st.value(sinks, st.NO_EDIT),),
    )
    other = st.control_effect(sinks, architecture.layers, "effect of seeing another random key alone, in all layers")
    yield st.Claim(
        "The reason is that its head outputs are no average.",
        st.all_of(st.more_than(other, half), st.less_than(even, half)),
        given=st.above(isolated),
    )
    yield st.Claim(
        "A massive activation appears on it too.",
        st.all_of(
            st.above(st.effect(size, ALL)),
            st.more_than(st.value(size, ALL), before.times(GROWN, f"{GROWN} times its size without an edit")),
            st.more_than(st.value(size, ALL), st.value(first_size, st.NO_EDIT).times(0.5, "half of that at position 0")),
        ),
        also=(before,),
    )


def findings(config: Isolate, architecture: Any) -> Iterator[st.Quantity]:
    sinks, first_sinks, _, _, loss = measures(config)
    yield from (st.value(first_sinks, st.NO_EDIT), st.value(first_sinks, ALL))
    yield st.count(sinks, SINGLE, "single layers in which isolation makes the token a sink")
    yield st.effect(sinks, strongest(config, architecture))
    yield st.smallest(sinks, FIRST, "smallest l for which isolation in layers 0 to l makes the token a sink")
    yield from (st.effect(sinks, label) for label in st.labels_of(conditions(config, architecture), OTHER, EVEN))
    yield from (st.value(loss, ALL), st.effect(loss, ALL), st.noop_change(SAME))


def strongest(config: Isolate, architecture: Any) -> Callable[[st.Results], str]:
    single = st.labels_of(conditions(config, architecture), SINGLE)
    return st.largest_effect(measures(config)[0], single, "isolation in the single layer where it does most")


def featured(results: st.Results) -> tuple[str, ...]:
    first, others = (st.labels_of(results.conditions(), *series) for series in ((FIRST,), (OTHER, EVEN)))
    return (st.NO_EDIT, strongest(results.config, results.architecture)(results), *first[1:2], *first[-3:-2], ALL, *others)


def figures(config: Isolate, architecture: Any) -> Iterator[st.Figure]:
    sinks, first_sinks, size, first_size, _ = measures(config)
    k, found = config.position, list(conditions(config, architecture))
    columns = {
        "isolated in one layer l": st.labels_of(found, SINGLE),
        "isolated in layers 0 to l": ["layer 0", *st.labels_of(found, FIRST, ALL)],
    }
    at_keys, at_positions = {f"key {k}": sinks, "key 0": first_sinks}, {f"position {k}": size, "position 0": first_size}
    yield st.lines(
        *("sink-by-isolated-layer", "layer l (0-based)"),
        [
            st.panels("heads that sink on the key (%)", at_keys, columns, baseline=st.NO_EDIT),
            st.panels("largest |h| at the position", at_positions, columns, baseline=st.NO_EDIT, log=True),
        ],
        f"""Heads that sink (top) and largest |h| (bottom) at token {k}, which attends to itself alone in one layer (left) or in
        the first ones (right), and at token 0. Dashed: no edit.""",
    )
    yield st.activations("activation-of-the-isolated-token", lambda results: {label: named(label) for label in featured(results)})


def named(label: str) -> str:
    return label if label == st.NO_EDIT or "," in label else f"isolated: {label}"


STUDY = st.Study(
    name="li/isolate",
    config=Isolate,
    title="Token {position} attends to itself alone",
    question="""Li et al. 2026: a token that may attend to itself alone becomes a sink, because its head outputs are no longer an
        average of many values.""",
    needs=("softmax", "causal mask"),
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    conditions=conditions,
    controls=(st.random_edits("li/isolate controls", another_key, lambda config, model: sorted({1, model.layers})),),
    measures=measures,
    claims=claims,
    findings=findings,
    featured=featured,
    figures=figures,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, *st.labels_of(conditions(config, architecture), ALL, OTHER, EVEN)), start=config.position + 1
    ),
    notes=lambda config, results: (
        "In an isolated layer the token's own query, whose attention to it is 1, is one of the queries that are averaged.",
        """After a first look at SmolLM2 and random weights the reason was made to depend on even attention too, and not
        applicable without an effect to explain, and an activation counts as massive only if it grew tenfold. On a second reading
        a sink must be half of what key 0 has, as in kiya/mask, where any effect above 0 was enough; the paper gives no
        threshold.""",
    ),
)
