"""The residual stream of one token per prompt as the sum of its parts, at every depth.

A part is one component's output: the embedding, a position vector, a head, an MLP (or each of its neurons), a bias. Norms keep
the scale that they have in the run ("frozen"), so they are affine, and the parts sum to the whole wherever norms are.
Shape suffixes: B prompts, T positions, H query heads, d residual width, F MLP width, C parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.data.prompts import is_integer
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import as_array, check_batch
from sinkjax.model.config import Config
from sinkjax.model.heads import gated_outputs, normed_outputs
from sinkjax.model.params import Params
from sinkjax.model.positions import AddedPosition
from sinkjax.model.site import Site, lacks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.transformer.block import add_to_residual, as_added, block
from sinkjax.transformer.embed import embed
from sinkjax.transformer.layers import windows
from sinkjax.transformer.rotation import rotary
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Tape

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

START = 3  # parts before the first block: embedding, position vector, bias of the embedding's norm
WATCHED = (Site.ATTN_IN, Site.QUERY, Site.KEY, Site.VALUE, Site.HEAD_OUT, Site.ATTN_OUT, Site.NEURON, Site.MLP_OUT)


@struct.dataclass
class FollowedPrompts:
    """A model and prompts, one position of each of which is followed. split: the layer whose MLP is split, int [], or None."""

    params: Params
    tokens: jax.Array
    lengths: jax.Array
    split: Any
    config: Config = struct.field(pytree_node=False)
    precision: str = struct.field(pytree_node=False)

    @classmethod
    def of(cls, model: Model, tokens: Any, lengths: Any, neurons: Any, precision: str) -> tuple[FollowedPrompts, np.ndarray]:
        """Check the arguments of an explanation; also return the lengths as numpy int [B]."""
        check_model(model)
        tokens, lengths, known = check_batch(tokens, lengths, model.config, model.tokenizer)
        return cls(model.params, tokens, lengths, as_split(neurons, model.config), model.config, precision), known


class Before(NamedTuple):
    """The view of a block that `walk` passes to its function.

    parts: float [C, B, 1, d], the parts of h so far, 0 where nothing is written yet. h: float [B, 1, d], the block's input at the
    chosen positions. w: the block's parameters. tape: the block's tape, whose record has each site's array at all positions.
    take: selects the chosen positions. rotate: rotation of all positions; rotate_place: of the chosen ones. window: int, or None.
    """

    parts: jax.Array
    h: jax.Array
    w: Params
    tape: Tape
    take: Callable[[jax.Array], jax.Array]
    rotate: Callable[..., tuple]
    rotate_place: Callable[..., tuple]
    window: jax.Array | None

    @property
    def config(self) -> Config:
        return self.tape.spec.config

    @property
    def precision(self) -> str:
        return self.tape.spec.precision

    def site(self, name: str) -> jax.Array:
        """The array of a site at the chosen positions, [B, 1, ...]."""
        return self.take(self.tape.record[name])


def walk(prompts: FollowedPrompts, place: jax.Array, account: Callable[[Before], Any] | None) -> tuple[Any, jax.Array, jax.Array]:
    """Run the blocks once. Parts follow the positions `place`, int [B].

    account: computes a result from each block's input. Returns its results with a leading axis of layers, the last parts
    [C, B, 1, d] and the last stream [B, 1, d].
    """
    config, tokens, lengths, split = prompts.config, prompts.tokens, prompts.lengths, prompts.split
    sites = [site for site in (Site.EMBED, Site.POSITION_VECTOR, *WATCHED) if not lacks(config, site)]
    watch = Probe(capture=tuple(Capture(site, name=site.value) for site in sites))
    spec = ForwardSpec(config=config, probe=watch, logits=False, precision=prompts.precision)
    params = with_sink_token(prompts.params, spec)
    h, start = embed(params, tokens, lengths, (), spec)
    take = partial(at_place, place=place)
    H, F, B, d = config.heads, 0 if split is None else config.neurons, h.shape[0], h.shape[-1]
    parts = jnp.zeros((START + config.layers * (H + 2) + F, B, 1, d), h.dtype)
    parts = parts.at[:START].set(first_parts(start["record"], params, config, take))
    wide = jnp.promote_types(h.dtype, jnp.float32)
    rotate = rotary(config, lengths, jnp.arange(tokens.shape[1])[None], wide, ())
    rotate_place = rotary(config, lengths, place[:, None], wide, ())
    seen_keys = windows(config)

    def step(carry: tuple[jax.Array, jax.Array], xs: tuple[jax.Array, Params]) -> tuple[tuple, Any]:
        (h, parts), (layer, w) = carry, xs
        tape = Tape(spec, (), lengths, layer)
        window = None if seen_keys is None else seen_keys[layer]
        after, _ = block(h, w, window, rotate, tape)
        before = Before(parts, take(h), w, tape, take, rotate, rotate_place, window)
        result = None if account is None else account(before)
        new, neurons = written(before, None if split is None else split == layer)
        parts = kept(parts, before)
        parts = jax.lax.dynamic_update_slice_in_dim(parts, new, START + layer * (H + 2), axis=0)
        return (after, parts if neurons is None else parts.at[-F:].add(neurons)), result

    (h, parts), results = jax.lax.scan(step, (h, parts), (jnp.arange(config.layers), params["layers"]))
    return results, parts, take(h)


def at_place(x: jax.Array, place: jax.Array) -> jax.Array:
    """The rows [B, 1, ...] of x [B, T, ...] at one position per prompt."""
    return jnp.take_along_axis(x, place.reshape(-1, *[1] * (x.ndim - 1)), axis=1)


def first_parts(record: dict[str, jax.Array], params: Params, config: Config, take: Callable) -> jax.Array:
    """The parts of the stream at depth 0, [START, B, 1, d]."""
    rows = take(record["embed"])
    added = take(record["position_vector"]) if "position_vector" in record else jnp.zeros_like(rows)
    if config.norm is None or not config.embed_norm:
        return jnp.stack([rows, added, jnp.zeros_like(rows)])
    norm = partial(config.norm, w=params, name="embed_norm", at=rows + added)
    return jnp.stack([*linear(norm)(jnp.stack([rows, added])), norm(jnp.zeros_like(rows))])


def linear(affine: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """The linear part of an affine map."""
    return lambda x: affine(x) - affine(jnp.zeros_like(x))


def stages(before: Before) -> tuple[Callable, Callable]:
    """The two sums of a block, each as an affine map of (stream, change)."""
    config = before.config

    def affine(name: str, at: jax.Array, h: jax.Array, change: jax.Array) -> jax.Array:
        h, change = jnp.broadcast_arrays(h, change)
        return add_to_residual(h, change, before.w, name, config, at)

    attn_sum = (before.h if config.residual else 0) + before.site("attn_out")
    first = partial(affine, "attn_norm", attn_sum)
    if config.mlp_width is None:
        return first, lambda h, change: h
    after = first(before.h, before.site("attn_out"))
    mlp_sum = (after if config.residual else 0) + before.site("mlp_out")
    return first, partial(affine, "mlp_norm", mlp_sum)


def kept(parts: jax.Array, before: Before) -> jax.Array:
    """Earlier parts as they leave a block: unchanged, unless a norm follows the sums or nothing is summed."""
    if before.config.residual and not before.config.layout.sums:
        return parts
    first, second = stages(before)
    zero = jnp.zeros_like(before.h)
    return linear(lambda part: second(linear(lambda x: first(x, zero))(part), zero))(parts)


def written(before: Before, here: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """The parts that a block adds, as they are in the stream after the block: heads, bias of attention, MLP, [H + 2, B, 1, d].

    here: whether this block's MLP is split; then its biases represent it, and its neurons are the second result [F, B, 1, d].
    """
    w, config, precision = before.w, before.config, before.precision
    first, second = stages(before)
    zero = jnp.zeros_like(before.h)

    def added(name: str, raw: jax.Array, bias: str) -> tuple[jax.Array, jax.Array]:
        """Terms `raw` [C, B, 1, d] of a sum, and its bias, behind the norm of the sum."""
        constant = jnp.broadcast_to(w[bias], zero.shape) if bias in w else zero
        norm = partial(as_added, w=w, name=name, config=config, at=raw.sum(axis=0) + constant)
        return linear(norm)(raw), norm(constant)

    after_mlp = linear(lambda x: second(x, zero))
    z = before.site("head_out")
    z = normed_outputs(z, w, config.head_norm) if config.head_norm is not None else z
    z = gated_outputs(z, before.site("attn_in"), w, config.gate, precision)
    o = jnp.broadcast_to(w["o"], (config.heads, *w["o"].shape[-2:]))
    heads, bias = added("attn_out_norm", jnp.einsum("BPHD,HDd->HBPd", z, o, precision=precision), "o_bias")
    attention = [*after_mlp(linear(partial(first, zero))(heads)), after_mlp(first(zero, bias))]
    if config.mlp_width is None:
        return jnp.stack([*attention, zero]), None
    from_mlp = partial(second, zero)
    mlp, neurons = from_mlp(before.site("mlp_out")), None
    if here is not None:
        raw = jnp.einsum("BPF,Fd->FBPd", before.site("neuron"), w["down"], precision=precision)
        units, bias = added("mlp_out_norm", raw, "down_bias")
        neurons = jnp.where(here, linear(from_mlp)(units), 0)
        mlp = jnp.where(here, from_mlp(bias), mlp)
    return jnp.stack([*attention, mlp]), neurons


def parts_of(config: Config, split: int | None) -> tuple[np.ndarray, dict[str, tuple[str, np.ndarray]]]:
    """Which of all parts, and the constant after them, a model can have: bool [C + 1]; and the coordinates of those.

    Coordinates: `part` (its name), `kind`, `written` (the layer that wrote it, or -1) and `index` (of a head or neuron, or -1).
    split: the layer whose MLP is split.
    """
    biased = config.norm is not None and "_bias" in config.norm.learned()
    of_attention = config.out_bias or (biased and (config.layout.outputs or config.layout.sums))
    rows: list[tuple[bool, str, str, int, int]] = [
        (True, "embedding", "embedding", -1, -1),
        (isinstance(config.position, AddedPosition), "position vector", "position", -1, -1),
        (biased and config.embed_norm, "bias of the embedding's norm", "bias", -1, -1),
    ]
    for layer in range(config.layers):
        rows += [(True, f"head {layer}.{head}", "head", layer, head) for head in range(config.heads)]
        rows.append((of_attention, f"attention {layer} bias", "bias", layer, -1))
        rest = (f"MLP {layer} bias", "bias") if layer == split else (f"MLP {layer}", "mlp")
        rows.append((config.mlp_width is not None, *rest, layer, -1))
    if split is not None:
        rows += [(True, f"neuron {split}.{unit}", "neuron", split, unit) for unit in range(config.neurons)]
    rows.append((True, "bias", "bias", -1, -1))
    have = np.array([row[0] for row in rows])
    columns = map(np.array, zip(*(row[1:] for row in rows if row[0]), strict=True))
    return have, {name: ("part", next(columns)) for name in ("part", "kind", "written", "index")}


def as_places(what: str, position: Any, lengths: np.ndarray) -> np.ndarray:
    """One position per prompt, int [B]. Errors: it is not an int or an int per prompt, or beyond a prompt's end."""
    places = each_prompt(what, "a position", position, len(lengths))
    for prompt in np.flatnonzero((places < 0) | (places >= lengths)):
        length = lengths[prompt]
        raise SinkjaxError(f"{what} {places[prompt]} is not in prompt {prompt}, which has {length} tokens (0 to {length - 1})")
    return places.astype(np.int32)


def each_prompt(what: str, kind: str, given: Any, B: int) -> np.ndarray:
    """One integer per prompt, int [B]; kind: what it is, for the error."""
    array = np.asarray(as_array(f"a {what}", given))
    wrong = array.dtype.kind not in "iu" or array.shape not in ((), (B,))
    refuse(wrong, f"{what} must be {kind}, or one for each of {B} prompts, not {short(given)}")
    return np.broadcast_to(array, B)


def as_split(neurons: Any, config: Config) -> int | None:
    """The layer whose MLP is split. Errors: it is not a layer; there are no neurons to name."""
    if neurons is None:
        return None
    missing = "experts" if config.experts else "no MLP" if config.mlp_width is None else ""
    refuse(bool(missing), f"no MLP can be split into neurons: this model has {missing}")
    inside = is_integer(neurons) and 0 <= neurons < config.layers
    refuse(not inside, f"neurons must be a layer from 0 to {config.layers - 1}, or None, not {short(neurons)}")
    return int(neurons)
