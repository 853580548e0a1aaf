"""gu/norms: norms and ratios on made-up data, and a run at its smallest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import xarray

from sinkjax.config_files.places import place
from sinkjax.papers.gu._norms import first_norm, largest_norm_ratio, norm_ratio, other_norm
from sinkjax.study import layer, rebuild, run
from sinkjax.study.measures import read_measure
from sinkjax.study.premises import keys_without_norm
from tests.study.tiny import study, write_both

LAYERS, HEADS, T = 3, 2, 6


def made(rng: np.random.Generator) -> xarray.Dataset:
    """Norms of two prompts, the second of five tokens."""
    hidden = rng.uniform(1, 9, (1, 2, LAYERS + 1, T))
    keys = rng.uniform(1, 9, (1, 2, LAYERS, HEADS, T))
    hidden[:, 1, ..., 5] = keys[:, 1, ..., 5] = np.nan
    return xarray.Dataset(
        {
            "resid_norm": (("edit", "prompt", "depth", "position"), hidden),
            "key_norm": (("edit", "prompt", "layer", "head", "position"), keys),
        }
    )


def test_norms_are_compared_in_each_layer_and_the_embedding_is_not_a_layer(rng):
    data = made(rng)
    hidden, keys = data["resid_norm"].values[0], data["key_norm"].values[0].mean(axis=2)
    for of, values in (("hidden states", hidden[:, 1:]), ("keys", keys)):
        others = np.array([[row[1 : 6 - prompt].mean() for row in values[prompt]] for prompt in (0, 1)])
        np.testing.assert_allclose(read_measure(first_norm(of), data)[0], values[..., 0].mean(axis=1))
        np.testing.assert_allclose(read_measure(other_norm(of), data)[0], others.mean(axis=1))
        ratios = values[..., 0] / others
        np.testing.assert_allclose(read_measure(norm_ratio(of), data)[0], ratios.mean(axis=1))
        np.testing.assert_allclose(read_measure(norm_ratio(of, layers=layer(2)), data)[0], ratios[:, 2])
    whole = hidden[..., 0] / np.nanmean(hidden[..., 1:], axis=-1)
    np.testing.assert_allclose(read_measure(largest_norm_ratio(), data)[0], whole.max(axis=1))


def test_the_study_runs_and_states_ratios_in_the_direction_of_the_paper(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(run, "build", rebuild.section_of)  # nothing is rendered
    chosen = study("gu/norms", write_both(tmp_path), control_prompts=2)
    section = run.carry_out(chosen, place(tmp_path / "out"))
    assert [verdict.name for verdict in section.verdicts] == ["hidden", "keys", "values"]
    for verdict, of in zip(section.verdicts, ("hidden states", "keys", "values"), strict=True):
        judged, twin = verdict.judgement, verdict.twin
        assert twin is not None
        ratio = next(row for row in section.rows if row.measure == f"ratio of the first token's L2 norm to the others', {of}")
        assert np.sign(judged.D.mean) in (0, np.sign(np.log(ratio.value.mean)) * (1 if of == "hidden states" else -1))
    assert "inverse of the ratio" in section.verdicts[1].label
    assert len({drawing.name for drawing in section.drawings}) == 2


def test_a_norm_of_the_keys_leaves_claims_on_their_length_untested():
    premise = keys_without_norm()
    for norm, holds in ((None, True), ({"eps": 1e-6}, False)):
        architecture = SimpleNamespace(qk_norm=norm)
        assert premise.test(SimpleNamespace(architecture=architecture))[0] == holds
        assert premise.fits(architecture) == holds
