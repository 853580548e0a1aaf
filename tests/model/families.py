"""Small random models of every family: what transformers is given, drawn from a seed, and what it computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from tests.model.reference import as_numpy

VOCABULARY, LAYERS, WINDOW, CONTEXT = 41, 2, 4, 32
LENGTHS = (6, 11)  # the longer one beyond every window, and beyond the original context of LongRoPE
SEEDS = (0, 1, 2)
Draw = Callable[[np.random.Generator], PreTrainedConfig]


def one(rng: np.random.Generator, *choices: Any) -> Any:
    """One of them."""
    return choices[rng.integers(len(choices))]


def flag(rng: np.random.Generator) -> bool:
    """True or false."""
    return bool(rng.integers(2))


def common(rng: np.random.Generator, **more: Any) -> dict[str, Any]:
    """Sizes, tying, rotary base and a head width as most families spell them."""
    heads, kv_heads = one(rng, (4, 4), (4, 2), (2, 1), (6, 2))
    head_dim = one(rng, 4, 8)
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": heads * head_dim,
        "intermediate_size": int(rng.integers(20, 30)),
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": flag(rng),
        "rope_parameters": {"rope_theta": one(rng, 100.0, 500.0), "rope_type": "default"},
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **more,
    }


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The values but for those of some keys."""
    return {key: value for key, value in values.items() if key not in keys}


