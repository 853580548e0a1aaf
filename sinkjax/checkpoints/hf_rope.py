"""Rotary settings of a Hugging Face config: both spellings and every scaling kind; an unread field is an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sinkjax.checkpoints.fields import GREATEST, Fields
from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of
from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, LongScaling, Rope, Scaling, YarnScaling

# Keys of a table that change numbers in some kind of rotation.
EVERY = frozenset(
    {"factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "short_factor", "long_factor", "alpha"}
    | {"attention_factor", "mscale", "mscale_all_dim", "truncate", "llama_4_scaling_beta", "original_max_position_embeddings"}
)
KINDS = ("default", "linear", "dynamic", "llama3", "yarn")

# Documented defaults in transformers for YaRN fields that a config omits.
YARN_DEFAULTS = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
# Keys whose 0 transformers takes as absence.
ABSENT_IF_ZERO = ("mscale", "mscale_all_dim")
ORIGINAL = "original_max_position_embeddings"


def one_spelling(values: Mapping[str, Any], where: str, spelled: Mapping[str, str]) -> dict[str, Any]:
    """Return the config with rotary settings as `rope_theta` and `rope_scaling`, in whichever spelling they were.

    Two spellings are in use: `rope_theta` beside a `rope_scaling` table whose kind is `type` or `rope_type` (and, in a few,
    `original_max_position_embeddings` outside of it), and one `rope_parameters` table with the base inside (transformers 5).
    spelled: a family's own keys -> the usual names.
    Errors: two spellings that contradict each other.
    """
    renamed = {new: values[old] for old, new in spelled.items() if values.get(old) is not None}
    values = {key: value for key, value in values.items() if key not in spelled}
    values |= _merged(renamed, {key: values[key] for key in renamed if values.get(key) is not None}, where)
    tables = Fields(values, where)
    table = _merged(tables.table("rope_scaling"), tables.table("rope_parameters"), where)
    kind = table.get("rope_type", table.get("type"))
    inside = f"{where} states {ORIGINAL!r} only within the table of its LongRoPE, which transformers replaces by 4096"
    only_inside = kind in ("longrope", "su") and table.get(ORIGINAL) is not None and values.get(ORIGINAL) is None
    refuse(only_inside, f"{inside}: state it beside that table, or load(..., assume={{{ORIGINAL!r}: ...}}) supplies it")
    outside = ("rope_theta", "partial_rotary_factor", *[ORIGINAL] * (kind in ("llama3", "yarn", "longrope", "su")))
    table = _merged(table, {key: values[key] for key in outside if values.get(key) is not None}, where)
    table = _merged(table, {"rope_type": table.pop("type")} if table.get("type") is not None else {}, where)
    theta = table.pop("rope_theta", None)
    values = {key: value for key, value in values.items() if key not in ("rope_scaling", "rope_parameters", *outside)}
    return values | ({} if theta is None else {"rope_theta": theta}) | ({"rope_scaling": table} if table else {})


def _merged(first: Mapping[str, Any], second: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in first.keys() & second.keys():
        refuse(first[key] != second[key], f"{where} states {key!r} twice and differently: {first[key]!r} and {second[key]!r}")
    return {**first, **second}


def rope_of(
    table: dict[str, Any],
    theta: float,
    context: int,
    config: Fields,
    head_dim: int | None = None,
    partial: float = 1.0,
    kinds: tuple[str, ...] = KINDS,
) -> tuple[Rope, int]:
    """Return the position record of a table of rotary settings with base `theta`, and the longest prompt in tokens.

    config: the whole config, in one spelling. The longest prompt is `context`, its `max_position_embeddings`, except that
    `dynamic` and `yarn` reach `factor` times their original context where that is more (for `dynamic` the original one is
    `context`). head_dim: rotated dims of a head, where that may be a part, by default the part `partial` of it; None: all of it.
    """
    table = {key: value for key, value in table.items() if key not in ABSENT_IF_ZERO or value != 0}
    defaults = YARN_DEFAULTS | {ORIGINAL: context, "partial_rotary_factor": partial}
    fields = config.inner("rope_scaling", defaults, table)
    dims = None
    if head_dim is None:
        fields.fixed("partial_rotary_factor", 1.0)
    elif (factor := fields.number("partial_rotary_factor", low=0)) != 1:
        dims = int(head_dim * factor)
    if not any(value is not None for key, value in table.items() if key != "partial_rotary_factor"):
        return Rope(theta, dims=dims), context
    kind = fields.get("rope_type")
    one_of(f"rope_type in {fields.where}:", kind, kinds)
    scaling, reach = _scaling(kind, fields, context)
    fields.finish(prefix="rope_scaling.", elsewhere=EVERY, here=f"a rotation of kind {kind}")
    return Rope(theta, scaling, dims), max(context, reach)


def _scaling(kind: str, fields: Fields, context: int) -> tuple[Scaling | None, int]:
    """Return a kind's scaling and its reach in tokens. context: the model's context, if the kind does not change it."""
    if kind in ("longrope", "su"):
        return _longrope(fields, context), context
    if kind == "default":
        return None, context
    factor = fields.number("factor")
    if kind == "linear":
        return LinearScaling(factor), context
    if kind == "dynamic":
        return DynamicScaling(factor, context), int(factor * context)
    original = fields.integer(ORIGINAL)
    if kind == "llama3":
        low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
        refuse(low >= high, f"low_freq_factor {low:g} in {fields.where} must be below high_freq_factor {high:g}")
        return Llama3Scaling(factor, low, high, original), context
    optional = {key: fields.optional_number(key) for key in ("attention_factor", "mscale", "mscale_all_dim")}
    fast, slow = fields.number("beta_fast"), fields.number("beta_slow")
    refuse(fast <= slow, f"beta_fast {fast:g} in {fields.where} must be above beta_slow {slow:g}")
    return YarnScaling(factor, original, fast, slow, truncate=fields.flag("truncate"), **optional), int(factor * original)


def _divisors(fields: Fields, key: str) -> tuple[float, ...]:
    """A list of numbers above 0."""
    given = fields.get(key)
    right = isinstance(given, list) and all(type(entry) in (int, float) and 0 < entry < GREATEST for entry in given)
    fields.require(right, key, "a list of numbers above 0")
    return tuple(map(float, given))


def _longrope(fields: Fields, context: int) -> LongScaling:
    original = fields.integer(ORIGINAL)
    short, long = (_divisors(fields, key) for key in ("short_factor", "long_factor"))
    ratio = fields.optional_number("factor") or context / original
    factor = math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 else 1.0
    return LongScaling(short, long, original, fields.optional_number("attention_factor") or factor)
