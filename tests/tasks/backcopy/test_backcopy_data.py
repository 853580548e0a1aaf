"""Bigram-Backcopy: the chain of the text, copies after triggers, statistics against naive numpy, the exact entropy."""

import jax
import numpy as np
import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.tasks.backcopy import task as backcopy
from sinkjax.tasks.backcopy.config import Backcopy

SMALL = Backcopy(context=40, characters=12, triggers=2, delimiter=0.05)
PAPER = Backcopy()
draw = jax.jit(backcopy.sample, static_argnums=(1, 2))


@pytest.fixture(scope="module")
def batch():
    return {name: np.asarray(array) for name, array in draw(jax.random.key(0), SMALL, 4000).items()}


def naive(config, count, seed=0):
    """Sequences drawn one token after the other."""
    rng, table = np.random.default_rng(seed), backcopy.chain(config).transitions
    out = np.zeros((count, config.context + 1), int)
    for row in out:
        row[0] = config.bos
        for t in range(config.context):
            row[t + 1] = row[t - 1] if row[t] < config.triggers else rng.choice(config.vocab_size, p=table[row[t]])
    return out


def test_after_a_trigger_comes_the_character_before_it(batch):
    tokens, copied = batch["tokens"], batch["copied"]
    row, t = np.nonzero(copied)
    assert (tokens[row, t] == tokens[row, t - 2]).all()
    assert np.array_equal(copied[:, 1:], tokens[:, :-1] < SMALL.triggers)
    assert not copied[:, :2].any()
    assert (tokens[:, 0] == SMALL.bos).all()
    assert not (tokens[:, 1:] == SMALL.bos).any()
    trigger = tokens < SMALL.triggers
    assert not (trigger[:, 1:] & trigger[:, :-1]).any()
    assert np.array_equal(batch["loss_mask"], np.arange(41) > np.zeros((4000, 1)))


def test_statistics_are_those_of_naive_numpy(batch):
    table, other = backcopy.chain(SMALL).transitions, naive(SMALL, 1000)
    for tokens in (batch["tokens"], other):
        counts = np.zeros((SMALL.vocab_size, SMALL.vocab_size))
        np.add.at(counts, (tokens[:, :-1].ravel(), tokens[:, 1:].ravel()), 1)
        counts[: SMALL.triggers] = 0  # copies
        assert not counts[table == 0].any()
        rows = counts.sum(1, keepdims=True)
        expected = rows * table
        tested = expected > 5
        squares = ((counts - expected) ** 2 / np.where(tested, expected, 1))[tested].sum()
        degrees = tested.sum() - (rows > 0).sum()
        assert abs(squares - degrees) < 5 * np.sqrt(2 * degrees)
    for t in (1, 2, 3, 20, 40):  # tokens of a position, copies and all
        shares = [np.bincount(tokens[:, t], minlength=SMALL.vocab_size) / len(tokens) for tokens in (batch["tokens"], other)]
        assert abs(shares[0] - shares[1]).max() < 5 * np.sqrt(0.25 / 800)


def test_a_text_of_ones_own(tmp_path):
    path = tmp_path / "ab.txt"
    path.write_text("abcb" * 5)  # so the ids are those of b, a and c
    chain = backcopy.chain(Backcopy(characters=3, triggers=1, text=str(path)))
    assert np.allclose(chain.transitions[:3, :3], [[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]])
    with pytest.raises(SinkjaxError, match=r"characters .*at most 3"):
        backcopy.chain(Backcopy(characters=4, text=str(path)))
