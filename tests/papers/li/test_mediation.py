"""li/mediation: links get the values of another run, kinds of isolation, and what alignment foretells."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.li import mediation
from sinkjax.papers.li.mediation import LINKS
from sinkjax.study.lab import Lab, Unedited
from sinkjax.study.registry import find
from sinkjax.study.work import Batch

STUDY = find("li/mediation")
T, AT, FORMS, DIM, NEURONS = 12, 5, 1, 7, ((0, 3), (1, 40))
SEEN = sinkjax.Probe(
    attention=True,
    capture=(
        *(sinkjax.Capture(site, name=f"at_{site}") for site in ("head_out", "key", "neuron", "resid")),
        sinkjax.Capture("mlp_in", name="read"),
    ),
)


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return sinkjax.Model(tiny_config, tiny_params, None, {})


@pytest.fixture(scope="module")
def batch():
    return Batch(np.random.default_rng(0).integers(1, 50, (2, T)), np.array([T, T]), {})


@pytest.fixture(scope="module")
def lab(model, batch) -> Lab:
    settings = STUDY.settings(position=AT, seen=2, early=3, neurons=len(NEURONS), length=T)
    known = {"largest": NEURONS, "dim": DIM}
    return STUDY.trace(settings, model.config, unedited=Unedited(model, batch), values={"forms": FORMS}, donors=known, prompts=2)


@pytest.fixture(scope="module")
def run(model, batch, lab):
    """What a run under a condition of a sweep ("sweep: its label") has; "" without an edit."""

    def forward(name: str, edit: sinkjax.Edit | None = None) -> dict[str, np.ndarray]:
        sweep, _, label = name.partition(": ")
        edits = {point.label: point.edit for point in lab.sweeps[sweep].conditions()}[label] if name else edit or ()
        record = sinkjax.forward(model, batch.tokens, edits=edits, probe=SEEN, lengths=batch.lengths, logits=False).record
        return {name: np.asarray(values) for name, values in record.items()}

    return forward


APART = "isolated: kind self, window all"


@pytest.mark.parametrize("link", LINKS)
def test_a_link_has_the_values_of_the_other_run_and_the_others_are_held(run, link):
    plain, apart = run(""), run(APART)
    held = run(f"held: link {link}")
    want = {one: plain if one == link else apart for one in LINKS}
    (first, three), (second, forty) = NEURONS
    found = {
        "variance": lambda one: one["at_head_out"][:, : FORMS + 1, AT],
        "neurons": lambda one: np.stack([one["at_neuron"][:, first, AT, three], one["at_neuron"][:, second, AT, forty]]),
        "disparity": lambda one: one["at_resid"][:, FORMS:, AT, DIM],
        "keys": lambda one: one["at_key"][:, FORMS + 1 :, AT],
    }
    for one in LINKS:
        np.testing.assert_allclose(found[one](held), found[one](want[one]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[one](run(f"alone: link {one}")), found[one](apart), rtol=1e-5, atol=1e-6)
        assert np.abs(found[one](plain) - found[one](apart)).max() > 1e-4


def test_a_line_foretells_what_it_made_and_noise_foretells_nothing():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 4, 3))
    gain, whole = mediation.predicted(x, 2 + 3 * x).T
    np.testing.assert_allclose(gain, whole, rtol=1e-9)
    gain, whole = mediation.predicted(x, rng.standard_normal(x.shape)).T
    assert gain.sum() / whole.sum() < 0.05
    # the line is the other half's: a slope that turns in the second half misses more than the mean does
    turned = np.concatenate([x[:8], -x[8:]])
    gain, _ = mediation.predicted(x, turned).T
    assert gain.sum() < 0
