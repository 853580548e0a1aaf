"""`generate` goes on as the forward pass says, token by token, and its measurements are those of the forward pass."""

from __future__ import annotations

import contextlib
from collections import Counter

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import generation
from sinkjax.transformer import cached
from tests.study.tiny import write_model

PROMPT = [5, 9, 40, 7, 33, 21]
NEW = 5
EDITS = {
    "none": (),
    "mask": sinkjax.mask_key(0),
    "isolate": sinkjax.attend_self(3, layers=1),
    "window": sinkjax.edit("logits", "set", -jnp.inf, distances=slice(3, None)),
    "two": [sinkjax.swap_embeddings(0, 2), sinkjax.drop_mlp(1)],
    "all along": sinkjax.scale_head_output(slice(None), 0.3, centre="dims"),
    "mean": sinkjax.scale_head_output(slice(None), 0.3, centre="positions"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sinkjax.Model:
    return sinkjax.load(write_model(tmp_path_factory.mktemp("model")))


def step_by_step(model: sinkjax.Model, edits) -> list[int]:
    """The likeliest tokens, each from a forward of its own length without padding."""
    ids = list(PROMPT)
    for _ in range(NEW):
        ids.append(int(sinkjax.forward(model.params, np.array([ids]), model.config, edits=edits).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


@pytest.mark.parametrize("name", EDITS)
def test_every_token_is_the_likeliest_of_an_unpadded_forward(model, name, capsys):
    assert sinkjax.generate(model, PROMPT, edits=EDITS[name], max_new_tokens=NEW) == step_by_step(model, EDITS[name])
    assert ("recomputes all positions" in capsys.readouterr().err) == (name == "mean")


def test_without_a_cache_the_tokens_are_the_same(model, monkeypatch):
    starts = [PROMPT, PROMPT[:3], PROMPT[1:]]
    found = generation.generate_all(model, starts, EDITS["mask"], NEW, 1.0)
    assert found == [sinkjax.generate(model, start, EDITS["mask"], NEW, 1.0) for start in starts]
    monkeypatch.setattr(generation, "why_not", lambda *_: "of a test")
    assert found == generation.generate_all(model, starts, EDITS["mask"], NEW, 1.0)


def test_prompts_of_most_lengths_share_two_compilations_of_the_block(model, monkeypatch):
    chex.clear_trace_counter()
    traced = chex.assert_max_traces(cached._block.__wrapped__, 2)
    monkeypatch.setattr(cached, "_block", jax.jit(traced, static_argnames="spec"))
    sinkjax.generate(model, PROMPT, max_new_tokens=NEW)
    sinkjax.generate(model, PROMPT[:4], max_new_tokens=NEW - 1, temperature=1.0)
    with pytest.raises(AssertionError, match="traced"):
        sinkjax.generate(model, PROMPT * (generation.ROWS // len(PROMPT) + 1), max_new_tokens=NEW)


def test_samples_repeat_with_their_seed_and_follow_the_softmax(model):
    drawn = [sinkjax.generate(model, PROMPT, max_new_tokens=NEW, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    logits = sinkjax.forward(model.params, np.array([PROMPT]), model.config).logits[0, -1]
    chances = np.asarray(jax.nn.softmax(logits / 0.3), float)
    firsts = Counter(sinkjax.generate(model, PROMPT, max_new_tokens=1, temperature=0.3, seed=seed)[0] for seed in range(100))
    top = int(chances.argmax())
    assert firsts[top] / 100 == pytest.approx(chances[top], abs=4 * np.sqrt(chances[top] * (1 - chances[top]) / 100) + 1e-3)


def test_a_text_goes_on_as_a_text(model):
    ids = [model.tokenizer.bos, *model.tokenizer.encode("the key")]
    text = sinkjax.generate(model, "the key", max_new_tokens=NEW)
    assert (
        text
        == model.tokenizer.decode([*ids, *sinkjax.generate(model, ids, max_new_tokens=NEW)])[len(model.tokenizer.decode(ids)) :]
    )
    assert sinkjax.generate(model, "the key", max_new_tokens=NEW, bos="none") != "the key"


def test_the_end_of_text_token_ends_it(model):
    whole = sinkjax.generate(model, PROMPT, max_new_tokens=NEW)
    place = max(number for number in range(NEW) if whole.index(whole[number]) == number)
    ending = sinkjax.Model(model.config, model.params, model.tokenizer, {**model.source, "eos": whole[place]})
    assert sinkjax.generate(ending, PROMPT, max_new_tokens=NEW) == whole[:place]


def test_smollm2_knows_what_comes_next(smollm2):
    """The likeliest continuation of a sentence that everyone knows."""
    assert sinkjax.generate(smollm2, "The capital of France is", max_new_tokens=2, bos="none").strip().startswith("Paris")


PROBE = sinkjax.Probe(
    attention_received=True,
    row_entropy=True,
    query_key_cosine=True,
    resid_max=True,
    resid_argmax=True,
    nll=True,
    attention=(1,),
    capture=(
        sinkjax.Capture("resid", layers=(0, 1), positions=(1, 3)),
        sinkjax.Capture("weights", dims=(0, 2), name="to_two"),
        sinkjax.Capture("embed"),
    ),
    logits_of=(3, 5),
    until=1,
)
STEERED = sinkjax.compose(sinkjax.mask_key(0, layers=1), sinkjax.scale_head_output(slice(None), 0.3, centre="dims"))


@pytest.mark.parametrize("name", ["plain", "edited", "past"])
def test_measurements_of_each_row_are_those_of_a_forward_of_the_finished_text(model, name):
    past = sinkjax.sink_prefix(model, 7) if name == "past" else None
    edits = STEERED if name == "edited" else ()
    found = sinkjax.generate(model, PROMPT, edits, NEW, 1.0, probe=PROBE, past=past)
    assert found.tokens == sinkjax.generate(model, PROMPT, edits, NEW, 1.0, past=past)
    assert found.text == model.tokenizer.decode([*PROMPT, *found.tokens])[len(model.tokenizer.decode(PROMPT)) :]
    out = sinkjax.forward(model, np.array([PROMPT + found.tokens]), edits=edits, probe=PROBE, past=past)
    assert found.record.keys() == {*PROBE.dims()} - {"logits_of"}
    for entry, values in found.record.items():
        np.testing.assert_allclose(values, out.record[entry], rtol=1e-5, atol=1e-6, err_msg=entry)
    np.testing.assert_allclose(found.logits, out.logits[0, len(PROMPT) - 1 : -1][:, [3, 5]], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.steps("resid_max"), found.record["resid_max"][0, :, len(PROMPT) :].T)
    with pytest.raises(sinkjax.SinkjaxError, match="a capture of WEIGHTS"):
        found.steps("attention_received")


@pytest.mark.parametrize("policy", [sinkjax.Streaming(2, 4), sinkjax.H2O(6), sinkjax.SnapKV(6, window=2)], ids=repr)
def test_a_text_written_with_a_cache_policy_has_the_loss_that_evaluate_reads(model, policy):
    long, past = [*PROMPT * 3, 8, 9], sinkjax.sink_prefix(model, 7)  # the first 16 rows of a Streaming are one call
    probe = sinkjax.Probe(attention=True, attention_received=True, nll=True)
    found = sinkjax.generate(model, long, max_new_tokens=50, temperature=1.0, probe=probe, cache=policy, past=past)
    total = len(long) + 50
    assert found.tokens == sinkjax.generate(model, long, max_new_tokens=50, temperature=1.0, cache=policy, past=past)
    assert total > model.config.context  # positions are counted in the cache
    read = sinkjax.evaluate(model, np.array([long + found.tokens]), cache=policy, past=past).nll
    np.testing.assert_allclose(found.record["nll"][0, :-1], read[0, : total - 1], rtol=1e-5)
    weights, kept = np.asarray(found.record["attention"][0]), found.kept
    received = weights.sum(axis=2) / (total - np.arange(total))
    np.testing.assert_allclose(found.record["attention_received"][0], received, rtol=1e-5, atol=1e-7)
    everyone = np.zeros((total, *kept.shape[1:3], total + 1), bool)
    np.put_along_axis(everyone, kept, True, axis=-1)  # the last place is that of empty slots
    for layer, head, row in np.ndindex(weights.shape[:3]):
        assert set(np.flatnonzero(weights[layer, head, row])) == set(np.flatnonzero(everyone[row, layer, head // 2, :-1]))
    for row in range(1, total):
        before, now = everyone[row - 1, ..., :-1], everyone[row, ..., :-1]
        gone = np.where((before & ~now).any(axis=-1), (before & ~now).argmax(axis=-1), -1)
        np.testing.assert_array_equal(found.evicted[row], gone)
    assert (found.evicted[policy.size :] >= 0).all()


def test_edits_by_step_act_on_the_rows_that_are_computed_then(model):
    flat = sinkjax.set_residual(slice(None), 0.0, layers=1)
    plain, edited = (sinkjax.generate(model, PROMPT, edits, NEW) for edits in ((), lambda new: flat if new >= 2 else ()))
    assert edited[:2] == plain[:2]
    rows = range(len(PROMPT) + 1, len(PROMPT) + NEW)  # the row of the second token is the first that is computed with two
    ids = np.array([PROMPT + edited])
    want = sinkjax.forward(model, ids, edits=sinkjax.set_residual([*rows], 0.0, layers=1)).logits[0, len(PROMPT) - 1 : -1]
    assert edited == want.argmax(axis=-1).tolist()
    at_new = lambda new: sinkjax.set_residual(len(PROMPT) + new - 1, 0.0, layers=1) if new else ()  # noqa: E731
    assert sinkjax.generate(model, PROMPT, at_new, NEW) != plain


def test_prompts_of_different_lengths_make_a_list(model):
    assert sinkjax.generate(model, [PROMPT, PROMPT[:2]], max_new_tokens=NEW) == [
        sinkjax.generate(model, ids, max_new_tokens=NEW) for ids in (PROMPT, PROMPT[:2])
    ]
    texts = ["the key", "a"]
    cache = sinkjax.H2O(4)
    both = sinkjax.generate(model, texts, max_new_tokens=NEW, cache=cache)
    assert both == [sinkjax.generate(model, text, max_new_tokens=NEW, cache=cache) for text in texts]


def test_a_stop_string_ends_the_text_and_is_not_in_it(model):
    whole = sinkjax.generate(model, "the key", max_new_tokens=12, temperature=1.0)
    stop = whole[4:6]
    before = whole[: whole.index(stop)]
    assert sinkjax.generate(model, "the key", max_new_tokens=12, temperature=1.0, stop=[stop, "never"]) == before
    ids = [model.tokenizer.bos, *model.tokenizer.encode("the key")]
    new = sinkjax.generate(model, ids, max_new_tokens=12, temperature=1.0, stop=stop)
    assert model.tokenizer.decode([*ids, *new]) == model.tokenizer.decode(ids) + before
    found = sinkjax.generate(model, "the key", max_new_tokens=12, temperature=1.0, stop=stop, probe=sinkjax.Probe())
    assert (found.text, found.tokens[: len(new)]) == (before, new)
    assert len(found.tokens) < 12


def test_a_long_text_shows_its_progress(model, monkeypatch):
    seen = []
    shown = lambda name, show, *args: contextlib.nullcontext(lambda done, rate: seen.append((show, done)))  # noqa: E731
    monkeypatch.setattr(generation, "bar", shown)
    sinkjax.generate(model, PROMPT, max_new_tokens=2)
    monkeypatch.setattr(generation, "LONG", 3)
    sinkjax.generate(model, PROMPT, max_new_tokens=3)
    assert seen == [(False, 1), (False, 2), (True, 1), (True, 2), (True, 3)]
