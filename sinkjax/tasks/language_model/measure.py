"""Measurements during the training of a language model, on the first tokens of held-out blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.analysis import metrics
from sinkjax.edits.site import Site
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.record import Record
from sinkjax.tasks import written
from sinkjax.transformer.forward import forward

MEASURED = 64  # the sink rate's T, as in Gu et al. 2025
EPS = 0.3  # the sink rate's threshold, as in Gu et al. 2025
KEYS = 5  # first positions whose sink rate is logged
BIAS = ("attention_received_bias", "attention_share_bias")
STATISTICS = ("attention_received", "attention_share", *BIAS, "resid_max", "resid_norm")
PROBE = dataclasses.replace(
    Probe.of(*STATISTICS, "value_norm", "resid_kurtosis"), capture=(Capture(Site.RESID, name="resid"), *written.CAPTURES)
)


def measure(params: Params, tokens: jax.Array, config: Config, precision: str) -> dict[str, jax.Array]:
    """Statistics of the first tokens of each sequence, of values, and of the residual stream after each block:

    value_ratio float32 [layer], the norm of a head's value at position 0 over the mean of the others', mean over prompts and
    key-value heads (the value drain of Guo et al. 2024); spectrum float32 [layer, d], the eigenvalues of the stream's second
    moments over all tokens, ascending; disparity float32 [layer], the mean over prompts of max |h| / mean |h| at position 0 (Li
    et al. 2026); spike float32 [layer], the mean over prompts of max |h| over the median |h| of all positions and dims; kurtosis
    float32 [layer], the mean over prompts and positions of the excess kurtosis of h over its dims; written
    float32 [layer, head], the mean norm of position 0's contribution in later rows over the norm of the head's full output there.
    """
    tokens = tokens[:, : min(MEASURED, tokens.shape[1] - 1)]
    record = forward(params, tokens, config, probe=PROBE, logits=False, precision=precision).record
    h = record["resid"].astype(jnp.float32)  # [prompt, layer, position, d]
    moments = jnp.einsum("plti,pltj->lij", h, h, precision="highest")
    first = jnp.abs(h[:, :, 0])
    sizes = jnp.abs(h).reshape(*h.shape[:2], -1)
    values = record["value_norm"]  # [prompt, layer, kv_head, position]
    from_first, whole = (rows[..., 1:].mean(axis=(0, 3)) for rows in written.norms(record, params))
    return {name: record[name] for name in STATISTICS} | {
        "value_ratio": (values[..., 0] / values[..., 1:].mean(axis=-1)).mean(axis=(0, 2)),
        # One layer at a time: LAPACK's batches use the thread pool that all devices of a CPU share, and two of them deadlock.
        "spectrum": jax.lax.map(jnp.linalg.eigvalsh, moments),
        "disparity": (first.max(axis=-1) / first.mean(axis=-1)).mean(axis=0),
        "kurtosis": record["resid_kurtosis"][:, 1:].mean(axis=(0, 2)),
        "spike": (sizes.max(axis=-1) / jnp.median(sizes, axis=-1)).mean(axis=0),
        "written": from_first / (whole + written.TINY),
    }


def summarise(measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The entries of the log.

    sink, sink_share: Sink_k^0.3 of the first positions, by the weights used and by each row's shares; sink_bias, sink_bias_share:
    the same for the attention that is given to no key. received, share [layer, head]: mean weight on the first key, or its share.
    norm_ratio [depth]: of the first token's norm to the others'. largest [depth]: mean over prompts of the largest |h|.
    effective_rank [layer]: exp of the entropy of the singular values of all residual vectors (tokens x d), their sum being 1 (Roy
    and Vetterli 2007). value_ratio, disparity, spike, kurtosis [layer], written [layer, head]. Others are unchanged.
    """
    record = Record({name: measured[name] for name in STATISTICS}, PROBE.dims())
    rest = {name: value for name, value in measured.items() if name not in (*STATISTICS, "spectrum")}
    keys = range(min(KEYS, measured["attention_received"].shape[-1]))
    bias, bias_share = (measured[name] for name in BIAS)
    return rest | {
        "sink": [float(metrics.sink_rate(record, key, EPS).mean()) for key in keys],
        "sink_share": [float(metrics.sink_rate(record, key, EPS, statistic="attention_share").mean()) for key in keys],
        "sink_bias": float((bias > EPS).mean()),
        "sink_bias_share": float((bias_share > EPS).mean()),
        "received": measured["attention_received"][..., 0].mean(axis=0),
        "share": measured["attention_share"][..., 0].mean(axis=0),
        "received_bias": bias.mean(axis=0),
        "norm_ratio": metrics.norm_ratio(record, 0).mean(axis=0).astype(np.float32),
        "largest": metrics.largest_activation(record).value.mean(axis=0),
        "effective_rank": effective_rank(measured["spectrum"]).astype(np.float32),
    }


def effective_rank(spectrum: np.ndarray) -> np.ndarray:
    """exp of the entropy of the singular values, from the eigenvalues of the second moments: [..., d] to [...]."""
    values = np.sqrt(np.maximum(spectrum.astype(np.float64), 0))
    shares = values / values.sum(axis=-1, keepdims=True)
    return np.exp(-np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1)), 0).sum(axis=-1))
