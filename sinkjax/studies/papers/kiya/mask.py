"""kiya/mask: mask the logits of all later queries towards the first key, in some layers or heads (Figs. 4 and 8).

Controls mask another, random key in the same layers, or the key in as many random heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.papers.kiya._masks import (
    ALL,
    ONSET,
    SOME,
    UP_TO_SINK,
    before_the_last,
    first_layers,
    layer_sets,
    sink_forms,
    zero_added,
)
from sinkjax.studies.papers.kiya._readout import attention_to
from sinkjax.studies.quantities import Label

LARGE = 10  # times the next token's |h|: a masked key with less has no massive activation of its own
FIRST, MOST, EARLY, SETS = "layers 0 to l", "heads that sink most", "heads of the first layers", "heads"


@dataclass(frozen=True, kw_only=True)
class Mask(st.ControlledSinks, st.Mapped):
    """Mask the logits towards one key in each single layer, in layers 0 to l, in all layers, and in some heads (Figs. 4, 8)."""

    key: int = 0
    """the key that is masked; key + 1 is where the paper finds the sink afterwards"""
    head_shares: tuple[float, ...] = (0.1, 0.5)
    """shares of all heads that are masked as a set, rounded to the number of heads in whole layers"""
    loss: bool = True
    """whether to measure the loss too, which takes a third of the time"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, length=4)
        wrong = not self.head_shares or not all(0 < part < 1 for part in self.head_shares)
        refuse(wrong, f"head_shares must hold at least one number, each between 0 and 1, not {list(self.head_shares)}")
        refuse(self.key + 2 > self.length, f"key must be below {self.length - 1}, not {self.key}: its sink moves to the next one")


def edited_layers(architecture: Any) -> dict[str, dict[str, range]]:
    """Every set of layers that is masked, by series."""
    return layer_sets(architecture.layers, range(2, architecture.layers), FIRST)


def conditions(config: Mask, architecture: Any, forms: int) -> Iterator[st.Condition]:
    """No edit, and the key masked in each set of layers; a budget is such a set. forms: the layer in which the sink forms."""
    yield st.no_edit()
    controlled = budgets(architecture, forms)
    for series, sets in edited_layers(architecture).items():
        for where, layers in sets.items():
            edit = sinkjax.mask_key(config.key, layers=layers).named(where)
            yield st.Condition(edit, series, layers[-1], budget=where if where in controlled else None)
    edit = sinkjax.mask_key(config.key, layers=controlled[UP_TO_SINK]).named(UP_TO_SINK)
    yield st.Condition(edit, UP_TO_SINK, budget=UP_TO_SINK)


def budgets(architecture: Any, forms: int) -> dict[str, range]:
    """The sets of layers that claims are about, name -> layers: they have controls."""
    return {"layer 0": range(1), UP_TO_SINK: range(forms + 1), ALL: range(architecture.layers)}


def other_keys(config: Mask, architecture: Any, forms: int) -> Iterator[st.Condition]:
    """Masks of other keys in the same layers: keys that some later query sees and at which nothing is read."""
    rng = intervals.generator(config.seed, "kiya/mask controls")
    keys = [key for key in range(config.length - 1) if key not in (config.key, config.key + 1)]
    for where, layers in budgets(architecture, forms).items():
        for number, key in enumerate(rng.permutation(keys)[: config.controls].tolist()):
            edit = sinkjax.mask_key(key, layers=layers).named(f"control {number}: key {key} in {where}")
            yield st.Condition(edit, st.CONTROL, budget=where)


def in_heads(config: Mask, architecture: Any, heads: NDArray, label: str) -> sinkjax.Edit:
    """Mask the key in some heads: int[n], each layer * H + head."""
    value = np.zeros((architecture.layers, architecture.heads), np.float32)
    value.flat[heads] = -np.inf
    layers = np.flatnonzero((value < 0).any(axis=1)).tolist()
    return sinkjax.edit("logits", "add", value[:, None, :], layers=layers, keys=config.key, relation="others", label=label)


def sizes(config: Mask, architecture: Any) -> list[int]:
    """How many heads are masked: those of whole layers nearest to each share, at least one layer and not all."""
    L, H = architecture.layers, architecture.heads
    return [H * count for count in sorted({min(max(round(share * L), 1), max(L - 1, 1)) for share in config.head_shares})]


def head_sets(config: Mask, architecture: Any, received: NDArray) -> Iterator[st.Condition]:
    """For each size, the heads that sink most and those of the first layers. received: attention to the key, float[L * H]."""
    order = np.argsort(-received, kind="stable")
    yield st.no_edit()
    for size in sizes(config, architecture):
        most, early = f"the {size} heads that sink most", f"the {size} heads of {first_layers(size // architecture.heads)}"
        yield st.Condition(in_heads(config, architecture, order[:size], most), MOST, budget=size)
        yield st.Condition(in_heads(config, architecture, np.arange(size), early), EARLY, budget=size)


