"""background/kinds: what each edit does to heads of a kind by hand, and a run on a tiny model."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.data.corpora import packaged_documents
from sinkjax.papers.background import kinds as own
from sinkjax.study import rebuild, run
from sinkjax.study.folder import open_store
from sinkjax.study.registry import program
from tests.study.budget import Conditions
from tests.study.tiny import study, write_both

L, H, K, T, LENGTHS = 3, 6, 2, 12, np.array([12, 9])


@pytest.fixture
def sinks() -> own.Heads:
    """The sinks of two prompts: one no-op head, in the first prompt alone, and one head that broadcasts in both."""
    kinds = np.full((2, L, H), "", "<U9")
    kinds[0, 1, 2], kinds[:, 2, 5] = "no-op", "broadcast"
    values = np.random.default_rng(0).standard_normal((2, L, T, K, 8)).astype(np.float32)
    return own.Heads(kinds, values, LENGTHS)


@pytest.fixture
def taken(tiny_config, tiny_params, sinks):
    """Weights, values and head outputs of a model, without an edit and with a way for a kind."""
    config, tokens = tiny_config, np.random.default_rng(1).integers(1, 50, (2, T))
    model = sinkjax.Model(config, tiny_params, None, {})
    names = ("value", "head_value", "head_out")
    probe = sinkjax.Probe(attention=True, capture=tuple(sinkjax.Capture(name, name=f"at_{name}") for name in names))

    def run_both(way, kind, key=0):
        plain = sinkjax.forward(model, tokens, probe=probe, lengths=LENGTHS).record
        edit = own.take(own.Heads(sinks.kinds, np.asarray(plain["at_value"]), LENGTHS), way, kind, key, seed=0)
        return plain, sinkjax.forward(model, tokens, edits=edit, probe=probe, lengths=LENGTHS).record, edit

    return run_both


@pytest.mark.parametrize("way", ["zero", "mean", "shuffled"])
def test_a_value_is_taken_from_the_heads_and_prompts_of_a_kind(taken, way):
    plain, edited, _ = taken(way, "no-op")
    before, after = (np.asarray(one["at_head_value"])[:, 1] for one in (plain, edited))
    moved = (before != after).any(axis=-1)  # prompt, position, head
    assert next(zip(*np.nonzero(moved), strict=True)) == (0, 0, 2)
    assert moved[0].sum() == 1
    others = before[0, 1:, 2]
    want = {"zero": np.zeros(others.shape[1:]), "mean": others.mean(axis=0)}
    if way == "shuffled":
        assert np.isclose(others, after[0, 0, 2], atol=1e-6).all(axis=1).any()
    else:
        np.testing.assert_allclose(after[0, 0, 2], want[way], atol=1e-6)
    both = np.asarray(taken(way, "broadcast")[1]["at_head_value"])[:, 2, 0, 5]
    assert (both != np.asarray(plain["at_head_value"])[:, 2, 0, 5]).all(axis=-1).tolist() == [True, True]


@pytest.mark.parametrize("way", ["diagonal", "spread"])
def test_the_weight_goes_to_the_query_itself_or_over_the_other_keys(taken, way):
    plain, edited, _ = taken(way, "no-op")
    before, after = (np.asarray(one["attention"])[0, 1, 2] for one in (plain, edited))
    want = before.copy()
    want[1:, 0] = 0
    if way == "diagonal":
        want[np.arange(1, T), np.arange(1, T)] += before[1:, 0]
    else:
        want[1:] *= (before[1:].sum(axis=-1) / want[1:].sum(axis=-1))[:, None]
    np.testing.assert_allclose(after, want, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(edited["attention"])[1, :2, :, :9], np.asarray(plain["attention"])[1, :2, :, :9])


def test_another_key_is_taken_from_the_same_heads(taken):
    plain, edited, edit = taken("zero", "broadcast", key=3)
    moved = (np.asarray(edited["at_head_value"])[:, 2] != np.asarray(plain["at_head_value"])[:, 2]).any(axis=-1)[:, :9]
    (place,) = {int(position) for _, position, _ in zip(*np.nonzero(moved), strict=True)}
    assert place == 3
    assert edit.label == "key 3"
    assert {int(head) for *_, head in zip(*np.nonzero(moved), strict=True)} == {5}


def test_controls_take_any_other_key_that_a_later_query_sees(tiny_config):
    drawn = Conditions(program("background/kinds"), tiny_config, length=T, controls=20).random("edited")
    claimed = {point.case for point in drawn}
    assert {case.axes for case in claimed} == {(("kind", "no-op"), ("way", "zero")), (("kind", "broadcast"), ("way", "zero"))}
    for case in claimed:
        keys = [point.edit.terms[0].keys for point in drawn if point.case == case]
        assert sorted(keys) == [(key,) for key in range(1, T - 1)]  # all that there are


def test_the_change_of_the_final_states_is_relative_to_their_norm():
    import xarray

    states = np.ones((2, 1, 1, 3, 4))
    states[1, 0, 0, 2] *= 1.5
    states[:, :, :, 0] = np.nan  # beyond a prompt
    data = xarray.Dataset({"last_states": (("edit", "prompt", "layer", "position", "dim"), states)})
    np.testing.assert_allclose(own.state_change(2).of(data), [[0], [25]])


@pytest.mark.apart
def test_a_run_counts_the_kinds_and_leaves_what_a_model_lacks_untested(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "build", rebuild.section_of)
    files = write_both(tmp_path / "tiny")
    chosen = study("background/kinds", files, length=24, controls=2, control_prompts=2, bos="model")
    section = run.carry_out(chosen, tmp_path / "out")
    store = open_store(tmp_path / "out" / "shares.zarr")
    assert store.attrs["study"]["bos"] == "model"
    shares = store["share"]
    assert shares["kind"].values.tolist() == list(own.KINDS)
    assert shares.sizes["prompt"] == chosen.config.prompts
    assert {one.name: one.word for one in section.verdicts}["no-op"] == ("not applicable" if not shares[0].any() else "undecided")


def test_one_head_of_smollm2_needs_its_sinks_weight_and_not_the_value(smollm2):
    tokens, lengths = sinkjax.encode(smollm2, packaged_documents()[::21], bos="none", length=64)
    head = {"layers": 18, "heads": 8}
    edits = [
        sinkjax.compose(),
        sinkjax.edit("head_value", "scale", 0.0, keys=0, **head),
        sinkjax.edit("weights", "scale", 0.0, keys=0, relation="others", renormalise="self", **head),
    ]
    found = sinkjax.sweep(smollm2, tokens, edits, probe=sinkjax.Probe(nll=True), lengths=lengths, progress=False)
    none, zero, diagonal = found.nll.mean(("prompt", "position")).values
    assert abs(zero - none) < 0.05
    assert diagonal - none > 3
