"""Numbers about sinks for the log of a training: any loop can call `sink_log`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkjax.analysis import metrics
from sinkjax.checkpoints.model import Model
from sinkjax.probes.probe import Probe
from sinkjax.transformer.forward import forward


def sink_log(model: Model, tokens: Any, lengths: Any = None) -> dict[str, float]:
    """Return what a logger takes: three numbers per layer, from one forward pass, and their summary over layers.

    Args:
        model: The model in its present state, such as `Model(config, params, None, {})`. A training's steps share one program.
        tokens: int [B, T], padded on the right; the same rows at every step make steps comparable.
        lengths: int [B], by default T for all.

    Returns:
        For each layer l, "sinks/rate/l": share of heads that give key 0 more than 30% of their attention; "sinks/share/l": mean
        attention to key 0 over heads; "sinks/spike/l": largest absolute activation after the block. All are means over prompts.
        "sinks/rate" and "sinks/share" are means over layers, and "sinks/spike" is the maximum.

    Raises:
        SinkjaxError: The tokens do not fit the model.
    """
    probe = Probe(attention_received=True, resid_max=True)
    record = forward(model, tokens, probe=probe, lengths=lengths, logits=False).record
    layers = {
        "rate": metrics.sink_rate(record, key=0, per="layer").mean(axis=0),
        "share": np.asarray(record["attention_received"], np.float64)[..., 0].mean(axis=(0, 2)),
        "spike": np.nanmax(np.asarray(record["resid_max"], np.float64)[:, 1:], axis=-1).mean(axis=0),
    }
    found = {f"sinks/{name}": float(values.max() if name == "spike" else values.mean()) for name, values in layers.items()}
    return found | {f"sinks/{name}/{layer}": float(x) for name, values in layers.items() for layer, x in enumerate(values)}
