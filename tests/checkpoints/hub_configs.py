"""Files named config.json as they are on the hub: for every model of `architectures`, and for further uploads of its families.

Each file is written out with all its keys, from the models' cards and repositories, transformers' documentation, and the sources
of libraries that quote the files. A series (Pythia, OPT, ...) states its common part once. Keys that only name versions are kept,
because a reader must let them pass. `HUB` and `FURTHER` are keyed by hub id.
"""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]


def file(model_type: str, cls: str, version: str, **values: Any) -> Values:
    """A file with the bookkeeping that transformers writes."""
    return {
        "architectures": [cls],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "transformers_version": version,
        "use_cache": True,
        "initializer_range": 0.02,
        **values,
    }


def shaped(width: int, mlp: int, layers: int, heads: int, kv_heads: int | None, vocabulary: int, context: int) -> Values:
    """Sizes under the common keys; kv_heads None: the file does not state them."""
    found = {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
    }
    return found if kv_heads is None else {**found, "num_key_value_heads": kv_heads}


# BLOOM. The 560m names the width n_embed and the heads num_attention_heads; the larger ones state hidden_size and n_head too.
BLOOM = file(
    "bloom",
    "BloomForCausalLM",
    "4.20.0",
    apply_residual_connection_post_layernorm=False,
    attention_dropout=0.0,
    attention_softmax_in_fp32=True,
    bias_dropout_fusion=True,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=3,
    unk_token_id=0,
    hidden_dropout=0.0,
    layer_norm_epsilon=1e-5,
    masked_softmax_fusion=True,
    n_inner=None,
    offset_alibi=100,
    pretraining_tp=1,
    seq_length=2048,
    skip_bias_add=True,
    skip_bias_add_qkv=False,
    slow_but_exact=False,
    vocab_size=250880,
)


def bloom(width: int, layers: int, heads: int, *, both: bool = True) -> Values:
    own = {"n_embed": width, "n_layer": layers, "num_attention_heads": heads}
    return {**BLOOM, **own, **({"hidden_size": width, "n_head": heads} if both else {})}


def falcon(**values: Any) -> Values:
    code = {"AutoConfig": "configuration_falcon.FalconConfig", "AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM"}
    return file(
        "falcon",
        "FalconForCausalLM",
        "4.27.4",
        alibi=False,
        apply_residual_connection_post_layernorm=False,
        attention_dropout=0.0,
        auto_map=code,
        bias=False,
        bos_token_id=11,
        eos_token_id=11,
        hidden_dropout=0.0,
        layer_norm_epsilon=1e-5,
        parallel_attn=True,
        vocab_size=65024,
        **values,
    )


def gemma(version: str, *shape: int, **values: Any) -> Values:
    common = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    common |= {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, **shaped(*shape)}
    kind, cls = {"1": ("gemma", "Gemma"), "2": ("gemma2", "Gemma2"), "3": ("gemma3_text", "Gemma3")}[version]
    return file(kind, f"{cls}ForCausalLM", "4.42.4", **{**common, **values})


def gemma2(*shape: int, head_dim: int, scalar: int) -> Values:
    return gemma(
        "2",
        *shape,
        256000,
        8192,
        head_dim=head_dim,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        cache_implementation="hybrid",
        hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=scalar,
        sliding_window=4096,
    )


