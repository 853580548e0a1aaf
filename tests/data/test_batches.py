"""Batches: functions of (data seed, k) alone; every block once an epoch; each policy does what it says and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkjax.data.batches import Batches
from sinkjax.data.config import Blocks, Corpus
from sinkjax.data.tokens import Tokens, prepare
from sinkjax.errors import SinkjaxError

WIDTH = 33


@pytest.fixture(scope="module")
def prose(tmp_path_factory):
    """Few enough tokens for many epochs."""
    return prepare(Corpus(vocabulary=300, limit=20_000, validation=0.1), tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def counted():
    """Tokens that say where they stand."""
    card = {"corpus": {"validation": 0.1, "tokenizer": "none"}, "tokenizer": {"vocab_size": 20_000, "bos": 19_999}}
    return Tokens(None, card, np.arange(19_000, dtype=np.uint16))


def small(**fields):
    return Blocks(**{"context": WIDTH - 1, "batch": 8, **fields})


def same(one, other):
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def blocks(batch):
    """Which blocks a batch of `counted` without BOS holds, by their first token."""
    return batch["tokens"][:, 0].tolist()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), first=st.integers(0, 60), order=st.randoms(use_true_random=False))
def test_a_batch_depends_on_its_number_and_not_on_what_was_read_before(prose, seed, first, order):
    config = small(data_seed=seed, random_positions=(3,), repeated_blocks=5, repeated_rows=2)
    steps = list(range(first, first + 6))
    whole = Batches(prose, config)
    straight = {k: whole.at(k) for k in steps}
    order.shuffle(steps)
    other = Batches(prose, config)
    for k in steps:
        same(other.at(k), straight[k])


def test_every_block_once_an_epoch_and_each_epoch_in_another_order(counted):
    batches = Batches(counted, small(bos="none"))
    n = batches.blocks
    seen = [start for k in range(2 * n // 8 + 1) for start in blocks(batches.at(k))]
    epochs = seen[:n], seen[n : 2 * n]
    assert len(set(epochs[0])) == n
    assert set(epochs[0]) == set(epochs[1])
    assert epochs[0] != epochs[1]
    assert sum(a == b for a, b in zip(*epochs, strict=True)) < n // 10
    assert np.corrcoef(epochs[0], np.arange(n))[0, 1] ** 2 < 0.05


def test_training_and_validation_share_no_token_whatever_the_context(counted):
    read = {}
    for split in ("train", "validation"):
        for context in (16, 32, 100):
            batches = Batches(counted, Blocks(context=context, batch=4, bos="none"), split)
            steps = batches.count or -(-batches.blocks // 4)
            read.setdefault(split, set()).update(*(batches.at(k)["tokens"].ravel().tolist() for k in range(steps)))
    assert not read["train"] & read["validation"]
    assert len(read["train"] | read["validation"]) > 18_500


def test_validation_is_the_same_for_every_seed_and_ends(counted):
    one, other = (Batches(counted, small(data_seed=seed, random_positions=(4,)), "validation") for seed in (0, 9))
    read = [one.at(k) for k in range(one.count)]
    assert len(read) == one.blocks // 8
    for k, batch in enumerate(read):
        same(batch, other.at(k))
    with pytest.raises(SinkjaxError, match="there is no batch"):
        one.at(one.count)
    starts = [start for batch in read for start in batch["tokens"][:, 1].tolist()]
    assert len(set(starts)) == len(starts)
    assert Batches(counted, small(batch=1000), "validation").at(0)["tokens"].shape == (one.blocks, WIDTH)


def test_bos_fixed_and_random_tokens_take_places_and_leave_the_rest(counted):
    plain = Batches(counted, small(bos="none")).at(2)["tokens"]
    assert (np.diff(plain) == 1).all()
    with_bos = Batches(counted, small()).at(2)["tokens"]
    assert (with_bos[:, 0] == 19_999).all()
    assert np.array_equal(with_bos[:, 1:], plain[:, :-1])
    marked = Batches(counted, small(bos="none", fixed_positions=(0, 2), fixed_token=7, random_positions=(5,))).at(2)["tokens"]
    assert (marked[:, [0, 2]] == 7).all()
    assert (marked[:, 5] != plain[:, 5]).all()
    for prefix, unscored in ((0, 1), (1, 1), (5, 5)):  # a prefix is not predicted, and never the first token
        mask = Batches(counted, small(prefix=prefix)).at(2)["loss_mask"]
        assert mask.tolist() == [[False] * unscored + [True] * (WIDTH - unscored)] * 8
    untouched = [t for t in range(WIDTH) if t not in (0, 2, 5)]
    assert np.array_equal(marked[:, untouched], plain[:, untouched])


def test_random_tokens_belong_to_their_block_and_are_uniform(counted):
    config = Blocks(context=9, batch=1700, bos="none", random_positions=(0, 1, 4), data_seed=3)
    batches = Batches(counted, config, vocab_size=20_000)
    by_block = [
        dict(zip(t[:, 2].tolist(), t[:, [0, 1, 4]].tolist(), strict=True)) for t in (batches.at(k)["tokens"] for k in (0, 1))
    ]
    shared = by_block[0].keys() & by_block[1].keys()
    assert len(shared) > 1600
    assert all(by_block[0][block] == by_block[1][block] for block in shared)
    drawn = batches.at(0)["tokens"][:, [0, 1, 4]]
    assert drawn.min() >= 0
    assert drawn.max() < 20_000
    counts = np.bincount(drawn.ravel() // 1000, minlength=20)
    assert ((counts - 255) ** 2 / 255).sum() < 50  # chi-squared, 19 degrees of freedom: p < 2e-4
    assert abs(np.corrcoef(drawn.T)[np.triu_indices(3, 1)]).max() < 0.1


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_a_share_of_the_blocks_begins_with_the_bos_and_the_others_are_left(counted, fraction):
    count = Batches(counted, small()).blocks
    config = small(bos_fraction=fraction, batch=count)
    plain = Batches(counted, small(bos="none", batch=count)).at(0)["tokens"]
    mixed = Batches(counted, config).at(0)["tokens"]
    begins = mixed[:, 0] == 19_999
    assert abs(begins.mean() - fraction) < 3 * np.sqrt(fraction * (1 - fraction) / count)
    assert np.array_equal(mixed[~begins], plain[~begins])
    assert np.array_equal(mixed[begins, 1:], plain[begins, :-1])
    later = Batches(counted, config).at(1)["tokens"]  # another order of the same blocks
    assert {tuple(row) for row in later} == {tuple(row) for row in mixed}


def test_random_offsets_are_uniform_within_the_training_spans(counted):
    config = small(bos="none", offsets="random", batch=4000)
    batches = Batches(counted, config)
    read = batches.at(1)["tokens"]
    assert (np.diff(read) == 1).all()
    spans = counted.spans("train")
    inside = [(start <= read[:, 0]) & (read[:, -1] < stop) for start, stop in spans]
    assert np.logical_or.reduce(inside).all()
    assert {span.sum() > 400 for span in inside} == {True}  # 500 each
    assert len(np.unique(read[:, 0] % WIDTH)) == WIDTH
    assert np.array_equal(batches.at(1, np.array([7, 3]))["tokens"], read[[7, 3]])
    assert not np.array_equal(batches.at(0)["tokens"], read)
    fixed = Batches(counted, config, "validation").at(0)["tokens"]
    assert np.array_equal(fixed, Batches(counted, small(bos="none", batch=4000), "validation").at(0)["tokens"])


def test_a_share_of_the_blocks_is_read_over_and_over(counted):
    n = Batches(counted, small()).blocks
    read = {}
    for share in (0.1, 0.3):
        batches = Batches(counted, small(bos="none", unique=share))
        assert batches.blocks == round(share * n)
        read[share] = {start for k in range(3 * n // 8) for start in blocks(batches.at(k))}
        assert len(read[share]) == batches.blocks
    assert read[0.1] < read[0.3]
    assert max(read[0.1]) > 15_000  # from all over the corpus


def test_repeated_blocks_fill_their_rows_and_no_others(counted):
    batches = Batches(counted, small(bos="none", repeated_blocks=4, repeated_rows=2))
    steps = [blocks(batches.at(k)) for k in range(200)]
    repeated = [start for step in steps for start in step[:2]]
    others = [start for step in steps for start in step[2:]]
    assert {repeated.count(start) for start in set(repeated)} == {100}
    assert len(set(repeated)) == 4
    assert not set(repeated) & set(others)
    everything = Batches(counted, small(repeated_blocks=4, repeated_rows=8))
    assert len({tuple(row) for k in range(9) for row in everything.at(k)["tokens"].tolist()}) == 4


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {"vocab_size": 10}, "20000 tokens, .* 10"),
        ({"fixed_positions": (1,), "fixed_token": 20_000}, {}, r"fixed_token .*\(20000\)"),
        ({"random_positions": (1,), "random_tokens": (3, 20_000)}, {}, r"random_tokens .*\(20000\)"),
        ({"context": 2200}, {}, "train split .*2201 tokens .* 2137 "),
        ({"context": 300}, {"split": "validation"}, "validation split .*301 tokens"),
        ({"repeated_blocks": 600, "repeated_rows": 1}, {}, "repeated_blocks .* 512 "),
        ({}, {"split": "test"}, "unknown split 'test'"),
    ],
)
def test_settings_that_do_not_fit_the_corpus_are_refused(counted, fields, options, message):
    with pytest.raises(SinkjaxError, match=message):
        Batches(counted, small(**fields), **options)


@pytest.fixture(scope="module")
def domains():
    """Tokens that say where they stand, in three domains."""
    card = {
        "corpus": {"validation": 0.1, "tokenizer": "none"},
        "tokenizer": {"vocab_size": 20_000, "bos": 19_999},
        "domains": {"law": 0, "letters": 4_000, "poems": 10_000},
    }
    return Tokens(None, card, np.arange(19_000, dtype=np.uint16))


def of_domains(tokens, weights, steps, **fields):
    """The first token of each block of some batches, in their order."""
    batches = Batches(tokens, small(bos="none", weights=weights, **fields))
    return np.concatenate([batches.at(k)["tokens"][:, 0] for k in steps])


def test_every_thousand_rows_hold_each_domain_as_often_as_its_weight_says(domains):
    firsts = of_domains(domains, {"law": 1, "poems": 3}, range(250))  # 2,000 rows
    for rows in (firsts[:1_000], firsts[1_000:]):
        assert (np.sum(rows < 4_000), np.sum((rows >= 4_000) & (rows < 10_000)), np.sum(rows >= 10_000)) == (250, 0, 750)


def test_each_domain_is_read_in_epochs_of_its_own(domains):
    firsts = of_domains(domains, {"law": 1, "poems": 3}, range(250))
    law = firsts[firsts < 4_000]
    blocks = len(np.unique(law))
    for epoch in range(len(law) // blocks):
        assert len(np.unique(law[epoch * blocks : (epoch + 1) * blocks])) == blocks
    assert not np.array_equal(law[:blocks], law[blocks : 2 * blocks])
