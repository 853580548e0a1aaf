"""SmolLM3 (2025): a Llama whose every fourth layer is not rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, biases, optional_window, rms_norm, rotary, sizes, windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.rotary import LayerRopes


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; windows, if in use, apply to the layers that are not rotated."""
    found, bias = sizes(fields, head_dim=None), fields.flag("attention_bias")
    position, rotated = rotary(fields), rotated_layers(fields, found["layers"])
    position["position"] = LayerRopes((position["position"],), tuple(0 if each else None for each in rotated))
    used, size = fields.flag("use_sliding_window"), optional_window(fields)
    sized = windows(fields, size if used else None, lambda layer: not rotated[layer], found["layers"])
    return found | position | rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias")) | sized


def rotated_layers(fields: Fields, layers: int) -> list[int]:
    """Return 1 for each rotated layer, else 0."""
    fields.read |= {"no_rope_layers", "no_rope_layer_interval"}
    stated = fields.values.get("no_rope_layers")
    if stated is None:
        step = fields.integer("no_rope_layer_interval")
        return [int((layer + 1) % step != 0) for layer in range(layers)]
    right = isinstance(stated, list) and len(stated) == layers and all(entry in (0, 1) for entry in stated)
    fields.require(right, "no_rope_layers", f"a list of {layers} times 0 or 1")
    return list(stated)


DEFAULTS = {"attention_bias": False, "mlp_bias": False, "use_sliding_window": False, "no_rope_layer_interval": 4}
SEPARATOR = Separator("<|end_of_text|>", in_front=False, note="after each document")
GGUF = Gguf("smollm3", keys={"attention.key_length": None}, interleaved=True)
FAMILY = Family("smollm3", read, names.LLAMA, defaults=DEFAULTS, separator=SEPARATOR, gguf=GGUF)
