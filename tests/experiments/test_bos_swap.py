"""kiya/bos-swap: the arms and controls, effects at the right places, verdicts by their rules, and on SmolLM2 the sink stays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis import metrics
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.kiya import bos, bos_swap, bos_swap_claims
from sinkjax.experiments.kiya.config import BosSwap
from sinkjax.probes.record import Record
from sinkjax.studies import run
from tests.experiments.test_mask import TEXTS
from tests.studies.tiny import study, write_both

T, LAYERS = 20, 4
CONFIG = BosSwap(length=T, positions=(2, 5), shown=5)
SMALL = {"length": T, "positions": [2, 5], "shown": 5, "controls": 4, "control_prompts": 2, "map_layers": [0, 2]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = write_both(tmp_path_factory.mktemp("tiny"))
    run.carry_out(study("kiya/bos-swap", files, **SMALL), files / "out")
    return files / "out"


def record(moves: bool, from_layer: int = 0) -> xarray.Dataset:
    """A model whose sink and massive activation go with the first token, or stay where they are, from one layer on."""
    places = (0, *CONFIG.positions)
    received = np.full((len(places), 3, LAYERS, 2, T), 0.01)
    largest = np.ones((len(places), 3, LAYERS + 1, T))
    for edit, place in enumerate(places):
        received[edit, :, from_layer:, :, place if moves else 0] = 0.9
        largest[edit, :, from_layer + 1 :, place if moves else 0] = 100
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "resid_max": (("edit", "prompt", "depth", "position"), largest),
        }
    )


def test_arms_swap_position_0_with_each_place_and_controls_never_touch_it():
    none, *swaps = bos_swap.arms(CONFIG)
    assert none.edit.terms == ()
    assert [arm.edit.terms[0].value.tolist() for arm in swaps] == [[0, 2], [0, 5]]
    drawn = bos_swap.controls(dataclasses.replace(CONFIG, controls=200))
    pairs = [arm.edit.terms[0].value.tolist() for arm in drawn]
    assert all(i != j and 0 < i <= T - 8 and 0 < j <= T - 8 for i, j in pairs)
    assert [arm.place for arm in drawn] == [j for _, j in pairs]


def test_effects_compare_each_place_with_itself_before_the_swap(finished):
    section = run.build(study("kiya/bos-swap", finished.parent, **SMALL), finished)
    data = xarray.open_zarr(finished / "bos.zarr", chunks=None)
    largest = data["resid_max"].values.max(axis=2)
    (row,) = [row for row in section.rows if row.arm == "with BOS: first token to 5" and row.measure == bos_swap.LARGEST_NEW]
    assert row.value.mean == pytest.approx(largest[2, :, 5].mean())
    assert row.effect.mean == pytest.approx((largest[2, :, 5] - largest[0, :, 5]).mean())
    random = xarray.open_zarr(finished / "bos-controls.zarr", chunks=None)["resid_max"].values.max(axis=2)
    places = [arm.place for arm in bos_swap.controls(study("kiya/bos-swap", finished.parent, **SMALL).config)]
    others = [(random[draw, :, place] - largest[0, :2, place]).mean() for draw, place in enumerate(places)]
    effect = (largest[2, :2, 5] - largest[0, :2, 5]).mean()
    assert row.controls == 4
    assert row.percentile == pytest.approx(100 * np.mean(np.array(others) < effect))


def test_an_input_swap_exchanges_what_layer_0_reads(finished):
    largest = xarray.open_zarr(finished / "plain.zarr", chunks=None)["resid_max"].values
    np.testing.assert_array_equal(largest[2, :, 0, [0, 5]], largest[0, :, 0, [5, 0]])
    np.testing.assert_array_equal(np.delete(largest[2, :, 0], [0, 5], axis=-1), np.delete(largest[0, :, 0], [0, 5], axis=-1))


@pytest.mark.parametrize(
    ("moves", "from_layer", "verdicts"),
    [
        (True, 0, ["confirmed", "not confirmed", "not confirmed"]),
        (False, 0, ["not confirmed", "not confirmed", "confirmed"]),
        (False, 2, ["not confirmed", "confirmed", "confirmed"]),
        (True, 2, ["not confirmed", "not confirmed", "not confirmed"]),
        (False, LAYERS, ["not confirmed"] * 3),
    ],
)
def test_verdicts_follow_where_sink_and_massive_activation_go(moves, from_layer, verdicts):
    data = record(moves, from_layer)
    found = bos_swap_claims.claims(CONFIG, {bos.WITHOUT: data, bos.WITH: data})
    assert [claim.verdict for claim in found] == [*verdicts, verdicts[-1]]


def test_without_a_bos_the_claims_on_it_do_not_apply():
    found = bos_swap_claims.claims(CONFIG, {bos.WITHOUT: record(moves=False)})
    assert [claim.verdict for claim in found] == ["not applicable"] * 3 + ["confirmed"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"positions": (0,), "shown": 0}, "positions has 0, but must lie in 1 to 56: a sink needs 8 queries"),
        ({"positions": (57,), "shown": 57}, "positions has 57, .* a sink needs 8 queries"),
        ({"positions": (1, 1), "shown": 1}, "each of them once"),
        ({"shown": 3}, "shown must be one of positions"),
        ({"massive": 1.0}, "massive must be above 1"),
    ],
)
def test_a_swap_that_cannot_be_read_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        BosSwap(**fields)


def test_on_smollm2_the_sink_stays_on_position_0_when_the_bos_moves(smollm2):
    """Measured on these texts: 80 % of heads on position 0 after the swap, 0 % on the BOS at 8; |h| 22,900 against 330."""
    tokens, lengths = sinkjax.encode(smollm2, TEXTS[:2], bos="model", length=24)
    probe = sinkjax.Probe(attention_received=True, resid_max=True)
    edit = sinkjax.swap_embeddings(0, 8)
    found = sinkjax.forward(smollm2.params, tokens, smollm2.config, edit, probe, lengths, logits=False).record
    assert (metrics.sink_rate(Record(found, probe.dims()), 0) > 0.6).all()
    assert (metrics.sink_rate(Record(found, probe.dims()), 8) < 0.1).all()
    largest = np.asarray(found["resid_max"]).max(axis=1)
    assert (largest[:, 0] > 10_000).all()
    assert (largest[:, 8] < 2_000).all()
