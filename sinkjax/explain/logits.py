"""The residual stream read through the unembedding: parts of a logit, and the prediction at each depth."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.explain.parts import FollowedPrompts, as_places, each_prompt, linear, parts_of, walk
from sinkjax.model.batch import check_batch
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.block import final_normed
from sinkjax.transformer.embed import embed
from sinkjax.transformer.forward import run
from sinkjax.transformer.output import NLL_TOKENS, logits_of, unembedded_width
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


@fixed_settings
def explain_logit(
    model: Model,
    tokens: Any,
    position: Any = None,
    token: Any = None,
    against: Any = None,
    neurons: int | None = None,
    lengths: Any = None,
    precision: str = "highest",
) -> xarray.Dataset:
    """Split one logit per prompt by the parts of the residual stream (direct logit attribution).

    Args:
        model: The model.
        tokens: int [B, T], padded on the right.
        position: Position at which the logit is read, or one per prompt; None: each prompt's last token.
        token: Token whose logit is split, or one per prompt; None: the one with the largest logit.
        against: Token whose logit is subtracted, or one per prompt; None: no subtraction.
        neurons: A layer whose MLP is split into its neurons, or None.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        `contribution` (prompt, part), with the scale of the final norm frozen: the parts sum to `logit` (prompt), before a soft
        cap. `removed` (prompt, part): the fall of the logit when the part is taken out of the last residual stream and the norm
        is computed from the rest; these need not sum to the logit. `token` (prompt). Coordinates: see `explain_score`.

    Raises:
        SinkjaxError: The model has no vocabulary; a position or token is out of range; the layer has no neurons to split.
    """
    refuse_without_vocabulary(model)
    prompts, known = FollowedPrompts.of(model, tokens, lengths, neurons, precision)
    places = as_places("position", known - 1 if position is None else position, known)
    pair = [as_tokens(what, each, model.config, len(known)) for what, each in (("token", token), ("against", against))]
    contribution, removed, whole, chosen = map(np.asarray, _logits(prompts, places, *pair))
    have, labels = parts_of(model.config, prompts.split)
    axes = ("prompt", "part")
    values: dict[str, Any] = {"contribution": (axes, contribution[:, have]), "removed": (axes, removed[:, have])}
    values |= {"logit": ("prompt", whole), "token": ("prompt", chosen)}
    return xarray.Dataset(values, labels | {"prompt": np.arange(len(whole))})


@fixed_settings
def logit_lens(
    model: Model, tokens: Any, positions: Any = None, lengths: Any = None, precision: str = "highest"
) -> xarray.Dataset:
    """Read the residual stream at every depth through the final norm and the unembedding (nostalgebraist 2020).

    Args:
        model: The model.
        tokens: int [B, T], padded on the right.
        positions: The positions to read, a sequence of ints; None: all.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        By (prompt, depth, position), with depth 0 the embedding and depth L the output: `nll`, of the next token in nats; `kl`,
        the divergence of the last depth's distribution from this depth's, KL(last || this), in nats; `top`, the most likely
        token; and `top_probability`. Beyond a prompt's length, and for the nll at its last token, NaN (-1 for a token).

    Raises:
        SinkjaxError: The model has no vocabulary; a position is out of range.
    """
    refuse_without_vocabulary(model)
    config = model.config
    tokens, lengths, _ = check_batch(tokens, lengths, config, model.tokenizer)
    T = tokens.shape[1]
    chosen = None if positions is None else tuple(np.atleast_1d(positions).tolist())
    probe = Probe(capture=(Capture(Site.RESID, positions=chosen),))
    probe.check(config, T)
    places = np.arange(T) if chosen is None else np.array(chosen)
    spec = ForwardSpec(config=config, probe=probe, logits=False, precision=precision)
    statistics = _lens(model.params, tokens, lengths, places, spec=spec)
    axes = ("prompt", "depth", "position")
    labels = {"prompt": np.arange(len(lengths)), "depth": np.arange(config.layers + 1), "position": places}
    return xarray.Dataset({name: (axes, np.asarray(array)) for name, array in statistics.items()}, labels)


def refuse_without_vocabulary(model: Model) -> None:
    """Raise if a model has no logits."""
    check_model(model)
    refuse(model.config.vocab_size is None, "this model has no vocabulary, so no logits")


def as_tokens(what: str, token: Any, config: Config, B: int) -> np.ndarray | None:
    """One token per prompt, int [B], or None. Errors: it is not in the vocabulary."""
    if token is None:
        return None
    chosen = each_prompt(what, "a token id", token, B)
    outside = ((chosen < 0) | (chosen >= config.vocab_size)).any()
    refuse(bool(outside), f"{what} {token} is not in the vocabulary, which has {config.vocab_size} tokens")
    return chosen.astype(np.int32)


@jax.jit
def _logits(
    prompts: FollowedPrompts, places: jax.Array, token: jax.Array | None, against: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Contributions and falls [B, C + 1], the logit [B] and its token [B]."""
    params, config, precision = prompts.params, prompts.config, prompts.precision
    _, parts, h = walk(prompts, places, None)
    if token is None:
        token = logits_of(final_normed(h, params, config), params, config, precision)[:, 0].argmax(axis=-1)
    unembed = params["embed"] if config.tied else params["unembed"].T
    rows, bias = unembed[token], params.get("unembed_bias")
    constant = jnp.zeros(len(rows), h.dtype) if bias is None else bias[token]
    if against is not None:
        rows, constant = rows - unembed[against], constant if bias is None else constant - bias[against]

    def logit(h: jax.Array, at: jax.Array | None) -> jax.Array:
        """The logit [..., B] of streams [..., B, 1, d]."""
        x = unembedded_width(final_normed(h, params, config, at), params, config, precision)[..., 0, :]
        return config.multipliers.logits * (jnp.einsum("...Bd,Bd->...B", x, rows, precision=precision) + constant)

    frozen, whole = partial(logit, at=h), logit(h, None)
    rest = jnp.broadcast_to(frozen(jnp.zeros_like(h)), whole.shape)
    fall = jax.lax.map(lambda part: whole - logit(h - part, None), parts)
    columns = (jnp.concatenate([each, rest[None]]).T for each in (linear(frozen)(parts), fall))
    return (*columns, whole, token)  # type: ignore[return-value]


