"""A sweep's programs are compiled before its calls, and no other ones: what runs finds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import jax
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.checkpoints.model import Model
from sinkjax.sweeps.programs import compile_programs
from sinkjax.sweeps.run import prepared
from sinkjax.sweeps.shared import each
from tests.sweeps.cases import LENGTHS, model_of, prompts

PROBE = Probe(attention_received=True, key_norm=True)
EDITS = [
    sinkjax.compose(),
    *(sinkjax.mask_key(0, layers=layer) for layer in (0, 1, 2)),
    sinkjax.drop_mlp(sinkjax.per_prompt([1, 2, 3, 4]), layers=1),
    sinkjax.swap_embeddings(0, 1),
]
KINDS = 3  # but for the edit that does nothing, which runs no blocks


@pytest.fixture
def counted(monkeypatch) -> Iterator[Counter[str]]:
    """Counts the programs that XLA compiles, those of earlier tests forgotten."""
    found: Counter[str] = Counter()

    def count(event: str, duration: float, **_: object) -> None:
        found["compiled"] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(count)
    jax.clear_caches()
    yield found
    jax.monitoring.clear_event_listeners()


def compiled(model: Model, out: str | None, counted: Counter[str]) -> tuple[int, int]:
    """The programs compiled ahead of a sweep, and those that its calls add."""
    computation = prepared(model, prompts(model.config), EDITS, PROBE, LENGTHS)
    schedule = computation.schedule(None)
    computation.identity()  # which has programs of its own
    before = counted["compiled"]
    compile_programs([(computation, schedule, computation.rounds(schedule))])
    ahead, calls = counted["compiled"] - before, each._cache_size()
    sinkjax.sweep(model, prompts(model.config), EDITS, PROBE, LENGTHS, out=out, check=False)
    assert each._cache_size() - calls == 1 + KINDS
    return ahead, counted["compiled"] - before - ahead


@pytest.mark.parametrize("stored", [False, True])
def test_the_calls_of_a_sweep_find_their_programs(tiny_config, tiny_params, tmp_path, counted, stored):
    out = str(tmp_path / "x.zarr") if stored else None
    assert compiled(model_of(tiny_config, tiny_params), out, counted) == (1 + KINDS, 0)


def test_sweeps_that_share_a_program_compile_it_once(tiny_config, tiny_params, counted):
    model = model_of(tiny_config, tiny_params)
    masks = [[sinkjax.mask_key(0, layers=layer)] for layer in (0, 1, 2)]
    computations = [prepared(model, prompts(tiny_config), edits, PROBE, LENGTHS) for edits in masks]
    compile_programs((one, schedule := one.schedule(None), one.rounds(schedule)) for one in computations)
    assert counted["compiled"] == 2
