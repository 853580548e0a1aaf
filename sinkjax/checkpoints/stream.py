"""Tensors from a checkpoint into the parameter tree, one at a time.

Each leaf is allocated once, in the target dtype and in its shards on the mesh. A stored tensor is mapped, decoded, sent to each
device as the part that it keeps, cast there and written into its place in the leaf, which is donated. Layers are read one by one,
and a tensor that fills a whole leaf, such as an unembedding, in pieces. Besides the shards, memory therefore holds little more
than one layer's tensor. Small leaves are filled on the host, since writing on a device compiles a program for each shape; so is a
leaf that one tensor fills if its device is a CPU, which takes the host's memory as it is.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.names import Slot, leaf_name, slots
from sinkjax.checkpoints.tensors import INTEGERS, PIECE, Tensor
from sinkjax.config_files.checks import refuse
from sinkjax.errors import COMPARED, SinkjaxError, unknown
from sinkjax.model import params

NOT_FINITE = "holds NaN or infinity in {}; check=False loads a broken model"


def load_params(checkpoint: Checkpoint, dtype: str, mesh: Mesh | None = None, check: bool = True) -> tuple[params.Params, str]:
    """Load a checkpoint's parameters, and the SHA-256 of their stored bytes in the order of the tree.

    dtype: dtype of every leaf. mesh: placement of the leaves by `params.sharding`; None for the default device. check: whether
    non-finite numbers are an error.
    Errors, each naming the tensor: missing, unexpected, wrong shape, NaN or infinity once cast, tied copies that differ.
    """
    wanted = slots(checkpoint.config, checkpoint.names)
    check_names(checkpoint, wanted)
    tree = params.abstract(checkpoint.config)
    leaves = {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    places = {name: params.sharding(leaf, mesh) if mesh else None for name, leaf in leaves.items()}
    arrays: dict[str, jax.Array] = {}
    on_hosts: dict[str, np.ndarray] = {}
    digest = hashlib.sha256()
    on_host = mesh is None and jax.default_backend() == "cpu"

    def add(tensor: Tensor) -> None:
        for piece in tensor.byte_pieces():
            digest.update(piece.data)

    with ThreadPoolExecutor(1) as beside:
        for name, filled in wanted.items():
            tensor, what = checkpoint.tensors[name], f"{name} of {checkpoint.where}"
            added = beside.submit(add, tensor)  # hashed while it is sent to the devices
            for slot in filled:
                name, shape, place = slot.leaf, leaves[slot.leaf].shape, places[slot.leaf]
                if slot.fills and tensor.shared is not None and not slot.transposed:  # the array in memory becomes the leaf
                    array = tensor.shared if tensor.shared.dtype == dtype else tensor.shared.astype(dtype)
                    refuse(check and not np.isfinite(array).all(), f"{what} {NOT_FINITE.format(dtype)}")
                    arrays[name] = jax.device_put(array, place)
                elif math.prod(shape) <= PIECE or (slot.fills and on_host):
                    fill(on_hosts.setdefault(name, aligned(shape, jnp.dtype(dtype))), tensor, slot, what, check)
                else:
                    array = arrays[name] if name in arrays else jnp.zeros(shape, dtype, device=place)
                    arrays[name] = write(array, tensor, slot, place, what, check)
            added.result()
    arrays |= {name: jax.device_put(on_hosts.pop(name), places[name]) for name in [*on_hosts]}
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[leaf_name(path)], tree), digest.hexdigest()


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return memory that a CPU device takes without a copy: it starts at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def fill(array: np.ndarray, tensor: Tensor, slot: Slot, what: str, check: bool) -> None:
    """Write `tensor`, cast, into its slot of an array on the host; `what` names it in errors."""
    for start, shape, read in pieces(tensor, slot, array.shape, None):
        place = tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))
        with np.errstate(over="ignore"):  # values beyond the dtype's range become infinite, which is an error
            array[place] = read((slice(None),) * len(shape))
        refuse(check and not np.isfinite(array[place]).all(), f"{what} {NOT_FINITE.format(array.dtype)}")


def write(array: jax.Array, tensor: Tensor, slot: Slot, place: NamedSharding | None, what: str, check: bool) -> jax.Array:
    """Write `tensor`, cast, into its slot of `array` (which the caller gives up); `what` names the tensor in errors."""
    for start, shape, read in pieces(tensor, slot, array.shape, place):
        value = jax.make_array_from_callback(shape, place, read) if place else jax.device_put(read((slice(None),) * len(shape)))
        array, finite = _write(array, value, start, place)
        refuse(not bool(finite) and check, f"{what} {NOT_FINITE.format(array.dtype)}")  # waits until the mapped bytes are free
    return array


def pieces(
    tensor: Tensor, slot: Slot, shape: tuple[int, ...], place: NamedSharding | None
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], Callable[[Any], np.ndarray]]]:
    """Yield the pieces to write one by one into a leaf of this shape: a layer's block, or rows of a tensor that is the leaf.

    Each has a place in the shards, equal in all of them; the shape of all shards together there; and a function from an index
    into that shape to its numbers. The last rows may be written twice, so that all pieces have one shape.
    """
    if not slot.fills:
        block = slot.cut(tensor.array())
        inner = shape[len(slot.place) :]
        block = (block.swapaxes(-1, -2) if slot.transposed else block).reshape(*[1] * len(slot.place), *inner)
        yield (*slot.place, *[0] * len(inner)), block.shape, block.__getitem__
        return
    axis = int(slot.transposed)  # the leaf's axis of the tensor's rows
    length = place.shard_shape(shape)[axis] if place else shape[axis]
    parts = shape[axis] // length
    size = min(length, max(1, PIECE // parts // math.prod(tensor.shape[1:])))
    for first in range(0, length, size):
        first = min(first, length - size)

        def read(index: tuple[slice, ...], first: int = first) -> np.ndarray:
            begin = (index[axis].start or 0) // size * length + first
            rows = tensor.rows(begin, begin + size)
            index = (*index[:axis], slice(None), *index[axis + 1 :])
            return (rows.T if slot.transposed else rows)[index]

        at = [0] * len(shape)
        at[axis] = first
        yield tuple(at), (*shape[:axis], parts * size, *shape[axis + 1 :]), read


@partial(jax.jit, donate_argnums=0, static_argnames="place")
def _write(
    array: jax.Array, value: jax.Array, start: tuple[int, ...], place: NamedSharding | None
) -> tuple[jax.Array, jax.Array]:
    block = value.astype(array.dtype)
    update: Callable = write_bits
    if place is not None:  # each device writes into its own shard
        taken = (place.spec, place.spec, PartitionSpec())
        update = jax.shard_map(update, mesh=place.mesh, in_specs=taken, out_specs=place.spec, check_vma=False)
    return update(array, block, start), jnp.isfinite(block).all()


def write_bits(array: jax.Array, block: jax.Array, start: tuple[int, ...]) -> jax.Array:
    """Write a block at `start`, 16-bit floats as integers: on a CPU, XLA would convert all of the array to float32 and back."""
    bits = "uint16" if array.dtype.itemsize == 2 else array.dtype
    return jax.lax.dynamic_update_slice(array.view(bits), block.view(bits), start).view(array.dtype)


def check_names(checkpoint: Checkpoint, wanted: dict[str, list[Slot]]) -> None:
    """Raise unless the checkpoint has exactly the wanted tensors, in the wanted shapes."""
    tensors, where = checkpoint.tensors, checkpoint.where
    if missing := sorted(wanted.keys() - tensors.keys()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        near = difflib.get_close_matches(missing[0], sorted(tensors.keys() - wanted.keys())[:COMPARED], n=3, cutoff=0.5)
        held = f" (it has {', '.join(map(repr, near))})" if near else ""
        raise SinkjaxError(f"{where} has no tensor {missing[0]!r}{more}{held}; missing weights are never invented")
    for name, (slot, *_) in wanted.items():
        kind, shape, of = tensors[name].stored, tensors[name].shape, "" if slot.leaf == name else f" ({slot.leaf})"
        floats = ", ".join(params.DTYPES)
        refuse(kind in INTEGERS, f"{name} of {where} holds {kind}, not floating-point numbers ({floats})")
        refuse(shape != slot.stored, f"{name} of {where} has shape {shape}, but the config asks for {slot.stored}{of}")
    table = checkpoint.names
    for name in sorted(tensors.keys() - wanted.keys()):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in checkpoint.ignored):
            continue
        if table is not None and name == table["unembed"]:
            check_tied(checkpoint, str(table["embed"]), name)
        else:
            hint = f"; load(..., ignore_keys=({name!r},)) leaves it out deliberately, * stands for any characters"
            raise unknown(f"tensor in {where}:", name, {slot.pattern for filled in wanted.values() for slot in filled}, hint)


def check_tied(checkpoint: Checkpoint, first: str, second: str) -> None:
    """Raise unless an unembedding stored next to a tied embedding has equal numbers, comparing blocks of rows."""
    embed, unembed = (checkpoint.tensors[name] for name in (first, second))
    pairs = ((embed.rows(*rows), unembed.rows(*rows)) for rows in embed.row_pieces())
    differ = f"{checkpoint.where} ties {second} to {first}, but holds both and they differ"
    way = f"set tie_word_embeddings to false in its config; to use {first} for both, load(..., ignore_keys=({second!r},))"
    same = embed.shape == unembed.shape and all(np.array_equal(*pair) for pair in pairs)
    refuse(not same, f"{differ}: to use each, as transformers does, {way}")
