"""A Hugging Face config.json as a `Config`.

Every key is read, known to be without effect, or refused. No size, epsilon, activation, tying or context length is ever
invented. Only what published checkpoints really leave out, because transformers documents what its absence means, has a
default: those are `DEFAULTS`, and each one taken is reported for the provenance. Anything else that a file leaves out is an
error that names it, and `assume={key: value}` supplies it deliberately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.hf_rope import one_spelling, read_rope
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config, RMSNorm

MOST_LAYERS = 4096

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def _even_head_dim(fields: Fields) -> int:
    width, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if width % heads:
        raise SinkjaxError(f"{fields.where} states no head_dim, and hidden_size {width} is not a multiple of {heads} heads")
    return width // heads


# Key -> what its absence means, per model type. head_dim came with Llama 3.2 era configs; key-value heads with Llama 2;
# rope_theta with Code Llama, after Llama 2; the bias flags later still. Mistral and Qwen2 state theirs in every release.
DEFAULTS: dict[str, dict[str, Callable[[Fields], Any]]] = {
    "llama": {
        "head_dim": _even_head_dim,
        "num_key_value_heads": lambda fields: fields.integer("num_attention_heads"),
        "rope_theta": always(10000.0),
        "attention_bias": always(False),
        "mlp_bias": always(False),
    },
    "mistral": {"head_dim": _even_head_dim},
    "qwen2": {"head_dim": _even_head_dim, "use_sliding_window": always(False)},
}

# Keys that change neither weights nor forward: bookkeeping, training, generation and output options.
# fmt: off
INERT = frozenset(
    {
        "_name_or_path", "_attn_implementation_autoset", "architectures", "attention_dropout", "attn_pdrop",
        "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward", "diversity_penalty",
        "do_sample", "dtype", "early_stopping", "embd_pdrop", "encoder_no_repeat_ngram_size", "eos_token_id",
        "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
        "hidden_dropout", "hidden_dropout_prob", "id2label", "initializer_range", "is_llama_config", "label2id",
        "length_penalty", "max_length", "max_sequence_length", "min_length", "no_repeat_ngram_size", "num_beam_groups",
        "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "pad_token_id",
        "prefix", "pretraining_tp", "problem_type", "remove_invalid_values", "repetition_penalty", "resid_pdrop",
        "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature",
        "tf_legacy_loss", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers.js_config",
        "transformers_version", "typical_p", "unk_token_id", "use_bfloat16", "use_cache",
    }
)
# fmt: on

# Keys of which one value is supported, with which they are without effect.
FIXED = dict.fromkeys(("rope_interleaved", "use_mrope", "is_decoder", "is_encoder_decoder", "add_cross_attention"), False)


def read_config(
    values: Mapping[str, Any], where: str, ignore_keys: Collection[str] = (), assume: Mapping[str, Any] | None = None
) -> tuple[Config, dict[str, Any]]:
    """The architecture that a config.json states.

    values: the parsed file. where: names it in messages. ignore_keys: further keys to take as without effect. assume: values
    for keys that the file leaves out. Returns the config, and every value that the file did not state itself.
    Errors: a missing, unknown or contradictory key, a value of the wrong kind, an unsupported model type, activation or RoPE.
    """
    values, assume = dict(values), dict(assume or {})
    for key, value in assume.items():
        if values.get(key) is not None:
            raise SinkjaxError(f"assume={{{key!r}: {value!r}}} contradicts {where}, which states {values[key]!r}")
    values |= assume
    kind = Fields(values, where).choice("model_type", DEFAULTS, "model_type")
    fields = Fields(one_spelling(values, where), where, DEFAULTS[kind], dict(assume), {"model_type"})
    layers = fields.integer("num_hidden_layers", high=MOST_LAYERS)
    position, context = read_rope(fields, ignore_keys)
    config = Config(
        layers=layers,
        width=fields.integer("hidden_size"),
        heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        mlp_width=fields.integer("intermediate_size"),
        vocab_size=fields.integer("vocab_size"),
        context=context,
        norm=RMSNorm(fields.number("rms_norm_eps")),
        position=position,
        activation=ACTIVATIONS[fields.choice("hidden_act", ACTIVATIONS, "hidden_act")],
        tied=fields.flag("tie_word_embeddings"),
        **_FAMILIES[kind](fields, layers),
    )
    for key, only in FIXED.items():
        fields.fixed(key, only)
    fields.finish(INERT | set(ignore_keys))
    return config, fields.assumed


def _llama(fields: Fields, layers: int) -> dict[str, Any]:
    attention_bias = fields.flag("attention_bias")
    return {"qkv_bias": attention_bias, "out_bias": attention_bias, "mlp_bias": fields.flag("mlp_bias")}


def _mistral(fields: Fields, layers: int) -> dict[str, Any]:
    window = _window(fields)
    return {"windows": window and (window,) * layers}


def _qwen2(fields: Fields, layers: int) -> dict[str, Any]:
    used = fields.flag("use_sliding_window")
    window = _window(fields) if used else None
    fields.read |= {"sliding_window", "max_window_layers", "layer_types"}  # stated, but without effect, where no window is in use
    kinds = fields.values.get("layer_types")
    if kinds is None:
        first = fields.integer("max_window_layers", low=0) if window else layers
        kinds = ["full_attention"] * min(first, layers) + ["sliding_attention"] * max(layers - first, 0)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.wrong("layer_types", kinds, f"a list of {layers} kinds of layer")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise fields.wrong("layer_types", kind, "made of full_attention and sliding_attention")
    windows = tuple(window if kind == "sliding_attention" else None for kind in kinds)
    if "sliding_attention" in kinds and not window:
        raise SinkjaxError(f"layer_types in {fields.where} has sliding_attention, but no sliding window is in use")
    return {"qkv_bias": True, "windows": windows if any(windows) else None}


def _window(fields: Fields) -> int | None:
    """The stated window. Null means none, but the key must be there: transformers' own default is a window of 4096."""
    fields.read.add("sliding_window")
    if "sliding_window" in fields.values and not fields.stated("sliding_window"):
        return None
    return fields.integer("sliding_window")


_FAMILIES = {"llama": _llama, "mistral": _mistral, "qwen2": _qwen2}
