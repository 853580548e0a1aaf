"""The parameters: one abstract tree specifies each leaf's shape, logical axes and initialiser.

`init`, loading, sharding and export map over this tree, so every leaf is described in exactly one place. Matrices are stored
input-first (`x @ w`), heads split out, layers stacked on a leading axis for the scan.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.config_files.checks import LARGEST, refuse
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.model import attention_bias
from sinkjax.model.config import Config
from sinkjax.model.heads import ConstantGate, ElementGate, HeadGate, NonSparseGate, SharedGate, ValueGate, ValueScale
from sinkjax.model.norms import AllHeads, EachHead, Norm
from sinkjax.model.positions import Learned, RelativeBias
from sinkjax.model.xielu import XIELU
from sinkjax.runtime.backend import refuse_larger_than_memory
from sinkjax.runtime.settings import random_key

Params = dict[str, Any]
DTYPES = ("float32", "bfloat16", "float16", "float64")

# Logical axis -> mesh axis; a leaf axis without a rule, or whose mesh axis is absent or uneven, is replicated.
RULES = {"vocab": "model", "heads": "model", "kv_heads": "model", "mlp": "model"}

CONSTANTS = {"zeros": 0.0, "ones": 1.0, "half": 0.5, **XIELU.learned}
SMALL = 0.02  # the standard deviation of a "small" leaf


@dataclass(frozen=True)
class Leaf:
    """One array of the tree: `shape`, one logical axis name per dimension, and its initialiser.

    init: "normal" (std 1 / sqrt(fan_in)), "small" (std SMALL), or one of `CONSTANTS`; fan_in: the number of inputs summed by one
    output.
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    init: str
    fan_in: int = 1


