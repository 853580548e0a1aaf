"""Texts under edits are what `generate` writes, stored and shown by prompt."""

from __future__ import annotations

import pytest

import sinkjax
from sinkjax.study.views import START, WRITTEN, continuations
from sinkjax.study.work import Batch, Condition
from tests.study.tiny import SENTENCE, write_model

CONDITIONS = (Condition(sinkjax.compose(label="no edit")), Condition(sinkjax.mask_key(0).named("masked")))


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
