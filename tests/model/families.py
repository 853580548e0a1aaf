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

VOCABULARY, LAYERS, WINDOW, CONTEXT = 41, 2, 4, 32
LENGTHS = (6, 11)  # the longer one beyond every window, and beyond the original context of LongRoPE
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}  # the other kinds of experts have no float64
Draw = Callable[["Turn"], PreTrainedConfig]


class Turn:
    """Takes choices in turn, in an order of each one's own: over as many seeds as there are options, each is taken once."""

    def __init__(self, seed: int):
        self.seed, self.rng = seed, np.random.default_rng(0)

    def one(self, *options: Any) -> Any:
        """One of them."""
        rounds = max(3, len(options))
        return options[self.rng.permutation(rounds)[self.seed % rounds] % len(options)]

    def flag(self) -> bool:
        """True or false."""
        return bool(self.one(False, True))


def common(turn: Turn, **more: Any) -> dict[str, Any]:
    """Sizes, tying, rotary base and a head width as most families spell them."""
    heads, kv_heads = turn.one((4, 4), (4, 2), (2, 1), (6, 2))
    head_dim = turn.one(4, 8)
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": heads * head_dim,
        "intermediate_size": turn.one(20, 23, 28),
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": turn.flag(),
        "rope_parameters": {"rope_theta": turn.one(100.0, 500.0), "rope_type": "default"},
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **more,
    }


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The values but for those of some keys."""
    return {key: value for key, value in values.items() if key not in keys}


def partial(values: dict[str, Any], turn: Turn) -> dict[str, Any]:
    """The values with a part of each head rotated, at least two pairs wherever heads are wide enough."""
    values["rope_parameters"]["partial_rotary_factor"] = turn.one(0.5, 1.0)
    return values


def free_width(values: dict[str, Any], turn: Turn, *widths: int) -> dict[str, Any]:
    """The values with a head width of its own."""
    return values | {"head_dim": turn.one(*widths or (4, 6, 10))}


def even_width(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a family that states a head width and yet shares the width evenly."""
    return values | {"head_dim": values["hidden_size"] // values["num_attention_heads"]}


def gpt2(turn: Turn) -> PreTrainedConfig:
    heads = turn.one(2, 3)
    inner, act = turn.one(None, 20), turn.one("gelu_new", "relu", "gelu")
    return hf.GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=8 * heads, n_layer=LAYERS, n_head=heads, n_inner=inner,
        activation_function=act, scale_attn_weights=turn.flag(), scale_attn_by_inverse_layer_idx=turn.flag(),
        tie_word_embeddings=turn.flag(), bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def gpt_neox(turn: Turn) -> PreTrainedConfig:
    values = partial(without(common(turn), "num_key_value_heads"), turn)
    return hf.GPTNeoXConfig(
        **values, use_parallel_residual=turn.flag(), attention_bias=turn.flag(), hidden_act=turn.one("gelu", "gelu_fast")
    )


def opt(turn: Turn) -> PreTrainedConfig:
    heads, narrow = turn.one(2, 3), turn.flag()
    return hf.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=8 * heads, num_hidden_layers=LAYERS, num_attention_heads=heads, ffn_dim=20,
        max_position_embeddings=CONTEXT, do_layer_norm_before=not narrow, word_embed_proj_dim=12 if narrow else 8 * heads,
        enable_bias=turn.flag(), layer_norm_elementwise_affine=turn.flag(), activation_function=turn.one("relu", "gelu"),
        pad_token_id=1, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def bloom(turn: Turn) -> PreTrainedConfig:
    heads = turn.one(3, 4, 6)
    return hf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=4 * heads, n_layer=LAYERS, n_head=heads, tie_word_embeddings=turn.flag(),
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def falcon(turn: Turn) -> PreTrainedConfig:
    kind = turn.one("7b", "40b", "11b", "rw")  # as many options as seeds
    heads = 4
    values = {"vocab_size": VOCABULARY, "hidden_size": 6 * heads, "num_hidden_layers": LAYERS, "num_attention_heads": heads}
    values |= {"bias": turn.flag(), "max_position_embeddings": CONTEXT, "bos_token_id": None, "eos_token_id": None}
    kinds = {
        "7b": {"multi_query": True, "parallel_attn": True},
        "40b": {"new_decoder_architecture": True, "num_kv_heads": 2},
        "11b": {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
        "rw": {"multi_query": False, "parallel_attn": False, "alibi": False},
    }
    return hf.FalconConfig(**values, **kinds[kind], ffn_hidden_size=turn.one(None, 20))


def mpt(turn: Turn) -> PreTrainedConfig:
    heads = turn.one(3, 4, 6)
    attention = {"clip_qkv": turn.one(None, 0.5), "softmax_scale": turn.one(None, 0.3)}
    return hf.MptConfig(
        d_model=4 * heads, n_heads=heads, n_layers=LAYERS, max_seq_len=CONTEXT, vocab_size=VOCABULARY, attn_config=attention
    )


def phi3(turn: Turn) -> PreTrainedConfig:
    values = common(turn, sliding_window=turn.one(None, WINDOW), original_max_position_embeddings=8)
    if turn.flag():
        pairs = values["hidden_size"] // values["num_attention_heads"] // 2
        factors = {name: (1 + 3 * turn.rng.random(pairs)).tolist() for name in ("short_factor", "long_factor")}
        values["rope_parameters"] |= {"rope_type": "longrope", "original_max_position_embeddings": 8, **factors}
    return hf.Phi3Config(**values)


def granite(turn: Turn) -> PreTrainedConfig:
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 2.5}
    return hf.GraniteConfig(**common(turn, attention_bias=turn.flag(), mlp_bias=turn.flag()), **factors)


def granitemoe(turn: Turn) -> PreTrainedConfig:
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 2.5}
    return hf.GraniteMoeConfig(**without(mixture(turn, attention_bias=turn.flag()), "sliding_window"), **factors)


