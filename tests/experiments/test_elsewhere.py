"""background/elsewhere: tokens are found and put where they should be, and on SmolLM2 "the" attracts what full stops do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.background import elsewhere, elsewhere_order, elsewhere_tokens
from sinkjax.experiments.background.config import Elsewhere
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

SMALL = {"delimiters": ["t", "\n"], "words": ["e"], "place": 3, "placed_prompts": 2, "controls": 4, "control_prompts": 2}


def dataset(largest: np.ndarray, received: np.ndarray, tokens: list[list[str]]) -> xarray.Dataset:
    """A record of unedited prompts. largest: [prompt, depth, position]; received: [prompt, layer, head, key]."""
    arrays = {"resid_max": (("prompt", "depth", "position"), largest)}
    arrays["attention_received"] = (("prompt", "layer", "head", "key"), received)
    lengths = [len(row) for row in tokens]
    return xarray.Dataset(arrays, {"length": ("prompt", lengths)}, {"study": {"token_texts": tokens}})


def test_an_activation_one_layer_before_its_sink_is_seen_as_that():
    """Layers 3 to 5 of 8 sink on what enters them: what the layers before them wrote."""
    L, T = 8, 12
    largest = np.ones((2, L + 1, T))
    largest[:, 3:6, 0] = 50
    received = np.zeros((2, L, 4, T))
    received[:, 3:6, :, 0] = 0.9
    text = dataset(largest, received, [["x"] * T] * 2)
    at = elsewhere_order.correlations(text, 0.3)
    np.testing.assert_allclose(at[0], 1)
    assert (at[1] < 0.9).all()
    assert (at[-1] < 0.9).all()
    assert all((gap == 1).all() for gap in elsewhere_order.gaps(text, 0.3).values())
    still = dataset(largest, np.zeros_like(received), [["x"] * T] * 2)
    assert np.isnan(elsewhere_order.correlations(still, 0.3)[0]).all()
    assert all(np.isnan(gap).all() for gap in elsewhere_order.gaps(still, 0.3).values())


def test_the_onsets_on_a_token_are_the_layer_that_writes_and_the_first_that_sinks():
    L, T, place = 8, 20, 5
    largest, received = np.ones((2, 3, L + 1, T)), np.zeros((2, 3, L, 4, T))
    largest[1, :2, 3:, place] = 50  # layer 2 writes it, in two of three prompts
    received[1, :2, 4:, 1:, place] = 0.9
    data = xarray.Dataset(
        {
            "resid_max": (("edit", "prompt", "depth", "position"), largest),
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
        },
        {"edit": ["no edit", "“.” put there"]},
    )
    writer, sink = elsewhere_order.onsets(data, place, 0.3)
    np.testing.assert_array_equal(writer, [[np.inf] * 3, [2, 2, np.inf]])
    np.testing.assert_array_equal(sink, [[np.inf] * 3, [4, 4, np.inf]])
    said = elsewhere_order.said_onsets(data, Elsewhere(length=T, place=place))
    assert "“.” activation after layer 2 (median of 2 of 3 prompts), sink from layer 4 (median of 2 of 3 prompts)." in said


def test_a_token_in_the_text_is_ranked_among_other_positions_of_the_same_prompts():
    T = 20
    largest = np.ones((2, 3, T))
    largest[0, 1, [5, 9]] = 7
    tokens = [["x"] * T, ["x"] * T]
    for position in (0, 5, 9, 19):  # the first one is left out, and the last, which too few queries see
        tokens[0][position] = "."
    text = dataset(largest, np.zeros((2, 2, 1, T)), tokens)
    np.testing.assert_array_equal(np.flatnonzero(elsewhere_tokens.occurrences(text, ".")[0]), [5, 9])
    size = elsewhere_tokens.in_text(Elsewhere(length=T), text, ".")[1]
    assert (size.value.mean, size.value.n, size.percentile, size.controls) == (7, 1, 100, 20)
    absent = elsewhere_tokens.in_text(Elsewhere(length=T), text, "!")[1]
    assert (absent.value.mean, absent.percentile, absent.controls) == (None, None, 0)


def test_random_positions_are_as_many_and_never_the_chosen_ones(rng):
    usable = np.zeros((3, 20), bool)
    usable[:, 1:13] = True
    where = np.zeros_like(usable)
    where[0, [2, 4, 6]] = where[2, 1:9] = True
    for _ in range(20):
        drawn = elsewhere_tokens.random_positions(where, usable, rng)
        assert drawn.sum(axis=-1).tolist() == [3, 0, 4]
        assert not (drawn & (where | ~usable)).any()


def test_a_token_is_put_there_by_its_embedding(tiny_config, tiny_params):
    config = Elsewhere(place=2, length=10, delimiters=(".",), words=())
    row = np.asarray(tiny_params["embed"][7])
    edit = elsewhere.arms(config, [row])[1].edit
    tokens = np.random.default_rng(0).integers(0, 61, (2, 10))
    probe = Probe(capture=(Capture(Site.EMBED),))
    seen = np.asarray(sinkjax.forward(tiny_params, tokens, tiny_config, edit, probe).record["embed"])
    tokens[:, 2] = 7
    np.testing.assert_array_equal(seen, np.asarray(tiny_params["embed"])[tokens])


def test_a_run_on_the_tiny_model_is_complete(tmp_path: Path):
    write_both(tmp_path)
    section = run.carry_out(study("background/elsewhere", tmp_path, **SMALL), tmp_path / "out")
    assert section.featured == ("no edit", "“t” put there", "line break put there", "“e” put there")
    rows = {(row.arm, row.measure): row for row in section.rows}
    assert rows["“t” put there", elsewhere_tokens.SIZE].controls == 4
    assert rows["line break in the text", elsewhere_tokens.SIZE].value.mean is None
    with pytest.raises(SinkjaxError, match="'th' is not one token of this model's tokenizer"):
        run.carry_out(study("background/elsewhere", tmp_path, **{**SMALL, "words": ["th"]}), tmp_path / "other")


def test_configs_and_models_that_do_not_fit_are_refused(tiny_config):
    with pytest.raises(SinkjaxError, match="place 60 is seen by fewer than 8 of 64 queries"):
        Elsewhere(place=60)
    with pytest.raises(SinkjaxError, match="delimiters lists at least one token"):
        Elsewhere(delimiters=())
    with pytest.raises(SinkjaxError, match="has no vocabulary"):
        elsewhere.jobs(Elsewhere(), replace(tiny_config, vocab_size=None))


TEXTS = (
    "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
    "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
    "In the winter of that year the company bought two ships, and sent them north with orders to return before the frost.",
    "A good carpenter looks at the grain before he looks at the drawing, because the wood decides what can be made of it.",
)


def test_on_smollm2_the_sink_follows_the_activation_that_enters_the_layer(smollm2):
    """Measured on these texts: r of 0.64 to 0.77 with what enters a layer, 0.19 to 0.32 with what it leaves.

    The largest |h| of a "the" is up to 19 times the median position's, that of a comma at most 1.9 times.
    """
    tokens, lengths = sinkjax.encode(smollm2, TEXTS, bos="none", length=24)
    probe = Probe(attention_received=True, resid_max=True)
    record = sinkjax.forward(smollm2.params, tokens, smollm2.config, probe=probe, lengths=lengths, logits=False).record
    texts = [smollm2.tokenizer.tokens(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    text = dataset(np.asarray(record["resid_max"]), np.asarray(record["attention_received"]), texts)
    at = elsewhere_order.correlations(text, 0.3)
    assert (at[0] > at[1] + 0.1).all()
    sizes = elsewhere_tokens.sizes(text)
    assert sizes[elsewhere_tokens.occurrences(text, " the")].max() > 8
    assert sizes[elsewhere_tokens.occurrences(text, ",")].max() < 4