def random_heads(rng: np.random.Generator, config: Mask, architecture: Any, size: int) -> sinkjax.Edit:
    heads = rng.choice(architecture.layers * architecture.heads, size, replace=False)
    return in_heads(config, architecture, heads, f"{size} random heads")


def attention_to_key(config: Mask, model: Any, batch: st.Batch) -> NDArray:
    """Attention that the key receives from each head without an edit, mean over prompts: float[L * H]."""
    asked = sinkjax.Probe(attention_received=True)
    data = sinkjax.sweep(model, batch.tokens, [sinkjax.compose()], probe=asked, lengths=batch.lengths, progress=False)
    return data["attention_received"].isel(edit=0).sel(key=config.key).mean("prompt").values.ravel()


def probe(config: Mask) -> sinkjax.Probe:
    return sinkjax.Probe.of("attention_received", "resid_max", "resid_norm", "resid_argmax", *["nll"] * config.loss)


def measures(config: Mask) -> tuple[st.Measure, ...]:
    keys = (config.key, config.key + 1)
    sinks = (st.sink_rate(key, config.eps) for key in keys)
    return (*sinks, *map(st.largest_activation, keys), *map(attention_to, keys), *[st.loss()] * config.loss)


def early(results: st.Results) -> str:
    """The layers up to that in which the sink forms."""
    key, few = results.config.key, results.size("prompt", "controls")
    return before_the_last(metrics.sink_rate(results.data, key, results.config.eps, per="layer")[0, :few], key)


def claims(config: Mask, architecture: Any) -> Iterator[st.Claim]:
    """What appears at the next token must be new, above every control, and at least half of what the key had."""
    at_key, at_next, size_key, size_next, seen_key, seen_next, *_ = measures(config)
    sink = st.above(st.value(at_key, st.NO_EDIT), SOME)

    def in_first(results: st.Results) -> NDArray:
        return 100 * metrics.sink_rate(results.data, config.key, config.eps, per="layer")[0, :, 0]

    starts = st.above(st.quantity(f"the heads of layer 0 that sink on key {config.key} without an edit (%)", in_first), SOME)
    larger = st.value(size_next, st.NO_EDIT).times(LARGE, f"{LARGE} times that at the next one")
    massive = st.above(st.value(size_key, st.NO_EDIT), larger)

    def moved(where: Label, before: st.Measure, after: st.Measure) -> st.Rule:
        changed = st.effect(after, where)
        half = st.value(before, st.NO_EDIT).times(0.5, f"half of {before.name} without an edit")
        return st.all_of(st.above(changed), st.above_controls(changed), st.at_least(st.value(after, where), half))

    masking, seen = f"Masking the logits towards key {config.key} in", st.value(seen_key, st.NO_EDIT)
    layers: tuple[tuple[str, Label, str, st.Rule], ...] = (
        ("all layers", ALL, "Figs. 4a, 8a", sink),
        ("the first layer alone", "layer 0", "Fig. 4b", starts),
        ("the layers up to the one in which its sink forms", early, "conclusion", sink),
    )
    for words, where, source, given in layers:
        yield st.Claim(
            f"{masking} {words} moves more than half of the attention sink to the next token.",
            moved(where, at_key, at_next),
            given=given,
            source=f"Kiya et al. 2026, {source}",
            also=(seen, st.value(seen_next, where)),
        )
    yield st.Claim(
        f"{masking} all layers gives the next token more than half of the largest activation that key {config.key}"
        " has without an edit.",
        moved(ALL, size_key, size_next),
        given=massive,
        source="Kiya et al. 2026, Figs. 4, 8",
    )


def findings(config: Mask, architecture: Any) -> Iterator[st.Quantity]:
    _, at_next, _, _, *seen = measures(config)[:6]
    single = [f"layer {layer}" for layer in range(architecture.layers)]
    strongest = st.largest_effect(at_next, single, "the strongest layer")
    yield st.effect(at_next, strongest, "largest effect of a single layer's mask on heads that sink on the next key")
    rules = {layer: st.above(st.effect(at_next, layer), SOME) for layer in single}
    yield st.number_of(rules, f"single layers whose mask makes more than {SOME:g} % of heads sink on the next key")
    yield st.number("smallest l for which a mask of layers 0 to l moves the most attended key on, in most prompts", enough)
    for label in (st.NO_EDIT, ALL, *single[:2]):  # Figs. 4 and 8
        yield from (st.value(measure, label) for measure in seen)