def granite4(turn: Turn) -> PreTrainedConfig:
    """A dense Granite 4: its file states a hybrid whose every layer has attention, and no routed experts."""
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 2.5}
    dense = {"num_local_experts": 0, "shared_intermediate_size": turn.one(20, 23), "layer_types": ["full_attention"] * LAYERS}
    values = common(turn, attention_bias=turn.flag(), position_embedding_type=turn.one("rope", None))
    return hf.GraniteMoeHybridConfig(**values, **factors, **dense, mamba_n_heads=2)


def gemma3(turn: Turn) -> PreTrainedConfig:
    kinds = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
    kinds["sliding_attention"] = {"rope_type": "default", "rope_theta": 50.0}
    values = common(
        turn, rope_parameters=kinds, attention_bias=turn.flag(), sliding_window=WINDOW, query_pre_attn_scalar=turn.one(6, 8)
    )
    values["layer_types"] = turn.one(["sliding_attention", "full_attention"], ["full_attention"] * 2)
    return hf.Gemma3TextConfig(**free_width(values, turn))


def gemma2(turn: Turn, kind: type[PreTrainedConfig] = hf.Gemma2Config) -> PreTrainedConfig:
    caps = {"attn_logit_softcapping": turn.one(None, 2.0), "final_logit_softcapping": turn.one(None, 3.0)}
    values = common(turn, attention_bias=turn.flag(), sliding_window=WINDOW, query_pre_attn_scalar=turn.one(6, 8), **caps)
    return kind(**free_width(values, turn), hidden_activation=turn.one("gelu_pytorch_tanh", "gelu"))


def qwen3(turn: Turn) -> PreTrainedConfig:
    windows = {"use_sliding_window": turn.flag(), "sliding_window": WINDOW, "max_window_layers": 1}
    return hf.Qwen3Config(**free_width(common(turn, attention_bias=turn.flag(), **windows), turn))


def smollm3(turn: Turn) -> PreTrainedConfig:
    values = common(turn, attention_bias=turn.flag(), mlp_bias=turn.flag(), no_rope_layers=turn.one([1, 0], [0, 1]))
    return hf.SmolLM3Config(**values, use_sliding_window=turn.flag(), sliding_window=WINDOW)


def mixture(turn: Turn, count: str = "num_local_experts", **more: Any) -> dict[str, Any]:
    """The values of a mixture of experts. count: the key of their number."""
    more[count] = turn.one(3, 5)
    return common(turn, num_experts_per_tok=turn.one(1, 2, 3), sliding_window=turn.one(None, WINDOW), **more)


def qwen3_moe(turn: Turn) -> PreTrainedConfig:
    sizes = {"moe_intermediate_size": 20, "head_dim": 6, "use_sliding_window": False}
    values = mixture(turn, "num_experts", **sizes, norm_topk_prob=turn.flag())
    return hf.Qwen3MoeConfig(**values, attention_bias=turn.flag())


def gpt_oss(turn: Turn) -> PreTrainedConfig:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False, "rope_theta": 500.0}
    values = mixture(turn, rope_parameters=yarn, head_dim=8) | {"sliding_window": WINDOW}
    return hf.GptOssConfig(**values, swiglu_limit=turn.one(0.5, 7.0))


