"""Types of heads in a model or along checkpoints: first-token heads, previous-token heads and induction heads.

They are measured on repeated random tokens, where only the repetition predicts a token (Olsson et al. 2022), and compared with
the attention to random targets, as in arXiv 2606.02378.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.series import check_same_architecture, coordinates, loaded, members_of
from sinkjax.data.prompts import bos_ids, is_integer
from sinkjax.errors import SinkjaxError
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import PairView, Statistic
from sinkjax.runtime.settings import fixed_settings, random_key
from sinkjax.transformer.forward import forward

TYPES = ("first", "previous", "induction")
RANDOM = "random"


@fixed_settings
def head_types(
    models: Model | str | Path | Sequence[str | Path],
    *,
    revisions: Sequence[str] = (),
    prompts: int = 8,
    period: int = 32,
    bos: str | int = "auto",
    draws: int = 500,
    seed: int = 0,
    dtype: str = "float32",
    precision: str = "highest",
) -> xarray.Dataset:
    """Measure each head's attention to the first token, the previous one, and the one after the query token's last occurrence.

    Each prompt repeats `period` different random tokens once. A score is a head's mean attention to the type's target, over the
    queries of the second copy. We compare it with `draws` sets of random targets, each a visible key for every query.

    Args:
        models: A model, a folder of checkpoints, several models, or, with `revisions`, a single hub id, as for `sweep_models`.
        revisions: Branches, tags or commits of a single hub id.
        prompts: Number of prompts.
        period: Tokens per prompt before the repetition.
        bos: Token before each prompt, as in `sinkjax.encode`.
        draws: Number of sets of random targets.
        seed: Seed of the tokens and the random targets.
        dtype: Dtype of the parameters of loaded models.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        `score` (type, layer, head) in 0..1, the mean over prompts; `null` (layer, head), the mean over random targets; and `p`,
        the share of random sets, including the type's own, whose mean attention is at least the score. With several models, the
        first dimension is `checkpoint`, with coordinates `step` and `run` if all checkpoints state them.

    Raises:
        SinkjaxError: Any error of `sweep_models`; a number is too small; prompts do not fit the vocabulary or the context; a
            model has no tokenizer and `bos` is not given.
    """
    for name, number, least in (("prompts", prompts, 1), ("period", period, 2), ("draws", draws, 1)):
        if not is_integer(number) or number < least:
            raise SinkjaxError(f"{name} must be an integer of at least {least}, not {number!r}")

    def of(model: Model) -> xarray.Dataset:
        tokens = repeated_tokens(model, prompts, period, bos, seed)
        probe = Probe(extra=statistics(period, draws, seed))
        return scores(forward(model.params, tokens, model.config, probe=probe, logits=False, precision=precision).record)

    if isinstance(models, Model):
        return of(models)
    members = members_of(models, revisions)
    check_same_architecture(members)
    with contextlib.closing(loaded(members, dtype, False)) as each:
        series = xarray.concat([of(model) for _, model in each], "checkpoint")
    return series.assign_coords(coordinates(members))


def repeated_tokens(model: Model, prompts: int, period: int, bos: str | int, seed: int) -> np.ndarray:
    """Make repeated random tokens after the BOS: int [prompts, T]. Errors: the vocabulary or the context is too small."""
    size = model.config.vocab_size
    if size is None:
        raise SinkjaxError("this model has no vocabulary, so it reads no tokens twice")
    if model.tokenizer is None and not is_integer(bos) and bos != "none":
        raise SinkjaxError('this model has no tokenizer, so its BOS must be named: bos="none" or a token id')
    before = bos_ids(model, bos) if model.tokenizer is not None else [] if bos == "none" else [int(bos)]
    others = np.setdiff1d(np.arange(size), before)
    if len(others) < period or 2 * period + len(before) > model.config.context:
        raise SinkjaxError(
            f"{period} different tokens, twice, do not fit a model with {size} tokens and a context of {model.config.context}"
        )
    rng = np.random.default_rng(seed)
    once = np.stack([rng.permutation(others)[:period] for _ in range(prompts)])
    return np.hstack([np.broadcast_to(before, (prompts, len(before))), once, once]).astype(np.int32)


@functools.cache
def statistics(period: int, draws: int, seed: int) -> tuple[Statistic, ...]:
    """Return statistics: the mean attention to each type's target (prompt, layer, head) and to each set of random targets (...,
    draw)."""

    def at_random(rows: jax.Array) -> jax.Array:
        """Draw a visible key for each query and draw, independent of the query's block: int [Q, draws]."""
        keys = jax.vmap(functools.partial(jax.random.fold_in, random_key(seed)))(rows)
        return jax.vmap(lambda key, row: jax.random.randint(key, (draws,), 0, row + 1))(keys, rows)

    def mean(target: Callable[[jax.Array], jax.Array], weights: jax.Array, view: PairView) -> jax.Array:
        keys = target(view.rows).reshape(1, 1, len(view.rows), -1)  # one, or one for each draw
        taken = jnp.take_along_axis(weights, jnp.maximum(keys, 0), axis=-1)
        second = (view.rows >= view.lengths[:, None] - period) & (view.rows < view.lengths[:, None])
        total = jnp.where(second[:, None, :, None], taken, 0).sum(axis=2) / period
        return total if target is at_random else total[..., 0]

    targets: Mapping[str, Callable[[jax.Array], jax.Array]] = {
        "first": jnp.zeros_like,
        "previous": lambda rows: rows - 1,
        "induction": lambda rows: rows - period + 1,
        RANDOM: at_random,
    }
    named = {f"head_{name}": functools.partial(mean, target) for name, target in targets.items()}
    dims = ("prompt", "layer", "head")
    return tuple(Statistic(name, Site.WEIGHTS, of, (*dims, *["draw"] * (name == f"head_{RANDOM}"))) for name, of in named.items())


def scores(record: Mapping[Any, Any]) -> xarray.Dataset:
    """Compute scores, null and p, as returned by `head_types`, from a record of `statistics`."""
    score = np.stack([np.asarray(record[f"head_{name}"], np.float64).mean(axis=0) for name in TYPES])
    random = np.asarray(record[f"head_{RANDOM}"], np.float64).mean(axis=0)  # layer, head, draw
    above = (random >= score[..., None]).sum(axis=-1)
    axes, p = ("type", "layer", "head"), (1 + above) / (1 + random.shape[-1])
    variables = {"score": (axes, score), "null": (axes[1:], random.mean(axis=-1)), "p": (axes, p)}
    return xarray.Dataset(variables, {"type": list(TYPES)})