def gemma3(*shape: int, head_dim: int, scalar: int) -> Values:
    """The text part of a file of gemma3, with the defaults that it leaves out."""
    own = {"head_dim": head_dim, "query_pre_attn_scalar": scalar, "sliding_window": 1024, "rope_theta": 1000000.0}
    own |= {"rope_local_base_freq": 10000.0, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    own |= {"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": None, "final_logit_softcapping": None}
    return gemma("3", *shape, 262208, 131072, **own, sliding_window_pattern=6)


def gpt2(layers: int, heads: int, width: int, **more: Any) -> Values:
    return {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "embd_pdrop": 0.1,
        "eos_token_id": 50256,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": width,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
        **more,
    }


def neox(*shape: int, version: str = "4.24.0", **more: Any) -> Values:
    width, mlp, layers, heads, vocabulary = shape
    return file(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        version,
        bos_token_id=0,
        eos_token_id=0,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
        rotary_emb_base=10000,
        rotary_pct=0.25,
        tie_word_embeddings=False,
        use_parallel_residual=True,
        **shaped(width, mlp, layers, heads, None, vocabulary, 2048),
    ) | {"torch_dtype": "float16", **more}


SMALLEST = {"attention_bias": True, "attention_dropout": 0.0, "classifier_dropout": 0.1, "hidden_dropout": 0.0}
SMALLEST |= {"rope_scaling": None}


def gpt_oss(layers: int, experts: int) -> Values:
    return file(
        "gpt_oss",
        "GptOssForCausalLM",
        "4.55.0.dev0",
        attention_bias=True,
        attention_dropout=0.0,
        eos_token_id=200002,
        experts_per_token=4,
        head_dim=64,
        hidden_act="silu",
        initial_context_length=4096,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2),
        num_experts_per_tok=4,
        num_local_experts=experts,
        output_router_logits=False,
        pad_token_id=199999,
        quantization_config={
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
            "quant_method": "mxfp4",
        },
        rms_norm_eps=1e-5,
        rope_scaling={
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        rope_theta=150000,
        router_aux_loss_coef=0.9,
        sliding_window=128,
        swiglu_limit=7.0,
        tie_word_embeddings=False,
        **shaped(2880, 2880, layers, 64, 8, 201088, 131072),
    )


def granite(*shape: int, attention: float, logits: float) -> Values:
    return file(
        "granite",
        "GraniteForCausalLM",
        "4.46.0.dev0",
        attention_bias=False,
        attention_dropout=0.1,
        attention_multiplier=attention,
        bos_token_id=0,
        embedding_multiplier=12.0,
        eos_token_id=0,
        hidden_act="silu",
        logits_scaling=logits,
        mlp_bias=False,
        pad_token_id=0,
        residual_multiplier=0.22,
        rms_norm_eps=1e-5,
        rope_scaling=None,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        **shaped(*shape, 49155, 4096),
    )


def llama(version: str, *shape: int | None, **more: Any) -> Values:
    common = {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    return file("llama", "LlamaForCausalLM", version, **{**common, **shaped(*shape), **more})  # type: ignore[arg-type]


LLAMA3 = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
LLAMA_30 = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "pretraining_tp": 1,
    "rope_theta": 500000.0,
}
LLAMA_32 = LLAMA_30 | {"head_dim": 128, "mlp_bias": False, "rope_scaling": LLAMA3, "tie_word_embeddings": True}


def mistral(kind: str, *shape: int, **more: Any) -> Values:
    cls = {"mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM"}[kind]
    common = {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    return file(kind, cls, "4.34.0.dev0", **{**common, **shaped(*shape), **more})


MIXTURE = {"attention_dropout": 0.0, "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": False}
MIXTURE |= {"rope_theta": 1e6, "router_aux_loss_coef": 0.02, "sliding_window": None}


def mpt(width: int, heads: int, layers: int, context: int) -> Values:
    return {
        "architectures": ["MPTForCausalLM"],
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": 8,
            "attn_impl": "torch",
            "attn_pdrop": 0,
            "attn_type": "multihead_attention",
            "attn_uses_sequence_id": False,
            "clip_qkv": None,
            "prefix_lm": False,
            "qk_ln": False,
            "softmax_scale": None,
        },
        "auto_map": {"AutoConfig": "configuration_mpt.MPTConfig", "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM"},
        "d_model": width,
        "emb_pdrop": 0,
        "embedding_fraction": 1.0,
        "expansion_ratio": 4,
        "init_config": {
            "emb_init_std": None,
            "emb_init_uniform_lim": None,
            "fan_mode": "fan_in",
            "init_div_is_residual": True,
            "init_gain": 0,
            "init_nonlinearity": "relu",
            "init_std": 0.02,
            "name": "kaiming_normal_",
            "verbose": 0,
        },
        "init_device": "cpu",
        "learned_pos_emb": True,
        "logit_scale": None,
        "max_seq_len": context,
        "model_type": "mpt",
        "n_heads": heads,
        "n_layers": layers,
        "no_bias": True,
        "norm_type": "low_precision_layernorm",
        "resid_pdrop": 0,
        "tokenizer_name": "EleutherAI/gpt-neox-20b",
        "torch_dtype": "bfloat16",
        "transformers_version": "4.28.1",
        "use_cache": False,
        "verbose": 0,
        "vocab_size": 50432,
    }


# Minitron. The width of a head is kv_channels in NVIDIA's own files, and head_dim in those for transformers.
def minitron(*shape: int, **more: Any) -> Values:
    return file(
        "nemotron",
        "NemotronForCausalLM",
        "4.32.0.dev0",
        bos_token_id=2,
        eos_token_id=3,
        hidden_act="relu2",
        norm_eps=1e-5,
        rope_theta=10000,
        partial_rotary_factor=0.5,
        tie_word_embeddings=False,
        **shaped(*shape, 256000, 4096),
    ) | {"initializer_range": 0.0134, **more}


def olmo(version: str, cls: str, *shape: int, **more: Any) -> Values:
    common = {"attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu", "rope_scaling": None}
    return file(cls.lower(), f"{cls}ForCausalLM", version, **{**common, **shaped(*shape), **more})


OLMO1 = {"clip_qkv": None, "eos_token_id": 50279, "pad_token_id": 1, "pretraining_tp": 1, "rope_theta": 10000.0}
OLMO2 = {"eos_token_id": 100257, "pad_token_id": 100277, "rms_norm_eps": 1e-6, "rope_theta": 500000, "tie_word_embeddings": False}


def opt(width: int, layers: int, heads: int, **more: Any) -> Values:
    values = {
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "architectures": ["OPTForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "do_layer_norm_before": True,
        "dropout": 0.1,
        "eos_token_id": 2,
        "ffn_dim": 4 * width,
        "hidden_size": width,
        "init_std": 0.02,
        "layerdrop": 0.0,
        "max_position_embeddings": 2048,
        "model_type": "opt",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "pad_token_id": 1,
        "prefix": "</s>",
        "torch_dtype": "float16",
        "transformers_version": "4.21.0.dev0",
        "use_cache": True,
        "vocab_size": 50272,
        "word_embed_proj_dim": width,
    }
    return {**values, **more}


def phi(*shape: int | None, partial: float, **more: Any) -> Values:
    return file(
        "phi",
        "PhiForCausalLM",
        "4.37.0",
        attention_dropout=0.0,
        bos_token_id=None,
        embd_pdrop=0.0,
        eos_token_id=None,
        hidden_act="gelu_new",
        layer_norm_eps=1e-5,
        partial_rotary_factor=partial,
        qk_layernorm=False,
        resid_pdrop=0.0,
        rope_scaling=None,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        **shaped(*shape, 51200, 2048),  # type: ignore[arg-type]
    ) | {"_name_or_path": "microsoft/phi", "torch_dtype": "float16", **more}


def phi3(*shape: int, window: int | None, **more: Any) -> Values:
    code = {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}
    common = {
        "_name_or_path": "Phi-3-mini-4k-instruct",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": code,
        "bos_token_id": 1,
        "embd_pdrop": 0.0,
        "eos_token_id": 32000,
        "hidden_act": "silu",
        "original_max_position_embeddings": 4096,
        "pad_token_id": 32000,
        "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": window,
        "tie_word_embeddings": False,
    }
    return file("phi3", "Phi3ForCausalLM", "4.40.2", **{**common, **shaped(*shape), **more})


def qwen2(*shape: int, windows: tuple[int, int], tied: bool, **more: Any) -> Values:
    common = {"attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu"}
    common |= {"max_window_layers": windows[0], "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": windows[1]}
    common |= {"tie_word_embeddings": tied, "use_mrope": False, "use_sliding_window": False}
    return file("qwen2", "Qwen2ForCausalLM", "4.40.1", **{**common, **shaped(*shape), **more})


def qwen3(kind: str, *shape: int, tied: bool = False, **more: Any) -> Values:
    common = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645}
    common |= {"head_dim": 128, "hidden_act": "silu", "max_window_layers": shape[2], "rms_norm_eps": 1e-6, "rope_scaling": None}
    common |= {"rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": tied, "use_sliding_window": False}
    cls = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}[kind]
    return file(kind, cls, "4.51.0", **{**common, **shaped(*shape, 151936, 40960), **more})


