"""Rows before an edit are the baseline's: fewer are computed, and the numbers are those of one forward for each edit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe, Site, Statistic
from sinkjax.model import params
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.experts import Experts
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Alibi, Learned
from sinkjax.probes.statistics import sinking_heads
from sinkjax.runtime.hardware import Hardware
from sinkjax.sweeps.plan import plan
from sinkjax.sweeps.schedule import Schedule
from tests.edits.cases import CONTINUOUS, at_all
from tests.model import families as small
from tests.sweeps.cases import EVERYTHING, LAYERS, LENGTHS, model_of, prompts
from tests.sweeps.test_shared import assert_as_naive

TO_FIRST = Statistic("to_first", Site.WEIGHTS, lambda w, view: w[..., 0].mean(axis=1), ("prompt", "layer", "query"), by_row=True)
PROBE = replace(EVERYTHING, extra=(sinking_heads(0.1), TO_FIRST), logits_of=(5, 0))
PLACES = (1, 3, 4)
DRAW = np.random.default_rng(3).standard_normal
# Layouts, positions, windows, soft caps, sinks, experts, gates and activations that a Llama does not have.
FAMILIES = ("apertus", "bloom", "cohere2", "falcon", "gemma2", "gpt2", "gpt_neox", "gpt_oss", "granite", "mpt", "olmoe", "opt")
OTHERS = [
    sinkjax.shift_positions(query=3, key=np.where(np.arange(12) < 3, 0, 2), layers=1),
    sinkjax.compose(sinkjax.swap_embeddings(4, np.array([2, 3, 4, 5])), sinkjax.mask_key(2)),
    sinkjax.drop_mlp(sinkjax.per_prompt([(1, 3), (2,), (4,), (11,)]), layers=(0, 2)),
    sinkjax.edit("resid", "set", DRAW((len(LENGTHS), 32)), layers=1, queries=3),
    sinkjax.edit("attn_out", "set", DRAW((LAYERS, len(LENGTHS), 32)), queries=(3, 4)),
    *(sinkjax.mask_key(2, layers=range(last)) for last in (1, 2, 3)),  # of which one is the base of the others
    sinkjax.compose(),
]


def everywhere(position: int) -> sinkjax.Edit:
    """An edit at every site, of one position, and of all from there on, also behind the end of a prompt."""
    behind = sinkjax.edit("mlp_out", "scale", 0.5, queries=slice(position, None))
    return sinkjax.compose(at_all(position, [None] * len(CONTINUOUS)), behind)


@pytest.fixture(autouse=True)
def worth_nothing(monkeypatch):
    """So that every program pays (with 0, an edit would be its own base)."""
    monkeypatch.setattr("sinkjax.sweeps.sharing.WORTH", {"cpu": 1})


@pytest.mark.parametrize(
    ("changes", "places", "others"),
    [
        ({}, PLACES, OTHERS),
        ({"windows": (2, None, 4), "position": Alibi()}, (2, 4), []),
        ({"kv_bias": SinkToken(), "position": Learned()}, (2, 4), []),
        ({"normaliser": NAMED["sink-logit"], "windows": (None, 3, None)}, (3,), []),
        ({"experts": Experts(4, 2), "norm_place": "sandwich"}, (3,), []),
    ],
    ids=["every kind", "windows and ALiBi", "a sink token", "a sink logit", "experts"],
)
def test_fewer_rows_give_the_naive_numbers(tiny_config, changes: dict[str, Any], places: tuple[int, ...], others: list) -> None:
    config, edits = replace(tiny_config, **changes), [*map(everywhere, places), *others]
    schedule = plan(config, edits, LENGTHS, 12, PROBE).schedule
    assert schedule.cuts == ((1, 2, 3) if others else places)
    assert any(chunk.base is not None and chunk.row for chunk in schedule.chunks) == bool(others)
    with jax.enable_x64(True):
        model = model_of(config, params.init(config, seed=0), "float64")
        assert_as_naive(model, prompts(config), edits, PROBE, LENGTHS, 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_families_give_the_naive_numbers(family: str) -> None:
    """Each with a donor from another run, a composition, and prompts of which one ends before the edits."""
    with jax.enable_x64(True):
        model = sinkjax.from_transformers(small.random_model(small.DRAWS[family](small.Turn(1)), 1))
        tokens, lengths = DRAW((2, 9)).argsort().astype(np.int32) + 2, [9, 4]
        run = sinkjax.forward(model, tokens, probe=Probe(capture=(sinkjax.Capture("resid"),)), lengths=lengths)
        donor = sinkjax.edit("resid", "set", run.record["resid"][:, 0, 3], layers=1, queries=slice(5, None))
        drop = sinkjax.edit("mlp_out", "scale", 0.0, queries=slice(6, None))
        edits = [donor, sinkjax.compose(sinkjax.edit("attn_out", "add", 0.3, layers=1, queries=slice(5, 7)), drop), drop]
        probe = Probe(attention_received=True, resid_max=True, row_entropy=True, nll=True, logits_of=(3, 1))
        assert plan(model.config, edits, lengths, 9, probe).schedule.cuts == (5, 6)
        assert_as_naive(model, tokens, edits, probe, lengths, 1e-11)


def test_in_float32_they_and_whole_passes_do_to_rounding(tiny_config, tiny_params) -> None:
    probe = Probe(attention_received=True, resid_max=True, row_entropy=True, nll=True)
    edits = [
        make(place, layers=layer) for make, place in ((sinkjax.drop_mlp, 4), (sinkjax.mask_key, 0)) for layer in range(LAYERS)
    ]
    assert plan(tiny_config, edits, LENGTHS, 12, probe).schedule.cuts == (4,)
    assert_as_naive(model_of(tiny_config, tiny_params), prompts(tiny_config), edits, probe, LENGTHS, 1e-5)


@pytest.mark.parametrize(
    ("edit", "probe", "changes"),
    [
        (sinkjax.mask_key(0), Probe(nll=True), {}),
        (sinkjax.scale_head_output(4, 2.0, centre="positions"), Probe(nll=True), {}),
        (sinkjax.shift_positions(key=1), Probe(nll=True), {}),
        (sinkjax.compose(sinkjax.drop_mlp(4), sinkjax.edit_weights("q", "scale", 2.0)), Probe(nll=True), {}),
        (sinkjax.drop_mlp(4), Probe(resid_first_cosine=True), {}),
        (sinkjax.drop_mlp(4), EVERYTHING, {}),  # with a statistic of which nothing is known
        (sinkjax.drop_mlp(4), Probe(extra=(replace(TO_FIRST, finish=lambda x, lengths: x),)), {}),
        (sinkjax.drop_mlp(4), Probe(nll=True), {"prefix": 2}),
    ],
)
def test_the_whole_pass_stays_where_rows_depend_on_others(tiny_config, edit, probe, changes: dict[str, Any]) -> None:
    assert plan(replace(tiny_config, **changes), [edit], LENGTHS, 12, probe).schedule.cuts == ()


def test_few_lengths_save_most_and_each_program_must_pay(tiny_config, monkeypatch) -> None:
    edits = [sinkjax.drop_mlp(position, layers=layer) for layer in range(LAYERS) for position in range(9)]
    schedule = plan(tiny_config, edits, [12] * 4, 12, Probe(nll=True)).schedule
    assert len(schedule.cuts) == 3
    for chunk in schedule.chunks:
        assert chunk.row == max(
            cut for cut in (0, *schedule.cuts) if cut <= min(edits[edit].terms[0].queries[0] for edit in chunk.edits)
        )
    assert Schedule.from_json(schedule.to_json()) == schedule
    for options in ({"share_rows": False}, {"attention_impl": "fused"}):
        whole = plan(tiny_config, edits, [12] * 4, 12, Probe(nll=True), **options)
        assert whole.schedule.cuts == ()
        assert whole.row_passes == whole.layer_passes
        assert all(len(chunk) == 4 for chunk in whole.schedule.to_json()["chunks"])  # as in earlier stores
    small = Hardware(sum(plan(tiny_config, edits[4:5], [12], 12, Probe(nll=True), share_rows=False).bytes.values()))
    assert plan(tiny_config, edits[4:5], [12] * 4, 12, Probe(nll=True), hardware=small).schedule.cuts == ()  # no room for keys
    monkeypatch.setattr("sinkjax.sweeps.sharing.WORTH", {"cpu": 1e15})
    assert plan(tiny_config, edits, [12] * 4, 12, Probe(nll=True)).schedule.cuts == ()
