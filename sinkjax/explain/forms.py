"""The quadratic form of a dimension of a gated MLP (arXiv 2603.05498): which dimensions a large input can make spike."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.resolve import selected
from sinkjax.edits.term import Select, as_along
from sinkjax.errors import SinkjaxError, short
from sinkjax.runtime.settings import fixed_settings

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


@fixed_settings
def spike_forms(
    model: Model, layers: Select = None, dims: Select = None, count: int = 3, precision: str = "highest"
) -> xarray.Dataset:
    """Return the quadratic forms that gated MLPs compute where their gates are open.

    An open gate is the identity (silu(x) and gelu(x) tend to x), so dimension k of the MLP's output is h' U_k h of its normed
    input h, with U_k = sum_n down[n, k] gate_n up_n'. A form with a large norm and one dominant eigenvalue makes that dimension
    spike for inputs along one direction.

    Args:
        model: The model.
        layers: An int, a sequence, a slice, or None for all; from 0.
        dims: Dimensions of the residual stream whose forms are computed, in every chosen layer; None: those with the largest
            norms.
        count: Number of dimensions per layer if `dims` is None.
        precision: Matrix product precision.

    Returns:
        `norm` (layer, dim): Frobenius norm of every dimension's symmetric form. By (layer, form): `form_dim`, its dimension;
        `form_norm`; `eigenvalue`, the one with the largest absolute value; `share`, its absolute value over the norm, 1 for
        rank one; and `direction` (layer, form, dim), its unit eigenvector in the space of h.

    Raises:
        SinkjaxError: The model has no gated MLP, or its MLP is a mixture of experts; a layer or dim is out of range; `count` is
            not from 1 to the width.
    """
    check_model(model)
    config, w = model.config, model.params["layers"]
    if config.mlp_width is None or not config.gated_mlp or config.experts is not None:
        missing = "no MLP" if config.mlp_width is None else "experts" if config.experts is not None else "no gate in its MLP"
        raise SinkjaxError(f"spike_forms is for gated MLPs, and this model has {missing}")
    refuse(count not in range(1, config.width + 1), f"count must be an int from 1 to {config.width}, not {short(count)}")
    numbers = np.flatnonzero(selected("layer", as_along("layer", layers), config.layers))
    named = None if dims is None else np.flatnonzero(selected("dim", as_along("dim", dims), config.width))
    rows = []
    for layer in numbers:
        matrices = [w[name][layer] for name in ("gate", "up", "down")]
        norms = np.asarray(_norms(*matrices, precision=precision))
        chosen = np.argsort(-norms, kind="stable")[:count] if named is None else named
        rows.append((norms, chosen, norms[chosen], *map(np.asarray, _leading(*matrices, chosen, precision=precision))))
    norm, form_dim, form_norm, eigenvalue, direction = (np.stack(column) for column in zip(*rows, strict=True))
    share = np.abs(eigenvalue) / np.where(form_norm == 0, 1, form_norm)
    of_forms = {"form_dim": form_dim, "form_norm": form_norm, "eigenvalue": eigenvalue, "share": share}
    variables: dict[str, Any] = {"norm": (("layer", "dim"), norm)}
    variables |= {name: (("layer", "form"), values) for name, values in of_forms.items()}
    variables["direction"] = (("layer", "form", "dim"), direction)
    return xarray.Dataset(variables, {"layer": numbers, "dim": np.arange(config.width), "form": np.arange(form_dim.shape[1])})


@partial(jax.jit, static_argnames="precision")
def _norms(gate: jax.Array, up: jax.Array, down: jax.Array, *, precision: str) -> jax.Array:
    """The Frobenius norm of each dimension's symmetric form, [d], without any form: gate and up [d, F], down [F, d].

    With S = (U + U') / 2, |S|^2 = (|U|^2 + tr(U U)) / 2, both quadratic in a column of down.
    """
    product = partial(jnp.matmul, precision=precision)
    gate, up, down = (each.astype(jnp.promote_types(each.dtype, jnp.float32)) for each in (gate, up, down))
    crossed = product(gate.T, up)
    pairs = (product(gate.T, gate) * product(up.T, up) + crossed * crossed.T) / 2
    return jnp.sqrt(jnp.maximum((down * product(pairs, down)).sum(axis=0), 0))


@partial(jax.jit, static_argnames="precision")
def _leading(gate: jax.Array, up: jax.Array, down: jax.Array, dims: jax.Array, *, precision: str) -> tuple[jax.Array, jax.Array]:
    """The eigenvalue with the largest absolute value, and its vector, of the forms of some dims: [n], [n, d]."""

    def of_dim(dim: jax.Array) -> tuple[jax.Array, jax.Array]:
        form = jnp.matmul(gate * down[:, dim], up.T, precision=precision).astype(jnp.promote_types(gate.dtype, jnp.float32))
        values, vectors = jnp.linalg.eigh((form + form.T) / 2)
        largest = jnp.argmax(jnp.abs(values))
        return values[largest], vectors[:, largest]

    pairs: tuple[jax.Array, jax.Array] = jax.lax.map(of_dim, dims)
    return pairs
