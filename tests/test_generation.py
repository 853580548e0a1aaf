"""`generate` goes on as the forward pass says, token by token, with the edits in force all the while."""

from __future__ import annotations

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
