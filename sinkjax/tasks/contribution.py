"""The first token's contribution to each head's output, next to the full output.

Both norms are taken after W_O, and before a norm or a gate of the head. To multiply a head's queries by a number and to divide
its values by it changes the weights of unnormalised attention, but no ratio of these norms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sinkjax.edits.site import Site
from sinkjax.model.params import Params
from sinkjax.probes.probe import Capture
from sinkjax.probes.record import Record

CAPTURES = (
    Capture(Site.VALUE, positions=(0,), name="first_value"),
    Capture(Site.WEIGHTS, dims=(0,), name="first_weight"),
    Capture(Site.HEAD_OUT, name="head_output"),
)
TINY = 1e-8  # added to a head's output norm, so that a head that writes nothing has a ratio of 0


def norms(record: Record, params: Params) -> tuple[jax.Array, jax.Array]:
    """Norms of a_i0 v_0 W_O and of a head's whole output in each row i: float32 [prompt, layer, head, row] each.

    record: with `CAPTURES`.
    """
    value, weight, output = (record[entry.name].astype(jnp.float32) for entry in CAPTURES)
    o = params["layers"]["o"].astype(jnp.float32)  # [layer, head, head_dim, d], without a head axis if heads are summed
    o = o if o.ndim == 4 else o[:, None]
    gram = jnp.einsum("lhid,lhjd->lhij", o, o, precision="highest")
    heads = output.shape[3]
    gram = jnp.broadcast_to(gram, (len(gram), heads, *gram.shape[2:]))
    value = jnp.repeat(value[:, :, 0], heads // value.shape[3], axis=2)  # [prompt, layer, head, head_dim]
    first = _norm(jnp.einsum("plhi,lhij,plhj->plh", value, gram, value, precision="highest"))
    whole = _norm(jnp.einsum("plthi,lhij,plthj->plth", output, gram, output, precision="highest"))
    return jnp.abs(weight[..., 0]) * first[..., None], whole.swapaxes(2, 3)


def _norm(squares: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.maximum(squares, 0))  # rounding may leave less than 0