def abstract(config: Config) -> Params:
    """Return the tree of `Leaf` for a config.

    embed [V, d]; layers: attn_norm [L, d], q [L, d, H, D], k and v [L, d, K, D], o [L, H, D, d], mlp_norm [L, d],
    gate and up [L, d, F], down [L, F, d] (no gate if the MLP has none), and the biases of the config; final_norm [d];
    unembed [d, V] if not tied. A norm NAME has the leaves that it learns, NAME and NAME_bias, or those that its record names.
    In other blocks: o [L, D, d] if heads are summed; the norms of the layout, attn_out_norm and mlp_out_norm [L, d] too, and no
    final_norm if norms follow the sums; positions [context + offset, d]; layers/relative_bias [L, H, buckets].
    In other attention: layers/normaliser, a vector [L, H] or matrix [L, D, D] for each learned value; leaves that the records
    of sinkjax/model/heads.py and sinkjax/model/attention_bias.py name, and layers/q_norm and k_norm [L, D] or [L, heads, D].
    In other embeddings: embed_norm [d]; with their own width e, embed [V, e], embed_in [e, d], embed_out [d, e] and unembed
    [e, V]; unembed_bias [V]. For experts and activations: the leaves that sinkjax/model/experts.py and xielu.py name.
    """
    L, d, H, K, D = config.layers, config.width, config.heads, config.kv_heads, config.head_dim

    def matrix(fan_in: int, **axes: int) -> Leaf:
        return Leaf((L, *axes.values()), ("layer", *axes), "normal", fan_in)

    def vector(init: str, **axes: int) -> Leaf:
        return Leaf((L, *axes.values()), ("layer", *axes), init)

    def norm(name: str, of: Norm, **axes: int) -> Params:
        """The leaves of a norm at `name`, with these axes; the last one has size 1 for a number shared by all dims."""
        *outer, dims = axes.values()
        sizes = {part: (*outer, 1 if part in of.single else dims) for part in of.learned()}
        return {name + part: Leaf(sizes[part], tuple(axes), init) for part, init in of.learned().items()}

    layers: Params = {
        "q": matrix(d, width=d, heads=H, head_dim=D),
        "k": matrix(d, width=d, kv_heads=K, head_dim=D),
        "v": matrix(d, width=d, kv_heads=K, head_dim=D),
        "o": matrix(D, head_dim=D, width=d) if config.summed_heads else matrix(H * D, heads=H, head_dim=D, width=d),
    }
    if config.norm is not None:
        for name in config.layout.norms:
            if config.mlp_width is not None or not name.startswith("mlp"):
                layers |= norm(name, config.norm, layer=L, width=d)
    if (F := config.mlp_width) is not None:
        inner = ("gate", "up") if config.gated_mlp else ("up",)
        each = {} if config.experts is None else {"expert": config.experts.count}
        layers |= {name: matrix(d, **each, width=d, mlp=F) for name in inner} | {"down": matrix(F, **each, mlp=F, width=d)}
        if config.mlp_bias:
            layers |= {f"{name}_bias": vector("zeros", **each, mlp=F) for name in inner}
            layers["down_bias"] = vector("zeros", **each, width=d)
        if isinstance(config.activation, XIELU):
            layers |= {name: vector(name, single=1) for name in XIELU.learned}
        if config.experts is not None:
            layers["router"] = matrix(d, width=d, **each)
            layers |= {"router_bias": vector("zeros", **each)} if config.experts.bias else {}
    if isinstance(config.position, RelativeBias):
        layers["relative_bias"] = matrix(d, heads=H, buckets=config.position.buckets)
    if learned := config.normaliser.learned():
        layers["normaliser"] = {
            name: vector("zeros", heads=H) if axes == ("heads",) else matrix(D, **dict.fromkeys(axes, D))
            for name, axes in learned.items()
        }
    if config.qk_norm is not None:
        by_head = isinstance(config.qk_norm, EachHead | AllHeads)
        of = config.qk_norm if isinstance(config.qk_norm, Norm) else config.qk_norm.norm
        layers |= norm("q_norm", of, layer=L, **({"heads": H} if by_head else {}), head_dim=D)
        layers |= norm("k_norm", of, layer=L, **({"kv_heads": K} if by_head else {}), head_dim=D)
    if (head_norm := config.head_norm) is not None:
        axes = {"heads": H, "head_dim": D} if head_norm.gain == "head" else {"head_dim": D}
        layers["head_norm"] = vector("ones", **axes)
        if head_norm.offset:
            layers["head_norm_offset"] = vector("zeros", **axes)
    if of_bias := attention_bias.leaves(config.kv_bias, H, K, D):
        layers["attention_bias"] = {name: vector("small", **axes) for name, axes in of_bias.items()}
    match config.gate:
        case HeadGate():
            layers["head_gate"] = matrix(d, width=d, heads=H)
        case ElementGate() | NonSparseGate():
            layers["element_gate"] = matrix(d, width=d, heads=H, head_dim=D)
        case ValueGate():
            layers["value_gate"] = matrix(d, width=d, kv_heads=K, head_dim=D)
        case SharedGate():
            layers["shared_gate"] = matrix(d, width=d, head_dim=D)
        case ValueScale():
            layers["value_scale"] = vector("ones", kv_heads=K)
        case ConstantGate():
            layers["constant_gate"] = vector("zeros", heads=H, head_dim=D)
    if config.qkv_bias:
        layers["q_bias"] = vector("zeros", heads=H, head_dim=D)
        layers |= {name: vector("zeros", kv_heads=K, head_dim=D) for name in ("k_bias", "v_bias")}
    if config.out_bias:
        layers["o_bias"] = vector("zeros", width=d)
    tree: Params = {"layers": layers}
    if config.norm is not None and not config.layout.sums:
        tree |= norm("final_norm", config.norm, width=d)
    if config.norm is not None and config.embed_norm:
        tree |= norm("embed_norm", config.norm, width=d)
    if isinstance(config.position, Learned):
        tree["positions"] = Leaf((config.context + config.position.offset, d), ("context", "width"), "normal", d)
    if isinstance(config.kv_bias, attention_bias.SinkToken):
        tree["sink_token"] = Leaf((d,), ("width",), "normal", d)
    if config.vocab_size is not None:
        e = config.embed_width or d
        tree["embed"] = Leaf((config.vocab_size, e), ("vocab", "width"), "normal", e)
        if config.embed_width is not None:
            tree["embed_in"] = Leaf((e, d), ("embed_width", "width"), "normal", e)
            tree["embed_out"] = Leaf((d, e), ("width", "embed_width"), "normal", d)
        if not config.tied:
            tree["unembed"] = Leaf((e, config.vocab_size), ("width", "vocab"), "normal", e)
        if config.unembed_bias:
            tree["unembed_bias"] = Leaf((config.vocab_size,), ("vocab",), "zeros")
    return tree


