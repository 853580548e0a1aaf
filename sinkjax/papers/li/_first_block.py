"""Deviations of the first block's head outputs from their mean over prompts, under the model's own and under uniform
attention."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.edit import Edit
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.rotary import LayerRopes
from sinkjax.study import Batch

MODEL, EVEN = "the model's attention", "even attention"  # names of the two attentions in the store
BLOCK = 32  # prompts per forward pass


def _squares(weights: jax.Array, view: object) -> jax.Array:
    return (weights * weights).sum(axis=-1)


CAPTURED = ("head_out", "attn_out", "squared_weights")
SITES = (sinkjax.Site.HEAD_OUT, sinkjax.Site.ATTN_OUT)
SQUARES = sinkjax.Statistic("squared_weights", sinkjax.Site.WEIGHTS, _squares, ("prompt", "layer", "head", "query"))
PROBE = sinkjax.Probe(capture=tuple(sinkjax.Capture(site, layers=(0,)) for site in SITES), extra=(SQUARES,))


def measure(model: Model, batch: Batch) -> xarray.Dataset:
    """Measure the model's own attention and uniform attention, where every score is 0.

    Args:
        model: The model.
        batch: Prompts of equal length.

    Returns:
        deviation [attention, prompt, head, position]: squared deviation, mean over a head's dims, times N / (N - 1), so that its
        mean over prompts is the variance. after [attention, prompt, position]: the same of the attention output, after W_O.
        by_dim [attention, prompt, head, head_dim]: the same of each dim, mean over positions. squared_weights [attention, head,
        position]: mean sum of a query's squared weights. row_norm [head, head_dim]: L2 norm of the row of W_O that reads the dim.
    """
    spread = sinkjax.edit("logits", "set", 0.0)
    both = [_measure(model, batch, edits) for edits in ((), (spread,))]
    stacked = {name: (("attention", *axes), np.stack([part[name][1] for part in both])) for name, (axes, _) in both[0].items()}
    rows = np.linalg.norm(np.asarray(model.params["layers"]["o"][0], np.float32), axis=-1)
    return xarray.Dataset(stacked | {"row_norm": (("head", "head_dim"), rows)}, {"attention": [MODEL, EVEN]})


def _measure(model: Model, batch: Batch, edits: tuple[Edit, ...]) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    params, config = first_block(model)
    run = partial(sinkjax.forward, params, config=config, edits=edits, probe=PROBE, logits=False)
    records = [run(tokens=tokens, lengths=lengths).record for tokens, lengths in batch.blocks(BLOCK)]
    captured = (np.concatenate([np.asarray(record[name], np.float32)[:, 0] for record in records]) for name in CAPTURED)
    heads, out, weights = captured
    heads, out = _squared_deviations(heads), _squared_deviations(out)
    return {
        "deviation": (("prompt", "head", "position"), heads.mean(-1).swapaxes(1, 2)),
        "after": (("prompt", "position"), out.mean(-1)),
        "by_dim": (("prompt", "head", "head_dim"), heads.mean(axis=1)),
        "squared_weights": (("head", "position"), weights.mean(0)),
    }


def first_block(model: Model) -> tuple[Params, Config]:
    """Cut a model after its first block, without norms on the outputs of attention and the MLP: parameters and architecture.

    Such a norm would give all positions one size, so that nothing of W_O could be read after it.
    """
    config = model.config
    position, scale, windows = config.position, config.score_scale, config.windows
    if isinstance(position, LayerRopes):
        position = dataclasses.replace(position, layers=position.layers[:1])
    scale = scale[:1] if isinstance(scale, tuple) else scale
    config = dataclasses.replace(config, layers=1, position=position, score_scale=scale, windows=windows and windows[:1])
    norms = ("attn_out_norm", "mlp_out_norm")
    layers = {name: leaf for name, leaf in model.params["layers"].items() if not name.startswith(norms)}
    kept = {**model.params, "layers": jax.tree.map(lambda leaf: leaf[:1], layers)}
    if config.layout.outputs:
        config = dataclasses.replace(config, norm_place="pre", norm=config.norm if config.layout.inputs else None)
    return {name: leaf for name, leaf in kept.items() if config.norm is not None or not name.startswith("final_norm")}, config


def _squared_deviations(values: NDArray[Any]) -> NDArray[Any]:
    """Return (x - mean over prompts)^2 N / (N - 1), for float[prompt, ...]."""
    return np.asarray(np.square(values - values.mean(0)) * (len(values) / (len(values) - 1)))
