"""Hardware is a recorded fact: any number of devices goes on with what another one began, and says so."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import sinkjax
from sinkjax import Probe, SinkjaxError
from sinkjax.checkpoints.model import Model
from sinkjax.runtime import hardware, processes
from sinkjax.runtime.hardware import PLATFORMS, Hardware, axes_of, make_mesh
from sinkjax.sweeps import shared
from sinkjax.sweeps.plan import plan
from sinkjax.sweeps.schedule import Chunk, deal
from sinkjax.sweeps.store import Store
from tests.sweeps.cases import LAYERS, LENGTHS, assert_close, interrupted, model_of, prompts

PROBE = Probe(attention_received=True, resid_argmax=True, nll=True)
EDITS = [
    sinkjax.compose(),
    *(sinkjax.mask_key(key, layers=layer) for key in range(4) for layer in range(LAYERS)),
    *(sinkjax.drop_mlp(sinkjax.per_prompt([1, 2, 3, 4]), layers=layer) for layer in range(LAYERS)),
    *(sinkjax.add_logit(1, 2.0, layers=range(last)) for last in range(1, LAYERS + 1)),
]


def on(model: Model, devices: int) -> Model:
    """The model on the first devices."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    return replace(model, params=jax.device_put(model.params, NamedSharding(mesh, PartitionSpec())))


@pytest.mark.mesh
@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 8), (2, 1), (2, 8), (8, 1), (8, 2)])
def test_any_number_of_devices_resumes_what_another_began(tiny_config, tiny_params, monkeypatch, tmp_path, capsys, before, after):
    monkeypatch.setattr("sinkjax.sweeps.sharing.WORTH", {"cpu": 0})  # so that some edits have a base of their own
    model, tokens, out = model_of(tiny_config, tiny_params), prompts(tiny_config), tmp_path / "x.zarr"

    def sweep(devices, out):
        return sinkjax.sweep(on(model, devices), tokens, EDITS, probe=PROBE, lengths=LENGTHS, out=out)

    alone = sweep(1, None)
    interrupted(monkeypatch, 3, lambda: sweep(before, out))
    assert 0 < Store(out).done.sum() < Store(out).done.size
    capsys.readouterr()
    together = sweep(after, out)
    [said] = [line for line in capsys.readouterr().err.splitlines() if "hardware" in line]
    assert f'devices was "{before} x cpu", now "{after} x cpu"' in said
    assert "not bit for bit" in said
    assert [machine["devices"] for machine in together.attrs["hardware"]] == [f"{before} x cpu", f"{after} x cpu"]
    for name in alone.variables:
        assert_close(together[name], alone[name], 1e-6, name)


@pytest.mark.mesh
@pytest.mark.parametrize("devices", [1, 8])
def test_a_plan_is_the_schedule_of_the_sweep(tiny_config, tiny_params, tmp_path, devices):
    placed = on(model_of(tiny_config, tiny_params), devices)
    sinkjax.sweep(placed, prompts(tiny_config), EDITS, probe=PROBE, lengths=LENGTHS, out=tmp_path / "x.zarr")
    mesh = jax.tree.leaves(placed.params)[0].sharding.mesh
    assert (
        plan(tiny_config, EDITS, [12] * 4, 12, PROBE, hardware=Hardware.of(mesh)).schedule == Store(tmp_path / "x.zarr").schedule
    )


@pytest.fixture
def other_processor(monkeypatch):
    """From here on the machine has another processor."""
    monkeypatch.setattr(hardware, "processor", lambda: "another one")


def test_another_machine_is_told_once_and_recorded(tiny_config, tiny_params, monkeypatch, tmp_path, capsys, other_processor):
    model, tokens, out = model_of(tiny_config, tiny_params), prompts(tiny_config), tmp_path / "x.zarr"
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})
    sweep = lambda **more: sinkjax.sweep(model, tokens, EDITS, probe=PROBE, lengths=LENGTHS, out=out, **more)  # noqa: E731
    interrupted(monkeypatch, 2, sweep)
    monkeypatch.setattr(hardware, "processor", lambda: "a third one")
    with pytest.raises(SinkjaxError, match=r'processor was "another one", now "a third one".* strict'):
        sweep(strict=True)
    interrupted(monkeypatch, 2, sweep)
    assert capsys.readouterr().err.count("other hardware") == 1
    interrupted(monkeypatch, 2, sweep)
    assert not capsys.readouterr().err
    monkeypatch.setattr(hardware, "processor", lambda: "another one")
    with pytest.raises(SinkjaxError, match="other hardware"):  # a part of it was computed elsewhere
        sweep(strict=True)
    found = sweep()
    assert [machine["processor"] for machine in found.attrs["hardware"]] == ["another one", "a third one"]
    monkeypatch.setattr(hardware, "processor", lambda: "a fourth one")
    assert len(sweep(strict=True).attrs["hardware"]) == 2  # nothing was left to compute