@partial(jax.jit, static_argnames="spec")
def _lens(params: Params, tokens: jax.Array, lengths: jax.Array, places: jax.Array, *, spec: ForwardSpec) -> dict[str, jax.Array]:
    """The statistics of `logit_lens`, each [B, L + 1, P], in blocks of tokens."""
    record = run(params, tokens, lengths, (), spec=spec).record
    first, _ = embed(params, tokens, lengths, (), dataclasses.replace(spec, probe=Probe()))
    depths = jnp.concatenate([first[:, None, places], record["resid"]], axis=1)
    B, P = len(tokens), len(places)
    following = jnp.take_along_axis(tokens, jnp.broadcast_to(jnp.minimum(places + 1, tokens.shape[1] - 1), (B, P)), axis=1)

    def log_probabilities(h: jax.Array) -> jax.Array:
        x = final_normed(h, params, spec.config)
        return jax.nn.log_softmax(logits_of(x, params, spec.config, spec.precision), axis=-1)

    def of_position(inputs: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        streams, targets = inputs  # [D, B, 1, d] and [B, 1]
        last = log_probabilities(streams[-1])

        def of_depth(h: jax.Array) -> dict[str, jax.Array]:
            logp = log_probabilities(h)
            return {
                "nll": -jnp.take_along_axis(logp, targets[..., None], axis=-1)[..., 0],
                "kl": (jnp.exp(last) * (last - logp)).sum(axis=-1),
                "top": logp.argmax(axis=-1).astype(jnp.int32),
                "top_probability": jnp.exp(logp.max(axis=-1)),
            }

        depths: dict[str, jax.Array] = jax.lax.map(of_depth, streams)  # [D, B, 1]
        return depths

    columns = depths.transpose(2, 1, 0, 3)[:, :, :, None], following.T[..., None]
    statistics = jax.lax.map(of_position, columns, batch_size=min(P, max(1, NLL_TOKENS // B)))  # [P, D, B, 1]
    real = {name: places < lengths[:, None] - (name == "nll") for name in statistics}
    return {
        name: jnp.where(real[name][:, None], array[..., 0].transpose(2, 1, 0), -1 if name == "top" else jnp.nan)
        for name, array in statistics.items()
    }
