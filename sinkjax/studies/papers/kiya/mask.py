"""kiya/mask: what becomes of the sink and of the massive activation when no query may attend to the first key (Figs. 4 and 8).

The logits of the key are -inf for every later query: in each single layer, in layers 0 to l, in all layers, or in some heads.
Controls mask another, random key in as many random layers, or the key in as many random heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import at_least, below, refuse

SINGLE, FIRST, ALL = "one layer", "layers 0 to l", "all layers"
MOST, EARLY, SETS = "heads that sink most", "heads of the first layers", "heads"


@dataclass(frozen=True, kw_only=True)
class Mask(st.ControlledSinks, st.Mapped):
    """Mask the logits towards one key in each single layer, in layers 0 to l, in all layers, and in some heads (Figs. 4, 8)."""

    key: int = 0
    """the key that is masked; key + 1 is where the paper finds the sink afterwards"""
    controls: int = 20
    """random controls for each budget of layers: another key masked in as many random layers"""
    head_shares: tuple[float, ...] = (0.1, 0.5)
    """shares of all heads that are masked as a set, in whole layers' worth of heads"""
    loss: bool = True
    """whether to measure the loss too, which takes a third of the time"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, length=3)
        below(self, "key", "length")
        wrong = not self.head_shares or not all(0 < part < 1 for part in self.head_shares)
        refuse(wrong, f"head_shares must hold at least one number, each between 0 and 1, not {list(self.head_shares)}")
        refuse(self.key + 2 > self.length, f"key {self.key} is the last of {self.length} positions: the sink cannot move on")


def conditions(config: Mask, architecture: Any) -> Iterator[st.Condition]:
    """No edit, layer l alone, layers 0 to l, and all layers; a budget is a number of layers."""
    L = architecture.layers
    yield st.no_edit()
    for layer in range(L):
        yield st.Condition(sinkjax.mask_key(config.key, layers=layer).named(f"layer {layer}"), SINGLE, layer, budget=1)
    for last in range(1, L - 1):
        edit = sinkjax.mask_key(config.key, layers=range(last + 1)).named(f"layers 0 to {last}")
        yield st.Condition(edit, FIRST, last, last + 1 if last + 1 in several(L) else None)
    yield st.Condition(sinkjax.mask_key(config.key, layers=range(L)).named(ALL), ALL, L - 1, budget=L)


def several(L: int) -> list[int]:
    """How many first layers have controls: a tenth, a third and half of them."""
    return sorted(count for count in {max(L // 10, 2), L // 3, L // 2} if 1 < count < L)


def another_key(rng: np.random.Generator, config: Mask, architecture: Any, budget: int) -> sinkjax.Edit:
    """Another key, masked in as many random layers; no later query sees the last key."""
    L = architecture.layers
    key = int(rng.choice([key for key in range(config.length - 1) if key != config.key]))
    layers = sorted(rng.choice(L, budget, replace=False).tolist())
    where = {1: f"layer {layers[0]}", L: ALL}.get(budget, f"{budget} layers")
    return sinkjax.mask_key(key, layers=layers).named(f"key {key} in {where}")


def in_heads(config: Mask, heads: NDArray, shape: tuple[int, int], label: str) -> sinkjax.Edit:
    """The mask in some heads. heads: int[n], each layer * H + head. shape: (L, H)."""
    value = np.zeros(shape, np.float32)
    value.flat[heads] = -np.inf
    layers = np.flatnonzero((value < 0).any(axis=1)).tolist()
    return sinkjax.edit("logits", "add", value[:, None, :], layers=layers, keys=config.key, relation="others", label=label)


def sizes(config: Mask, architecture: Any) -> list[int]:
    """How many heads are masked: those of whole layers nearest to each share, at least one layer and not all."""
    L, H = architecture.layers, architecture.heads
    return [H * count for count in sorted({min(max(round(share * L), 1), max(L - 1, 1)) for share in config.head_shares})]


def head_sets(config: Mask, architecture: Any, received: NDArray) -> Iterator[st.Condition]:
    """For each size, the heads that sink most and those of the first layers. received: attention to the key, float[L, H]."""
    order = np.argsort(-received, axis=None, kind="stable")
    yield st.no_edit()
    for size in sizes(config, architecture):
        most, early = f"the {size} heads that sink most", first_heads(size, architecture.heads)
        yield st.Condition(in_heads(config, order[:size], received.shape, most), MOST, budget=size)
        yield st.Condition(in_heads(config, np.arange(size), received.shape, early), EARLY, budget=size)


def first_heads(size: int, H: int) -> str:
    last = size // H - 1
    return f"the {size} heads of layer{f's 0 to {last}' if last else ' 0'}"


def random_heads(rng: np.random.Generator, config: Mask, architecture: Any, size: int) -> sinkjax.Edit:
    shape = (architecture.layers, architecture.heads)
    return in_heads(config, rng.choice(shape[0] * shape[1], size, replace=False), shape, f"{size} random heads")


def attention_to_key(config: Mask, model: Any, batch: st.Batch) -> NDArray:
    """Attention that the key receives from each head without an edit, mean over prompts: float[L, H]."""
    none = [sinkjax.compose(label=st.NO_EDIT)]
    data = sinkjax.sweep(model, batch.tokens, none, probe=probe_of(config), lengths=batch.lengths, progress=False)
    return received(data, config.key)


def received(data: Any, key: int) -> NDArray:
    return data["attention_received"].isel(edit=0).sel(key=key).mean("prompt").values


def probe_of(config: Mask) -> sinkjax.Probe:
    return sinkjax.Probe.of("attention_received", "resid_max", "resid_norm", "resid_argmax", *["nll"] * config.loss)


def measures(config: Mask) -> tuple[st.Measure, ...]:
    """Sinks on the key and on the next one, the largest |h| at both, and the loss."""
    key, moved = config.key, config.key + 1
    sinks = (st.sink_rate(key, config.eps), st.sink_rate(moved, config.eps))
    return (*sinks, st.largest_activation(key), st.largest_activation(moved), *[st.loss()] * config.loss)


def claims(config: Mask, architecture: Any) -> Iterator[st.Claim]:
    """What appears at the next token must be new, above every control, and at least half of what the key had."""
    at_key, at_next, size_key, size_next, *_ = measures(config)
    third = f"layers 0 to {architecture.layers // 3 - 1}" if architecture.layers >= 6 else "layer 0"

    def moves(label: str, measure: st.Measure, before: st.Measure) -> st.Rule:
        half = st.value(before, st.NO_EDIT).times(0.5, f"half of {before.name} without an edit")
        return st.all_of(st.raised(measure, label), st.at_least(st.value(measure, label), half))

    yield st.Claim("Masked in all layers, the sink moves to the next token (Figs. 4a, 8a).", moves(ALL, at_next, at_key))
    yield st.Claim("Then the next token has a massive activation too (Figs. 4, 8).", moves(ALL, size_next, size_key))
    yield st.Claim("Masked in the first layer alone, the sink moves as well (Fig. 4b).", moves("layer 0", at_next, at_key))
    yield st.Claim(
        "An edit in early layers decides where later ones put the sink: in the first third of them.",
        moves(third, at_next, at_key),
    )


def findings(config: Mask, architecture: Any) -> Iterator[st.Quantity]:
    at_key, at_next, _, size_next, *losses = measures(config)
    yield from (st.value(at_key, st.NO_EDIT), st.effect(at_next, ALL), st.effect(size_next, ALL))
    yield from (st.effect(loss, ALL) for loss in losses)
    yield st.effect(at_next, strongest, "largest effect of a single layer's mask on heads that sink on the next key")
    single = [f"layer {layer}" for layer in range(architecture.layers)]
    rules = {label: st.raised(at_next, label, where_any=False) for label in single}
    yield st.number_of(rules, "single layers whose mask moves the sink, beyond every control")
    yield st.quantity("smallest l for which a mask of layers 0 to l moves the most attended key on, in most prompts", enough)
    for size in sizes(config, architecture):
        sets = (f"the {size} heads that sink most", first_heads(size, architecture.heads))
        yield from (st.effect(at_next, label) for label in sets)


def strongest(results: st.Results) -> str:
    """The single layer whose mask brings most sinks to the next key."""
    measure = measures(results.config)[1]
    effects = [(results.row(measure, entry.label).effect.mean or -np.inf, entry.label) for entry in results.series(SINGLE)]
    return max(effects, key=lambda pair: pair[0])[1]


def enough(results: st.Results) -> float:
    where = metrics.sink_position(results.data, min_queries=min(8, results.config.length // 2)).position
    series = [(entry.x, where[number]) for number, entry in enumerate(results.conditions()) if entry.series == FIRST]
    moved = results.config.key + 1
    return next((float(last) for last, position in series if (position == moved).mean() > 0.5), float("nan"))


def featured(results: st.Results) -> tuple[str, ...]:
    """No edit, layer 0, the layer that does most, the first tenth and half of the layers, all; the sets of heads."""
    L, labels = results.architecture.layers, results.labels()
    wanted = (st.NO_EDIT, "layer 0", strongest(results), early(L), f"layers 0 to {L // 2 - 1}", ALL)
    return (*(label for label in wanted if label in labels), *results.labels(SETS)[1:])


def early(L: int) -> str:
    return f"layers 0 to {max(L // 10, 2) - 1}"


def figures(config: Mask, architecture: Any) -> Iterator[st.Figure]:
    at_key, at_next, size_key, size_next, *_ = measures(config)
    key, L = config.key, architecture.layers
    first = ["layer 0", *(f"layers 0 to {last}" for last in range(1, L - 1)), ALL]
    columns = {"masked: one layer l": [f"layer {layer}" for layer in range(L)], "masked: layers 0 to l": first}

    def panels(ylabel: str, name: str, pair: tuple[st.Measure, st.Measure], log: bool) -> list[st.Panel]:
        return [
            st.Panel(ylabel, {f"{name} {key + n}": (pair[n], labels) for n in (0, 1)}, title, baseline=st.NO_EDIT, log=log)
            for title, labels in columns.items()
        ]

    yield st.attention_maps("attention-maps", config.drawn_layers(L), masked)
    yield st.lines(
        *("sink-by-edited-layer", st.ALONG_LAYERS),
        [
            panels("heads that sink on the key (%)", "key", (at_key, at_next), log=False),
            panels("largest |h| at the position", "position", (size_key, size_next), log=True),
        ],
        f"""Where the sink (top) and the largest activation (bottom) are, against the layers in which key {key} is masked. A
        masked layer has no sink on that key, which alone takes it a share of its line. Dashed: no edit.""",
    )
    yield st.attention_received(
        *("attention-by-layer", {f"attention to key {key + n}": key + n for n in (0, 1)}, columns),
        f"""Attention that key {key} (top) and key {key + 1} (bottom) receive in each layer, against the edited layer. An edited
        layer has no attention to key {key}; what lies above it shows what the edit does to later layers.""",
    )
    yield st.activations(
        "largest-activation",
        lambda results: {label: masked(label) for label in featured(results) if label in results.labels()},
    )
    yield st.dots(
        *("sink-by-masked-heads", "heads that sink on the key (% of all heads)"),
        {f"key {key} (masked)": at_key, f"key {key + 1}": at_next},
        "Heads that sink on the key, which is masked in some of them, and on the next key; one mark for each random set.",
        store=SETS,
        limits=(-2, 100),
    )


def masked(label: str) -> str:
    return label if label == st.NO_EDIT else f"masked: {label}"


KEYS = "kiya/mask controls"
STUDY = st.Study(
    name="kiya/mask",
    config=Mask,
    title="Masking the logits towards key {key}",
    question="""Kiya et al. 2026: with the logits towards the first token at minus infinity in all layers, or in an early one, the
        sink moves to the second token and the massive activation appears on both; an edit in the early layers decides where later
        layers put them.""",
    probe=probe_of,
    conditions=conditions,
    controls=(
        st.random_edits(KEYS, another_key, lambda config, architecture: sorted({1, architecture.layers})),
        st.random_edits(
            *(f"{KEYS} of first layers", another_key, lambda config, architecture: several(architecture.layers)),
            name="first-controls",
            when=lambda config, architecture: bool(several(architecture.layers)),
        ),
    ),
    measures=measures,
    more=lambda config, architecture: (
        st.Sweep(
            *(SETS, head_sets, measures),
            values=st.Values(
                lambda config, architecture, _: np.zeros((architecture.layers, architecture.heads)), attention_to_key
            ),
            controls=(st.random_edits("kiya/mask heads", random_heads, sizes, name="head-controls"),),
        ),
    ),
    claims=claims,
    findings=findings,
    featured=featured,
    figures=figures,
    noop=lambda config, architecture: {
        f"0 added to the logits towards key {config.key}": sinkjax.edit("logits", "add", 0.0, keys=config.key, relation="others")
    },
    shown=lambda config, architecture: st.Shown(
        *((st.NO_EDIT, early(architecture.layers), ALL), tuple(range(architecture.layers))), start=config.key + 1
    ),
    notes=lambda config, results: (
        """In a masked layer the masked key cannot be a sink. The mask spares the query of the key itself, which would otherwise
        have no key left.""",
    ),
)
