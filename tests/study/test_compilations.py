"""How many programs a study compiles."""

from __future__ import annotations

from collections import Counter

import jax
import pytest

from sinkjax.study import run
from sinkjax.study.lab import Study
from sinkjax.sweeps import computation
from tests.study.tiny import mask, write_both


@pytest.fixture
def compiled(monkeypatch) -> Counter[str]:
    """Counts the programs that are compiled, those before the first call, and those of sweeps, with a loop over layers."""
    found: Counter[str] = Counter()
    seen = set()

    def each(*arguments, **static):
        shapes = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), arguments)
        key = str((jax.tree.flatten(shapes, is_leaf=lambda leaf: isinstance(leaf, tuple)), static))
        found["ahead"] = found["ahead"] or found["all"]
        found["sweeps"] += key not in seen
        seen.add(key)
        return ran(*arguments, **static)

    def count(event: str, duration: float, **_: object) -> None:
        found["all"] += event == "/jax/core/compile/backend_compile_duration"

    ran = computation.each
    monkeypatch.setattr(computation, "each", each)
    jax.monitoring.register_event_duration_secs_listener(count)
    jax.clear_caches()
    yield found
    jax.monitoring.clear_event_listeners()


def test_a_study_of_masks_compiles_few_programs(tmp_path, compiled, monkeypatch):
    """Sweeps: no edit, masks, heads, two for maps, the no-op edit. Then the rest."""
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 3 * 12})  # those of the controls fill a call
    monkeypatch.setattr("sinkjax.study.parts.TOKENS_PER_CALL", {"cpu": 3 * 12})
    run.carry_out(mask(write_both(tmp_path), prompts=6, control_prompts=3), tmp_path / "out")
    assert 0 < compiled["sweeps"] <= 6
    assert compiled["sweeps"] < compiled["all"] <= 36  # a check for NaN is a program per shape of leaf


def test_on_an_accelerator_most_are_compiled_before_anything_runs(tmp_path, compiled, monkeypatch):
    monkeypatch.setattr(run, "AHEAD", ("cpu",))
    run.carry_out(mask(write_both(tmp_path), control_prompts=3), tmp_path / "out")
    assert 5 <= compiled["ahead"] < compiled["all"] <= 36  # a check for NaN is a program per shape of leaf


def test_a_run_traces_its_study_at_most_three_times(tmp_path, monkeypatch):
    """Once each for the plan, the run and the page."""
    traced, trace = [], Study.trace
    monkeypatch.setattr(Study, "trace", lambda study, *given, **more: traced.append(study.name) or trace(study, *given, **more))
    run.carry_out(mask(write_both(tmp_path)), tmp_path / "out")
    assert len(traced) <= 3
