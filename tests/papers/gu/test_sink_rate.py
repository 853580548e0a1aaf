"""gu/sink-rate: what random and repeated tokens need of a model, and a run at its smallest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sinkjax.analysis import metrics
from sinkjax.config_files.locations import location
from sinkjax.study import results, run
from sinkjax.study.folder import open_store
from tests.study.tiny import study, write_both


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


def test_rates_are_the_shares_of_heads_above_eps(files, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "build", results.section_of)  # nothing is rendered
    chosen = study("gu/sink-rate", files, control_prompts=2, length=16, eps=0.08)
    section = run.carry_out(chosen, location(tmp_path / "out"))
    words = {verdict.name: verdict.judgement.word for verdict in section.verdicts}
    assert {*words.values()} == {"not applicable"}  # positions are rotary, and three prompts are too few
    rows = {(row.condition, row.measure): row.value.mean for row in section.rows}
    for kind, title in (("text", "natural text"), ("random", "random tokens"), ("repeat", "one token repeated")):
        received = open_store(location(tmp_path / "out" / f"{kind}.zarr"))["attention_received"].values[0]
        others = [100 * (received[..., key] > 0.08).mean(axis=(1, 2)) for key in range(1, 16 - 8 + 1)]
        assert rows[f"{title}: no edit", "heads that sink on key 0 (%)"] == pytest.approx(100 * (received[..., 0] > 0.08).mean())
        strongest = rows[f"{title}: no edit", "heads that sink on the strongest key but 0 (%)"]
        assert strongest == pytest.approx(np.max(others, axis=0).mean())
        fewer = 100 * metrics.sink_rate({"attention_received": received}, 0, 0.2).mean()
        assert rows[f"{title}: no edit", "heads that sink on key 0 (%), eps 0.2"] == pytest.approx(fewer)
