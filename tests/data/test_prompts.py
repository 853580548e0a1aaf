"""`encode`: the BOS that was asked for, once; right padding that does not matter; nothing cut or lost without a word."""

import contextlib
import dataclasses

import jax
import numpy as np
import pytest
import tokenizers
import tokenizers.processors
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax.data.prompts import trained_prefix
from sinkjax.errors import SinkjaxError

CHAT = "<|im_start|>user\nhi<|im_end|>\n"


def refused(message, *args, **options):
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.encode(*args, **options)
    assert "\n" not in str(caught.value)


def test_the_bos_is_the_one_asked_for(smollm2_unread):
    ids = smollm2_unread.tokenizer.encode("Hello there")
    for bos, prefix in (("model", [1]), ("none", []), (7, [7])):
        tokens, lengths = sinkjax.encode(smollm2_unread, ["Hello there"], bos=bos, length=8)
        assert tokens[0, : lengths[0]].tolist() == prefix + ids
    assert sinkjax.encode(smollm2_unread, ["Hello there"], length=8)[0][0, 0] == ids[0]  # the default: it was trained without


@settings(deadline=None)
@given(text=st.text(min_size=1, alphabet="abc XYZ.,\n"), length=st.integers(1, 12))
def test_a_longer_text_is_cut_to_its_first_tokens(smollm2_unread, text, length):
    whole = [1, *smollm2_unread.tokenizer.encode(text)]
    longer = pytest.warns(UserWarning, match="1 of 1 texts") if len(whole) > length else contextlib.nullcontext()
    with longer:
        tokens, lengths = sinkjax.encode(smollm2_unread, [text], bos="model", length=length)
    assert lengths[0] == min(length, len(whole))
    assert tokens[0, : lengths[0]].tolist() == whole[:length]


def test_rows_are_as_long_as_the_longest_text_up_to_the_context(smollm2_unread):
    for texts in (["a longer text than that"], ["a", "a longer text than that", "b c"], ["word " * 200]):
        tokens, lengths = sinkjax.encode(smollm2_unread, texts)
        assert lengths.tolist() == [len(smollm2_unread.tokenizer.encode(text)) for text in texts]
        assert tokens.shape == (len(texts), max(lengths))
    short = dataclasses.replace(smollm2_unread, config=dataclasses.replace(smollm2_unread.config, context=8))
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the model's context, 8 tokens, and lose 13 tokens"):
        tokens, lengths = sinkjax.encode(short, ["word" * 2, " word" * 21])
    assert (tokens.shape, lengths[1]) == ((2, 8), 8)
    ids = np.arange(3, 15)[None]
    with pytest.warns(UserWarning, match="1 of 1 texts are longer than length, 5 tokens, and lose 7 tokens"):
        sinkjax.encode(smollm2_unread, ids, bos="none", length=5, attention_mask=np.ones_like(ids))


def test_the_last_logits_are_those_of_each_prompt_alone():
    model = sinkjax.load("mini-softmax")
    texts = ["They sent for Ness at half past two", "The doctor"]
    tokens, lengths = sinkjax.encode(model, texts)
    out = sinkjax.forward(model, tokens, lengths=lengths)
    assert out.last_logits.shape == (2, model.config.vocab_size)
    for text, found in zip(texts, out.last_logits, strict=True):
        alone = sinkjax.forward(model, sinkjax.encode(model, [text])[0])
        np.testing.assert_allclose(found, alone.logits[0, -1], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(alone.last_logits[0], alone.logits[0, -1])
    edits = jax.vmap(lambda value: sinkjax.forward(model, tokens, edits=sinkjax.add_logit(0, value), lengths=lengths))
    np.testing.assert_allclose(edits(np.zeros(3)).last_logits[2], out.last_logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(SinkjaxError, match="logits=True"):
        sinkjax.forward(model, tokens, logits=False).last_logits  # noqa: B018


@pytest.mark.parametrize("text", [CHAT, "<|im_start|>", "<|im_start|>a"])
def test_a_double_bos_is_refused_and_named(smollm2_unread, text):
    message = r"texts\[1\] .*BOS token 1 .*bos=\"none\""
    refused(message, smollm2_unread, ["fine", text], bos="model")
    refused(message, smollm2_unread, ["fine", text], bos=1)
    assert sinkjax.encode(smollm2_unread, [text], bos="none")[0][0, 0] == 1
    assert sinkjax.encode(smollm2_unread, [text], bos=7)[0][0, :2].tolist() == [7, 1]


def with_source(model, **source):
    return dataclasses.replace(model, source=model.source | source)


def test_the_models_own_way_is_its_tokenizers_its_familys_or_that_of_this_package(smollm2_unread):
    assert trained_prefix(smollm2_unread) == ([], "")  # a Llama whose <|im_start|> is a chat's
    assert sinkjax.encode(smollm2_unread, ["Hello"])[0][0, 0] == sinkjax.encode(smollm2_unread, ["Hello"], bos="none")[0][0, 0]
    assert trained_prefix(with_source(smollm2_unread, name="untrained:mini-softmax"))[0] == [smollm2_unread.tokenizer.bos]
    backend = tokenizers.Tokenizer.from_str(smollm2_unread.tokenizer.backend.to_str())
    backend.add_special_tokens(["<bos>"])
    gemma = dataclasses.replace(smollm2_unread.tokenizer, backend=backend, bos=backend.token_to_id("<bos>"))
    with_bos = dataclasses.replace(smollm2_unread, tokenizer=gemma)
    ids, why = trained_prefix(with_source(with_bos, model_type="gemma"))
    assert (ids, "gemma" in why) == ([gemma.bos], True)
    assert trained_prefix(with_source(with_bos, model_type="qwen3")) == ([], "")


def test_a_token_outside_the_vocabulary_is_refused(smollm2_unread):
    small = dataclasses.replace(smollm2_unread, config=dataclasses.replace(smollm2_unread.config, vocab_size=1000))
    refused(r"texts\[0\] .*token id \d+, .* 1000", small, ["Hello there"])
