"""background/windows: attention before and beyond a window by hand, the edit of one dim, and a run on a model with windows."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import SinkjaxError
from sinkjax.papers.background import windows as own
from sinkjax.study import Place, run
from sinkjax.study.folder import open_store
from sinkjax.study.registry import program
from tests.study.budget import Conditions
from tests.study.tiny import study, write_model, write_text

WINDOW, LENGTH = 6, 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    write_model(
        folder / "model",
        model_type="mistral",
        architectures=["MistralForCausalLM"],
        sliding_window=WINDOW,
        max_position_embeddings=256,
    )
    write_text(folder / "text.txt")
    return folder


@pytest.mark.parametrize("lengths", [(24, 20), (24, 13)])
def test_attention_is_that_of_full_maps_from_both_sets_of_queries(files, lengths):
    model, beyond = sinkjax.load(str(files / "model")), 10
    tokens = np.random.default_rng(0).integers(1, 250, (2, LENGTH)).astype(np.int32)
    probe = sinkjax.Probe(attention=(0, 1, 2), extra=(own.reaching(beyond),))
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths).record
    for prompt, length in enumerate(lengths):
        maps = np.asarray(record["attention"])[prompt].mean(axis=1)  # layer, query, key
        after = length - beyond
        before = min(after, beyond)
        expected = np.stack([maps[:, beyond - before : beyond].mean(axis=1), maps[:, beyond:length].mean(axis=1)], axis=1)
        found = np.asarray(record["reaching"])[prompt]
        np.testing.assert_allclose(found[..., :length], expected[..., :length], atol=1e-6)
        assert (found[:, own.BEYOND, 0] == 0).all()  # key 0 has left every window
        np.testing.assert_allclose(found[..., :length].sum(axis=-1), 1, atol=1e-5)


def test_the_strongest_key_is_of_the_mean_over_layers_and_brings_its_own_size():
    reach = np.zeros((1, 1, 3, 2, 5))
    reach[0, 0, :, own.BEYOND] = [[0.9, 0.4, 0, 0.3, 0], [0.9, 0, 0.1, 0.3, 0], [0.9, 0, 0, 0, 1.0]]
    sizes = np.zeros((1, 1, 4, 5))
    sizes[0, 0, 2] = [100, 5, 6, 7, 8]
    data = xarray.Dataset(
        {
            "reaching": (("edit", "prompt", "layer", "reach", "key"), reach),
            "resid_max": (("edit", "prompt", "depth", "position"), sizes),
        }
    )
    two = Place("two layers", (0, 1))
    assert own.strongest_beyond(3, two).of(data) == pytest.approx(30)
    assert own.activation_of_strongest(3, two).of(data) == 7
    assert own.first_beyond(3).of(data) == pytest.approx(90)


def test_the_edit_makes_one_dim_ordinary(files):
    model = sinkjax.load(str(files / "model"))
    tokens = np.random.default_rng(1).integers(1, 250, (2, LENGTH)).astype(np.int32)
    typical = np.random.default_rng(2).standard_normal((model.config.layers, model.config.width)).astype(np.float32)
    probe = sinkjax.Probe(capture=(sinkjax.Capture("resid", name="stream"),))
    for tokens_of, chosen in (("first", slice(1)), ("later", slice(1, None)), ("all", slice(None))):
        edit = own.made_ordinary(tokens_of, 3, typical)
        stream = np.asarray(sinkjax.forward(model.params, tokens, model.config, edits=edit, probe=probe).record["stream"])
        there = np.isclose(stream, typical[None, :, None], rtol=1e-6).all(axis=(0, 1))  # position, dim
        assert there[chosen, 3].all()
        assert there.sum() == there[chosen, 3].size


def test_controls_set_another_dim_of_the_same_tokens(files):
    settings = {"length": LENGTH, "beyond": 8, "controls": 9}
    study = Conditions(program("background/windows"), sinkjax.load(str(files / "model")).config, **settings)
    found = study.of("edited")
    drawn = study.random("edited", "tokens later")
    dims = [int(np.flatnonzero(np.asarray(point.edit.terms[0].value)[0, 0] == 0)[0]) for point in drawn]
    assert len({*dims}) == len(drawn) == 9
    assert 0 not in dims  # the dim of the placeholder
    assert {point.edit.terms[0].queries for point in drawn} == {found["tokens later"].edit.terms[0].queries}
    assert len({point.label.partition(": ")[2] for point in drawn}) == 1  # pages are made without the model: labels name no dim


@pytest.mark.parametrize(
    ("fields", "sentence"), [({"beyond": WINDOW - 1}, "window of 6 keys"), ({"beyond": LENGTH - 7}, "8 queries .* 24")]
)
def test_a_position_within_the_window_or_at_the_end_is_refused(files, fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        list(run.work(study("background/windows", files, **{"length": LENGTH, "beyond": 8, **fields})))


def test_a_run_on_joined_documents_judges_every_claim(files, tmp_path):
    small = {"controls": 9, "control_prompts": 2, "beyond": 8, "length": 120, "prompts": 4, "bos": "model"}
    section = run.carry_out(study("background/windows", files, **small), tmp_path / "out")
    words = {verdict.name: verdict.word for verdict in section.verdicts}
    assert list(words) == ["as-much", "large", "needs", "loss", "first"]
    assert {words[name] for name in ("needs", "loss", "first")} == {"not applicable"}  # a random model has no massive activation
    assert words["as-much"] not in ("not applicable", "described")
    data = open_store(tmp_path / "out" / "edited.zarr")
    documents = data.attrs["study"]["documents"]
    assert len(set(documents)) == 4
    assert all("".join(texts).count("\n\n") == 1 for texts in data.attrs["study"]["token_texts"])  # two paragraphs each
    assert (data["length"] == 120).all()
