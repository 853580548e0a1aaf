"""Size of the loss's gradient at each position: a sink may gather gradient as it gathers attention (arXiv 2603.17771)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.analysis import records
from sinkjax.checkpoints.model import check_model
from sinkjax.edits.edit import edit, resolve
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import check_batch
from sinkjax.model.config import Config
from sinkjax.model.params import Params, dtype_of
from sinkjax.model.site import SITES, Site, as_site, axis_size, lacks
from sinkjax.probes.probe import Probe
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.forward import forward

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


@fixed_settings
def gradient_norms(
    model: Model, tokens: Any, site: Site | str = "attn_in", lengths: Any = None, precision: str = "highest"
) -> xarray.Dataset:
    """Measure the norm of the loss's gradient with respect to each position's activation at a site.

    The loss is the mean over a prompt's predicted tokens. The default site is the normed input of attention, where arXiv
    2603.17771 measures the ratio R_GS.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right.
        site: A site of vectors in the blocks.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        `gradient_norm` (prompt, layer, position), with a head axis before the position if the site has one; NaN from a prompt's
        last token on, because that token predicts nothing. `ratio`, of the same shape: a position's norm divided by the mean
        over the prompt's other positions; at position 0 it is R_GS.

    Raises:
        SinkjaxError: The model has no vocabulary, or lacks the site; the site is not one of vectors in the blocks; tokens do
            not fit.
    """
    check_model(model)
    config, site = model.config, as_site(site)
    spec = SITES[site]
    if site in (Site.EMBED, Site.POSITION_VECTOR) or "add" not in spec.ops or spec.dims is None:
        raise SinkjaxError(f"gradients are measured at a site of vectors in the blocks, not at {site.name}")
    if missing := lacks(config, site):
        raise SinkjaxError(f"there is no gradient at {site.name}: this model has {missing}")
    tokens, lengths, known = check_batch(tokens, lengths, config, model.tokenizer)
    Probe(nll=True).check(config, tokens.shape[1])
    resolve(edit(site, "add", 0.0), config, known, tokens.shape[1])
    heads = () if spec.heads is None else (axis_size(config, spec.heads),)
    shape = (config.layers, *tokens.shape[:2], *heads, axis_size(config, spec.dims))
    none = jnp.zeros(shape, jnp.promote_types(dtype_of(model.params), jnp.float32))
    values = _norms(none, model.params, jnp.asarray(tokens), lengths, site=site, config=config, precision=precision)
    norms = np.moveaxis(np.asarray(values, np.float64), (0, 2), (1, -1))
    predicts = np.arange(tokens.shape[1]) < np.asarray(known)[:, None] - 1
    norms = np.where(predicts.reshape(len(known), *(1,) * (norms.ndim - 2), -1), norms, np.nan)
    axes = ("prompt", "layer", *((spec.heads,) if spec.heads else ()), "position")
    variables = {"gradient_norm": (axes, norms), "ratio": (axes, records.over_others(norms))}
    return xarray.Dataset(variables, attrs={"site": str(site)})


@partial(jax.jit, static_argnames=("site", "config", "precision"))
def _norms(
    change: jax.Array, params: Params, tokens: jax.Array, lengths: jax.Array, *, site: Site, config: Config, precision: str
) -> jax.Array:
    """Return the gradient's norm, [L, B, T, (heads,)], at a change [L, B, T, (heads,) dims], which is added at the site.

    It is an argument because folding a constant takes XLA minutes.
    """

    def loss(change: jax.Array) -> jax.Array:
        out = forward(params, tokens, config, edit(site, "add", change), Probe(nll=True), lengths, False, precision, remat=True)
        predicted = jnp.arange(tokens.shape[1]) < lengths[:, None] - 1
        losses = jnp.where(predicted, out.record["nll"], 0).sum(axis=-1) / jnp.maximum(lengths - 1, 1)
        return losses.sum()

    norms: jax.Array = jnp.linalg.norm(jax.grad(loss)(change), axis=-1)
    return norms
