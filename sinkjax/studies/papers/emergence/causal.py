"""emergence/causal: edits of a sink and of what feeds it, on a model's checkpoints: when does the sink begin to matter?

What it finds is described and not judged: no paper makes a claim about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis.summary import Column, column_rows
from sinkjax.report.figures import bands
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.emergence._config import DROPPED, MASKED, ROW, Causal
from sinkjax.studies.study import TrainingSpec

MEASURES = {  # variable of the store -> what it is, with its unit
    "sink_0": "heads that sink on key 0 (%)",
    "sink_1": "heads that sink on key 1 (%)",
    "ratio": "largest |h| of token 0 over its median",
    "value_ratio": "norm of token 0's value over others'",
    "loss": "loss (nats per token)",
}
# Bounds of the onsets: % of heads, times the median, nats per token. Models of before a sink lose 0.02 to 0.07 nats without key 0
# (steps 30 to 456 of these runs, seen before COST was set); what comes later had not been seen.
FORMED, MASSIVE, COST = 1.0, 100.0, 0.1
SHOWN = 8  # steps of the short table


def trainings(config: Causal) -> tuple[TrainingSpec, ...]:
    from sinkjax.studies.papers.emergence._series import training_spec  # imports JAX

    return (training_spec(config),)


def of(results: st.Results, name: str, edit: str = st.NO_EDIT) -> NDArray:
    """A variable under an edit: float[run, step]."""
    return np.asarray(results[ROW][name].sel(edit=edit).transpose("run", "step").values)


def steps(results: st.Results) -> list[int]:
    """The steps whose models were kept."""
    return [int(step) for step in results[ROW]["step"].values]


def label(step: int, edit: str = st.NO_EDIT) -> str:
    """Of the rows about a checkpoint under an edit."""
    return f"step {step}" if edit == st.NO_EDIT else f"step {step}, {edit}"


def rows(results: st.Results) -> list[st.Row]:
    """Every measure of every checkpoint under every edit; effects are paired by seed, against no edit at the same step."""
    found = []
    for name, measure in MEASURES.items():
        base = of(results, name).T  # [step, run]
        for edit in (st.NO_EDIT, MASKED, DROPPED):
            labels = [(label(step, edit), edit) for step in steps(results)]
            found += column_rows(labels, measure, Column(of(results, name, edit).T, base), results.config.seed)
    return found


def first_step(results: st.Results, reached: Callable[[st.Results], NDArray]) -> NDArray:
    """The first kept step at which something is so, for each run, NaN if it never is: float[run] from bool[run, step].

    Raises `Absent` if it is so in no run.
    """
    there = reached(results)
    if not there.any():
        raise st.Absent("it is so at no kept step of any run")
    return np.where(there.any(axis=1), np.array(steps(results))[there.argmax(axis=1)], np.nan)


def runs_with(results: st.Results, reached: Callable[[st.Results], NDArray]) -> float:
    """In how many runs something is so at some step. reached: as for `first_step`."""
    return float(reached(results).any(axis=1).sum())


ONSETS: dict[str, Callable[[st.Results], NDArray]] = {
    f"more than {FORMED:g} % of heads sink on key 0": lambda results: of(results, "sink_0") > FORMED,
    f"the largest |h| of token 0 is more than {MASSIVE:g} times its median": lambda results: of(results, "ratio") > MASSIVE,
    f"masking key 0 costs more than {COST:g} nats per token": lambda results: (
        of(results, "loss", MASKED) - of(results, "loss") > COST
    ),
    f"masking key 0 makes more than {FORMED:g} % of heads sink on key 1": lambda results: (
        of(results, "sink_1", MASKED) - of(results, "sink_1") > FORMED
    ),
    f"dropping the MLP of block 0 at token 0 halves the heads that sink on key 0, of more than {FORMED:g} %": lambda results: (
        (of(results, "sink_0") > FORMED) & (of(results, "sink_0", DROPPED) < of(results, "sink_0") / 2)
    ),
    f"dropping the MLP of block 0 at token 0 costs more than {COST:g} nats per token": lambda results: (
        of(results, "loss", DROPPED) - of(results, "loss") > COST
    ),
}


def findings(config: Causal, architecture: Any) -> Iterator[st.Quantity]:
    for what, reached in ONSETS.items():
        yield st.quantity(f"first kept step at which {what}", partial(first_step, reached=reached))
        yield st.number(f"runs in which, at some kept step, {what}", partial(runs_with, reached=reached))


def draw(results: st.Results) -> Drawing:
    """Every measure over steps, without an edit and with each."""
    x, names = np.array(steps(results), float), (st.NO_EDIT, MASKED, DROPPED)
    columns = [
        bands.Column("heads that sink\non key 0 (%)"),
        bands.Column("heads that sink\non key 1 (%)"),
        bands.Column("largest |h| of token 0\nover its median", log=True),
        bands.Column("norm of token 0's value\nover others'"),
        bands.Column("loss\n(nats per token)"),
    ]
    grid = [[[_band(results, edit, x, of(results, name, edit)) for edit in names] for name in MEASURES]]
    caption = f"""Models of {results[ROW].sizes["run"]} seeds at {len(x)} steps of their training, without an edit, with key 0
        masked for all later queries in all layers, and with the MLP of block 0 dropped at token 0. A head cannot sink on a masked
        key. Lines: means over seeds; bands: 95 % intervals."""
    return Drawing("over-steps", bands.bands(columns, grid, "step"), " ".join(caption.split()))


def _band(results: st.Results, name: str, x: NDArray, values: NDArray) -> bands.Band:
    """float[run, step] as a band; a step with one seed has no width."""
    found = [results.interval(column) for column in values.T]
    middle, low, high = (
        np.array([entry.mean if getattr(entry, side) is None else getattr(entry, side) for entry in found], float)
        for side in ("mean", "low", "high")
    )
    return bands.Band(name, x, middle, low, high)


def shown(results: st.Results) -> tuple[str, ...]:
    """Some steps from the first to the last, without an edit, then the last one under each."""
    every = steps(results)
    some = dict.fromkeys(every[place] for place in np.linspace(0, len(every) - 1, min(SHOWN, len(every))).round().astype(int))
    return (*map(label, some), *(label(every[-1], edit) for edit in (MASKED, DROPPED)))


def provenance(results: st.Results) -> dict[str, Any]:
    """How the numbers were made."""
    from sinkjax.sweeps.identity import devices_in_words

    made = results[ROW].attrs["sweep"]
    return {
        "size": results.config.size,
        "steps": made["training"]["steps"],
        "seeds": ", ".join(str(seed) for seed in results[ROW]["run"].values),
        "dtype": made["dtype"],
        "device": devices_in_words(results[ROW].attrs),
        "versions": ", ".join(f"{name} {version}" for name, version in made["versions"].items()),
    }


STUDY = st.Study(
    name="emergence/causal",
    config=Causal,
    title="What hiding the first token does while a model learns",
    question="""A sink may exist without mattering. A model is trained from scratch; at each of its checkpoints the key of the
        first token is hidden, and the MLP that could make its massive activation is dropped: from which step on does this
        affect other heads and the loss? The question is ours; Gu et al. 2025 (section 4) show when the sink appears.""",
    trainings=trainings,
    rows=rows,
    findings=findings,
    featured=shown,
    figures=lambda config, architecture: (draw,),
    notes=lambda config, results: (
        f"""Described, not judged: no claim of a paper is tested. Measured on the first {config.length} tokens of at most
        {config.prompts} held-out blocks of the training text. Means and 95 % intervals are over seeds; an effect is the
        difference from no edit at the same step, paired by seed.""",
        f"""{st.sink_note(config.eps)} The largest |h| is over depths, the norm of values the smallest over layers of the mean
        over heads. Only the MLP output of block 0 at the first token is dropped.""",
        """Onsets are among the steps that were kept; means are over the runs that have one.""",
    ),
    provenance=provenance,
    subject="checkpoint",
    over="seeds",
)
