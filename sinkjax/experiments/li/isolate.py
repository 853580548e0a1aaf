"""li/isolate: a token that may attend to itself alone; does it become a sink? (Li et al. 2026, intervention 1.)

The paper's reason is that such a token's head outputs are no average. The controls take the same number of keys away, but leave
another one than the token itself: they average nothing either. The opposite edit spreads the token's attention evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.experiments import identity, illustrations, measures, views
from sinkjax.experiments.base import Arm, Calculation, Claim, Job, Section
from sinkjax.experiments.illustrations import labelled
from sinkjax.experiments.li.config import Isolate
from sinkjax.experiments.li.isolate_figures import Results, drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, Table, summarise
from sinkjax.experiments.words import above, effect, value, verdict
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.edits.term import Select
    from sinkjax.model.config import Config

STORES = ("sweep", "controls")
EXTRAS = (
    illustrations.MAPS,
    illustrations.TEXTS,
)
NONE, IDENTITY = "no edit", "identity (0 added to every score)"
SINGLE, FIRST, ALL = "one layer", "layers 0 to l", "all layers"
OTHER, EVEN, CONTROL = "another key alone", "even attention", "control"
COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of first layers that are edited together
GROWN = 10  # times its unedited size, from which an activation counts as massive
CLAIM = (
    "Li et al. 2026: a token that may attend to itself alone becomes a sink, because its head outputs are no longer an average of"
    " many values."
)


def jobs(config: Isolate, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The sweep over layers on all prompts, and the controls on some."""
    needs("li/isolate", architecture, "softmax", "causal mask")
    L, probe = architecture.layers, Probe.of("attention_received", "resid_max", "nll")
    shown = labelled(arms(config, L), NONE, ALL, f"key 0 alone, {ALL}", f"{EVEN}, {ALL}")
    return (
        Job("sweep", arms(config, L), probe, config.prompts),
        Job("controls", controls(config, L), probe, min(config.control_prompts, config.prompts)),
        illustrations.maps(config, architecture, shown),
        illustrations.texts(config, labelled(shown, NONE, ALL, f"{EVEN}, {ALL}"), start=config.position + 1),
    )


def only(position: int, key: int, layers: Select) -> sinkjax.Edit:
    """LOGITS: the query at `position` sees `key` and nothing else."""
    hidden = [other for other in range(position + 1) if other != key]
    return sinkjax.edit("logits", "set", -np.inf, queries=position, keys=hidden, layers=layers)


