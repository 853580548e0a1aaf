"""Total memory of a study: its models, the runtime, and its widest part; its processor time by part."""

from __future__ import annotations

import jax
import pytest

import sinkjax
from sinkjax.generation import blocks_apart
from sinkjax.model import params
from sinkjax.study import plan
from sinkjax.study.choice import choose
from sinkjax.study.plan import LIBRARIES, PAGE, PROGRAM, VOCABULARY_ENTRY, block_rate, block_seconds, process_bytes
from sinkjax.study.run import work
from sinkjax.study.views import TEXTS
from sinkjax.study.work import Calculation
from sinkjax.transformer.cost import block_flops


@pytest.fixture(scope="module")
def model():
    return sinkjax.load("mini-softmax")


@pytest.mark.parametrize(
    ("parts", "models", "rest"),
    [
        ([(False, 5, 2), (False, PAGE, 2)], 1, PAGE + 4 * PROGRAM),
        ([(False, 5, 2), (True, PAGE, 1)], 2, PAGE + 3 * PROGRAM),
        ([(False, 2 * PAGE, 2), (True, 3, 1)], 1, 2 * PAGE + 2 * PROGRAM),  # the widest part comes before the twin
        ([(True, 3, 2), (False, PAGE, 0)], 2, PAGE + 2 * PROGRAM),  # the twin stays
        ([(True, 3, 2), (False, 5, 2)], 0, PAGE + 4 * PROGRAM),  # the page, without models
    ],
)
def test_models_stay_until_the_page_and_programs_to_the_end(model, parts, models, rest):
    own = 4 * params.count(model.config) + VOCABULARY_ENTRY * model.config.vocab_size
    assert process_bytes(parts, model.config, "float32") == LIBRARIES + models * own + rest


def test_continuations_count_the_copy_of_the_blocks_that_they_make(model):
    chosen = choose("kiya/mask")
    (texts,) = (spec for spec, *_ in work(chosen, architecture=model.config) if spec.name == TEXTS)
    copied = sum(leaf.nbytes for leaf in jax.tree.leaves(blocks_apart(model).layers))
    assert texts.beside(model.config, "float32") == copied > 0
    assert texts.beside(model.config, "bfloat16") == copied // 2


def test_the_time_of_a_study_is_that_of_the_blocks_of_its_sweeps(model, monkeypatch):
    monkeypatch.setattr(plan, "block_rate", lambda *args: 1e9)
    parts = [(spec, planned) for spec, _, planned in work(choose("kiya/mask"), architecture=model.config)]
    assert any(isinstance(spec, Calculation) for spec, _ in parts)
    blocks = sum(planned.flops for _, planned in parts if planned)
    assert blocks > 0
    assert block_seconds(parts, model.config, "float32") == pytest.approx(blocks / 1e9)


def test_the_rate_of_a_block_is_its_flops_in_the_median_time_of_a_call(model, monkeypatch):
    taken = iter([4.0, 1.0, 2.0, 9.0, 2.0, 1.0, 3.0, 2.0])
    monkeypatch.setattr(plan, "_seconds", lambda call, clock: next(taken))
    tokens = 1024 // 24 * 24
    block_rate.cache_clear()  # another test may have measured it
    rate = block_rate(model.config, 24, sinkjax.Probe(attention_received=True), "float32")
    block_rate.cache_clear()
    assert rate == block_flops(model.config, 24) * tokens / 2.0
