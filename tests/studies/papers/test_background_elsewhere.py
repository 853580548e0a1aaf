"""background/elsewhere: tokens are found and put where they should be, and each claim needs every part of its rule."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.analysis.summary import Rank
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.background import _tokens, elsewhere
from sinkjax.studies.papers.background.elsewhere import SINKS, STUDY, Elsewhere, there
from sinkjax.studies.specs import NOOP, specs
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import Planted, row

N, L, H, T = 8, 8, 4, 20
AXES = {"resid_max": ("depth", "position"), "attention_received": ("layer", "head", "key"), "state_median": ("depth",)}


def natural(largest: np.ndarray, received: np.ndarray, tokens: list[list[str]] | None = None) -> xarray.Dataset:
    """The unedited run. largest: [prompt, depth, position]; received: [prompt, layer, head, key]."""
    arrays = {
        name: (("edit", "prompt", *AXES[name]), values[None]) for name, values in zip(AXES, (largest, received), strict=False)
    }
    lengths = [len(texts) for texts in tokens or []] or [largest.shape[-1]] * len(largest)
    return xarray.Dataset(arrays, {"length": ("prompt", lengths), "edit": [NO_EDIT]}, {"study": {"token_texts": tokens}})


def onset(first: int) -> xarray.Dataset:
    """Layers `first` to `first + 2` of 8 sink on key 0, whose activation enters layers 3 to 5."""
    largest, received = np.ones((N, L + 1, T)), np.zeros((N, L, H, T))
    largest[:, 3:6, 0] = 50
    received[:, first : first + 3, :, 0] = 0.9
    return natural(largest, received)


def placed(size: float = 600.0, prompts: int = N) -> xarray.Dataset:
    """Every token put at position 8 has the size after layer 2, in some prompts, where layers 4 and on sink on it."""
    labels = [NO_EDIT, *map(there, Elsewhere().tokens)]
    largest, received = np.ones((len(labels), N, L + 1, T)), np.zeros((len(labels), N, L, H, T))
    largest[1:, :prompts, 3:, 8] = size
    received[1:, :prompts, 4:, 1:, 8] = 0.9
    arrays = dict(zip(AXES, (largest, received, np.full((len(labels), N, L + 1), 0.5)), strict=True))
    return xarray.Dataset({name: (("edit", "prompt", *AXES[name]), values) for name, values in arrays.items()}, {"edit": labels})


def test_an_activation_one_layer_before_its_sink_is_seen_as_that():
    """Layers 3 to 5 of 8 sink on what enters them: what the layers before them wrote."""
    results = Planted(STUDY, stores={"natural": onset(3)})
    at = elsewhere.correlations(results)
    np.testing.assert_allclose(at[0], 1)
    assert all((at[lag] < 0.9).all() for lag in (-2, -1, 1))
    for ratio in elsewhere.ACTIVATION_RATIOS:
        for share in elsewhere.SINK_SHARES:
            assert elsewhere.gap(ratio, share)(results).mean == 1
    still = Planted(STUDY, stores={"natural": natural(np.ones((N, L + 1, T)), np.zeros((N, L, H, T)))})
    assert np.isnan(elsewhere.correlations(still)[0]).all()
    assert elsewhere.gap(5.0, 0.25)(still).value.mean is None


def test_the_onsets_on_a_token_are_the_layer_that_writes_and_the_first_that_sinks():
    writer, sink = elsewhere.onsets(placed(50.0, prompts=6), 8, 0.3)
    assert np.isinf(writer[0]).all()
    np.testing.assert_array_equal(writer[1], [2] * 6 + [np.inf] * 2)
    np.testing.assert_array_equal(sink[1], [4] * 6 + [np.inf] * 2)


def test_a_token_in_the_text_is_ranked_among_other_positions_of_the_same_prompts():
    values = np.ones((2, T))
    values[0, [5, 9]] = 7
    tokens = [["x"] * T, ["x"] * T]
    for position in (0, 5, 9, 19):  # the first one is left out, and the last, which too few queries see
        tokens[0][position] = "."
    text = natural(np.ones((2, L + 1, T)), np.zeros((2, L, H, T)), tokens).isel(edit=0)
    np.testing.assert_array_equal(np.flatnonzero(_tokens.occurrences(text, ".")[0]), [5, 9])
    (size,) = _tokens.in_text(Elsewhere(length=T), text, ".", {"size": values})
    assert (size.value.mean, size.value.n) == (7, 1)
    assert size.rank == Rank(45, 0, 45)  # all pairs of the ten other positions
    (absent,) = _tokens.in_text(Elsewhere(length=T), text, "!", {"size": values})
    assert (absent.value.mean, absent.rank) == (None, None)
    assert _tokens.ranked(text, values) == [(1.0, 22, "x")]


def test_random_positions_are_as_many_and_never_the_chosen_ones(rng):
    usable = np.zeros((3, T), bool)
    usable[:, 1:13] = True
    where = np.zeros_like(usable)
    where[0, [2, 4, 6]] = where[2, 1:9] = True
    for _ in range(20):
        drawn = _tokens.random_positions(where, usable, rng)
        assert drawn.sum(axis=-1).tolist() == [3, 0, 4]
        assert not (drawn & (where | ~usable)).any()


def test_a_token_is_put_there_by_its_embedding(tiny_config, tiny_params):
    config = Elsewhere(place=2, length=10, delimiters=(".",), words=())
    rows = elsewhere.embeddings(SimpleNamespace(params=tiny_params), [7])
    _, condition = elsewhere.placed(config, tiny_config, rows)
    tokens = np.random.default_rng(0).integers(0, 61, (2, 10))
    probe = Probe(capture=(Capture(Site.EMBED),))
    seen = np.asarray(sinkjax.forward(tiny_params, tokens, tiny_config, condition.edit, probe).record["embed"])
    tokens[:, 2] = 7
    np.testing.assert_array_equal(seen, np.asarray(tiny_params["embed"])[tokens])


def test_controls_are_neither_special_nor_studied_and_tokens_are_single(tiny_params):
    class Letters:
        special = (0, 1)

        def encode(self, text: str) -> list[int]:
            return [ord(letter) - 96 for letter in text]

        def tokens(self, ids: list[int]) -> list[str]:
            return [chr(number + 96) for number in ids]

    params = {"embed": np.arange(30)[:, None]}
    model = SimpleNamespace(tokenizer=Letters(), params=params, config=SimpleNamespace(vocab_size=30))
    config = Elsewhere(delimiters=("c",), words=("d",), controls=26)
    assert set(elsewhere.random_rows(config, model, None).ravel()) == set(range(30)) - {0, 1, 3, 4}
    with pytest.raises(SinkjaxError, match="'de' is not one token of this model's tokenizer"):
        elsewhere.ids_of(Elsewhere(delimiters=("c",), words=("de",)), model)


def test_the_no_op_has_a_row_for_each_prompt_and_maps_show_two_delimiters_and_a_word(tiny_config):
    parts = {spec.name: spec for spec in specs(STUDY, Elsewhere(length=T), tiny_config)}
    assert [condition.label for condition in parts["maps"].conditions] == [NO_EDIT, *map(there, (".", "\n", " the"))]
    assert parts[NOOP].conditions[1].edit.terms[0].value.shape == (8, tiny_config.width)


def test_configs_that_do_not_fit_are_refused():
    with pytest.raises(SinkjaxError, match="place 60 is seen by fewer than 8 of 64 queries"):
        Elsewhere(place=60)
    with pytest.raises(SinkjaxError, match="delimiters lists at least one token"):
        Elsewhere(delimiters=())


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, "ss"),
        ({"size": 499.0}, "cs"),  # less than 1,000 times the median
        ({"prompts": 4}, "is"),  # not in most prompts
        ({"delimiters": (",",)}, "ns"),
        ({"sinks": 1.5}, "si"),
        ({"controls": 20}, "si"),  # too few for the largest of five
        ({"below": 99}, "si"),
        ({"sinks": -9.0, "all": True}, "sc"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(change, verdicts):
    config = Elsewhere(delimiters=change.get("delimiters", Elsewhere().delimiters))
    label = there(config.delimiters[0])
    m = change.get("controls", 100)
    ranked = Rank(min(change.get("below", m), m), 0, m)
    rows = {(label, SINKS): replace(row(label, SINKS, change.get("sinks", 4.0)), rank=ranked)}
    if "all" in change:
        rows = {(there(token), SINKS): row(there(token), SINKS, change["sinks"]) for token in config.delimiters}
    stores = {"placed": placed(change.get("size", 600.0), change.get("prompts", N))}
    found = Planted(STUDY, config, {"layers": L}, rows, stores).verdicts()
    assert [verdict[0] for verdict in found] == list(verdicts)
