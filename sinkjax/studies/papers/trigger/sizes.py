"""trigger/sizes: one property of the single-head model made smaller or larger at a time, for softmax and for ReLU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import sinkjax.studies as st
from sinkjax.config_files.checks import above, each_once
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._figures import by_model
from sinkjax.studies.papers.trigger._lab import LABELS, NORMALISERS, SMALLEST, Lab, Model
from sinkjax.studies.papers.trigger._study import study

BASE = "1 layer, 1 head"
MEASURES = lab.all_but(lab.LOSS, lab.BOS_TRIGGER_SHARE, lab.ELSEWHERE_TRIGGER, lab.UNEVEN, lab.PART_ELSEWHERE)


@dataclass(frozen=True, kw_only=True)
class Sizes(Lab):
    """One layer and one head, with one property changed at a time: depth, heads, n, L, BOS, the scale of scores."""

    seeds: int = 3
    steps: int = 20_000
    layers: tuple[int, ...] = (1, 2, 4)
    """depths, all with a residual stream"""
    heads: tuple[int, ...] = (2, 4)
    """heads of one layer, each n wide"""
    widths: tuple[int, ...] = (8, 32)
    """other values of n"""
    lengths: tuple[int, ...] = (8, 32)
    """other values of L"""
    deep_rate: float = 1e-4
    """learning rate of Adam for models with a residual stream, as in the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        above(self, deep_rate=0)
        shortest = self.trigger_position + 1  # the trigger of the maps must fit
        for name, least in (("layers", 1), ("heads", 1), ("widths", SMALLEST), ("lengths", shortest)):
            each_once(self, name)
            if min(getattr(self, name)) < least:
                raise SinkjaxError(f"{name} must be at least {least}, but contains {min(getattr(self, name))}")


def variants(config: Sizes) -> list[Model]:
    """The changes of one layer and one head, one at a time."""
    deep = {"residual": True, "learning_rates": (config.deep_rate,)}
    return [
        Model("base", BASE),
        *(Model(f"{n}-layers", f"{n} layer{'s' * (n > 1)}, residual", {"layers": n, **deep}) for n in config.layers),
        *(Model(f"{n}-heads", f"{n} head{'s' * (n > 1)}", {"heads": n}) for n in config.heads),
        *(Model(f"width-{n}", f"n = {n}", {"width": n}) for n in config.widths),
        *(Model(f"length-{n}", f"L = {n}", {"length": n}) for n in config.lengths),
        Model("no-bos", "no BOS", {"bos": "none"}),
        Model("scaled", "scores / sqrt(n)", {"scaled": True}),
    ]


def models(config: Sizes) -> list[Model]:
    """Every variant of softmax and of ReLU."""
    return [
        Model(f"{name}-{variant.name}", f"{label}: {variant.label}", {**NORMALISERS[name], **variant.changes})
        for name, label in LABELS.items()
        for variant in variants(config)
    ]


def figures(config: Sizes, architecture: Any) -> Iterator[st.Figure]:
    yield partial(
        by_model,
        name="sizes",
        shown={"weight on BOS,\nother rows": lab.BOS, "share of BOS,\nother rows": lab.BOS_SHARE},
        kinds={label: {one.label: f"{label}: {one.label}" for one in variants(config)} for label in LABELS.values()},
        xlabel="mean over layers, heads, rows and sequences",
        caption="Attention to BOS in the rows of all tokens but BOS and the trigger, with one property changed at a time. Shares"
        " of rows that are nearly 0 mean little (ReLU).",
    )


STUDY = study(
    models,
    name="trigger/sizes",
    config=Sizes,
    title="Depth, heads, width, length, BOS and scale, one at a time",
    question="Which of depth, heads, width, length, BOS and the scale of scores decides whether a trained model sinks on BOS?",
    rows=lambda results: lab.rows(results, lab.labels_of(models(results.config)), MEASURES),
    figures=figures,
    notes=lambda config: [
        f"""Each model differs in one property from {BASE}, no residual stream, scores without 1 / sqrt(n), n = {config.width}, L
        = {config.length}. Deeper models need a residual stream, so a one-layer model with a stream is included; models with a
        stream are trained at a rate of {config.deep_rate:g}, all others at {config.rate:g}. Without BOS the first token is like
        any other; it is still called 'BOS', and is part of the mean. Means over layers and heads."""
    ],
)
