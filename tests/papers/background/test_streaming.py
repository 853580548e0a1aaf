"""background/streaming: which keys a query sees, recomputed windows, and the part of the damage that first tokens undo."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.papers.background._recomputed import recomputed_window
from sinkjax.papers.background.streaming import STUDY
from sinkjax.studies import run
from sinkjax.studies.as_yaml import from_yaml, to_yaml
from sinkjax.studies.folder import open_store
from sinkjax.studies.judging import readings
from sinkjax.studies.lower import lower
from sinkjax.studies.results import Results
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import Batch
from sinkjax.studies.vocabulary import F, random_positions, window
from tests.studies.tiny import streaming, write_both

SETTINGS = SimpleNamespace(length=12, control_prompts=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize(("size", "first"), [(5, 0), (6, 2)])
def test_a_query_sees_the_first_keys_and_the_last_ones(size, first, tiny_config, tiny_params):
    edit = Scope(SETTINGS, tiny_config, bound={"first": first}).get(window(size, F.first))
    tokens = np.random.default_rng(0).integers(0, 61, (1, 12))
    seen = sinkjax.forward(tiny_params, tokens, tiny_config, edit, sinkjax.Probe(attention=(0,))).record["attention"] > 0
    query, key = np.mgrid[:12, :12]
    allowed = (key <= query) & ((key < first) | (query - key < size - first))
    np.testing.assert_array_equal(np.asarray(seen).any(axis=(0, 1, 2)), allowed)
    assert allowed.sum(axis=1).max() == size


def test_a_window_without_a_last_key_or_never_full_is_refused(tiny_config):
    for edit, said in ((window(4, 4), "cannot keep 4"), (window(11), "never full in 12 tokens")):
        with pytest.raises(SinkjaxError, match=said):
            Scope(SETTINGS, tiny_config).get(edit)


def test_controls_keep_as_many_other_early_tokens(tiny_config):
    scope = Scope(SETTINGS, tiny_config, bound={"first": 2}, rng=np.random.default_rng(0))
    drawn = {scope.get(random_positions(F.first, least=F.first, below=6)) for _ in range(200)}
    assert drawn == {(2, 3), (2, 4), (2, 5), (3, 4), (3, 5), (4, 5)}
    edit = scope.get(window(6, (3, 5)))
    expected = sinkjax.edit(
        "logits", "set", -np.inf, keys=[key for key in range(12) if key not in (3, 5)], distances=slice(4, None)
    )
    assert edit.terms == expected.terms
    with pytest.raises(SinkjaxError, match="fewer than the 2"):
        scope.get(random_positions(2, least=5, below=6))


@pytest.mark.parametrize("bos", ["none", "model"])
def test_recomputed_windows_read_the_last_tokens_as_a_text_of_their_own(files, bos):
    model, size = sinkjax.load(files / "model"), 5
    tokens = np.random.default_rng(1).integers(1, 200, (2, 9)).astype(np.int32)
    batch = Batch(tokens, np.array([9, 8], np.int32), {"bos": bos})
    found = recomputed_window(size).meaning.of(Scope(SETTINGS, model.config), model, batch, size)["nll"].values
    expected = np.full((2, 9), np.nan)
    for row, length in ((0, 9), (1, 8)):
        for query in range(size, length - 1):
            inside = tokens[row, query - size + 1 : query + 1][None].copy()
            inside[0, 0] = inside[0, 0] if bos == "none" else tokens[row, 0]
            logits = np.asarray(sinkjax.forward(model.params, inside, model.config).logits, np.float64)[0, -1]
            expected[row, query] = np.log(np.exp(logits).sum()) - logits[tokens[row, query + 1]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_run_judges_what_is_undone_against_recomputed_windows(files, tmp_path):
    chosen = streaming(files, controls=40)  # and there are five other positions to keep
    section = run.carry_out(chosen, tmp_path / "out")
    first = {verdict.name: verdict for verdict in section.verdicts}["first"]
    nll = {name: open_store(tmp_path / "out" / f"{name}.zarr") for name in ("windows", "windows-controls", "recomputed")}
    loss = {name: data["nll"][..., 6:].mean("position") for name, data in nll.items()}
    _, harmed, kept = loss["windows"].values[:, :2]
    controls = loss["windows-controls"].values[1:].mean(axis=0)
    parts = STUDY.claims["first"].contrast.evaluate(readings(STUDY, Results(lower(STUDY), chosen.config, nll)))
    assert (len(parts.controls), parts.all_controls) == (5, True)
    assert first.judgement.D.mean == pytest.approx((controls - kept).mean(), abs=1e-5)
    assert first.judgement.W.mean == pytest.approx((harmed - loss["recomputed"].values).mean(), abs=1e-5)
    assert {verdict.judgement.word for verdict in section.verdicts} <= {
        "replicates",
        "weaker",
        "shown",
        "differs",
        "undecided",
        "untested",
    }
    assert from_yaml(to_yaml(STUDY)) == STUDY