def stablelm(turn: Turn) -> PreTrainedConfig:
    values = partial(common(turn, use_qkv_bias=turn.flag()), turn)
    return hf.StableLmConfig(**values, qk_layernorm=turn.flag(), use_parallel_residual=turn.flag())


def cohere(turn: Turn) -> PreTrainedConfig:
    return hf.CohereConfig(**common(turn, logit_scale=0.4, use_qk_norm=turn.flag(), attention_bias=turn.flag()))


def cohere2(turn: Turn) -> PreTrainedConfig:
    kinds = turn.one(["sliding_attention", "full_attention"], ["full_attention"] * 2)
    return hf.Cohere2Config(**common(turn, logit_scale=0.4, attention_bias=turn.flag(), sliding_window=WINDOW, layer_types=kinds))


def glm(turn: Turn) -> dict[str, Any]:
    """The values of a GLM or a GLM-4."""
    return free_width(partial(common(turn, attention_bias=turn.flag()), turn), turn, 4, 8, 12)


def olmo3(turn: Turn) -> PreTrainedConfig:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 500.0}
    rope = {"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
    kinds = turn.one(["sliding_attention", "full_attention"], ["full_attention"] * 2)
    return hf.Olmo3Config(
        **common(turn, rope_parameters=rope, attention_bias=turn.flag(), sliding_window=WINDOW, layer_types=kinds)
    )


def exaone4(turn: Turn) -> PreTrainedConfig:
    size = turn.one(None, WINDOW, WINDOW)
    kinds = ["sliding_attention", "full_attention"] if size else ["full_attention"] * 2
    return hf.Exaone4Config(**free_width(common(turn, sliding_window=size, layer_types=kinds), turn))


def seed_oss(turn: Turn) -> PreTrainedConfig:
    biases = {f"{which}_bias": turn.flag() for which in ("attention", "attention_out", "mlp")}
    return hf.SeedOssConfig(**free_width(common(turn, **biases), turn))


def ministral(turn: Turn) -> PreTrainedConfig:
    kinds = turn.one(["sliding_attention", "full_attention"], ["full_attention"] * 2, ["sliding_attention"] * 2)
    return hf.MinistralConfig(**free_width(common(turn, sliding_window=WINDOW, layer_types=kinds), turn))


def olmoe(turn: Turn, kind: type[PreTrainedConfig] = hf.OlmoeConfig) -> PreTrainedConfig:
    values = mixture(turn, "num_experts", norm_topk_prob=turn.flag(), attention_bias=turn.flag())
    return kind(**without(values, "sliding_window"))


def apertus(turn: Turn) -> PreTrainedConfig:
    return hf.ApertusConfig(**common(turn, attention_bias=turn.flag(), hidden_act=turn.one("xielu", "xielu", "relu2")))


def hunyuan(turn: Turn) -> PreTrainedConfig:
    values = free_width(common(turn, attention_bias=turn.flag()), turn)
    values["rope_parameters"] |= turn.one({}, {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0})
    return hf.HunYuanDenseV1Config(**values)


def ministral3(turn: Turn) -> PreTrainedConfig:
    """The longer prompt has positions in three original contexts."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4, "rope_theta": 500.0}
    yarn |= {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.7}
    return hf.Ministral3Config(**free_width(common(turn, rope_parameters=yarn, sliding_window=turn.one(None, WINDOW)), turn))


DRAWS: dict[str, Draw] = {
    "apertus": apertus,
    "arcee": lambda turn: hf.ArceeConfig(**free_width(common(turn, attention_bias=turn.flag(), mlp_bias=turn.flag()), turn)),
    "bloom": bloom,
    "cohere": cohere,
    "cohere2": cohere2,
    "ernie4_5": lambda turn: hf.Ernie4_5Config(**free_width(common(turn, use_bias=turn.flag()), turn)),
    "exaone": lambda turn: hf.ExaoneConfig(**free_width(common(turn, attention_bias=turn.flag(), mlp_bias=turn.flag()), turn)),
    "exaone4": exaone4,
    "falcon": falcon,
    "flex_olmo": lambda turn: olmoe(turn, hf.FlexOlmoConfig),
    "gemma": lambda turn: hf.GemmaConfig(**free_width(common(turn, attention_bias=turn.flag()), turn)),
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "glm": lambda turn: hf.GlmConfig(**glm(turn)),
    "glm4": lambda turn: hf.Glm4Config(**glm(turn)),
    "gpt2": gpt2,
    "gpt_oss": gpt_oss,
    "gpt_neox": gpt_neox,
    "granite": granite,
    "granitemoe": granitemoe,
    "granitemoehybrid": granite4,
    "helium": lambda turn: hf.HeliumConfig(**even_width(common(turn, attention_bias=turn.flag(), mlp_bias=turn.flag()))),
    "hunyuan_v1_dense": hunyuan,
    "llama": lambda turn: hf.LlamaConfig(**free_width(common(turn, attention_bias=turn.flag(), mlp_bias=turn.flag()), turn)),
    "ministral": ministral,
    "ministral3": ministral3,
    "mistral": lambda turn: hf.MistralConfig(**free_width(common(turn, sliding_window=turn.one(None, WINDOW)), turn)),
    "mixtral": lambda turn: hf.MixtralConfig(**free_width(mixture(turn), turn)),
    "mpt": mpt,
    "nemotron": lambda turn: hf.NemotronConfig(
        **partial(common(turn, hidden_act=turn.one("relu2", "silu"), attention_bias=turn.flag(), mlp_bias=turn.flag()), turn)
    ),
    "olmo": lambda turn: hf.OlmoConfig(**common(turn, attention_bias=turn.flag(), clip_qkv=turn.one(None, 0.5))),
    "olmo2": lambda turn: hf.Olmo2Config(**common(turn, attention_bias=turn.flag())),
    "olmo3": olmo3,
    "olmoe": olmoe,
    "opt": opt,
    "phi": lambda turn: hf.PhiConfig(**partial(common(turn, qk_layernorm=turn.flag()), turn)),
    "phi3": phi3,
    "qwen2": lambda turn: hf.Qwen2Config(
        **common(turn, use_sliding_window=turn.flag(), sliding_window=WINDOW, max_window_layers=1)
    ),
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "seed_oss": seed_oss,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": lambda turn: hf.Starcoder2Config(**common(turn, use_bias=turn.flag(), sliding_window=turn.one(None, WINDOW))),
    "vaultgemma": lambda turn: gemma2(turn, hf.VaultGemmaConfig),
}


def seeds(family: str) -> range:
    """Enough that every option of its draw is taken."""
    return range(4 if family == "falcon" else 3)


def write_model(family: str, seed: int, folder: Path) -> None:
    """A folder as transformers saves it, of a model drawn from the seed."""
    write_random(DRAWS[family](Turn(seed)), seed, folder)


def write_random(config: PreTrainedConfig, seed: int, folder: Path) -> None:
    """A folder as transformers saves it, of a random model."""
    random_model(config, seed).save_pretrained(folder)


def random_model(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """A model with random float64 weights of which none is trivial."""
    model = AutoModelForCausalLM.from_config(config, **EAGER).double().eval()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
            fan_in = parameter.shape[0 if ".c_" in name and config.model_type == "gpt2" else -1]
            parameter.copy_(0.8 * drawn * fan_in**-0.5 if parameter.ndim > 1 else 0.3 * drawn + (parameter != 0))
    return model


def read_model(folder: Path, dtype: torch.dtype = torch.float64, attention: str = "eager") -> PreTrainedModel:
    """A folder as transformers reads it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **EAGER | {"attn_implementation": attention}).eval()


