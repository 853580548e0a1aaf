"""The trained models in the package: one with a sink on BOS, two with none or few, offline, at once, and like any other model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import sinkjax
from sinkjax import Probe
from sinkjax.analysis import metrics
from sinkjax.data.corpora import passages

NAMES = ("mini-softmax", "mini-sigmoid", "mini-head-norm")
LENGTH = 64


@pytest.fixture(scope="module", params=NAMES)
def found(request):
    """A model and what it does on 16 passages after a BOS."""
    model = sinkjax.load(request.param)
    text = passages("packaged", 16, length=LENGTH, size=lambda text: len(model.tokenizer.encode(text)))
    tokens, lengths = sinkjax.encode(model, text.texts, bos="model", length=LENGTH)
    probe = Probe(attention_received=True, attention_share=True, resid_norm=True, nll=True)
    return request.param, model, sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths).record, lengths


def test_how_many_heads_sink(found):
    """Measured on this text: 0.73, 0.00 and 0.09 of heads and passages on BOS, at most 0.02 on each of the next seven."""
    name, _, record, _ = found
    sink = metrics.sink_rate(record, 0, statistic="attention_share").mean()
    low, high = {"mini-softmax": (0.6, 1), "mini-sigmoid": (0, 0.02), "mini-head-norm": (0, 0.15)}[name]
    assert low <= sink <= high
    others = [metrics.sink_rate(record, key, statistic="attention_share").mean() for key in range(1, 8)]
    assert max(others) < 0.03


def test_all_have_learned_the_language(found):
    """Measured: 3.88 to 3.95 nats a token of 512, on texts that are not like the ones they learned."""
    _, model, record, lengths = found
    assert metrics.mean_nll(record, lengths).mean() < 0.75 * np.log(model.config.vocab_size)


def test_the_one_of_llamas_shape_is_the_same_model_in_transformers(tmp_path):
    model = sinkjax.load("mini-softmax")
    tokens, _ = sinkjax.encode(model, ["They sent for Ness at half past two to bring the doctor over."], bos="model", length=16)
    sinkjax.export(model, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        out = theirs(torch.as_tensor(np.asarray(tokens)), output_attentions=True)
    ours = sinkjax.forward(model.params, tokens, model.config, probe=Probe(attention=tuple(range(model.config.layers))))
    np.testing.assert_allclose(out.logits.numpy(), ours.logits, atol=1e-4)
    maps = np.stack([layer.numpy() for layer in out.attentions], axis=1)
    np.testing.assert_allclose(maps, ours.record["attention"], atol=1e-5)
    assert maps[0, :, :, 1:, 0].mean(axis=-1).max() > 0.3  # the sink is there too
