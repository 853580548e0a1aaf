"""Arrays of other libraries, and padding: read as they are meant, or refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import check_batch

TOKENIZERS = {  # bos is eos and padding (SmolLM2); a padding of its own (Llama)
    "one": SimpleNamespace(bos=0, special=[0]),
    "own": SimpleNamespace(bos=1, special=[1, 2, 3]),
    "none": None,
}


@pytest.fixture(scope="module")
def model() -> sinkjax.Model:
    return sinkjax.load("mini-softmax")


def check(rows: Any, lengths: Any, tokenizer: str, model: sinkjax.Model, **more: Any) -> np.ndarray:
    return check_batch(np.array(rows), lengths, model.config, TOKENIZERS[tokenizer], **more)[2]


@pytest.mark.parametrize(
    ("row", "length", "tokenizer"),
    [
        ([0, 0, 0, 5, 6, 7], 3, "one"),  # three of padding
        ([0, 0, 5, 6, 7, 8], 5, "one"),  # one of padding, then the same token as BOS
        ([0, 0, 5, 6, 0, 0], 2, "one"),  # on both sides
        ([3, 3, 1, 5, 6, 7], 4, "own"),
        ([2, 1, 5, 6, 7, 8], 5, "own"),  # a single one that is not the BOS
        ([9, 9, 9, 5, 6, 7], 3, "none"),  # no tokenizer: as long as the padding, and a text behind the length
    ],
)
def test_a_row_that_is_padded_on_the_left_is_refused(model: sinkjax.Model, row: list[int], length: int, tokenizer: str) -> None:
    with pytest.raises(SinkjaxError, match=f"prompt 1 .* token {row[0]} .*length {length} of 6.*left"):
        check([[5] * 6, row], [6, length], tokenizer, model)


@pytest.mark.parametrize(
    ("row", "length", "tokenizer"),
    [
        ([0, 5, 6, 7, 8, 0], 5, "one"),  # a BOS that is also the padding
        ([0, 5, 6, 7, 8, 9], 5, "one"),  # and a text that is cut
        ([0, 5, 6, 7, 0, 0], 4, "one"),
        ([0, 0, 0, 5, 6, 7], 6, "one"),  # no padding at all
        ([0, 0, 0, 0, 0, 0], 3, "one"),
        ([2, 5, 6, 7, 8, 0], 5, "own"),  # a prefix of one's own, padded by `encode`
        ([1, 5, 6, 7, 3, 3], 4, "own"),
        ([9, 9, 9, 5, 0, 0], 4, "none"),  # repeated text, then padding
        ([9, 9, 5, 6, 7, 8], 3, "none"),
    ],
)
def test_a_row_that_begins_with_a_special_or_repeated_token_is_not(
    model: sinkjax.Model, row: list[int], length: int, tokenizer: str
) -> None:
    assert check([[5] * 6, row], [6, length], tokenizer, model).tolist() == [6, length]


def test_a_mask_of_right_padding_gives_the_lengths(model: sinkjax.Model) -> None:
    tokens, mask = torch.tensor([[5, 6, 7, 0], [5, 6, 7, 8]]), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    ours, want = sinkjax.forward(model, tokens, attention_mask=mask), sinkjax.forward(model, tokens, lengths=[3, 4])
    np.testing.assert_array_equal(ours.logits, want.logits)
    swept = sinkjax.sweep(model, tokens, [sinkjax.mask_key(0)], attention_mask=mask, progress=False)
    assert np.isnan(swept.attention_received.values[0, 0, ..., 3]).all()
    ids, lengths = sinkjax.encode(model, tokens, bos="none", length=6, attention_mask=mask)
    assert (ids[:, :4].tolist(), ids.shape, lengths.tolist()) == (tokens.tolist(), (2, 6), [3, 4])
