"""Every supported kind of model against transformers, in float64, also past a scaled model's original context."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site
from tests.model import reference
from tests.model.families import observe, read_model
from tests.model.reference import LENGTHS, VOCABULARY, Kind

pytestmark = pytest.mark.apart
PROBE = Probe(attention=range(reference.LAYERS), capture=(Capture(Site.EMBED), Capture(Site.RESID)))


@dataclass(frozen=True)
class Case:
    """A model folder, its prompts [B, T] of different LENGTHS, padded, and what sinkjax makes of them in float64."""

    folder: Path
    tokens: np.ndarray
    logits: np.ndarray
    hidden: np.ndarray
    attention: np.ndarray


def sample() -> list:
    """Every kind of the reference, all but the first of each family marked as long."""
    seen: set[str] = set()
    entries = []
    for kind in reference.kinds():
        entries.append(pytest.param(kind, id=str(kind), marks=[pytest.mark.long] if kind.family in seen else []))
        seen.add(kind.family)
    return entries


@pytest.fixture(scope="module", params=sample())
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp("model")
    reference.write_model(kind, folder)
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (len(LENGTHS), max(LENGTHS)))
    with jax.enable_x64(True):
        model = sinkjax.load(str(folder), dtype="float64")
        out = sinkjax.forward(model.params, tokens, model.config, probe=PROBE, lengths=np.array(LENGTHS))
    hidden = np.concatenate([np.asarray(out.record["embed"])[:, None], out.record["resid"]], axis=1)
    return Case(folder, tokens, np.asarray(out.logits), hidden, np.asarray(out.record["attention"]))


def assert_same(case: Case, atol: float) -> None:
    """Each prompt, alone and unpadded in transformers, has the logits, hidden states and maps it has in sinkjax's batch."""
    model = read_model(case.folder)
    for b, length in enumerate(LENGTHS):
        want = observe(model, case.tokens[b : b + 1, :length])
        assert want["logits"].dtype == np.float64
        np.testing.assert_allclose(case.logits[b, :length], want["logits"][0], rtol=0, atol=atol)
        np.testing.assert_allclose(case.hidden[b, :, :length], want["hidden"][0], rtol=0, atol=atol)
        np.testing.assert_allclose(case.attention[b, :, :, :length, :length], want["attention"][0], rtol=0, atol=atol)


def test_equal_to_transformers_without_its_float32_casts(case: Case) -> None:
    with reference.without_float32_casts():
        assert_same(case, atol=1e-9)


def test_equal_to_transformers_as_it_is(case: Case) -> None:
    assert_same(case, atol=5e-6)
