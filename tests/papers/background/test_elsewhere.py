"""background/elsewhere: tokens in the text and tokens that are put at one position."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.papers.background import elsewhere as own
from sinkjax.study import Sweep
from sinkjax.study.baseline import Unedited
from sinkjax.study.registry import program
from sinkjax.study.work import Batch
from tests.study.tiny import write_both

T = 20
SETTINGS = {"controls": 5, "place": 2, "tokens": ("b", " "), "length": 10, "shown": "b"}


def natural(largest: np.ndarray, received: np.ndarray, tokens: list[list[str]]) -> xarray.Dataset:
    """The unedited run. largest: [prompt, depth, position]; received: [prompt, layer, head, key]."""
    arrays = {
        "resid_max": (("edit", "prompt", "depth", "position"), largest[None]),
        "attention_received": (("edit", "prompt", "layer", "head", "key"), received[None]),
    }
    lengths = [len(texts) for texts in tokens]
    return xarray.Dataset(arrays, {"length": ("prompt", lengths)}, {"study": {"token_texts": tokens}})


def planted() -> xarray.Dataset:
    """Three prompts: "." at 5 is large and a sink, "!" at 4 is large, and the last prompt has neither."""
    largest, received = np.ones((3, 3, T)), np.zeros((3, 2, 4, T))
    largest[:, 1:, 0], largest[0, 2, 5], largest[1, 2, 4] = 100, 10, 1000
    received[:, :, :, 0], received[0, 1, :2, 5] = 0.9, 0.5
    tokens = [["x"] * T for _ in range(3)]
    tokens[0][5] = tokens[0][9] = tokens[2][0] = tokens[2][T - 1] = "."  # the first and the last of all do not count
    tokens[0][9] = " ."
    tokens[1][4] = "!"
    return natural(largest, received, tokens)


def test_the_first_of_some_tokens_is_compared_with_a_typical_position_and_with_the_first():
    read = SimpleNamespace(data={"text": planted()}.__getitem__)
    activation, sink = (own.at_first_of((".", "!"), of, Sweep("text", {}), 0.3)(read) for of in ("activation", "sink"))
    np.testing.assert_allclose(activation.contrast, [np.log(10), np.log(1000), np.nan])
    np.testing.assert_allclose(activation.whole, np.log(100))
    np.testing.assert_allclose(sink.contrast, [25, 0, np.nan])
    np.testing.assert_allclose(sink.whole, 100)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_token_is_put_there_by_its_embedding(files, factor):
    model = sinkjax.load(files / "model")
    multipliers = dataclasses.replace(model.config.multipliers, embedding=factor)
    model = dataclasses.replace(model, config=dataclasses.replace(model.config, multipliers=multipliers))
    study, run = program("background/elsewhere"), Unedited(model, Batch(np.ones((1, 1), int), np.ones(1, int), {}))
    placed = study.trace(study.settings(**SETTINGS), model.config, unedited=run).sweeps["placed"]
    edit, *_ = placed.edits.values()
    tokens = np.random.default_rng(0).integers(1, 200, (2, 10)).astype(np.int32)
    probe = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.EMBED),))
    seen = sinkjax.forward(model.params, tokens, model.config, edit, probe).record["embed"]
    tokens[:, 2] = model.tokenizer.encode("ab")[-1]
    np.testing.assert_array_equal(np.asarray(seen), factor * np.asarray(model.params["embed"])[tokens])
    rng, case = np.random.default_rng(0), next(iter(placed.edits))
    drawn = {edit.label: edit.terms[0].value for edit in (placed.control(rng, case) for _ in range(100))}
    assert {*drawn} == {f"random token {number}" for number in range(5)}
    embed = factor * np.asarray(model.params["embed"])
    ids = {int(np.flatnonzero((embed == row).all(axis=-1))[0]) for row in drawn.values()}
    assert not ids & {*model.tokenizer.special, *own.ids_of(model, ("b", " "))}
    assert len(ids) == 5
    with pytest.raises(SinkjaxError, match="'ab' is not one token"):
        own.ids_of(model, ("ab",))