def qwen3_moe(*shape: int, width: int) -> Values:
    return qwen3(
        "qwen3_moe",
        *shape,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        moe_intermediate_size=width,
        norm_topk_prob=True,
        num_experts=128,
        num_experts_per_tok=8,
        output_router_logits=False,
        router_aux_loss_coef=0.001,
    )


def stablelm(*shape: int, **more: Any) -> Values:
    common = {"bos_token_id": 100257, "eos_token_id": 100257, "hidden_act": "silu", "layer_norm_eps": 1e-5}
    common |= {"partial_rotary_factor": 0.25, "rope_theta": 10000, "tie_word_embeddings": False}
    return file("stablelm", "StableLmForCausalLM", "4.38.0", **{**common, **shaped(*shape), **more})


def starcoder2(*shape: int, theta: float) -> Values:
    return file(
        "starcoder2",
        "Starcoder2ForCausalLM",
        "4.37.0.dev0",
        activation_function="gelu",
        attention_dropout=0.1,
        attention_softmax_in_fp32=True,
        bos_token_id=0,
        embedding_dropout=0.1,
        eos_token_id=0,
        hidden_act="gelu_pytorch_tanh",
        layer_norm_epsilon=1e-5,
        mlp_type="default",
        norm_epsilon=1e-5,
        norm_type="layer_norm",
        residual_dropout=0.1,
        rope_theta=theta,
        scale_attention_softmax_in_fp32=True,
        scale_attn_weights=True,
        sliding_window=4096,
        use_bias=True,
        **shaped(*shape, 49152, 16384),
    ) | {"initializer_range": 0.018042}


def cohere(version: str, *shape: int, **more: Any) -> Values:
    common = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 5, "eos_token_id": 255001, "pad_token_id": 0}
    common |= {"hidden_act": "silu", "layer_norm_eps": 1e-5, **shaped(*shape, 256000, 8192)}
    kind, cls = {"1": ("cohere", "Cohere"), "2": ("cohere2", "Cohere2")}[version]
    return file(kind, f"{cls}ForCausalLM", "4.48.0.dev0", **{**common, **more})


def glm(version: str, context: int, eps: float) -> Values:
    cls = {"glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM"}[version]
    common = {"attention_bias": True, "attention_dropout": 0.0, "eos_token_id": [151329, 151336, 151338], "head_dim": 128}
    common |= {"hidden_act": "silu", "pad_token_id": 151329, "partial_rotary_factor": 0.5, "rms_norm_eps": eps}
    common |= {"rope_theta": 10000.0, "tie_word_embeddings": False}
    return file(version, cls, "4.52.0.dev0", **common, **shaped(4096, 13696, 40, 32, 2, 151552, context))


