"""Tensors from a checkpoint into the parameter tree, one at a time.

Each leaf is allocated once, in the target dtype and at its place on the mesh; each stored tensor is mapped, decoded, sent to
the device, cast and written into its slice of the leaf, which is donated. So no more memory is held than the weights in the
target dtype and two copies of the tensor under way.
"""

from __future__ import annotations

import fnmatch
import hashlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.names import Slot, leaf_name, slots
from sinkjax.checkpoints.tensors import Tensor
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.model import params


def load_params(checkpoint: Checkpoint, dtype: str, mesh: Mesh | None = None, check: bool = True) -> tuple[params.Params, str]:
    """The parameters of a checkpoint, and the SHA-256 of the stored bytes they came from, in the order of the tree.

    dtype: of every leaf. mesh: where to place the leaves by `params.sharding`; None: the default device. check: whether numbers
    that are not finite are refused.
    Errors, each naming the tensor: missing, unexpected, wrong shape, NaN or infinity once cast, tied copies that differ.
    """
    wanted = slots(checkpoint.config, checkpoint.names)
    check_names(checkpoint, wanted)
    auto = mesh and Mesh(mesh.devices, mesh.axis_names)  # an explicit mesh would want a sharding for every intermediate
    tree = params.abstract(checkpoint.config)
    leaves = {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    arrays: dict[str, jax.Array] = {}
    digest = hashlib.sha256()
    for name, filled in wanted.items():
        tensor, what = checkpoint.tensors[name], f"{name} of {checkpoint.where}"
        digest.update(tensor.raw.data)
        for slot in filled:
            place = params.sharding(leaves[slot.leaf], auto) if auto else None
            if not slot.place and not slot.transposed:
                arrays[slot.leaf] = whole(tensor, dtype, place, what, check)
                continue
            if slot.leaf not in arrays:
                arrays[slot.leaf] = jnp.zeros(leaves[slot.leaf].shape, dtype, device=place)
            arrays[slot.leaf] = write(arrays[slot.leaf], tensor, slot, auto, what, check)
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[leaf_name(path)], tree), digest.hexdigest()


def whole(tensor: Tensor, dtype: str, place: NamedSharding | None, what: str, check: bool) -> jax.Array:
    """A tensor that is a leaf as it stands, of files cast on the host, which compiles nothing; `what` names it in an error."""
    array = tensor.array()
    value: np.ndarray | jax.Array
    if isinstance(array, jax.Array):  # in memory already: shared if it is of this dtype
        value = array if array.dtype == dtype else array.astype(dtype)
    else:
        with np.errstate(over="ignore"):  # what the dtype cannot hold becomes infinite, and is refused
            value = np.array(array, jnp.dtype(dtype))
    if check and not np.isfinite(value).all():
        raise _not_finite(what, value.dtype)
    return jax.device_put(value, place)


def write(array: jax.Array, tensor: Tensor, slot: Slot, mesh: Mesh | None, what: str, check: bool) -> jax.Array:
    """`array` (given up by the caller) with `tensor` cast and written into its slot; `what` names the tensor in an error."""
    replicated = NamedSharding(mesh, PartitionSpec()) if mesh else None
    value = jax.device_put(slot.cut(tensor.array()), replicated).block_until_ready()  # the host's copy is let go here
    array, finite = _write(array, value, slot.place, slot.transposed, array.sharding if mesh else None)
    if not bool(finite) and check:  # also waits until the device has let go of the mapped bytes
        raise _not_finite(what, array.dtype)
    return array


def _not_finite(what: str, dtype: np.dtype) -> SinkjaxError:
    return SinkjaxError(f"{what} holds NaN or infinity in {dtype}; check=False loads a broken model")


@partial(jax.jit, donate_argnums=0, static_argnums=(3, 4))
def _write(
    array: jax.Array, value: jax.Array, place: tuple[int, ...], transposed: bool, kept: Sharding | None
) -> tuple[jax.Array, jax.Array]:
    block = (value.T if transposed else value).astype(array.dtype)
    block = block.reshape(*[1] * len(place), *array.shape[len(place) :])
    start = (*place, *[0] * (array.ndim - len(place)))
    written = jax.lax.dynamic_update_slice(array, block, start)
    if kept is not None:  # a block that fills the leaf would pass its own sharding on
        written = jax.lax.with_sharding_constraint(written, kept)
    return written, jnp.isfinite(block).all()


def check_names(checkpoint: Checkpoint, wanted: dict[str, list[Slot]]) -> None:
    """Raise unless the checkpoint holds exactly the wanted tensors, in the wanted shapes."""
    tensors, where = checkpoint.tensors, checkpoint.where
    missing = sorted(wanted.keys() - tensors.keys())
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SinkjaxError(f"{where} has no tensor {missing[0]!r}{more}; a missing weight is never made up")
    table = checkpoint.names
    for name in sorted(tensors.keys() - wanted.keys()):
        if table is not None and name == table["unembed"]:
            check_tied(checkpoint, str(table["embed"]), name)
        elif not any(fnmatch.fnmatchcase(name, pattern) for pattern in checkpoint.ignored):
            hint = f"; load(..., ignore_keys=({name!r},)) leaves it out deliberately, * stands for any characters"
            raise unknown(f"tensor in {where}:", name, {slot.pattern for filled in wanted.values() for slot in filled}, hint)
    for name, (slot, *_) in wanted.items():
        if tensors[name].shape != slot.stored:
            of = "" if slot.leaf == name else f" ({slot.leaf})"
            raise SinkjaxError(f"{name} of {where} has shape {tensors[name].shape}, but the config asks for {slot.stored}{of}")


def check_tied(checkpoint: Checkpoint, first: str, second: str) -> None:
    """Raise unless the unembedding stored beside a tied embedding is the same numbers. Compared in blocks of rows."""
    embed, unembed = (checkpoint.tensors[name].array() for name in (first, second))
    rows = 4096
    same = embed.shape == unembed.shape and all(
        np.array_equal(embed[start : start + rows], unembed[start : start + rows]) for start in range(0, len(embed), rows)
    )
    if not same:
        raise SinkjaxError(f"{checkpoint.where} ties {second} to {first}, but holds both and they differ")
