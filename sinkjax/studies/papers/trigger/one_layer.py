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
SILENT = 0.05  # part of its output: a run that is done may be off by 5e-3 in each of 16 coordinates, 0.02 of a target of norm 1
PAPER_BOS, PAPER_EACH = 0.2, 0.45  # weights of ReLU's trigger row, read off the paper's figure
NEAR = 0.05  # largest distance from them, as much as such a reading is off
MAJORITY = 50.0  # % of the runs
LARGEST_STD = 0.05  # largest standard deviation over sequences that counts as about 0


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


def relu_rows(results: st.Results) -> NDArray:
    """ReLU's weights in the trigger's row, mean over sequences: float[run, key], BOS first."""
    place = results.config.trigger_position
    return np.asarray(results[RELU]["map_mean"].values[:, 0, 0, place, : place + 1])


def largest_std(name: str) -> st.Quantity:
    what = f"{LABELS[name]}: largest standard deviation of a weight over sequences"
    return st.quantity(what, lambda results: results[name]["map_std"].max(("layer", "head", "query", "key"), skipna=False).values)


def claims(config: OneLayer, architecture: Any) -> Iterator[st.Claim]:
    def solves(name: str) -> st.Rule:
        return st.above(lab.measured(name, lab.SOLVED, f"{LABELS[name]}: {lab.SOLVED}"), MAJORITY)

    bos, uneven = (lab.measured(SOFTMAX, measure) for measure in (lab.BOS, lab.UNEVEN))
    yield st.Claim(
        f"Softmax layers put more than {100 * SINK:g} % of the attention of rows other than the trigger's on BOS.",
        st.above(bos, SINK),
        given=solves(SOFTMAX),
        source="Ran-Milo 2026, Theorem 1, Fig. 3",
        paper="about 1.0",
        also=(st.number("smallest of any run", lambda results: np.nanmin(lab.values(results[SOFTMAX], lab.BOS))),),
    )
    yield st.Claim(
        f"The trigger row of softmax layers is uniform on tokens 2 to j, counted from 1, to {EVEN:g}.",
        st.below(uneven, EVEN),
        given=solves(SOFTMAX),
        source="Ran-Milo 2026, Fig. 3",
    )
    yield st.Claim(
        f"ReLU layers have no sink: rows other than the trigger's put less than {NONE:g} of a whole row's weight on BOS and less"
        f" than {NONE:g} elsewhere, and BOS writes less than {SILENT:g} of what a whole row writes.",
        st.all_of(
            *(st.below(lab.measured(RELU, measure), NONE) for measure in (lab.PART, lab.PART_ELSEWHERE)),
            st.below(lab.measured(RELU, lab.WRITTEN), SILENT),
        ),
        given=solves(RELU),
        source="Ran-Milo 2026, Theorem 3, Fig. 3",
        paper="about 0",
        also=(lab.measured(RELU, lab.BOS), lab.measured(RELU, lab.ELSEWHERE)),
    )
    first = st.quantity("ReLU's weight on BOS, trigger row", lambda results: relu_rows(results)[:, 0])
    later = st.quantity("its mean weight on the tokens after it", lambda results: relu_rows(results)[:, 1:].mean(axis=1))
    spread = st.quantity("largest distance of one of these from their mean", lambda results: distances(relu_rows(results)[:, 1:]))
    yield st.Claim(
        "The trigger row of ReLU layers puts about 0.45 on each of tokens 2 to 8, counted from 1, and 0.2 on BOS.",
        st.all_of(
            st.within(first, PAPER_BOS - NEAR, PAPER_BOS + NEAR),
            st.within(later, PAPER_EACH - NEAR, PAPER_EACH + NEAR),
            st.below(spread, NEAR),
        ),
        given=solves(RELU),
        source="Ran-Milo 2026, Fig. 3",
        paper="0.45 and 0.2, one seed, read off the image",
    )
    yield st.Claim(
        "Attention of softmax and of ReLU layers hardly depends on the sequence: its standard deviation is below"
        f" {LARGEST_STD:g}.",
        st.all_of(*(st.below(largest_std(name), LARGEST_STD) for name in LABELS)),
        source="Ran-Milo 2026, Fig. 3",
        paper="about 0",
    )
    yield st.Claim(
        f"Most softmax and most ReLU layers learn the task to a largest error below {config.tolerance:g}.",
        st.all_of(*(solves(name) for name in LABELS), criterion="more than half of the runs of both meet the stopping rule"),
        source="Ran-Milo 2026, its code",
    )


def distances(weights: NDArray) -> NDArray:
    """The largest distance of a weight from the mean of its row: float[run] from float[run, key]."""
    return np.asarray(np.abs(weights - weights.mean(axis=1, keepdims=True)).max(axis=1))


STUDY = study(
    lambda config: MODELS,
    name="trigger/one-layer",
    config=OneLayer,
    title="One layer, one head: softmax and ReLU",
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