def olmo3(*shape: int) -> Values:
    kinds = ["full_attention" if (layer + 1) % 4 == 0 else "sliding_attention" for layer in range(shape[2])]
    scaling = {"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0}
    scaling |= {"original_max_position_embeddings": 8192, "rope_type": "yarn"}
    common = {"attention_bias": False, "attention_dropout": 0.0, "eos_token_id": 100257, "pad_token_id": 100277}
    common |= {"hidden_act": "silu", "layer_types": kinds, "rms_norm_eps": 1e-6, "rope_scaling": scaling, "rope_theta": 500000}
    common |= {"sliding_window": 4096, "tie_word_embeddings": False}
    return file("olmo3", "Olmo3ForCausalLM", "4.57.1", **common, **shaped(*shape, 100278, 65536))


def exaone4(*shape: int, context: int, **more: Any) -> Values:
    scaling = {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
    common = {"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 361, "hidden_act": "silu", "pad_token_id": 0}
    common |= {"rms_norm_eps": 1e-5, "rope_scaling": scaling | {"rope_type": "llama3"}, "rope_theta": 1000000}
    return file("exaone4", "Exaone4ForCausalLM", "4.54.0.dev0", **common, **shaped(*shape, 102400, context), **more)


def apertus(*shape: int) -> Values:
    scaling = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
    common = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    common |= {"hidden_act": "xielu", "hidden_dropout": 0.0, "mlp_bias": False, "post_norm": False, "qk_norm": True}
    common |= {"rms_norm_eps": 1e-5, "rope_scaling": scaling | {"rope_type": "llama3", "type": "llama3"}}
    common |= {"rope_theta": 12000000, "tie_word_embeddings": False}
    return file("apertus", "ApertusForCausalLM", "4.56.0", **common, **shaped(*shape, 131072, 65536))


def ministral3(*shape: int, tied: bool) -> Values:
    """The text part of a file of mistral3, which is where these models stand."""
    rope = {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0}
    rope |= {"mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0}
    common = {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5, "sliding_window": None}
    common |= {"rope_parameters": rope | {"rope_type": "yarn", "type": "yarn"}, "tie_word_embeddings": tied}
    return file("ministral3", "Ministral3ForCausalLM", "5.0.0.dev0", **common, **shaped(*shape, 131072, 262144))


HUB: dict[str, Values] = {
    "google/gemma-3-4b-pt": gemma3(2560, 10240, 34, 8, 4, head_dim=256, scalar=256),
    "google/gemma-3-12b-pt": gemma3(3840, 15360, 48, 16, 8, head_dim=256, scalar=256),
    "google/gemma-3-27b-pt": gemma3(5376, 21504, 62, 32, 16, head_dim=128, scalar=168),
    "swiss-ai/Apertus-8B-Instruct-2509": apertus(4096, 21504, 32, 32, 8),
    "swiss-ai/Apertus-70B-Instruct-2509": apertus(8192, 43008, 80, 64, 8),
    "mistralai/Ministral-3-3B-Base-2512": ministral3(3072, 9216, 26, 32, 8, tied=True),
    "mistralai/Ministral-3-8B-Base-2512": ministral3(4096, 14336, 34, 32, 8, tied=False),
    "mistralai/Ministral-3-14B-Base-2512": ministral3(5120, 16384, 40, 32, 8, tied=False),
    "tencent/Hunyuan-MT-7B": file(
        "hunyuan_v1_dense",
        "HunYuanDenseV1ForCausalLM",
        "4.41.2",
        add_classification_head=False,
        attention_bias=False,
        attention_dropout=0.0,
        attention_head_dim=128,
        bos_token_id=1,
        head_dim=128,
        hidden_act="silu",
        mlp_bias=False,
        pad_token_id=0,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        use_qk_norm=True,
        use_rotary_pos_emb=True,
        rope_scaling={
            "alpha": 100000.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "type": "dynamic",
        },
        **shaped(4096, 14336, 32, 32, 8, 128256, 32768),
    ),
    "CohereForAI/c4ai-command-r-v01": cohere(
        "1", 8192, 22528, 40, 64, 64, logit_scale=0.0625, model_max_length=131072, pretraining_tp=1, rope_theta=8000000.0
    ),
    "CohereForAI/c4ai-command-r-plus": cohere(
        "1",
        12288,
        33792,
        64,
        96,
        8,
        logit_scale=0.8333333333333334,
        model_max_length=131072,
        pretraining_tp=1,
        rope_theta=75000000.0,
        use_qk_norm=True,
    ),
    "CohereForAI/aya-23-8B": cohere(
        "1", 4096, 14336, 32, 32, 8, logit_scale=0.0625, pretraining_tp=1, rope_theta=10000, use_qk_norm=False
    ),
    "CohereForAI/c4ai-command-r7b-12-2024": cohere(
        "2",
        4096,
        14336,
        32,
        32,
        8,
        cache_implementation="hybrid",
        head_dim=128,
        layer_switch=4,
        logit_scale=0.25,
        order_of_interleaved_layers="local_attn_first",
        position_embedding_type="rope_gptj",
        rope_scaling=None,
        rope_theta=50000,
        rotary_pct=1.0,
        sliding_window=4096,
        sliding_window_pattern=4,
        use_embedding_sharing=True,
        use_gated_activation=True,
        use_parallel_block=True,
        use_parallel_embedding=True,
    ),
    "baidu/ERNIE-4.5-0.3B-PT": file(
        "ernie4_5",
        "Ernie4_5ForCausalLM",
        "4.54.0.dev0",
        bos_token_id=1,
        eos_token_id=2,
        head_dim=128,
        hidden_act="silu",
        pad_token_id=0,
        rms_norm_eps=1e-5,
        rope_scaling=None,
        rope_theta=500000,
        tie_word_embeddings=True,
        use_bias=False,
        **shaped(1024, 3072, 18, 16, 2, 103424, 131072),
    ),
    "LGAI-EXAONE/EXAONE-4.0-1.2B": exaone4(
        2048,
        4096,
        30,
        32,
        8,
        context=65536,
        head_dim=64,
        layer_types=["full_attention"] * 30,
        sliding_window=None,
        sliding_window_pattern=None,
        tie_word_embeddings=True,
    ),
    "LGAI-EXAONE/EXAONE-4.0-32B": exaone4(
        5120,
        27392,
        64,
        40,
        8,
        context=131072,
        head_dim=128,
        sliding_window=4096,
        sliding_window_pattern="LLLG",
        tie_word_embeddings=False,
        layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16,
        reorder_qk_norm=True,
    ),
    "THUDM/glm-4-9b-hf": glm("glm", 8192, 1.5625e-07),
    "THUDM/GLM-4-9B-0414": glm("glm4", 32768, 1e-5),
    "kyutai/helium-1-preview-2b": file(
        "helium",
        "HeliumForCausalLM",
        "4.48.0.dev0",
        attention_bias=False,
        attention_dropout=0.0,
        bos_token_id=1,
        eos_token_id=2,
        head_dim=128,
        hidden_act="silu",
        mlp_bias=False,
        pad_token_id=3,
        rms_norm_eps=1e-8,
        rope_theta=100000.0,
        tie_word_embeddings=False,
        **shaped(2560, 7040, 24, 20, 20, 48000, 4096),
    ),
    "allenai/Olmo-3-1025-7B": olmo3(4096, 11008, 32, 32, 32),
    "allenai/Olmo-3-1125-32B": olmo3(5120, 27648, 64, 40, 8),
    "allenai/OLMoE-1B-7B-0924": file(
        "olmoe",
        "OlmoeForCausalLM",
        "4.43.0.dev0",
        attention_bias=False,
        attention_dropout=0.0,
        clip_qkv=None,
        eos_token_id=50279,
        hidden_act="silu",
        norm_topk_prob=False,
        num_experts=64,
        num_experts_per_tok=8,
        output_router_logits=False,
        pad_token_id=1,
        rms_norm_eps=1e-5,
        rope_scaling=None,
        rope_theta=10000.0,
        router_aux_loss_coef=0.01,
        tie_word_embeddings=False,
        **shaped(2048, 1024, 16, 16, 16, 50304, 4096),
    ),
    "ByteDance-Seed/Seed-OSS-36B-Base": file(
        "seed_oss",
        "SeedOssForCausalLM",
        "4.55.0",
        attention_bias=True,
        attention_dropout=0.1,
        attention_out_bias=False,
        bos_token_id=0,
        eos_token_id=2,
        head_dim=128,
        hidden_act="silu",
        mlp_bias=False,
        pad_token_id=1,
        pretraining_tp=1,
        residual_dropout=0.1,
        rms_norm_eps=1e-6,
        rope_scaling={"rope_type": "default"},
        rope_theta=10000000.0,
        tie_word_embeddings=False,
        **shaped(5120, 27648, 64, 80, 8, 155136, 524288),
    ),
    "bigscience/bloom-560m": bloom(1024, 24, 16, both=False),
    "bigscience/bloom-1b1": bloom(1536, 24, 16),
    "bigscience/bloom-1b7": bloom(2048, 24, 16),
    "bigscience/bloom-3b": bloom(2560, 30, 32),
    "bigscience/bloom-7b1": bloom(4096, 30, 32),
    "bigscience/bloom": bloom(14336, 70, 112),
    "tiiuae/falcon-7b": falcon(
        hidden_size=4544, num_attention_heads=71, num_hidden_layers=32, multi_query=True, new_decoder_architecture=False
    ),
    "tiiuae/falcon-40b": falcon(
        hidden_size=8192, num_attention_heads=128, num_hidden_layers=60, num_kv_heads=8, new_decoder_architecture=True
    ),
    "google/gemma-2b": gemma(
        "1", 2048, 16384, 18, 8, 1, 256000, 8192, head_dim=256, hidden_act="gelu", hidden_activation=None, rope_scaling=None
    ),
    "google/gemma-7b": gemma(
        "1", 3072, 24576, 28, 16, 16, 256000, 8192, head_dim=256, hidden_act="gelu", hidden_activation=None, rope_scaling=None
    ),
    "google/gemma-2-2b": gemma2(2304, 9216, 26, 8, 4, head_dim=256, scalar=256),
    "google/gemma-2-9b": gemma2(3584, 14336, 42, 16, 8, head_dim=256, scalar=256),
    "google/gemma-2-27b": gemma2(4608, 36864, 46, 32, 16, head_dim=128, scalar=144),
    "google/gemma-3-1b-pt": gemma(
        "3",
        1152,
        6912,
        26,
        4,
        1,
        262144,
        32768,
        attn_logit_softcapping=None,
        cache_implementation="hybrid",
        final_logit_softcapping=None,
        head_dim=256,
        hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256,
        rope_local_base_freq=10000,
        rope_scaling=None,
        rope_theta=1000000,
        sliding_window=512,
        sliding_window_pattern=6,
    ),
    "openai-community/gpt2": gpt2(12, 12, 768),
    "openai-community/gpt2-medium": gpt2(24, 16, 1024, n_special=0, predict_special_tokens=True),
    "openai-community/gpt2-large": gpt2(36, 20, 1280),
    "openai-community/gpt2-xl": gpt2(48, 25, 1600, output_past=True),
    "EleutherAI/pythia-14m": neox(128, 512, 6, 4, 50304, version="4.37.0", **SMALLEST),
    "EleutherAI/pythia-31m": neox(256, 1024, 6, 8, 50304, version="4.37.0", **SMALLEST),
    "EleutherAI/pythia-70m": neox(512, 2048, 6, 8, 50304),
    "EleutherAI/pythia-160m": neox(768, 3072, 12, 12, 50304),
    "EleutherAI/pythia-410m": neox(1024, 4096, 24, 16, 50304),
    "EleutherAI/pythia-1b": neox(2048, 8192, 16, 8, 50304),
    "EleutherAI/pythia-1.4b": neox(2048, 8192, 24, 16, 50304),
    "EleutherAI/pythia-2.8b": neox(2560, 10240, 32, 32, 50304),
    "EleutherAI/pythia-6.9b": neox(4096, 16384, 32, 32, 50432),
    "EleutherAI/pythia-12b": neox(5120, 20480, 36, 40, 50688),
    "EleutherAI/gpt-neox-20b": neox(
        6144,
        24576,
        44,
        64,
        50432,
        version="4.19.0.dev0",
        attention_probs_dropout_prob=0,
        hidden_act="gelu_fast",
        hidden_dropout_prob=0,
    ),
    "openai/gpt-oss-20b": gpt_oss(24, 32),
    "openai/gpt-oss-120b": gpt_oss(36, 128),
    "ibm-granite/granite-3.0-2b-base": granite(2048, 8192, 40, 32, 8, attention=0.015625, logits=8.0),
    "ibm-granite/granite-3.0-8b-base": granite(4096, 12800, 40, 32, 8, attention=0.0078125, logits=16.0),
    "meta-llama/Llama-2-7b-hf": llama(
        "4.31.0.dev0", 4096, 11008, 32, 32, 32, 32000, 4096, pretraining_tp=1, rope_scaling=None, torch_dtype="float16"
    ),
    "meta-llama/Meta-Llama-3-8B": llama("4.40.0.dev0", 4096, 14336, 32, 32, 8, 128256, 8192, **LLAMA_30, rope_scaling=None),
    "meta-llama/Llama-3.1-8B": llama(
        "4.43.0.dev0", 4096, 14336, 32, 32, 8, 128256, 131072, **LLAMA_30, mlp_bias=False, rope_scaling=LLAMA3 | {"factor": 8.0}
    ),
    "meta-llama/Llama-3.2-1B": llama("4.45.0.dev0", 2048, 8192, 16, 32, 8, 128256, 131072, **LLAMA_32 | {"head_dim": 64}),
    "meta-llama/Llama-3.2-3B": llama("4.45.0.dev0", 3072, 8192, 28, 24, 8, 128256, 131072, **LLAMA_32),
    "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T": llama(
        "4.31.0.dev0", 2048, 5632, 22, 32, 4, 32000, 2048, pretraining_tp=1, rope_scaling=None, torch_dtype="float32"
    ),
    "mistralai/Mistral-7B-v0.1": mistral(
        "mistral", 4096, 14336, 32, 32, 8, 32000, 32768, rope_theta=10000.0, sliding_window=4096
    ),
    "mistralai/Mixtral-8x7B-v0.1": mistral("mixtral", 4096, 14336, 32, 32, 8, 32000, 32768, **MIXTURE),
    "mistralai/Mixtral-8x22B-v0.1": mistral("mixtral", 6144, 16384, 56, 48, 8, 32000, 65536, router_jitter_noise=0.0, **MIXTURE),
    "mosaicml/mpt-7b": mpt(4096, 32, 32, 2048),
    "mosaicml/mpt-30b": mpt(7168, 64, 48, 8192),
    "nvidia/Minitron-4B-Base": minitron(3072, 9216, 32, 24, 8, head_dim=128),
    "nvidia/Minitron-8B-Base": minitron(4096, 16384, 32, 48, 8, head_dim=128),
    "allenai/OLMo-1B-hf": olmo("4.40.0", "Olmo", 2048, 8192, 16, 16, 16, 50304, 2048, **OLMO1, tie_word_embeddings=True),
    "allenai/OLMo-7B-hf": olmo("4.40.0", "Olmo", 4096, 11008, 32, 32, 32, 50304, 2048, **OLMO1, tie_word_embeddings=False),
    "allenai/OLMo-2-0425-1B": olmo("4.47.0", "Olmo2", 2048, 8192, 16, 16, 16, 100352, 4096, **OLMO2),
    "allenai/OLMo-2-1124-7B": olmo("4.47.0", "Olmo2", 4096, 11008, 32, 32, 32, 100352, 4096, **OLMO2),
    "allenai/OLMo-2-1124-13B": olmo("4.47.0", "Olmo2", 5120, 13824, 40, 40, 40, 100352, 4096, **OLMO2),
    "facebook/opt-125m": opt(768, 12, 12, _name_or_path="opt-125m"),
    "facebook/opt-350m": opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
    "facebook/opt-1.3b": opt(2048, 24, 32),
    "facebook/opt-2.7b": opt(2560, 32, 32),
    "facebook/opt-6.7b": opt(4096, 32, 32, _remove_final_layer_norm=False),
    "facebook/opt-13b": opt(5120, 40, 40, _remove_final_layer_norm=False),
    "facebook/opt-30b": opt(7168, 48, 56, _remove_final_layer_norm=False),
    "facebook/opt-66b": opt(9216, 64, 72, _remove_final_layer_norm=False),
    "microsoft/phi-1": phi(2048, 8192, 24, 32, None, partial=0.5, num_key_value_heads=None),
    "microsoft/phi-1_5": phi(2048, 8192, 24, 32, None, partial=0.5, num_key_value_heads=None),
    "microsoft/phi-2": phi(2560, 10240, 32, 32, 32, partial=0.4, bos_token_id=50256, eos_token_id=50256, resid_pdrop=0.1),
    "microsoft/Phi-3-mini-4k-instruct": phi3(3072, 8192, 32, 32, 32, 32064, 4096, window=2047),
    "microsoft/Phi-3-medium-4k-instruct": phi3(5120, 17920, 40, 40, 10, 32064, 4096, window=2047),
    "Qwen/Qwen2.5-0.5B": qwen2(896, 4864, 24, 14, 2, 151936, 32768, windows=(24, 32768), tied=True),
    "Qwen/Qwen2.5-7B": qwen2(3584, 18944, 28, 28, 4, 152064, 131072, windows=(28, 131072), tied=False),
    "Qwen/Qwen3-0.6B": qwen3("qwen3", 1024, 3072, 28, 16, 8, tied=True),
    "Qwen/Qwen3-1.7B": qwen3("qwen3", 2048, 6144, 28, 16, 8, tied=True),
    "Qwen/Qwen3-4B": qwen3("qwen3", 2560, 9728, 36, 32, 8, tied=True),
    "Qwen/Qwen3-8B": qwen3("qwen3", 4096, 12288, 36, 32, 8),
    "Qwen/Qwen3-14B": qwen3("qwen3", 5120, 17408, 40, 40, 8),
    "Qwen/Qwen3-32B": qwen3("qwen3", 5120, 25600, 64, 64, 8),
    "Qwen/Qwen3-30B-A3B": qwen3_moe(2048, 6144, 48, 32, 4, width=768),
    "Qwen/Qwen3-235B-A22B": qwen3_moe(4096, 12288, 94, 64, 4, width=1536),
    "HuggingFaceTB/SmolLM3-3B-Base": file(
        "smollm3",
        "SmolLM3ForCausalLM",
        "4.53.0.dev0",
        attention_bias=False,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=128001,
        hidden_act="silu",
        max_window_layers=28,
        mlp_bias=False,
        no_rope_layer_interval=4,
        no_rope_layers=[1, 1, 1, 0] * 9,
        pad_token_id=128004,
        pretraining_tp=2,
        rms_norm_eps=1e-6,
        rope_scaling=None,
        rope_theta=5000000.0,
        sliding_window=None,
        tie_word_embeddings=True,
        use_sliding_window=False,
        **shaped(2048, 11008, 36, 16, 4, 128256, 65536),
    ),
    "stabilityai/stablelm-3b-4e1t": stablelm(
        2560, 6912, 32, 32, 32, 50304, 4096, bos_token_id=0, eos_token_id=0, use_qkv_bias=False
    ),
    "stabilityai/stablelm-2-1_6b": stablelm(2048, 5632, 24, 32, 32, 100352, 4096, use_qkv_bias=True),
    "stabilityai/stablelm-2-12b": stablelm(
        5120,
        13824,
        40,
        32,
        8,
        100352,
        4096,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        qk_layernorm=True,
        rope_scaling=None,
        use_parallel_residual=True,
        use_qkv_bias=False,
    ),
    "bigcode/starcoder2-3b": starcoder2(3072, 12288, 30, 24, 2, theta=999999.4420358813),
    "bigcode/starcoder2-7b": starcoder2(4608, 18432, 32, 36, 4, theta=1000000),
    "bigcode/starcoder2-15b": starcoder2(6144, 24576, 40, 48, 4, theta=100000),
}

# Files of fine-tuning tools and of other releases of these families, with keys of their own.
LLAMA_1B = llama("4.47.0.dev0", 2048, 8192, 16, 32, 8, 128256, 131072, **{**LLAMA_32, "head_dim": 64})
FURTHER: dict[str, Values] = {
    "unsloth/Llama-3.2-1B": LLAMA_1B | {"pad_token_id": 128004, "unsloth_fixed": True},
    "unsloth/Qwen2.5-0.5B-Instruct": HUB["Qwen/Qwen2.5-0.5B"] | {"pad_token_id": 151654, "unsloth_fixed": True},
    "unsloth/Phi-3-mini-4k-instruct": mistral(
        "mistral", 3072, 8192, 32, 32, 32, 32064, 4096, attention_dropout=0.0, rope_theta=10000.0, sliding_window=2048
    )
    | {"unsloth_version": "2024.9", "unsloth_fixed": True, "attention_bias": False, "head_dim": 96},
    "unsloth/gemma-3-1b-it": HUB["google/gemma-3-1b-pt"]
    | {
        "_sliding_window_pattern": 6,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 4 + ["sliding_attention"] * 2,
    }
    | {"use_bidirectional_attention": False, "unsloth_fixed": True},
    "NousResearch/Llama-2-7b-hf": HUB["meta-llama/Llama-2-7b-hf"] | {"_flash_attn_2_enabled": True, "attention_bias": False},
    "lmsys/vicuna-7b-v1.5": HUB["meta-llama/Llama-2-7b-hf"] | {"tokenizer_model_max_length": 4096, "rope_theta": 10000.0},
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": llama(
        "4.43.0.dev0", 4096, 14336, 32, 32, 8, 128256, 131072, **{**LLAMA_32, "head_dim": None, "tie_word_embeddings": False}
    ),
    "HuggingFaceTB/SmolLM2-135M": llama("4.40.1", 576, 1536, 30, 9, 3, 49152, 8192, is_llama_config=True, rope_interleaved=False)
    | {"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "rope_theta": 100000, "tie_word_embeddings": True}
    | {"transformers.js_config": {"dtype": "q4"}, "rope_scaling": None, "bos_token_id": 0, "eos_token_id": 0},
    "mistralai/Mistral-7B-Instruct-v0.3": mistral(
        "mistral", 4096, 14336, 32, 32, 8, 32768, 32768, attention_dropout=0.0, rope_theta=1000000.0, sliding_window=None
    ),
    "mistralai/Mistral-Nemo-Base-2407": mistral(
        "mistral", 5120, 14336, 40, 32, 8, 131072, 128000, head_dim=128, rope_theta=1000000.0, sliding_window=None
    ),
    "mistralai/Ministral-8B-Instruct-2410": mistral(
        "mistral", 4096, 12288, 36, 32, 8, 131072, 32768, head_dim=128, rope_theta=100000000.0, sliding_window=32768
    )
    | {"attention_dropout": 0.0, "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 9},
    "tiiuae/falcon-rw-1b": falcon(hidden_size=2048, num_attention_heads=32, num_hidden_layers=24, multi_query=False)
    | {"alibi": True, "bias": True, "parallel_attn": False, "new_decoder_architecture": False, "vocab_size": 50304},
    "microsoft/phi-4": phi3(5120, 17920, 40, 40, 10, 100352, 16384, window=None)
    | {"original_max_position_embeddings": 16384, "rope_theta": 250000, "attention_bias": False},
    "microsoft/Phi-4-mini-instruct": phi3(3072, 8192, 32, 24, 8, 200064, 131072, window=262144, partial_rotary_factor=0.75)
    | {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False, "tie_word_embeddings": True}
    | {"rope_scaling": {"long_factor": [1.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"}},
    "nvidia/Minitron-4B-Base (NVIDIA's own spelling)": minitron(3072, 9216, 32, 24, 8, kv_channels=128),
    "openai-community/gpt2 (fine-tuned with transformers)": HUB["openai-community/gpt2"]
    | {"reorder_and_upcast_attn": False, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "n_inner": None}
    | {"add_cross_attention": False, "torch_dtype": "float32", "_name_or_path": "gpt2", "gradient_checkpointing": False},
}
