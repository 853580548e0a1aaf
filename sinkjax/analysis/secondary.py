"""Secondary sinks: later tokens whose state is aligned with the first token's, and the attention they get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import records
from sinkjax.analysis.records import Floats
from sinkjax.errors import SinkjaxError

ALIGNED = 0.9  # |cosine| with the first token's state (Wong et al., arXiv 2512.22213)


class SecondarySinks(NamedTuple):
    """Aligned tokens as each layer reads them, as arrays [..., prompt, layer].

    Attributes:
        share: Share of the tokens after the first that are aligned; NaN where there is no such token.
        attention: Mean attention they get in the layer, over heads and tokens; NaN where none is aligned.
        others: Mean attention of the tokens that are not aligned; NaN where all are.
    """

    share: Floats
    attention: Floats
    others: Floats


def secondary_sinks(
    record: Mapping[Any, Any], cosine: float = ALIGNED, *, min_queries: int = 8, statistic: str = "attention_received"
) -> SecondarySinks:
    """Find tokens after the first whose residual stream is aligned with the first token's (Wong et al., arXiv 2512.22213).

    Layer l reads the residual stream at depth l, so alignment there is compared with attention in layer l.

    Args:
        record: Statistics by name, with resid_first_cosine and `statistic`.
        cosine: The least absolute cosine of an aligned token, in 0..1.
        min_queries: Only tokens seen by at least so many queries.
        statistic: "attention_received", or "attention_share" for attention whose rows do not sum to 1.

    Returns:
        Share of aligned tokens, their attention and the others': float[..., prompt, layer] each.

    Raises:
        SinkjaxError: A statistic was not measured; `min_queries` is below 1; `cosine` is not in 0..1.
    """
    if not 0 <= records.finite_number("cosine", cosine) <= 1:
        raise SinkjaxError(f"cosine must be in 0..1, not {cosine}")
    received = records.measured(record, records.known_statistic(statistic)).astype(np.float64)
    later = records.candidates(received, np.arange(received.shape[-1]) > 0, min_queries)[..., None, :]
    cosines = records.measured(record, "resid_first_cosine")[..., :-1, :]  # depths that a layer reads
    attention = received.mean(axis=-2)  # over heads
    aligned = later & (np.abs(cosines) >= cosine)

    def mean(chosen: NDArray[np.bool_]) -> Floats:
        return records.ratio(np.where(chosen, attention, 0).sum(-1), chosen.sum(-1))

    share = records.ratio(aligned.sum(-1).astype(float), np.broadcast_to(later.sum(-1), aligned.shape[:-1]))
    return SecondarySinks(share, mean(aligned), mean(later & ~aligned))
