"""A forward with a past beside the one of the text with its tokens in front."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import sinkjax
from sinkjax import Capture, Probe, Site

FRONT = (7, 3)
TEXT = np.random.default_rng(1).integers(2, 41, (2, 9))
LENGTHS = np.array([9, 6])
PROBE = Probe(
    attention_received=True, attention_share=True, row_entropy=True, resid_max=True, nll=True, attention=True,
    capture=(Capture(Site.RESID), Capture(Site.LOGITS)),
)  # fmt: skip


def in_front(tokens: np.ndarray, front: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([np.broadcast_to(front, (len(tokens), len(front))), tokens], axis=1)


def compare(model: Any, front: tuple[int, ...], edits: Any = (), shifted: Any = (), **options: Any) -> None:
    """A forward with a past, and the one of the text with its tokens in front, whose edits are `shifted`."""
    P = len(front)
    prefix = sinkjax.sink_prefix(model, front)
    probe = dataclasses.replace(PROBE, attention_received_past=True)
    found = sinkjax.forward(model, TEXT, edits=edits, probe=probe, lengths=LENGTHS, past=prefix, **options)
    want = sinkjax.forward(model, in_front(TEXT, front), edits=shifted, probe=PROBE, lengths=LENGTHS + P, **options)
    for b, T in enumerate(LENGTHS):
        close = {"rtol": 0, "atol": 1e-10}
        np.testing.assert_allclose(found.logits[b, :T], want.logits[b, P : P + T], **close)
        np.testing.assert_allclose(found.record["nll"][b, : T - 1], want.record["nll"][b, P : P + T - 1], **close)
        np.testing.assert_allclose(found.record["resid"][b, :, :T], want.record["resid"][b, :, P : P + T], **close)
        whole = np.asarray(want.record["attention"])[b, :, :, P : P + T, : P + T]
        np.testing.assert_allclose(found.record["attention"][b, :, :, :T, :T], whole[..., P:], **close)
        scores = np.asarray(want.record["logits"])[b, :, :, P : P + T, P : P + T]
        np.testing.assert_allclose(found.record["logits"][b, :, :, :T, :T], scores, **close)
        np.testing.assert_allclose(found.record["attention_received_past"][b], whole[..., :P].sum(-1).mean(-1), **close)
        for name in ("attention_received", "attention_share"):
            np.testing.assert_allclose(found.record[name][b, ..., :T], want.record[name][b, ..., P : P + T], **close)
