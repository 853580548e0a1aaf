"""Hunyuan (Tencent, 2025), dense: a Llama with norms of each head's queries and keys after their rotation."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import COMMON, Family, biases, even_head_dim, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.norms import AfterRotation
from sinkjax.model.rotary import Rope

TENSORS = names.LLAMA | names.modules("model.layers.{}.self_attn", q_norm="query_layernorm", k_norm="key_layernorm")
UNUSED = ("rope_type", "beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim")  # of a rotation with `alpha`


def read(fields: Fields) -> dict[str, Any]:
    values, norm, bias = sizes(fields), rms_norm(fields), fields.flag("attention_bias")
    late = {"qk_norm": AfterRotation(norm["norm"])}
    return values | position(fields, values["head_dim"]) | norm | late | biases(bias, bias, False)


def position(fields: Fields, head_dim: int) -> dict[str, Any]:
    """Read the rotation; a "dynamic" one with `alpha` has a fixed, larger base, and its other numbers have no effect."""
    table = fields.table("rope_scaling")
    if table.get("rope_type") != "dynamic" or not table.get("alpha"):
        return rotary(fields)
    scaling = fields.inner("rope_scaling")
    scaling.read |= set(UNUSED)
    base = fields.number("rope_theta") * scaling.number("alpha") ** (head_dim / (head_dim - 2))
    scaling.finish(prefix="rope_scaling.")
    return {"position": Rope(base), "context": fields.integer("max_position_embeddings")}


DEFAULTS = COMMON | {"head_dim": even_head_dim}
INERT = frozenset({"attention_head_dim", "cla_share_factor", "class_num", "dense_list", "eod_token_id", "org_vocab_size"})
FIXED = {"add_classification_head": False, "use_cla": False, "use_qk_norm": True, "use_rotary_pos_emb": True}
FAMILY = Family("hunyuan_v1_dense", read, TENSORS, defaults=DEFAULTS, inert=INERT, fixed=FIXED, gguf=Gguf("hunyuan-dense"))
