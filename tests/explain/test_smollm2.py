"""What makes SmolLM2's sink: the numbers that the how-to quotes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.data.corpora import packaged_documents


@pytest.fixture(scope="module")
def prompts(smollm2) -> tuple[Any, Any]:
    return sinkjax.encode(smollm2, packaged_documents()[::21], bos="none", length=64)


def test_the_mlp_of_layer_11_makes_the_first_keys_score(smollm2, prompts) -> None:
    """It gives 98 to 100.5% of the score in every head of the layers 13, 18, 22 and 26, and its parts sum to it in float32."""
    tokens, lengths = prompts
    found = sinkjax.explain_score(smollm2, tokens, lengths=lengths)
    np.testing.assert_allclose(found.contribution.sum("part"), found.score, rtol=0, atol=1e-4)
    share = (found.contribution.sel(part="MLP 11") / found.score).sel(layer=[13, 18, 22, 26]).mean("prompt")
    assert 0.98 < share.min() <= share.max() < 1.005
    assert found.part.values[int(found.contribution.sel(layer=20).mean(("prompt", "head")).argmax("part"))] == "MLP 11"


def test_dimension_507_of_layer_11_is_nearly_a_form_of_rank_one(smollm2) -> None:
    found = sinkjax.spike_forms(smollm2, layers=11, count=1)
    assert found.form_dim.item() == 507
    assert found.form_norm.item() == pytest.approx(1733, abs=1)
    assert found.share.item() == pytest.approx(0.949, abs=0.001)
    assert float(found.norm.median()) == pytest.approx(116, abs=1)
    others = sinkjax.spike_forms(smollm2, layers=11, dims=[9, 23, 43, 154, 176, 291, 363, 484])
    assert others.share.max().item() < 0.2


def test_the_gradient_misses_the_mlp_of_layer_11(smollm2, prompts) -> None:
    """Set to zero at position 0, it takes most of the sink; the first-order estimate is that it adds a little."""
    tokens, lengths = prompts
    metric = lambda record: record["attention_received"][..., 0].mean((1, 2))  # noqa: E731
    given = {"positions": 0, "layers": 11, "lengths": lengths, "progress": False}
    found = sinkjax.attribute(smollm2, tokens, metric, "mlp_out", **given).mean("prompt")
    assert found.exact.item() == pytest.approx(-0.311, abs=0.001)
    assert found.estimate.item() == pytest.approx(0.003, abs=0.001)


def test_no_token_grows_a_massive_activation_behind_a_sink_prefix(smollm2, prompts) -> None:
    tokens, lengths = prompts
    plain, behind = (
        sinkjax.forward(smollm2, tokens, lengths=lengths, probe=sinkjax.Probe(resid_max=True), logits=False, past=past).record
        for past in (None, sinkjax.sink_prefix(smollm2, smollm2.tokenizer.bos))
    )
    first = np.asarray(plain["resid_max"])[:, 12, 0].min()  # after layer 11
    assert first > 20_000
    assert np.nanmax(behind["resid_max"][:, 12]) < first / 10
