"""PyTorch tensors of every layout at every door: the same numbers as dense ones, or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import as_array, dense
from tests.checkpoints.files import LLAMA, random_weights

NAME = "model.layers.0.self_attn.q_proj.weight"
READ: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "COO": lambda tensor: tensor.to_sparse(),
    "COO that needs a gradient": lambda tensor: tensor.to_sparse().requires_grad_(),
    "CSR": lambda tensor: tensor.to_sparse_csr(),
    "CSC": lambda tensor: tensor.to_sparse_csc(),
    "BSR": lambda tensor: tensor.to_sparse_bsr((1, 1)),
    "mkldnn": lambda tensor: tensor.to_mkldnn(),
    "negative bit": lambda tensor: torch.complex(tensor, -tensor).conj().imag,
}
REFUSED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "quantised": (
        lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
        r"a quantised tensor: pass its dequantize",
    ),
    "per channel": (
        lambda tensor: torch.quantize_per_channel(tensor, torch.ones(len(tensor)), torch.zeros(len(tensor)), 0, torch.qint8),
        "a quantised tensor: pass its dequantize",
    ),
    "meta": (lambda tensor: tensor.to("meta"), "on the meta device, so it has no numbers"),
    "nested": (lambda tensor: torch.nested.nested_tensor([tensor, tensor[:1]]), "a nested tensor.*to_padded_tensor"),
    "jagged": (lambda tensor: torch.nested.nested_tensor([tensor, tensor[:1]], layout=torch.jagged), "a nested tensor"),
    "complex": (lambda tensor: tensor.to(torch.complex64).conj(), "complex64"),
    "not yet made": (lambda tensor: torch.nn.UninitializedParameter(), "uninitialized parameter"),
}


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return random_weights(LLAMA)


def doors(weights: dict[str, np.ndarray]) -> dict[str, tuple[torch.Tensor, Callable[[Any], Any]]]:
    """A dense tensor, and a function that takes it."""
    made, tokens = sinkjax.from_arrays(LLAMA, weights), np.arange(16)[None]
    weight = torch.tensor(weights[NAME])
    return {
        "edit": (
            weight[:1],
            lambda value: sinkjax.forward(made, tokens, edits=sinkjax.edit("resid", "add", value, layers=1)).logits,
        ),
        "from_arrays": (weight, lambda value: sinkjax.from_arrays(LLAMA, weights | {NAME: value}).params["layers"]["q"]),
    }


@pytest.mark.parametrize("kind", READ)
def test_a_tensor_of_another_layout_has_the_same_numbers(weights: dict[str, np.ndarray], kind: str) -> None:
    for door, (plain, enter) in doors(weights).items():
        made = READ[kind](plain)
        want = enter(made.detach() if made.layout == torch.strided else made.detach().to_dense())
        np.testing.assert_array_equal(enter(made), want, err_msg=door)


def test_layers_of_hidden_states_may_be_sparse_or_mkldnn() -> None:
    states = torch.randn(2, 5, 8)
    want = sinkjax.metrics.from_tensors(hidden=[states, states])["resid_max"]
    for each in (states.to_sparse(), states.to_mkldnn()):
        np.testing.assert_array_equal(sinkjax.metrics.from_tensors(hidden=[each, each])["resid_max"], want)
    whole = torch.stack([states, states]).to_sparse()
    np.testing.assert_array_equal(sinkjax.metrics.from_tensors(hidden=whole)["resid_max"], want)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_tensor_without_plain_numbers_is_one_sentence(weights: dict[str, np.ndarray], kind: str) -> None:
    make, message = REFUSED[kind]
    hidden = (torch.randn(2, 5, 8), lambda value: sinkjax.metrics.from_tensors(hidden=[value, value]))
    for plain, enter in (*doors(weights).values(), hidden):
        with pytest.raises(SinkjaxError, match=message) as caught:
            enter(make(plain))
        assert "\n" not in str(caught.value)


def test_tokens_and_lengths_may_be_sparse() -> None:
    model = sinkjax.load("mini-softmax")
    tokens, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([2])
    want = sinkjax.forward(model, tokens, lengths=lengths).logits
    np.testing.assert_array_equal(sinkjax.forward(model, tokens.to_sparse(), lengths=lengths.to_sparse()).logits, want)
    with pytest.raises(SinkjaxError, match="lengths is on the meta device"):
        sinkjax.forward(model, tokens, lengths=lengths.to("meta"))


def test_a_dense_tensor_is_not_copied() -> None:
    tensor = torch.randn(3, requires_grad=True)
    assert dense("x", tensor).data_ptr() == tensor.data_ptr()
    assert as_array("x", tensor).dtype == np.float32