def init(config: Config, seed: int | jax.Array, dtype: str = "float32", std: float | None = None) -> Params:
    """Draw random parameters. Each leaf's key depends only on the seed and the leaf's path, not on other leaves.

    A traced seed gives the same bits, because XLA is kept from turning a division into a product with the reciprocal.

    Args:
        config: The architecture.
        seed: Seed of all leaves, at most 32 bits.
        dtype: Dtype of all leaves.
        std: Standard deviation of every "normal" leaf; None for 1 / sqrt(fan_in).

    Returns:
        Arrays in the tree of `abstract(config)`.

    Raises:
        SinkjaxError: The dtype is unknown or not enabled; the seed exceeds 32 bits; the parameters exceed this machine's memory.
    """
    check_dtype(dtype)
    check_seed(seed)
    apart: Callable[[Any], Any] = jax.lax.optimization_barrier if isinstance(seed, jax.Array) else lambda value: value
    refuse_larger_than_memory("parameters", count(config) * jnp.dtype(dtype).itemsize)

    def draw(path: tuple, leaf: Leaf) -> jax.Array:
        if leaf.init in CONSTANTS:
            return jnp.full(leaf.shape, CONSTANTS[leaf.init], dtype)
        noise = jax.random.normal(leaf_key(seed, path), leaf.shape, jnp.float32)
        noise, root = apart((noise, jnp.float32(math.sqrt(leaf.fan_in))))
        if leaf.init == "small":
            return (noise * SMALL).astype(dtype)
        return apart((noise / root if std is None else noise * std).astype(dtype))

    return jax.tree_util.tree_map_with_path(draw, abstract(config))


def leaf_key(seed: int | jax.Array, path: tuple) -> jax.Array:
    """Return the random key that `init` uses for the leaf at a path."""
    return jax.random.fold_in(random_key(seed), leaf_number(path))


def leaf_number(path: tuple) -> np.uint32:
    """Return the number of a leaf's path, which makes its random key its own."""
    return np.uint32(zlib.crc32(jax.tree_util.keystr(path).encode()))


def check_seed(seed: Any) -> None:
    """Raise unless JAX accepts this seed; traced seeds pass."""
    if isinstance(seed, jax.Array):
        return
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed <= LARGEST:
        raise SinkjaxError(f"a seed must be an integer from 0 to {LARGEST}, not {short(seed)}")


def check_dtype(dtype: str) -> None:
    """Raise unless parameters can have this dtype."""
    one_of("dtype", dtype, DTYPES)
    if dtype == "float64" and jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise SinkjaxError('dtype "float64" needs jax.config.update("jax_enable_x64", True) (or JAX_ENABLE_X64=1) beforehand')


def sharding(leaf: Leaf, mesh: Mesh, rules: Mapping[str, str] = RULES) -> NamedSharding:
    """Return a leaf's sharding on a mesh, from its logical axes and the rules."""
    spec = []
    for size, axis in zip(leaf.shape, leaf.axes, strict=True):
        target = rules.get(axis)
        spec.append(target if target in mesh.shape and size % mesh.shape[target] == 0 else None)
    return NamedSharding(mesh, PartitionSpec(*spec))


def count(config: Config) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(config)))


def dtype_of(params: Params) -> np.dtype:
    """The dtype that all parameters have."""
    dtype: np.dtype = jax.tree.leaves(params)[0].dtype
    return dtype


def check(params: Params, config: Config) -> None:
    """Raise if leaves are missing, unexpected, of the wrong shape or of a dtype that is not enabled; names all of them."""

    refuse(not isinstance(config, Config), f"an architecture is a sinkjax.Config, not {short(config)}")

    def shapes(tree: Params) -> dict[str, tuple[int, ...]]:
        return {jax.tree_util.keystr(path): tuple(leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}

    want, have = shapes(abstract(config)), shapes(params)
    wrong = [
        f"{name}: {have.get(name)} instead of {want.get(name)}"
        for name in sorted(want | have)
        if want.get(name) != have.get(name)
    ]
    refuse(bool(wrong), "the parameters do not fit the config: " + "; ".join(wrong))
    if any(jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype for leaf in jax.tree.leaves(params)):
        raise SinkjaxError('float64 parameters need jax.config.update("jax_enable_x64", True)')


def check_finite(params: Params) -> None:
    """Raise if leaves contain NaN or infinity; names all of them."""
    finite = jax.tree_util.tree_leaves_with_path(jax.device_get(jax.tree.map(_finite, params)))
    wrong = ["".join(f".{key.key}" for key in path)[1:] for path, yes in finite if not yes]
    if wrong:
        hold = "hold" if len(wrong) > 1 else "holds"
        raise SinkjaxError(f"{', '.join(wrong)} {hold} NaN or infinity; check=False lets broken parameters through")


@jax.jit
def _finite(leaf: jax.Array) -> jax.Array:
    """Return whether a leaf is finite, using that 0 times NaN or infinity is NaN. On a CPU, a maximum would lose a NaN.

    A single program for all leaves in 16 bits would hold copies in float32.
    """
    return jnp.isfinite((leaf * 0).sum())
