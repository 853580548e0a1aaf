"""kiya/scan and kiya/predictions: the rule on planted tokens, and what is counted as right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.kiya.predictions import isolated
from sinkjax.papers.kiya.scan import compared
from sinkjax.study.work import Batch

PLANTED = 40


def planted(makes: list[bool]) -> xarray.Dataset:
    """Tokens of which some have the first token's activation and keys, and the others a typical one's."""
    count = len(makes)
    like = np.array(makes)
    largest = np.where(like[:, None], [5.0, 100.0, 20.0], [4.0, 2.0, 3.0])
    score = np.where(like[:, None], [9.0, 8.0], [1.0, 0.0])
    data = {
        "largest": (("token", "layer"), largest),
        "cosine": (("token", "layer"), np.where(like[:, None], 1.0, 0.1) * np.ones((count, 3))),
        "score": (("token", "sink"), score),
        "first_largest": ("layer", np.array([5.0, 100.0, 20.0])),
        "other_largest": ("layer", np.array([4.0, 2.0, 3.0])),
        "first_score": ("sink", np.array([9.0, 8.0])),
        "other_score": ("sink", np.array([1.0, 0.0])),
    }
    return xarray.Dataset(data, {"token": 10 * np.arange(count)})


@pytest.fixture(scope="module")
def mini_softmax():
    return sinkjax.load("mini-softmax")


@pytest.fixture(scope="module")
def batch(mini_softmax) -> Batch:
    rng, bos = np.random.default_rng(0), mini_softmax.tokenizer.bos
    tokens = np.concatenate([np.full((3, 1), bos), rng.integers(2, 500, (3, 23))], axis=1).astype(np.int32)
    return Batch(tokens, np.full(3, 24, np.int32), {})


def test_a_planted_copy_of_bos_is_the_second_token_that_makes_a_sink_and_becomes_one_where_it_is_isolated(mini_softmax, batch):
    embed, bos = mini_softmax.params["embed"], mini_softmax.tokenizer.bos
    model = dataclasses.replace(mini_softmax, params=mini_softmax.params | {"embed": embed.at[PLANTED].set(embed[bos])})
    found = compared(sinkjax.scan(model, text=batch.tokens, lengths=batch.lengths))
    assert np.flatnonzero(found.makes).tolist() == sorted((bos, PLANTED))
    tokens = batch.tokens.copy()
    tokens[:, 8] = PLANTED
    probe, half = sinkjax.Probe(attention_received=True), 1
    seen = [
        np.asarray(sinkjax.forward(one, text, edits=isolated(8), probe=probe).record["attention_received"])[:, half, :, 8].mean()
        for one, text in ((model, tokens), (model, batch.tokens))
    ]
    assert seen[0] > 3 * seen[1]