def even(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a family without key-value heads."""
    return without(values, "num_key_value_heads")


def partial(values: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The values with a part of each head rotated, at least two pairs wherever heads are wide enough."""
    values["rope_parameters"]["partial_rotary_factor"] = one(rng, 0.5, 1.0)
    return values


def free_width(values: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The values with a head width of its own."""
    return values | {"head_dim": one(rng, 4, 6, 10)}


def gpt2(rng: np.random.Generator) -> PreTrainedConfig:
    heads = one(rng, 2, 3)
    inner, act = one(rng, None, 20), one(rng, "gelu_new", "relu", "gelu")
    return hf.GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=8 * heads, n_layer=LAYERS, n_head=heads, n_inner=inner,
        activation_function=act, scale_attn_weights=flag(rng), scale_attn_by_inverse_layer_idx=flag(rng),
        tie_word_embeddings=flag(rng), bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def gpt_neox(rng: np.random.Generator) -> PreTrainedConfig:
    values = partial(even(common(rng)), rng)
    return hf.GPTNeoXConfig(
        **values, use_parallel_residual=flag(rng), attention_bias=flag(rng), hidden_act=one(rng, "gelu", "gelu_fast")
    )


def opt(rng: np.random.Generator) -> PreTrainedConfig:
    heads, narrow = one(rng, 2, 3), flag(rng)
    return hf.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=8 * heads, num_hidden_layers=LAYERS, num_attention_heads=heads, ffn_dim=20,
        max_position_embeddings=CONTEXT, do_layer_norm_before=not narrow, word_embed_proj_dim=12 if narrow else 8 * heads,
        enable_bias=flag(rng), layer_norm_elementwise_affine=flag(rng), activation_function=one(rng, "relu", "gelu"),
        pad_token_id=1, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def bloom(rng: np.random.Generator) -> PreTrainedConfig:
    heads = one(rng, 3, 4, 6)
    return hf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=4 * heads, n_layer=LAYERS, n_head=heads, tie_word_embeddings=flag(rng),
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def falcon(rng: np.random.Generator) -> PreTrainedConfig:
    kind = one(rng, "7b", "40b", "11b", "rw")
    heads = 4
    values = {"vocab_size": VOCABULARY, "hidden_size": 6 * heads, "num_hidden_layers": LAYERS, "num_attention_heads": heads}
    values |= {"bias": flag(rng), "max_position_embeddings": CONTEXT, "bos_token_id": None, "eos_token_id": None}
    kinds = {
        "7b": {"multi_query": True, "parallel_attn": True},
        "40b": {"new_decoder_architecture": True, "num_kv_heads": 2},
        "11b": {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
        "rw": {"multi_query": False, "parallel_attn": False, "alibi": False},
    }
    return hf.FalconConfig(**values, **kinds[kind], ffn_hidden_size=one(rng, None, 20))


def mpt(rng: np.random.Generator) -> PreTrainedConfig:
    heads = one(rng, 3, 4, 6)
    attention = {"clip_qkv": one(rng, None, 0.5), "softmax_scale": one(rng, None, 0.3)}
    return hf.MptConfig(
        d_model=4 * heads, n_heads=heads, n_layers=LAYERS, max_seq_len=CONTEXT, vocab_size=VOCABULARY, attn_config=attention
    )


def phi3(rng: np.random.Generator) -> PreTrainedConfig:
    values = common(rng, sliding_window=one(rng, None, WINDOW), original_max_position_embeddings=8)
    if flag(rng):
        pairs = values["hidden_size"] // values["num_attention_heads"] // 2
        factors = {name: (1 + 3 * rng.random(pairs)).tolist() for name in ("short_factor", "long_factor")}
        values["rope_parameters"] |= {"rope_type": "longrope", "original_max_position_embeddings": 8, **factors}
    return hf.Phi3Config(**values)


def granite(rng: np.random.Generator) -> PreTrainedConfig:
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 2.5}
    return hf.GraniteConfig(**common(rng, attention_bias=flag(rng), mlp_bias=flag(rng)), **factors)


def gemma3(rng: np.random.Generator) -> PreTrainedConfig:
    kinds = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
    kinds["sliding_attention"] = {"rope_type": "default", "rope_theta": 50.0}
    values = common(
        rng, rope_parameters=kinds, attention_bias=flag(rng), sliding_window=WINDOW, query_pre_attn_scalar=one(rng, 6, 8)
    )
    values["layer_types"] = one(rng, ["sliding_attention", "full_attention"], ["full_attention"] * 2)
    return hf.Gemma3TextConfig(**free_width(values, rng))


def gemma2(rng: np.random.Generator) -> PreTrainedConfig:
    caps = {"attn_logit_softcapping": one(rng, None, 2.0), "final_logit_softcapping": one(rng, None, 3.0)}
    values = common(rng, attention_bias=flag(rng), sliding_window=WINDOW, query_pre_attn_scalar=one(rng, 6, 8), **caps)
    return hf.Gemma2Config(**free_width(values, rng))


def qwen3(rng: np.random.Generator) -> PreTrainedConfig:
    windows = {"use_sliding_window": flag(rng), "sliding_window": WINDOW, "max_window_layers": 1}
    return hf.Qwen3Config(**free_width(common(rng, attention_bias=flag(rng), **windows), rng))


def smollm3(rng: np.random.Generator) -> PreTrainedConfig:
    values = common(rng, attention_bias=flag(rng), mlp_bias=flag(rng), no_rope_layers=one(rng, [1, 0], [0, 1]))
    return hf.SmolLM3Config(**values, use_sliding_window=flag(rng), sliding_window=WINDOW)


def stablelm(rng: np.random.Generator) -> PreTrainedConfig:
    values = partial(common(rng, use_qkv_bias=flag(rng)), rng)
    return hf.StableLmConfig(**values, qk_layernorm=flag(rng), use_parallel_residual=flag(rng))


DRAWS: dict[str, Draw] = {
    "bloom": bloom,
    "falcon": falcon,
    "gemma": lambda rng: hf.GemmaConfig(**free_width(common(rng, attention_bias=flag(rng)), rng)),
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "granite": granite,
    "llama": lambda rng: hf.LlamaConfig(**free_width(common(rng, attention_bias=flag(rng), mlp_bias=flag(rng)), rng)),
    "mistral": lambda rng: hf.MistralConfig(**free_width(common(rng, sliding_window=one(rng, None, WINDOW)), rng)),
    "mpt": mpt,
    "olmo": lambda rng: hf.OlmoConfig(**common(rng, attention_bias=flag(rng), clip_qkv=one(rng, None, 0.5))),
    "olmo2": lambda rng: hf.Olmo2Config(**common(rng, attention_bias=flag(rng))),
    "opt": opt,
    "phi": lambda rng: hf.PhiConfig(**partial(common(rng, qk_layernorm=flag(rng)), rng)),
    "phi3": phi3,
    "qwen2": lambda rng: hf.Qwen2Config(**common(rng, use_sliding_window=flag(rng), sliding_window=WINDOW, max_window_layers=1)),
    "qwen3": qwen3,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": lambda rng: hf.Starcoder2Config(**common(rng, use_bias=flag(rng), sliding_window=one(rng, None, WINDOW))),
}


def write_model(family: str, seed: int, folder: Path) -> None:
    """A folder as transformers saves it, with random float64 weights of which none is trivial."""
    model = AutoModelForCausalLM.from_config(DRAWS[family](np.random.default_rng(seed))).double()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
            fan_in = parameter.shape[0 if "c_" in name and family == "gpt2" else -1]
            parameter.copy_(0.8 * drawn * fan_in**-0.5 if parameter.ndim > 1 else 0.3 * drawn + (parameter != 0))
    model.save_pretrained(folder)


def read_model(folder: Path, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """A folder as transformers reads it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def observe(model: PreTrainedModel, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """One unpadded prompt, int [T]: logits [T, V], what each block gives [L, T, d], attention [L, H, T, T]."""
    (blocks,) = (
        module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and "Norm" not in str(module[0])[:9]
    )
    given: list[torch.Tensor] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        given.append(output[0] if isinstance(output, tuple) else output)

    hooks = [block.register_forward_hook(keep) for block in blocks]
    try:
        output = model(input_ids=torch.as_tensor(tokens)[None], output_attentions=True, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        "logits": as_numpy(output.logits)[0],
        "resid": np.stack([as_numpy(x).reshape(len(tokens), -1) for x in given]),
        "attention": np.stack([as_numpy(x)[0] for x in output.attentions]),
    }


def stated(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))
