"""Massive activations by Sun et al.'s definition: what is measured (`metrics.is_massive`), and where in a model they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import activations, metrics
from sinkjax.studies.papers.background._position import real

RANKS = 10  # largest activations that are kept of each hidden state


def largest(x: Any, view: Any) -> Any:
    """The largest |h| of a prompt's whole hidden state, in descending order: [B, RANKS] from [B, T, d]."""
    import jax
    import jax.numpy as jnp

    return jax.lax.top_k(jnp.abs(real(x, view)).reshape(x.shape[0], -1), RANKS)[0]


def median(x: Any, view: Any) -> Any:
    """Median |h| of a prompt's whole hidden state: [B] from [B, T, d]."""
    import jax.numpy as jnp

    return jnp.nanmedian(jnp.abs(real(x, view, jnp.nan)).reshape(x.shape[0], -1), axis=-1)


def state_median() -> sinkjax.Statistic:
    """The median |h| of each hidden state, all positions together."""
    return sinkjax.Statistic(activations.STATE_MEDIAN, sinkjax.Site.RESID, median, ("prompt", "depth"))


def levels_probe(position: int) -> sinkjax.Probe:
    """What the unedited run measures: sizes as in Sun et al., and the stream at the position."""
    top = sinkjax.Statistic("state_largest", sinkjax.Site.RESID, largest, ("prompt", "depth", "rank"))
    return sinkjax.Probe(
        attention_received=True,
        resid_max=True,
        resid_median=True,
        resid_norm=True,
        extra=(top, state_median()),
        capture=(sinkjax.Capture(sinkjax.Site.RESID, positions=(position,), name="stream"),),
    )


@dataclass(frozen=True)
class Levels:
    """What the edits need to know about the unedited model, estimated on the prompts of the controls.

    layer: the first one after which the definition holds in most prompts, or, if it never does, the one after which |h| is
    largest. order: int [L, d], the dims by falling mean |h| at the position after each layer. mean: float [L, d], the mean stream
    there.
    """

    layer: int
    order: NDArray[np.integer]
    mean: NDArray[np.floating]

    @classmethod
    def of(cls, record: Mapping[Any, Any], prompts: int) -> Levels:
        """From the record of the unedited run, by its first prompts."""
        stream = np.asarray(record["stream"])[:prompts, :, 0]
        massive = massive_layers(record, prompts)
        peak = np.asarray(record["state_largest"])[:prompts, 1:, 0].mean(axis=0)
        layer = int(massive[0] if massive.size else peak.argmax())
        return cls(layer, np.argsort(-np.abs(stream).mean(axis=0), axis=-1), stream.mean(axis=0))


def massive_layers(record: Mapping[Any, Any], prompts: int | None = None) -> NDArray[np.integer]:
    """The layers after which the largest |h| obeys the definition in most of the first prompts, ascending."""
    massive = metrics.is_massive(np.asarray(record["state_largest"])[..., 0], metrics.hidden_median(record))
    return np.flatnonzero(massive[:prompts, 1:].mean(axis=0) > 0.5)
