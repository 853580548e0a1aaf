"""Interventions on SmolLM2 against transformers with an attention function of the test's own, which edits the scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

import sinkjax
from sinkjax import Probe, add_logit, attend_self, compose, mask_key, swap_embeddings
from tests.model import families, reference
from tests.model.prose import PASSAGES

pytestmark = pytest.mark.long

PROBE = Probe.of("attention_received", "resid_max", "nll")
ScoreEdit = Callable[[torch.Tensor, int], None]


@pytest.fixture(scope="module")
def tokens(smollm2) -> np.ndarray:
    return np.asarray(sinkjax.encode(smollm2, PASSAGES[:2], bos="none", length=48)[0])


def observe(tokens: np.ndarray, edit_scores: ScoreEdit, order: list[int] | None = None) -> dict[str, np.ndarray]:
    """PROBE's statistics from transformers. edit_scores(scores [B, H, T, T], layer) edits in place; order: of the embeddings."""

    def attention(module, query, key, value, mask, scaling: float, **unused) -> tuple[torch.Tensor, torch.Tensor]:
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        scores = torch.einsum("bhid,bhjd->bhij", query, key) * scaling
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
        edit_scores(scores, module.layer_idx)
        weights = scores.softmax(dim=-1)
        return torch.einsum("bhij,bhjd->bihd", weights, value), weights

    AttentionInterface.register("edited_scores", attention)
    model = reference.smollm2()
    rows = model.model.embed_tokens(torch.as_tensor(tokens)).detach()
    model.set_attn_implementation("edited_scores")
    try:
        seen = families.observe(model, embeddings=rows if order is None else rows[:, order])
    finally:
        model.set_attn_implementation("eager")
    T = tokens.shape[1]
    scores = torch.as_tensor(seen["logits"]).log_softmax(dim=-1).numpy()
    return {
        "attention_received": seen["attention"].sum(axis=3) / np.arange(T, 0, -1),
        "resid_max": np.abs(seen["hidden"]).max(axis=-1),
        "nll": -np.take_along_axis(scores[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0],
    }


def mask(key: int, layers=range(30), heads=slice(None)) -> ScoreEdit:
    def edit_scores(scores: torch.Tensor, layer: int) -> None:
        if layer in layers:
            scores[:, heads, key + 1 :, key] = -torch.inf  # causality hides the key from the queries before it

    return edit_scores


def self_only(position: int) -> ScoreEdit:
    def edit_scores(scores: torch.Tensor, layer: int) -> None:
        own = scores[:, :, position, position].clone()
        scores[:, :, position] = -torch.inf
        scores[:, :, position, position] = own

    return edit_scores


def bias(key: int, value: float, layers: tuple[int, ...]) -> ScoreEdit:
    def edit_scores(scores: torch.Tensor, layer: int) -> None:
        if layer in layers:
            scores[..., key] += value

    return edit_scores


def nothing(scores: torch.Tensor, layer: int) -> None:
    pass


SWAPPED = [0, 1, 20, *range(3, 20), 2, *range(21, 48)]
CASES = {
    "no edit": (compose(), nothing, None),
    "mask a key in all layers": (mask_key(0), mask(0), None),
    "mask a key in one layer": (mask_key(0, layers=12), mask(0, [12]), None),
    "mask a key in some heads": (mask_key(3, layers=slice(2, 9), heads=[0, 4, 8]), mask(3, range(2, 9), [0, 4, 8]), None),
    "attend to itself": (attend_self(5), self_only(5), None),
    "add a bias": (add_logit(0, -1.5, layers=(4, 20)), bias(0, -1.5, (4, 20)), None),
    "swap embeddings": (swap_embeddings(2, 20), nothing, SWAPPED),
}


@pytest.fixture(scope="module")
def plain(tokens: np.ndarray) -> dict[str, np.ndarray]:
    return observe(tokens, nothing)


@pytest.mark.parametrize("name", CASES)
def test_edited_statistics(smollm2, tokens: np.ndarray, plain, name: str) -> None:
    edits, edit_scores, order = CASES[name]
    record = sinkjax.forward(smollm2.params, tokens, smollm2.config, edits, PROBE, logits=False).record
    want = observe(tokens, edit_scores, order)
    received = np.asarray(record["attention_received"])
    np.testing.assert_allclose(received, want["attention_received"], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(record["resid_max"], want["resid_max"], rtol=1e-3)
    np.testing.assert_allclose(np.asarray(record["nll"])[:, :-1], want["nll"], rtol=1e-3, atol=1e-4)
    if name != "no edit":
        assert np.abs(want["attention_received"] - plain["attention_received"]).max() > 1e-2
