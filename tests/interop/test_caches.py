"""`SinkCache` makes transformers write what `sinkjax.generate` writes with the same prefix and the same window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import sinkjax
from sinkjax.interop import SinkCache

IDS, NEW = [5, 9, 21, 33, 2, 8], 16
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
SIZES |= {"initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **SIZES | changes)).eval()


def neox() -> Any:
    """With rotations of a quarter of a head's dims."""
    torch.manual_seed(0)
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SIZES)).eval()


def written(model: Any, ids: list[list[int]], cache: Any, **options: Any) -> tuple[list[list[int]], np.ndarray]:
    """The new tokens of each text, and the logits that chose them."""
    options |= {"max_new_tokens": NEW, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    out = model.generate(torch.tensor(ids), cache=cache, **options)
    return out.sequences[:, len(ids[0]) :].tolist(), torch.stack(out.logits, 1).numpy()


@pytest.mark.parametrize(
    ("model", "prefixed", "sinks", "window", "options"),
    [
        (llama, True, 2, 6, {}),
        (llama, False, 2, 6, {}),
        (llama, True, 0, 4, {"prefill_chunk_size": 1}),
        (llama, True, 4, 60, {}),
        (lambda: llama(rope_parameters=YARN), True, 1, 6, {}),
        (neox, True, 2, 5, {}),
    ],
)
def test_transformers_writes_what_generate_writes(model, prefixed, sinks, window, options):
    theirs = model()
    ours = sinkjax.from_transformers(theirs)
    past = sinkjax.sink_prefix(ours, 7) if prefixed else None
    front = [] if past is None else [*past.tokens]
    policy, probe = sinkjax.Streaming(sinks, window), sinkjax.Probe(logits_of=range(SIZES["vocab_size"]))
    want = sinkjax.generate(ours, IDS, max_new_tokens=NEW, past=past, cache=policy, probe=probe)
    for texts in ([IDS], [IDS, IDS[::-1]]):
        cache = SinkCache(theirs, past, sinks, window)
        tokens, logits = written(theirs, [front + ids for ids in texts], cache, **options)
        assert tokens[0] == want.tokens
        np.testing.assert_allclose(logits[0], want.logits, atol=1e-4)
        assert max(layer.keys.shape[-2] for layer in cache.layers) <= len(front) + sinks + window - 1
        cache.reset()
        assert written(theirs, [front + ids for ids in texts], cache, **options)[0] == tokens


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda model, ours: SinkCache(ours), "model must be of transformers"),
        (lambda model, ours: SinkCache(model, window=0), "window must be an integer of at least 1"),
        (lambda model, ours: SinkCache(model, prefix=[7]), "prefix must come from sinkjax.sink_prefix or load_prefix"),
        (lambda model, ours: SinkCache(llama(num_hidden_layers=1), sinkjax.sink_prefix(ours, 7)), "but this model needs"),
        (lambda model, ours: SinkCache(llama(rope_parameters={**YARN, "rope_type": "dynamic"})), "one kind of rotary positions"),
        (
            lambda model, ours: SinkCache(
                transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=8, hidden_size=4, n_head=1))
            ),
            "one kind of rotary",
        ),
        (lambda model, ours: written(model, [IDS], SinkCache(model, sinks=1, window=2)), "pass prefill_chunk_size=1"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    model = llama()
    with pytest.raises(sinkjax.SinkjaxError, match=sentence):
        call(model, sinkjax.from_transformers(model))
