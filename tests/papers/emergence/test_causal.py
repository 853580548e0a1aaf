"""emergence/causal at toy size: trained, cut short and resumed, and each onset found in planted numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.checkpoints.series import series_path
from sinkjax.papers.emergence import causal
from sinkjax.papers.emergence.causal import DROPPED, MASKED, ROW
from sinkjax.study import run
from sinkjax.study.folder import open_store
from sinkjax.study.registry import Chosen, find
from sinkjax.study.work import NO_EDIT
from sinkjax.tasks import load_runs

TINY = {"layers": 2, "width": 16, "heads": 2, "mlp_width": 24, "context": 24, "vocabulary": 300, "limit": 60_000, "batch": 4}
CONFIG = find("emergence/causal").settings(
    seed=0, seeds=2, steps=6, kept=3, prompts=3, length=12, changes={**TINY, "eval_batch": 4, "eval_every": 4, "warmup": 2}
)
CHOSEN = Chosen("emergence/causal", CONFIG)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Any:
    """A finished run: its section and its folder."""
    out = tmp_path_factory.mktemp("causal") / "out"
    return run.carry_out(CHOSEN, out), out


def test_it_runs_and_leaves_models_stores_and_a_page(done):
    section, out = done
    assert {verdict.word for verdict in section.verdicts} == {"described"}
    assert {path.name for path in (out / ROW / "sweeps").iterdir()} == {
        f"run-00{number}-step-{step:06d}.zarr" for number in range(2) for step in (0, 1, 6)
    }
    rows = {(row.condition, row.measure): row for row in section.rows}
    checkpoints = 3 * (3 * len(causal.MEASURES) + 2 * len(causal.TYPES))
    assert len(rows) == len(section.rows) == checkpoints + 2 * 6 + 2 * (8 + 4 - 1)
    row = rows[f"step 6, {MASKED}", causal.MEASURES["loss"][0]]
    assert row.value.n == 2
    assert row.effect.mean == pytest.approx(row.value.mean - rows["step 6", causal.MEASURES["loss"][0]].value.mean, rel=1e-5)
    assert rows["step 1", causal.MEASURES["loss"][0]].effect.mean == 0
    assert {*section.featured} <= {condition for condition, _ in rows}
    assert {file.stem for file in (out / "figures").glob("*.svg")} == {"timeline", "over-steps"}
    assert section.title in (out / "report.html").read_text(encoding="utf-8")


def test_the_numbers_are_those_of_the_models_themselves(done):
    _, out = done
    found: Any = {ROW: open_store(out / f"{ROW}.zarr")}
    model = sinkjax.load(series_path(out / ROW, 1, 6))
    tokens = load_runs(out / ROW).task.open(lambda line: None).held_out()["tokens"][:3, :12]
    record = sinkjax.forward(model.params, tokens, model.config, sinkjax.mask_key(0), sinkjax.Probe(nll=True)).record
    assert causal.of(found, "loss", MASKED)[1, 2] == pytest.approx(np.nanmean(record["nll"]), rel=1e-5)
    dropped = sinkjax.drop_mlp(0, layers=0)
    probe = sinkjax.Probe(resid_max=True, resid_median=True)
    record = sinkjax.forward(model.params, tokens, model.config, dropped, probe).record
    ratio = (record["resid_max"] / record["resid_median"])[:, :, 0].max(axis=1).mean()
    assert causal.of(found, "ratio", DROPPED)[1, 2] == pytest.approx(float(ratio), rel=1e-5)
    assert found[ROW]["run"].values.tolist() == [0, 1]
    probe = sinkjax.Probe(attention_received=True, resid_first_cosine=True)
    record = sinkjax.forward(model.params, tokens, model.config, (), probe).record
    assert causal.of(found, "attention")[1, 2] == pytest.approx(record["attention_received"][..., 0].mean(), rel=1e-5)
    assert causal.of(found, "secondary")[1, 2] == pytest.approx(100 * sinkjax.metrics.secondary_sinks(record).share.mean())
    types = sinkjax.head_types(model, period=11)
    best = (types["score"] - types["null"]).max(("layer", "head"))
    np.testing.assert_allclose(found[ROW]["strongest"].sel(run=1, step=6), best, rtol=1e-5, atol=1e-7)
    beyond = 100 * (types["p"] == types["p"].min()).mean(("layer", "head")).where(types["p"].min(("layer", "head")) < 0.002, 0)
    np.testing.assert_allclose(found[ROW]["heads"].sel(run=1, step=6), beyond)


def planted(types: Any = 0.0, **values: Any) -> Any:
    """Results of two runs at four steps: no edit changes anything, and nothing is there, but for what is given by edit.

    types: of the strongest heads, [type, run, step].
    """
    edits = [NO_EDIT, MASKED, DROPPED]
    data = {name: np.zeros((2, 4, 3)) for name in causal.MEASURES}
    for name, by_edit in values.items():
        for edit, numbers in by_edit.items():
            data[name][:, :, edits.index(edit)] = numbers
    axes = {"run": [3, 4], "step": [0, 10, 20, 40], "edit": edits}
    store = xarray.Dataset({name: ((*axes,), array) for name, array in data.items()}, axes)
    kinds = {"type": [*causal.TYPES], "run": [3, 4], "step": axes["step"]}
    store["strongest"] = xarray.DataArray(np.zeros((3, 2, 4)) + np.asarray(types), kinds)
    return {ROW: store}


def test_events_stand_in_the_order_in_which_half_of_each_change_is_made():
    results = planted(
        types=np.array([[0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1.0]])[:, None],
        loss={NO_EDIT: [[5, 2, 2, 1], [5, 4, 2, 1]]},
        ratio={
            NO_EDIT: [[1, 2, 30, 100], [1, 20, 5, 100]]
        },  # beyond 50 from step 40; logarithms: beyond 10 from 20, and to stay from 40
        value_ratio={NO_EDIT: [[1, 1, 1, 0.01], [0.5, 0.5, 0.5, 0.5]]},  # falls in one run
        attention={NO_EDIT: [[0.1, 1, 0.1, 0.1], [0.1, 0.1, 0.1, 1]]},  # swings back in one run
        secondary={NO_EDIT: 3},
    )
    found = causal.events(results)
    assert {name: at.tolist() for name, at in found.items() if np.isfinite(at).all()} == {
        "a head that attends to the previous token": [10, 10],
        "held-out loss": [10, 20],
        "a head that attends to what followed the same token before": [20, 20],
        "largest activation over the median": [40, 40],
        "a head that attends to the first token": [40, 40],
    }
    assert list(found)[:2] == ["a head that attends to the previous token", "held-out loss"]
    np.testing.assert_array_equal(found["norm of the first token's value"], [40, np.nan])
    np.testing.assert_array_equal(found["attention to the first token"], [np.nan, 40])
    np.testing.assert_array_equal(found["later tokens aligned with the first"], [np.nan, np.nan])
    logs = causal.events(results, logs=True)
    assert logs["largest activation over the median"].tolist() == [20, 40]
    assert logs["held-out loss"].tolist() == [10, 20]
    assert len(logs) == 4
