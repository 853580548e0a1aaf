"""GPT-2 (Radford et al. 2019): LayerNorm, learned positions, biases everywhere, linear layers stored [inputs, outputs]."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.buffers import FILL, MASK
from sinkjax.checkpoints.family import Family, Separator, biases, layer_norm, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import EVEN_HEADS, Gguf
from sinkjax.model.positions import Learned

TENSORS = {
    **names.modules("transformer", embed="wte", positions="wpe", final_norm="ln_f"),
    **names.modules("transformer.h.{}", attn_norm="ln_1", mlp_norm="ln_2"),
    **names.fused("transformer.h.{}.attn.c_attn", names.joined, inputs_first=True),
    **names.inputs_first("transformer.h.{}", o="attn.c_proj", up="mlp.c_fc", down="mlp.c_proj"),
    **names.modules(unembed="lm_head"),
}
KEYS = {"layers": "n_layer", "width": "n_embd", "heads": "n_head", "mlp_width": "n_inner", "activation": "activation_function"}


def read(fields: Fields) -> dict[str, Any]:
    values = sizes(fields, kv_heads=None, head_dim=None, **KEYS)
    position = {"position": Learned(), "context": fields.integer("n_positions")}
    norm = layer_norm(fields, "layer_norm_epsilon")
    return values | position | norm | biases(True, True, True) | {"gated_mlp": False, "score_scale": scale(fields, values)}


def scale(fields: Fields, values: dict[str, Any]) -> float | tuple[float, ...] | None:
    """Return the factor on the scores: the usual one or none, possibly divided by the layer's number."""
    by_head = fields.flag("scale_attn_weights")
    if not fields.flag("scale_attn_by_inverse_layer_idx"):
        return None if by_head else 1.0
    whole = values["head_dim"] ** -0.5 if by_head else 1.0
    return tuple(whole / layer for layer in range(1, values["layers"] + 1))


DEFAULTS = {
    "n_inner": lambda fields: 4 * fields.integer("n_embd"),
    "scale_attn_by_inverse_layer_idx": False,
    **dict.fromkeys(("scale_attn_weights", "tie_word_embeddings"), True),
}
SPELLED = {"hidden_size": "n_embd", "num_attention_heads": "n_head"}
SPELLED |= {"num_hidden_layers": "n_layer", "max_position_embeddings": "n_positions"}
INERT = frozenset({"n_ctx", "reorder_and_upcast_attn"})
BUFFERS = {"*.attn.bias": MASK, "*.attn.masked_bias": FILL}
SEPARATOR = Separator("<|endoftext|>", in_front=False, note="between documents")
GGUF = Gguf(
    "gpt2",
    act=None,
    keys=EVEN_HEADS | {"feed_forward_length": "n_inner", "attention.layer_norm_epsilon": "layer_norm_epsilon"},
    implied={"activation_function": "gelu_new"},
)
FAMILY = Family(
    "gpt2", read, TENSORS, defaults=DEFAULTS, spelled=SPELLED, inert=INERT, buffers=BUFFERS, separator=SEPARATOR, gguf=GGUF
)
