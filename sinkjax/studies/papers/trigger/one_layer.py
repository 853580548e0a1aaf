"""trigger/one-layer: softmax sinks on BOS and ReLU does not, over many seeds, and the effects of edits of BOS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.studies.papers.trigger import _figures as figures
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._lab import LABELS, NORMALISERS, OTHERS, RELU, SOFTMAX, TRIGGER, Edited, Model
from sinkjax.studies.papers.trigger._study import study

MODELS = tuple(Model(name, label, NORMALISERS[name]) for name, label in LABELS.items())
MEASURES = lab.all_but(lab.LEFT)
SINK, NONE, EVEN = 0.99, 0.01, 0.05  # bounds of the rules
PAPER_BOS, PAPER_EACH, NEAR = 0.2, 0.45, 0.05  # weights of ReLU's trigger row in the paper, and the largest distance from them
SPREAD = 0.05  # largest standard deviation over sequences that counts as about 0


@dataclass(frozen=True, kw_only=True)
class OneLayer(Edited):
    """One layer and one head: softmax sinks on BOS, ReLU solves the task without a sink (Fig. 3); and the effects of edits."""

    seeds: int = 64


def rows(results: st.Results) -> list[st.Row]:
    """Models, runs, and the loss under each edit, in millionths."""
    found = lab.rows(results, LABELS, MEASURES)
    for name, label in LABELS.items():
        for kind, where in ((TRIGGER, "trigger row"), (OTHERS, "other rows")):
            losses = figures.edits_summary(results, name, kind, lab.MILLION)
            found += [st.Row(f"{label}, {edit}", "edits", f"loss, {where} (millionths)", loss) for edit, loss in losses.items()]
    return found


def relu_row(results: st.Results) -> NDArray:
    """ReLU's weights in the trigger's row, mean over runs: float[key], BOS first."""
    place = results.config.trigger_position
    return np.asarray(np.nanmean(results[RELU]["map_mean"].values[:, 0, 0, place, : place + 1], axis=0))


def largest_std(name: str) -> st.Quantity:
    what = f"{LABELS[name]}: largest standard deviation of a weight over sequences"
    return st.quantity(what, lambda results: float(results[name]["map_std"].mean("run").max()))


def claims(config: OneLayer, architecture: Any) -> Iterator[st.Claim]:
    bos, uneven = (lab.measured(SOFTMAX, measure) for measure in (lab.BOS, lab.UNEVEN))
    quiet, loud = (lab.measured(RELU, measure) for measure in (lab.BOS, lab.ELSEWHERE))
    yield st.Claim(
        "A softmax layer that solves the task puts nearly all attention of every other row on BOS (Theorem 1, Fig. 3).",
        st.above(bos, SINK),
        paper="about 1.0",
        also=(st.quantity("smallest of any run", lambda results: lab.values(results[SOFTMAX], lab.BOS).min()),),
    )
    yield st.Claim("Its trigger row is uniform on tokens 2 to j (Fig. 3; counted from 1).", st.below(uneven, EVEN))
    yield st.Claim(
        "A ReLU layer that solves the task has no sink: only the trigger's row is active (Theorem 3, Fig. 3).",
        st.all_of(st.below(quiet, NONE), st.below(loud, NONE)),
        paper="about 0",
    )
    first = st.quantity(
        "distance of ReLU's weight on BOS from 0.2",
        lambda results: abs(relu_row(results)[0] - PAPER_BOS),
    )
    each = st.quantity(
        "largest distance of ReLU's weights on tokens 1 to j from 0.45",
        lambda results: np.abs(relu_row(results)[1:] - PAPER_EACH).max(),
    )
    yield st.Claim(
        "Its trigger row puts about 0.45 on tokens 2 to 8 each and 0.2 on BOS (Fig. 3, read off the image).",
        st.all_of(st.less_than(first, NEAR), st.less_than(each, NEAR)),
        paper="0.45 and 0.2, one seed",
        also=(
            st.quantity("weight on BOS", lambda results: relu_row(results)[0]),
            st.quantity("mean weight on the tokens after it", lambda results: relu_row(results)[1:].mean()),
        ),
    )
    yield st.Claim(
        "Attention does not depend on the sequence: its standard deviation is about 0 (Fig. 3).",
        st.all_of(*(st.less_than(largest_std(name), SPREAD) for name in LABELS)),
        paper="about 0",
    )
    solved = (st.at_least(lab.measured(name, lab.SOLVED, f"{LABELS[name]}: {lab.SOLVED}"), 100) for name in LABELS)
    yield st.Claim("Both learn the task to a largest error below 0.005.", st.all_of(*solved))


STUDY = study(
    lambda config: MODELS,
    name="trigger/one-layer",
    config=OneLayer,
    title="One layer, one head: a sink for softmax, none for ReLU",
    question="""Ran-Milo 2026, Theorems 1 and 3, Fig. 3: to copy the mean of earlier tokens at a trigger and to write nothing
        elsewhere, a softmax layer puts its attention on BOS in every other row; a ReLU layer needs no such sink.""",
    rows=rows,
    claims=claims,
    findings=lambda config, architecture: [figures.noop(tuple(LABELS))],
    figures=lambda config, architecture: [
        partial(draw, labels=LABELS) for draw in (figures.single_maps, figures.learning, figures.edited_losses)
    ],
    notes=lambda config: [
        """Edits act on the trained models, which are not trained further. Masking hides BOS's key from every query but its own;
        removing its weight sets it to 0 after the normaliser, in all rows but its own. Where BOS is swapped with another token
        the target is unchanged (as long as BOS stays before the trigger, the same tokens precede the trigger)."""
    ],
)
