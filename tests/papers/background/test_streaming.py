"""background/streaming: which keys a query sees, recomputed windows, and the part of the damage that first tokens undo."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.background.streaming import recomputed_window, window
from sinkjax.study import run
from sinkjax.study.folder import open_store
from sinkjax.study.registry import find
from sinkjax.study.results import architecture_of, on_stores
from sinkjax.study.work import Batch
from tests.study.tiny import streaming, write_both

STUDY = find("background/streaming")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize(("size", "first"), [(5, 0), (6, 2)])
def test_a_query_sees_the_first_keys_and_the_last_ones(size, first, tiny_config, tiny_params):
    edit = window(size, first, 12)
    tokens = np.random.default_rng(0).integers(0, 61, (1, 12))
    seen = sinkjax.forward(tiny_params, tokens, tiny_config, edit, sinkjax.Probe(attention=(0,))).record["attention"] > 0
    query, key = np.mgrid[:12, :12]
    allowed = (key <= query) & ((key < first) | (query - key < size - first))
    np.testing.assert_array_equal(np.asarray(seen).any(axis=(0, 1, 2)), allowed)
    assert allowed.sum(axis=1).max() == size


@pytest.mark.parametrize("bos", ["none", "model"])
def test_recomputed_windows_read_the_last_tokens_as_a_text_of_their_own(files, bos):
    model, size = sinkjax.load(files / "model"), 5
    tokens = np.random.default_rng(1).integers(1, 200, (2, 9)).astype(np.int32)
    batch = Batch(tokens, np.array([9, 8], np.int32), {"bos": bos})
    found = recomputed_window(size, model, batch)["nll"].values
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
    lab = STUDY.trace(chosen.config, architecture_of(nll["windows"]))
    read = on_stores(lab, nll)
    parts, net = lab.claims["first"].of(read), lab.claims["first"].beside[1](read)
    assert parts.controls is None
    assert (len(net.controls), net.all_controls) == (5, True)  # random keys harm, so they stand beside the claim
    np.testing.assert_allclose(net.controls, harmed - loss["windows-controls"].values[1:], atol=1e-5)
    assert first.judgement.D.mean == pytest.approx((harmed - kept).mean(), abs=1e-5)
    assert first.judgement.W.mean == pytest.approx((harmed - loss["recomputed"].values).mean(), abs=1e-5)