def test_another_version_of_jax_is_told_and_recorded(tiny_config, tiny_params, monkeypatch, tmp_path, capsys):
    model, tokens, out = model_of(tiny_config, tiny_params), prompts(tiny_config), tmp_path / "x.zarr"
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})
    sweep = lambda **more: sinkjax.sweep(model, tokens, EDITS, probe=PROBE, lengths=LENGTHS, out=out, **more)  # noqa: E731
    interrupted(monkeypatch, 2, sweep)
    monkeypatch.setattr(hardware, "version", lambda name: "99.0")
    with pytest.raises(SinkjaxError, match=r'jax was "[\d.]+", now "99.0".* strict'):
        sweep(strict=True)
    found = sweep()
    assert "other versions (jax was" in capsys.readouterr().err
    assert [machine["jax"] for machine in found.attrs["hardware"]] == [jax.__version__, "99.0"]


def work(rounds):
    return [(device, entry.runs[device], chunk) for entry in rounds for device, _, chunk in entry.calls()]


@pytest.mark.parametrize("devices", [1, 2, 3, 8, 64])
def test_every_call_is_dealt_once_to_a_device_that_has_its_run(tiny_config, devices):
    schedule = plan(tiny_config, EDITS, LENGTHS, 12, PROBE, hardware=Hardware(platform="cpu")).schedule
    calls = [(block, chunk) for block in range(5) for chunk in schedule.chunks]
    dealt = work(deal(calls, devices, LAYERS))
    assert sorted((run[0], chunk.edits) for _, run, chunk in dealt) == sorted((block, chunk.edits) for block, chunk in calls)
    assert all(run[1] == chunk.base for _, run, chunk in dealt)


def test_prompts_are_spread_first_and_then_edits_longest_first():
    chunks = [Chunk(0, (number,), number) for number in range(12)]
    calls = [(block, chunk) for block in range(4) for chunk in chunks]
    assert [entry.runs for entry in deal(calls, 4, 12)] == [((0, None), (1, None), (2, None), (3, None))] * 12
    rounds = deal(calls, 8, 12)
    assert len(rounds) == 6
    assert [min(chunk.start for chunk in entry.chunks) for entry in rounds] == [0, 2, 4, 6, 8, 10]
    sums = [sum(12 - chunk.start for device, _, chunk in work(rounds) if device == one) for one in range(8)]
    assert max(sums) - min(sums) <= 1


@pytest.mark.parametrize(("processes", "devices"), [(1, 2), (2, 1), (3, 2), (8, 1), (40, 1)])
def test_shares_of_processes_cover_every_call_once(tiny_config, processes, devices):
    schedule = plan(tiny_config, EDITS, LENGTHS, 12, PROBE, hardware=Hardware(platform="cpu")).schedule
    shares = schedule.shares(len(LENGTHS), devices, processes, LAYERS)
    assert len(shares) == processes
    assert all(len(entry.chunks) == devices and any(entry.chunks) for share in shares for entry in share)
    done = [(run[0], chunk.edits) for share in shares for _, run, chunk in work(share)]
    assert sorted(done) == sorted((block, chunk.edits) for block, chunk in schedule.calls(len(LENGTHS)))


def test_a_run_is_made_in_one_process_while_there_are_as_many_runs_as_devices():
    calls = [(block, Chunk(0, (number,), number)) for block in range(8) for number in range(12)]
    rounds = deal(calls, 8, 12)
    for first in range(0, 8, 2):
        assert {run for entry in rounds for run in entry.runs[first : first + 2]} == {(first, None), (first + 1, None)}


def test_processes_keep_as_much_of_their_time_as_the_devices_of_one(tiny_config):
    edits = [sinkjax.mask_key(0, layers=layer) for layer in range(LAYERS)]

    def planned(**shape):
        return plan(tiny_config, edits, [12] * 16, 12, PROBE, hardware=Hardware(platform="cpu", **shape))

    assert planned(processes=8).kept >= planned(devices=8).kept
    assert planned(processes=4, devices=2).kept >= planned(devices=8).kept
    small = plan(tiny_config, edits[:1], [12] * 2, 12, PROBE, hardware=Hardware(platform="cpu", processes=8))
    assert (small.processes, planned(processes=8).processes) == (2, 8)  # a prompt each