def arms(config: Isolate, L: int) -> tuple[Arm, ...]:
    """No edit, the identity; isolation in each layer, the first ones and all; one other key alone; even attention."""
    k = config.position

    def alone(group: str, layers: range, label: str, budget: int | None = None) -> Arm:
        return Arm(sinkjax.attend_self(k, layers=layers).named(label), group, layers[-1], budget)

    none = Arm(sinkjax.compose(label=NONE), NONE)
    same = Arm(sinkjax.edit("logits", "add", 0.0, queries=k, label=IDENTITY), IDENTITY)
    single = (alone(SINGLE, range(layer, layer + 1), f"layer {layer}", budget=1) for layer in range(L))
    first = (alone(FIRST, range(count), f"layers 0 to {count - 1}") for count in COUNTS if count < L)
    whole = alone(ALL, range(L), ALL, budget=L)
    others = (Arm(only(k, key, None).named(f"key {key} alone, {ALL}"), OTHER, key) for key in sorted({0, k // 2, k - 1}))
    even = sinkjax.edit("logits", "set", 0.0, queries=k, label=f"{EVEN}, {ALL}")
    return (none, same, *single, *first, whole, *others, Arm(even, EVEN))


def controls(config: Isolate, L: int) -> tuple[Arm, ...]:
    """The token sees one other key alone: in one random layer, or in all, another one in a random half of them."""
    rng, k = intervals.generator(config.seed, "li/isolate controls"), config.position
    drawn = []
    for draw in range(config.controls):
        layer, key = int(rng.integers(L)), int(rng.integers(k))
        edit = only(k, key, layer).named(f"control {draw}: key {key} alone in layer {layer}")
        drawn.append(Arm(edit, CONTROL, budget=1))
    for draw in range(config.controls if L > 1 else 0):
        keys, order = rng.integers(k, size=2).tolist(), rng.permutation(L).tolist()
        halves = sorted(order[: L // 2]), sorted(order[L // 2 :])
        edit = sinkjax.compose(*(only(k, key, half) for key, half in zip(keys, halves, strict=True)))
        drawn.append(
            Arm(edit.named(f"control {draw}: keys {keys[0]} and {keys[1]} alone in half of the layers"), CONTROL, budget=L)
        )
    return tuple(drawn)


def section(config: Isolate, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    data, random = (stores[name].load() for name in STORES)
    L, k = data.sizes["layer"], config.position
    chosen, drawn = arms(config, L), controls(config, L)
    summarised = (
        measures.sink_rate(k, config.eps),
        measures.sink_rate(0, config.eps),
        measures.largest_activation(k),
        measures.largest_activation(0),
        measures.loss(),
    )
    names = [measure.name for measure in summarised]
    table = summarise(Measured(data, chosen), summarised, config.seed, Measured(random, drawn))
    unaveraged = _mean_effect(data, random, drawn, summarised[0])
    others = tuple(arm.edit.label for arm in chosen if arm.group in (OTHER, EVEN))
    single = [arm.edit.label for arm in chosen if arm.group == SINGLE]
    strongest = max(single, key=lambda label: table[label, names[0]].value.mean or 0)
    first = [arm.edit.label for arm in chosen if arm.group == FIRST]
    featured = dict.fromkeys((NONE, strongest, *first[1:2], *first[-3:-2], ALL, *others))
    return Section(
        experiment="li/isolate",
        title=f"Token {k} attends to itself alone",
        claim=CLAIM,
        findings=(*_findings(config, chosen, table, names, unaveraged), identity.finding(data, [IDENTITY])),
        rows=tuple(table.values()),
        featured=tuple(featured),
        drawings=drawings(Results(config, data, chosen, table, names, tuple(featured))),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(config, table, names, unaveraged),
        views=(views.activation("isolated-activation", data, {label: _named(label, k) for label in (NONE, ALL, *others)}),),
    )


def _named(label: str, k: int) -> str:
    """An arm for readers of a figure."""
    return label if label == NONE or "," in label else f"token {k} isolated: {label}"


def _mean_effect(data: xarray.Dataset, random: xarray.Dataset, drawn: Sequence[Arm], measure: measures.Measure) -> float:
    """Mean effect of the controls of all layers, in which the token sees one other key."""
    whole = [number for number, arm in enumerate(drawn) if arm.budget == data.sizes["layer"]]
    values = measure.of(random)[whole]
    return float((values - measure.of(data)[0, : values.shape[1]]).mean())


def _claims(config: Isolate, table: Table, names: Sequence[str], unaveraged: float) -> tuple[Claim, ...]:
    k = config.position
    sink, activation = table[ALL, names[0]], table[ALL, names[2]]
    even = table[f"{EVEN}, {ALL}", names[0]]
    averaged = even.effect.mean or 0.0
    usual, usual_sink = (table[NONE, name].value.mean or 0.0 for name in (names[2], names[1]))
    size, first = sink.effect.mean or 0.0, table[NONE, names[3]].value.mean or 0.0
    return (
        Claim(
            f"Token {k}, attending to itself alone, becomes a sink.",
            verdict(above(sink.effect, 0) and (sink.value.mean or 0) >= usual_sink / 2),
            f"In all layers: {value(sink)} % of heads sink on it, instead of {value(table[NONE, names[0]])} %; effect"
            f" {effect(sink)}. Rule: an effect with an interval above 0, and at least half of the {number(usual_sink)} % of heads"
            " that sink on key 0 without an edit.",
        ),
        Claim(
            "The reason is that its head outputs are no average.",
            verdict(unaveraged > size / 2 > averaged) if above(sink.effect, 0) else "not applicable",
            f"Mean effect of {sink.controls} controls in which the token sees one other key alone, in all layers:"
            f" {number(unaveraged)} percentage points, beside {interval(sink.effect)} of isolation. Where it averages most, its"
            f" attention even over all keys: {interval(even.effect)}. Rule: without any average, more than half of the effect of"
            " isolation, and with even attention less than half; it needs an effect to explain.",
        ),
        Claim(
            "A massive activation appears on it too.",
            verdict(above(activation.effect, 0) and (activation.value.mean or 0) > max(GROWN * usual, first / 2)),
            f"Largest |h| at position {k}: {value(activation)}, instead of {value(table[NONE, names[2]])}; at position 0 without"
            f" an edit: {value(table[NONE, names[3]])}. Rule: an effect above 0, at least {GROWN} times the unedited size, and"
            " more than half of that at position 0.",
        ),
    )


def _findings(config: Isolate, chosen: Sequence[Arm], table: Table, names: Sequence[str], unaveraged: float) -> tuple[str, ...]:
    k, (sink, first, activation, _, loss) = config.position, names
    single = [table[arm.edit.label, sink] for arm in chosen if arm.group == SINGLE]
    strong = [(layer, row) for layer, row in enumerate(single) if above(row.effect, 0)]
    listed = ", ".join(
        f"layer {layer} ({interval(row.effect, signed=True)})"
        for layer, row in sorted(strong, key=lambda pair: -(pair[1].effect.mean or 0))[:4]
    )
    prefix = [arm.edit.label for arm in chosen if arm.group == FIRST and above(table[arm.edit.label, sink].effect, 0)]
    others = [arm.edit.label for arm in chosen if arm.group in (OTHER, EVEN)]
    return (
        f"With token {k} isolated in all layers, {value(table[ALL, sink])} % of heads sink on it (effect"
        f" {effect(table[ALL, sink], ' percentage points')}), and {value(table[ALL, first])} % on key 0, instead of"
        f" {value(table[NONE, first])} %.",
        f"The largest |h| at position {k} is then {value(table[ALL, activation])}, instead of {value(table[NONE, activation])}.",
        f"Isolated in one layer, the token becomes a sink in {len(strong)} of {len(single)} layers (interval above 0)"
        + (f": {listed}." if strong else "."),
        f"The fewest first layers that make it a sink are {prefix[0]}: {value(table[prefix[0], sink])} % of heads."
        if prefix
        else "No set of first layers makes it a sink.",
        "Where it sees one other key alone, or all alike, in all layers, the heads that sink on it are "
        + ", ".join(f"{value(table[label, sink])} % ({label.partition(',')[0]})" for label in others)
        + f"; the mean effect of the controls is {number(unaveraged)} percentage points.",
        f"The loss is {value(table[ALL, loss])} nats with the token isolated in all layers, instead of {value(table[NONE, loss])}"
        f" ({effect(table[ALL, loss])}).",
    )


def _notes(config: Isolate, N: int, few: int) -> tuple[str, ...]:
    return (
        f"Means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean differences"
        " from no edit, paired by prompt.",
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {config.eps:g} (Gu"
        " et al. 2025). In an isolated layer the token's own query is one of them, with weight 1.",
        f"Controls: {config.controls} random draws for each budget of layers (one, all), in which the token sees one other,"
        f" random key and not itself, on {few} prompts. A percentile says how many of them have a smaller effect on the same"
        " prompts. The identity adds 0 to the token's scores.",
        "After a first look at SmolLM2 and random weights the reason was made to hang on even attention too, and not applicable"
        " without an effect to explain, and an activation counts as massive only if it grew tenfold. On a second reading a sink"
        " must be half of what key 0 has, as in kiya/mask, where any effect above 0 was enough; the paper gives no threshold.",
    )
