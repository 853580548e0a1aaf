"""background/circuit: its edits are nodes and paths, against `sinkjax.path` and against each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.background import circuit as own
from sinkjax.study.lab import Unedited
from sinkjax.study.registry import find
from sinkjax.study.work import Batch
from tests.study.budget import Conditions

T, LATE = 8, 2
STUDY = find("background/circuit")
SEEN = sinkjax.Probe(
    capture=tuple(sinkjax.Capture(site, name=site) for site in ("attn_out", "mlp_out", "mlp_in", "attn_in", "resid"))
)


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return sinkjax.Model(tiny_config, tiny_params, None, {})


@pytest.fixture(scope="module")
def batch():
    return Batch(np.random.default_rng(0).integers(1, 50, (2, T)), np.array([T, T - 2]), {})


@pytest.fixture(scope="module")
def circuit(model, batch) -> own.Circuit:
    settings, values = STUDY.settings(length=T, prompts=2), {"forms": 1}  # so that the late layer is layer 2
    lab = STUDY.trace(settings, model.config, unedited=Unedited(model, batch), values=values)
    planned = Conditions(STUDY, model.config, values, length=T, prompts=2).lab
    for name, sweep in lab.sweeps.items():
        pairs = zip(sweep.edits.values(), planned.sweeps[name].edits.values(), strict=True)
        assert all([np.shape(a.value) for a in one.terms] == [np.shape(a.value) for a in other.terms] for one, other in pairs)
    return own.Circuit(lab.donors["written"], LATE, settings.seed)


@pytest.fixture(scope="module")
def run(model, batch):
    def forward(*edits):
        record = sinkjax.forward(model, batch.tokens, edits=edits, probe=SEEN, lengths=batch.lengths, logits=False).record
        return {name: np.asarray(values) for name, values in record.items()}

    return forward


@pytest.mark.parametrize(
    ("name", "sender", "receiver"),
    [
        ("attention 0 to MLP 0", ("attn_out", 0), ("mlp_in", 0)),
        ("MLP 0 to attention 1", ("mlp_out", 0), ("attn_in", 1)),
        ("attention 1 to late MLP", ("attn_out", 1), ("mlp_in", LATE)),
        ("MLP 0 to the rest", ("mlp_out", 0), ("resid", LATE)),
    ],
)
def test_a_path_is_the_one_that_sinkjax_path_makes(model, batch, circuit, name, sender, receiver):
    zeros = {key: np.where(np.arange(T)[:, None] == 0, values, 0) for key, values in circuit.written.items()}
    here = dataclasses.replace(circuit, written=zeros)
    want = sinkjax.path(model, batch.tokens, sender, receiver, replace="zero", positions=0, lengths=batch.lengths)
    found = here.patch(name, "mean")
    outputs = [
        np.asarray(sinkjax.forward(model, batch.tokens, edits=edit, lengths=batch.lengths).logits)[0] for edit in (want, found)
    ]
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-5)


def test_all_paths_from_a_sender_together_are_its_replacement(circuit, run):
    """Of attention 0: to MLP 0, to both parts of block 1 and of the late layer, and to the rest."""
    receivers = own.RECEIVERS
    paths = [circuit.patch(f"attention 0 to {receiver}", "mean") for receiver in receivers]
    found, want = run(sinkjax.compose(*paths)), run(circuit.replace("attention 0", "mean"))
    np.testing.assert_allclose(found["resid"][0, -1], want["resid"][0, -1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["resid"][1, -1, : T - 2], want["resid"][1, -1, : T - 2], rtol=1e-4, atol=1e-5)