def test_a_process_computes_its_share_first_and_then_what_is_left(tiny_config, tiny_params, monkeypatch, tmp_path):
    model, tokens = model_of(tiny_config, tiny_params), prompts(tiny_config)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    written = []
    for number in range(2):
        monkeypatch.setenv("JAX_PROCESS_ID", str(number))
        write = Store.write

        def note(store, chunk, block, values, write=write):
            written[-1].append((block, chunk.edits))
            write(store, chunk, block, values)

        written.append([])
        with monkeypatch.context() as patch:
            patch.setattr(Store, "write", note)
            out = tmp_path / f"{number}.zarr"
            found = sinkjax.sweep(model, tokens, EDITS, probe=PROBE, lengths=LENGTHS, out=out)
        schedule = Store(out).schedule
        share = schedule.shares(len(LENGTHS), 1, 2, LAYERS)[number]
        own = [(run[0], chunk.edits) for _, run, chunk in work(share)]
        assert {*written[-1][: len(own)]} == {*own}  # in the order in which threads write
        assert len(set(written[-1])) == len(written[-1]) == len(schedule.calls(len(LENGTHS)))
    monkeypatch.delenv("JAX_NUM_PROCESSES")
    alone = sinkjax.sweep(model, tokens, EDITS, probe=PROBE, lengths=LENGTHS)
    for name in alone:
        assert_close(found[name], alone[name], 1e-5, name)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}, (3, 4)),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, (0, 1)),  # a batch script, not a step
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}, (1, 2)),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"}, (0, 1)),
        ({"JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "0"}, (0, 1)),
    ],
)
def test_a_process_knows_which_of_how_many_it_is(monkeypatch, variables, expected):
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert processes.rank() == expected


def test_few_edits_of_many_prompts_use_all_devices(tiny_config):
    planned = plan(tiny_config, [sinkjax.mask_key(0)], [12] * 16, 12, PROBE, hardware=Hardware(devices=8, platform="cpu"))
    assert planned.schedule.prompt_block == 2
    assert planned.kept == 1
    assert planned.critical_passes * 8 == planned.layer_passes == 8 * 2 * LAYERS


@pytest.mark.mesh
def test_a_start_of_each_device_stays_a_branch_and_no_device_waits_for_another(tiny_config, tiny_params, monkeypatch):
    programs = {}

    def lowered(*inputs, function, **static):
        programs[function] = shared.each.lower(*inputs, function=function, **static).compile().as_text()
        return shared.each(*inputs, function=function, **static)

    monkeypatch.setattr("sinkjax.sweeps.computation.each", lowered)
    sinkjax.sweep(on(model_of(tiny_config, tiny_params), 8), prompts(tiny_config), EDITS, probe=PROBE, lengths=LENGTHS)
    assert " conditional(" in programs[shared.edited]
    assert not any(word in text for text in programs.values() for word in ("all-reduce", "all-gather", "all-to-all", "permute("))


def test_a_plan_for_another_machine_takes_its_memory_and_devices(tiny_config):
    planned = plan(tiny_config, EDITS, LENGTHS, 12, PROBE, hardware=Hardware(devices=4, platform="h200"))
    assert (planned.devices, Hardware(platform="h200").kind) == (4, "gpu")
    assert Hardware(platform="h200").memory_bytes() == int(0.9 * PLATFORMS["h200"].memory)
    assert Hardware(10**9, platform="h200").memory_bytes() == 10**9


def test_a_mesh_is_what_options_say():
    assert axes_of(None, None) is None
    assert axes_of(None, 4) == {"data": 4, "model": 1}
    assert axes_of("model=2", None) == {"data": 1, "model": 2}
    assert axes_of("data=2,model=4", 8) == {"data": 2, "model": 4}
    assert make_mesh({"data": 1, "model": 1}).shape == {"data": 1, "model": 1}


@pytest.mark.parametrize(
    ("mesh", "devices", "sentence"),
    [
        (None, 0, "--devices .*at least 1, not 0"),
        ("data", None, "--mesh .*data=4,model=2"),
        ("data=0", None, "at least 1, not 'data=0'"),
        ("data=2,width=4", None, "axis .*'width'"),
        ("data=2,model=4", 4, "--mesh data=2,model=4 .*8 devices, .*--devices is 4"),
    ],
)
def test_a_mesh_that_cannot_be_is_one_sentence(mesh, devices, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        axes_of(mesh, devices)


def test_more_devices_than_there_are_is_one_sentence():
    with pytest.raises(SinkjaxError, match=r"1000 devices were asked for, but JAX has \d+ here; JAX_NUM_CPU_DEVICES=1000"):
        make_mesh({"data": 1000})
