"""A model is named for what its files hold: a quantised one is never called by its plain name alone."""

import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.presets import named
from sinkjax.checkpoints.tensors import Tensor, stored_as


def tensor(size: int, stored: str) -> Tensor:
    return Tensor((size,), lambda: np.zeros(0, np.uint8), lambda raw: raw, stored)


def test_what_most_numbers_are_stored_as():
    assert stored_as({"a": tensor(10, "F32"), "b": tensor(99, "Q4_1"), "c": tensor(10, "F32")}) == "Q4_1"
    assert stored_as({}) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"name": "x", "stored": "Q4_1", "title": "Large-X"}, "x (Large-X, quantised to Q4_1)"),
        ({"name": "x.gguf", "stored": "BF16"}, "x.gguf"),
        ({"name": "x"}, "x"),  # a store of an earlier version
    ],
)
def test_a_model_in_words(source, words):
    assert named(source) == words


def test_the_packaged_models_and_the_preset_say_what_they_are_stored_as(smollm2_unread):
    assert sinkjax.load("mini-softmax").source["stored"] == "float16"
    assert named(smollm2_unread.source) == "smollm2-135m (SmolLM2-135M-Instruct, quantised to Q4_1)"
