"""PyTorch tensors of every layout: the same numbers as dense ones, or one sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import as_array

READ: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "COO that needs a gradient": lambda tensor: tensor.to_sparse().requires_grad_(),
    "CSR": lambda tensor: tensor.to_sparse_csr(),
    "CSC": lambda tensor: tensor.to_sparse_csc(),
    "BSR": lambda tensor: tensor.to_sparse_bsr((1, 1)),
    "mkldnn": lambda tensor: tensor.to_mkldnn(),
    "negative bit": lambda tensor: torch.complex(tensor, -tensor).conj().imag,
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "float8": lambda tensor: tensor.to(torch.float8_e4m3fn),
}
REFUSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a quantised tensor: pass its dequantize": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "on the meta device, so it has no numbers": lambda tensor: tensor.to("meta"),
    "a nested tensor.*to_padded_tensor": lambda tensor: torch.nested.nested_tensor([tensor, tensor[:1]]),
    "uninitialized parameter": lambda tensor: torch.nn.UninitializedParameter(),
}


@pytest.mark.parametrize("kind", READ)
def test_a_tensor_of_another_layout_has_the_same_numbers(kind: str) -> None:
    tensor = READ[kind](torch.randn(4, 6))
    want = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    np.testing.assert_array_equal(as_array("x", tensor), want.resolve_neg().float().numpy())


@pytest.mark.parametrize("message", REFUSED)
def test_a_tensor_without_plain_numbers_is_one_sentence(message: str) -> None:
    with pytest.raises(SinkjaxError, match=f"^x .*{message}"):
        as_array("x", REFUSED[message](torch.randn(4, 6)))


def test_tokens_lengths_and_steering_vectors_may_be_tensors() -> None:
    model = sinkjax.load("mini-softmax")
    tokens, lengths, vector = torch.tensor([[5, 6, 7]]), torch.tensor([2]), torch.linspace(-1, 1, model.config.width).bfloat16()
    edits = [sinkjax.edit("resid", "add", value, layers=1) for value in (vector.clone().requires_grad_(), vector.float().numpy())]
    ours = sinkjax.forward(model, tokens.to_sparse(), lengths=lengths.to_sparse(), edits=edits[0]).logits
    np.testing.assert_array_equal(ours, sinkjax.forward(model, tokens, lengths=lengths, edits=edits[1]).logits)