@torch.no_grad()
def observe(
    model: PreTrainedModel, tokens: np.ndarray | None = None, embeddings: torch.Tensor | None = None
) -> dict[str, np.ndarray]:
    """Unpadded prompts, given as int [B, T] or as embeddings [B, T, d].

    Returns logits [B, T, V], hidden [B, L + 1, T, d] (the last before the final norm) and attention [B, L, H, T, T].
    """
    (blocks,) = (
        module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and "Norm" not in str(module[0])[:9]
    )
    hidden: list[torch.Tensor] = []

    def keep_input(module: Any, inputs: Any, options: Any) -> None:
        hidden.append(inputs[0] if inputs else options["hidden_states"])

    def keep(module: Any, inputs: Any, output: Any) -> None:
        hidden.append(output[0] if isinstance(output, tuple) else output)

    hooks = [blocks[0].register_forward_pre_hook(keep_input, with_kwargs=True)]
    hooks += [block.register_forward_hook(keep) for block in blocks]
    given = {"input_ids": torch.as_tensor(tokens)} if embeddings is None else {"inputs_embeds": embeddings}
    try:
        output = model(**given, output_attentions=True, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    logits = as_numpy(output.logits)
    return {
        "logits": logits,
        "hidden": np.stack([as_numpy(x).reshape(*logits.shape[:2], -1) for x in hidden], axis=1),
        "attention": np.stack([as_numpy(x) for x in output.attentions], axis=1),
    }


def as_numpy(x: torch.Tensor) -> np.ndarray:
    """A tensor as an array; bfloat16, which numpy lacks, as float32."""
    return (x.to(torch.float32) if x.dtype == torch.bfloat16 else x).detach().cpu().numpy()


def stated(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))
