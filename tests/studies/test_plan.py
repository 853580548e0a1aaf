"""Total memory of a study: its models, the runtime, and its widest part."""

from __future__ import annotations

import jax
import pytest

import sinkjax
from sinkjax.generation import blocks_apart
from sinkjax.model import params
from sinkjax.studies.plan import RUNTIME, VOCABULARY_ENTRY, process_bytes
from sinkjax.studies.registry import choose
from sinkjax.studies.run import work
from sinkjax.studies.specs import TEXTS


@pytest.fixture(scope="module")
def model():
    return sinkjax.load("mini-sink")


@pytest.mark.parametrize(
    ("parts", "models", "widest"),
    [
        ([(False, 5), (False, 7)], 1, 7),
        ([(False, 5), (True, 3)], 2, 3),
        ([(False, 50_000_000), (True, 3)], 1, 50_000_000),  # the widest part comes before the twin
        ([(True, 3), (False, 5)], 2, 5),  # the twin stays
    ],
)
def test_the_twin_counts_from_its_first_sweep_on(model, parts, models, widest):
    own = 4 * params.count(model.config) + VOCABULARY_ENTRY * model.config.vocab_size
    assert process_bytes(parts, model.config, "float32") == RUNTIME + models * own + widest


def test_continuations_count_the_copy_of_the_blocks_that_they_make(model):
    chosen = choose("kiya/mask")
    (texts,) = (spec for spec, *_ in work(chosen, architecture=model.config) if spec.name == TEXTS)
    copied = sum(leaf.nbytes for leaf in jax.tree.leaves(blocks_apart(model).layers))
    assert texts.beside(model.config, "float32") == copied > 0
    assert texts.beside(model.config, "bfloat16") == copied // 2
