"""Read a Hugging Face config.json as a `Config`.

Every key is read, known to have no effect, or an error. We never invent a size, epsilon, activation, tying or context length. A
key has a default only if published checkpoints omit it and transformers documents its absence: the families' `defaults` list
these, and every default that is used is reported in the provenance. Any other missing key is an error that names it;
`assume={key: value}` supplies it deliberately.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sinkjax.checkpoints.family import SIZES, families, known, registered
from sinkjax.checkpoints.fields import Fields, let_pass
from sinkjax.checkpoints.hf_rope import one_spelling
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.errors import short
from sinkjax.model.config import Config

# Keys that change neither weights nor forward.
REASONS = documents.parse(Path(__file__).with_name("inert.yaml").read_text(encoding="utf-8"), "inert.yaml")
INERT = frozenset(key for keys in REASONS.values() for key in keys)

UNSUPPORTED = documents.parse(Path(__file__).with_name("unsupported.yaml").read_text(encoding="utf-8"), "unsupported.yaml")

# Keys of other architectures -> the value that means the feature is absent.
NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("rope_interleaved", "use_mrope", "is_decoder", "is_encoder_decoder", "add_cross_attention"), False),
    **dict.fromkeys(("alibi", "attention_bias", "lm_head_bias", "mlp_bias", "qk_layernorm", "use_qk_norm"), False),
    **dict.fromkeys(("tie_encoder_decoder", "use_sliding_window", "use_bidirectional_attention"), False),
    **dict.fromkeys(("num_experts", "num_local_experts", "num_nextn_predict_layers"), 0),
    **dict.fromkeys(("full_attn_mod", "interpolate_factor"), 1),
    "pruned_heads": {},
    "is_causal": True,
}

CODE = "auto_map"  # the key of code that a program runs in place of the library's
OWN_ONLY = ("rotary_emb_base", "rotary_pct")  # transformers reads no other name for these, except in a table
# Keys that some family reads and that have neither a default nor one supported value.
READ = frozenset(
    {"activation_function", "attn_config", "d_model", "do_layer_norm_before", "elementwise_attn_output_gate", "expansion_ratio"}
    | {"ffn_dim", "headwise_attn_output_gate", "layer_norm_eps", "moe_intermediate_size", "n_embd", "n_heads", "n_layers"}
    | {"n_positions", "no_rope_layers", "norm_eps", "norm_epsilon", "num_experts_per_tok", "num_ln_in_parallel_attn"}
    | {"position_embedding_type", "query_pre_attn_scalar", "rms_norm_eps", "shared_intermediate_size", "sliding_window"}
)
# Keys that mean that the weights are packed in a way not visible from the tensors' types.
QUANTISED = ("quantization_config", "quantization")


def read_config(
    values: Mapping[str, Any],
    where: str,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> tuple[Config, dict[str, Any]]:
    """Read the architecture from a config.json.

    values: the parsed file. where: its name in messages. ignore_keys: additional keys to treat as without effect. assume: values
    for keys that the file omits. defaults: documented defaults of the format, which replace the
    family's. Returns the config, and every value that the file did not state itself.
    Errors: a missing, unknown or contradictory key, a value of the wrong kind, an unsupported model type, activation or RoPE.
    """
    values, assume = dict(values), dict(assume or {})
    for key, value in assume.items():
        stated = values.get(key)
        refuse(stated is not None, f"assume={{{key!r}: {value!r}}} contradicts {where}, which states {stated!r}")
    values |= assume
    refuse_unsupported("model_type", Fields(values, where).get("model_type"), {*families(), *registered()}, where)
    family = known(values["model_type"])
    for key, usual in family.spelled.items():
        unread = key in OWN_ONLY and defaults is None and values.get(key) is None and values.get(usual) is not None
        refuse(unread, f"{where} states {usual!r}, which transformers does not read in a {family.model_type}: name it {key!r}")
    values = one_spelling(values, where, family.spelled)
    fields = Fields(values, where, {**family.defaults, **(defaults or {})}, dict(assume), {"model_type"}, ignore_keys)
    if CODE not in fields.ignored:
        fields.read.add(CODE)
        code = f"{fields.where} names Python code in {CODE!r} ({short(values.get(CODE))}), which sinkjax does not run"
        other = f"which may compute something else than a {family.model_type}"
        refuse(bool(values.get(CODE)), f"{code} and {other}; if it does not, {let_pass([CODE])}")
    read = family.read(fields)
    for key in QUANTISED:
        packed = fields.stated(key) and key not in fields.ignored and key not in fields.read
        kind = fields.table(key).get("quant_method", "of a kind that it does not name") if packed else None
        named = f"{where} says in {key!r} that its weights are quantised ({kind!r}), which sinkjax reads from GGUF files only"
        refuse(packed, f"{named}; if its tensors are plain numbers all the same, {let_pass([key])}")
    config = Config(**read)
    for key, only in {**NEUTRAL, **family.fixed}.items():
        if key in family.fixed or key not in fields.read | family.inert:
            fields.fixed(key, only)
    if "layer_types" not in fields.read:
        fields.fixed("layer_types", ["full_attention"] * config.layers)
    fields.finish(INERT | family.inert, elsewhere=effective(), here=f"a {family.model_type}")
    return config, fields.assumed


@functools.cache
def effective() -> frozenset[str]:
    """Return the keys that change numbers in some family."""
    keys = {*NEUTRAL, *SIZES.values(), *READ}
    for family in families().values():
        keys |= {*family.defaults, *family.fixed, *family.spelled}
    return frozenset(keys - INERT)


def refuse_unsupported(what: str, name: Any, supported: Collection[str], where: str) -> None:
    """Raise unless an architecture is supported: with the reason if it is known, and without a nearest name.

    Programs write these names, so a similar one is another architecture and not what was meant.
    """
    for reason, names in UNSUPPORTED.items():
        refuse(name in names and name not in supported, f"the {what} {name!r} of {where} is not supported: {reason}")
    unknown = not isinstance(name, str) or name not in supported
    refuse(unknown, f"unknown {what} {short(name)} in {where}; supported: {', '.join(sorted(supported))}")
