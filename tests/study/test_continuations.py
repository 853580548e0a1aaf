"""Texts under edits are what `generate` writes, stored and shown by prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Sample
from sinkjax.study.views import START, WRITTEN, continuations, samples
from sinkjax.study.work import Batch, Point
from tests.study.tiny import SENTENCE, write_model

CONDITIONS = (Point(sinkjax.compose(label="no edit"), "none"), Point(sinkjax.mask_key(0).named("masked"), "all"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sinkjax.Model:
    return sinkjax.load(write_model(tmp_path_factory.mktemp("model")))


def batch(model: sinkjax.Model) -> Batch:
    return Batch(*sinkjax.encode(model, [SENTENCE, "short"], bos="none", length=24), {})


def test_each_text_is_what_the_model_generates_under_the_edit(model):
    data = continuations(lambda model, batch: CONDITIONS).compute(model, batch(model))
    for place, text in enumerate((SENTENCE[:START], "short")):
        assert data["start"].values[place] == text
        for condition in CONDITIONS:
            want = sinkjax.generate(model, text, condition.edit, max_new_tokens=WRITTEN, bos="none")
            assert data["text"].sel(edit=condition.edit.label, prompt=place).item() == want


def test_a_store_gives_a_sample_for_each_edit_and_prompt(model, tmp_path: Path):
    import xarray

    data = continuations(lambda model, batch: CONDITIONS).compute(model, batch(model))
    data.to_zarr(tmp_path / "texts.zarr", zarr_format=2)
    found = samples(xarray.open_zarr(tmp_path / "texts.zarr", chunks=None))
    assert found == samples(data)
    assert [(sample.prompt, sample.edit) for sample in found] == [
        (prompt, edit) for edit in ("no edit", "masked") for prompt in (SENTENCE[:START], "short")
    ]
    assert found[0] == Sample(SENTENCE[:START], "no edit", str(data["text"].values[0, 0]))


def test_a_model_without_a_tokenizer_is_refused(model):
    bare = sinkjax.Model(model.config, model.params, None, model.source)
    with pytest.raises(SinkjaxError, match="no tokenizer"):
        continuations(lambda model, batch: CONDITIONS).compute(bare, Batch(np.zeros((1, 4), np.int32), np.array([4]), {}))
