"""A cache for `generate` of transformers that keeps a sink prefix, the first tokens and a window of the last ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.explain.sink_prefix import SinkPrefix
from sinkjax.transformer.eviction import Streaming

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

SCALINGS = ("default", "linear", "llama3", "yarn")  # rotary frequencies that do not change with the length


def SinkCache(model: PreTrainedModel, prefix: SinkPrefix | None = None, sinks: int = 4, window: int = 1020) -> Cache:  # noqa: N802
    """Make a cache for `model.generate(ids, cache=cache)` of transformers (`past_key_values=cache` in its first releases of 5).

    The model then writes what `sinkjax.generate(past=prefix, cache=sinkjax.Streaming(sinks, window))` writes. Positions are
    counted in the cache, so the keys in front are rotated on with every token that is evicted, and a text of any length needs
    constant memory. The ids given to `model.generate` begin with `prefix.tokens`, which it skips because the cache has them. A
    cache serves one text, or a batch of texts of one length.

    Args:
        model: The model of transformers, with one kind of rotary positions and no sliding windows of its own.
        prefix: Keys and values in front, as a card saves them (`sinkjax.load_prefix`); None for none.
        sinks: Number of first tokens to keep, besides the prefix.
        window: Number of last tokens to keep, including the query's own.

    Returns:
        The cache, a `transformers.Cache`.

    Raises:
        SinkjaxError: The sizes are out of range; the prefix does not fit the model; the model has other positions, or windows.
            While generating: several tokens at once do not fit into the cache, so each would need other keys; read such a prompt
            with `prefill_chunk_size=1`.
    """
    import torch
    from transformers.cache_utils import Cache, DynamicLayer

    refuse(not hasattr(model, "modules") or not hasattr(model, "generate"), f"model must be of transformers, not {short(model)}")
    Streaming(sinks, window)  # checks both
    config = model.config.get_text_config()
    rotary, turn = _rotation(model, config)
    starts = _starts(prefix, config)
    P = starts[0][0].shape[2]
    front = P + sinks

    class SinkLayer(DynamicLayer):
        """A layer's keys and values, rotated at their positions in the text: those in front, and the last ones."""

        is_croppable = False

        def __init__(self, start: tuple[Any, Any]) -> None:
            super().__init__()
            self.start, self.seen = start, P

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
                size = (*key_states.shape[:2], P, key_states.shape[3])
                self.keys, self.values = (x.to(key_states).expand(size) for x in self.start)
            before: Any = (self.keys, self.values)
            keys, values = (torch.cat(pair, dim=-2) for pair in zip(before, (key_states, value_states), strict=True))
            new, held = key_states.shape[-2], keys.shape[-2]
            if new > 1 and held > front + window:
                raise SinkjaxError(
                    f"{new} tokens at once do not fit into a cache of {front} first and {window} last ones: pass"
                    " prefill_chunk_size=1 to model.generate, which then reads them one by one"
                )
            self.seen += new
            last = max(front, held - window + 1)
            self.keys, self.values = (torch.cat((x[..., :front, :], x[..., last:, :]), dim=-2) for x in (keys, values))
            return self.turned(keys, self.seen - held), values

        def turned(self, keys: Any, evicted: int) -> Any:
            """Rotate the keys in front on by the number of evicted tokens."""
            if not evicted or not front:
                return keys
            moved = keys[..., :front, :]
            cos, sin = rotary(moved, torch.full((1, front), evicted, device=keys.device))
            D = cos.shape[-1]
            turned = turn(moved[..., :D], moved[..., :D], cos, sin)[1] / getattr(rotary, "attention_scaling", 1.0)
            return torch.cat((torch.cat((turned, moved[..., D:]), dim=-1), keys[..., front:, :]), dim=-2)

        def get_seq_length(self) -> int:
            return self.seen

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            held = (P if self.keys is None else self.keys.shape[-2]) + query_length
            return held, self.seen + query_length - held

        def crop(self, tokens_to_remove: int) -> None:
            raise SinkjaxError("a SinkCache cannot drop its last tokens, because it no longer has the keys that they evicted")

        def reset(self) -> None:
            super().reset()
            self.seen = P

    return Cache(layers=[SinkLayer(start) for start in starts])


def _rotation(model: Any, config: Any) -> tuple[Any, Any]:
    """Return a model's module of rotary angles and its function that rotates queries and keys."""
    rotaries = [module for module in model.modules() if hasattr(module, "inv_freq")]
    turn = getattr(sys.modules[type(model).__module__], "apply_rotary_pos_emb", None)
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    windowed = bool(kinds) or getattr(config, "sliding_window", None) is not None
    refuse(windowed, "SinkCache does not support models with layers of other kinds, such as sliding windows")
    other = len(rotaries) != 1 or turn is None or getattr(rotaries[0], "rope_type", "default") not in SCALINGS
    refuse(other, f"SinkCache needs one kind of rotary positions that does not change with the length ({', '.join(SCALINGS)})")
    return rotaries[0], turn


def _starts(prefix: SinkPrefix | None, config: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a prefix in each layer, [1, K, P, D] each, in the order of transformers."""
    import torch
    from safetensors.torch import load

    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if prefix is None:
        return [(torch.zeros(1, heads, 0, width),) * 2] * config.num_hidden_layers
    refuse(not isinstance(prefix, SinkPrefix), f"prefix must come from sinkjax.sink_prefix or load_prefix, not {short(prefix)}")
    want, have = (config.num_hidden_layers, len(prefix.tokens), heads, width), prefix.keys.shape
    refuse(have != want, f"the keys of the prefix have shape {have}, but this model needs {want}")
    tensors = load(prefix.packed())
    return [(tensors[f"keys.{layer}"], tensors[f"values.{layer}"]) for layer in range(len(prefix.keys))]