def enough(results: st.Results) -> float:
    config = results.config
    most_attended = metrics.sink_position(results.data, min_queries=min(8, config.length // 2)).position
    moved = zip(results.conditions(), (most_attended == config.key + 1).mean(axis=1) > 0.5, strict=True)
    return min((entry.x for entry, most in moved if most and entry.series == FIRST), default=np.nan)


def compared(results: st.Results) -> list[str]:
    """No edit, layer 0, the first tenth, third and half of the layers, and all."""
    L = results.architecture.layers
    several = sorted(count for count in {max(L // 10, 2), L // 3, L // 2} if 1 < count < L)
    return [st.NO_EDIT, *map(first_layers, (1, *several)), ALL]


def masked(label: str) -> str:
    return label if label == st.NO_EDIT else f"masked: {label}"


def figures(config: Mask, architecture: Any) -> Iterator[st.Figure]:
    at_key, at_next, size_key, size_next, *_ = measures(config)
    key, after, L = config.key, config.key + 1, architecture.layers
    columns = {
        "masked: one layer l": [f"layer {layer}" for layer in range(L)],
        "masked: layers 0 to l": [*map(first_layers, range(1, L)), ALL],
    }
    sinks = {f"key {key}": at_key, f"key {after}": at_next}
    largest = {f"position {key}": size_key, f"position {after}": size_next}
    yield st.attention_maps("attention-maps", config.drawn_layers(L), masked)
    yield st.lines(
        "sink-by-edited-layer",
        st.ALONG_LAYERS,
        [
            st.panels("heads that sink on the key (%)", sinks, columns, baseline=st.NO_EDIT),
            st.panels("largest |h| at the position", largest, columns, baseline=st.NO_EDIT, log=True),
        ],
        f"""Heads that sink on keys {key} and {after} (top) and the largest |h| at these positions (bottom), against the layers in
        which key {key} is masked. No head of a masked layer can sink on key {key}, which by itself lowers that line. Dashed: no
        edit.""",
    )
    yield st.attention_received(
        "attention-by-layer",
        {f"attention to key {key}": key, f"attention to key {after}": after},
        columns,
        f"""Attention that keys {key} (top) and {after} (bottom) receive in each layer, against the edited layer. In an edited
        layer key {key} receives none; the layers above it show the effect of the edit on later layers.""",
    )
    yield st.activations("largest-activation", lambda results: {label: masked(label) for label in compared(results)})
    yield st.dots(
        "sink-by-masked-heads",
        "heads that sink on the key (% of all heads)",
        {f"key {key} (masked)": at_key, f"key {after}": at_next},
        "Heads that sink on the key, which is masked in some heads, and on the next key; each random set of heads is one mark.",
        store=SETS,
        limits=(-2, 100),
    )


FORMS = sink_forms(lambda config: config.key)
STUDY = st.Study(
    name="kiya/mask",
    config=Mask,
    title="Masking the logits towards key {key}",
    question="""Kiya et al. 2026: with the logits towards the first token at minus infinity in all layers, or in an early one, the
        sink moves to the second token and both tokens have a massive activation; an edit in the early layers decides where later
        layers put them.""",
    probe=probe,
    conditions=conditions,
    values=FORMS,
    headline=lambda config, architecture: [ALL],
    controls=(st.Sweep("controls", other_keys, prompts=st.control_prompts, values=FORMS),),
    measures=measures,
    more=lambda config, model: (
        st.Sweep(
            SETS,
            head_sets,
            measures,
            values=st.Values(lambda config, model, prompts: np.zeros(model.layers * model.heads), attention_to_key),
            controls=(st.random_edits("kiya/mask heads", random_heads, sizes, name="head-controls"),),
        ),
    ),
    claims=claims,
    findings=findings,
    featured=lambda results: [*compared(results), *results.labels(SETS)[1:]],
    figures=figures,
    noop=lambda config, model, forms: zero_added(f"towards key {config.key}", keys=config.key),
    shown=lambda config, model: st.Shown(
        (st.NO_EDIT, first_layers(max(model.layers // 10, 2)), ALL), tuple(range(model.layers)), start=config.key + 1
    ),
    notes=lambda config, results: (
        """In a masked layer no head can sink on the masked key. The query of the key itself is not masked, as it would have no
        key left to attend to.""",
        f"""The sink forms in the first layer in which more than {ONSET:.0%} of the heads sink on the key without an edit, mean
        over the first {results.size("prompt", "controls")} prompts; no effect of an edit decides it. A control masks another key,
        at which nothing is read, in the same layers; layers that no claim is about have none.""",
        """After a review on 2026-11-22, with results known, the claim about the first layer alone became not applicable where no
        head of that layer sinks on the key: the paper masks a layer that already has the sink.""",
    ),
)
