"""A table of fine-tunings runs like one of trainings from scratch: from command to page, with the loaded model's normaliser."""

from __future__ import annotations

from pathlib import Path

from sinkjax.study import run


def test_a_model_learns_on_with_its_sink_hidden_and_is_measured(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    section = run.run("pretrain/released", tmp_path / "released", steps=2, seeds=1, only=("hidden",))
    found = {
        row.condition: row.value.mean
        for row in section.rows
        if row.measure == "share of token 1, mean over heads" and row.value.n
    }
    assert {condition.partition(",")[0] for condition in found} == {"first key hidden until step 400"}  # the only one asked for
    assert all(0.2 < share < 0.5 for share in found.values())
