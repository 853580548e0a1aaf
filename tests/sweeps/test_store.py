"""A store explains itself, resumes to the same bits, is never mixed with another sweep, and outlives a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import Probe, SinkjaxError, Site, Statistic
from sinkjax.checkpoints.model import Model
from sinkjax.model.fingerprint import digest
from sinkjax.sweeps.store import Store
from tests.sweeps.cases import LAYERS, LENGTHS, assert_close, interrupted, model_of, prompts

PROBE = Probe(attention_received=True, resid_argmax=True)
EDITS = [sinkjax.compose(label="no edit"), *(sinkjax.mask_key(0, layers=layer) for layer in range(LAYERS))]


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return model_of(tiny_config, tiny_params)


@pytest.fixture(scope="module")
def tokens(tiny_config):
    return prompts(tiny_config)


@pytest.fixture
def run(model, tokens, tmp_path):
    """The sweep of these tests, into `tmp_path / "x.zarr"`; arguments replace its own."""
    return lambda **changes: sinkjax.sweep(
        **{"model": model, "tokens": tokens, "edits": EDITS, "probe": PROBE, "lengths": LENGTHS, "out": tmp_path / "x.zarr"}
        | changes
    )


def test_raw_values_in_bfloat16_are_stored_as_they_are(run, model, tokens, tmp_path):
    half = model_of(model.config, model.params, "bfloat16")
    probe = Probe(capture=(sinkjax.Capture(Site.ATTN_OUT, layers=(1,), name="written"),))
    run(model=half, probe=probe)
    stored = xarray.open_zarr(tmp_path / "x.zarr", chunks=None)["written"].values[0]
    captured = sinkjax.forward(half.params, tokens, half.config, probe=probe, lengths=LENGTHS).record["written"]
    assert captured.dtype == jnp.bfloat16
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, stored.astype(jnp.bfloat16).astype(np.float32))
    np.testing.assert_allclose(stored, captured.astype(np.float32), rtol=0.05, atol=0.01)


def test_a_store_says_what_it_holds(run, tokens, tmp_path):
    run(labels={"prompt": ["a", "bc", "def", "é"]}, attributes={"text": {"source": "none", "bos": "none"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xarray.open_zarr(tmp_path / "x.zarr")
    assert dataset.attention_received.dims == ("edit", "prompt", "layer", "head", "key")
    assert dataset.edit.values.tolist() == [edit.label for edit in EDITS]
    assert dataset.prompt.values.tolist() == ["a", "bc", "def", "é"]
    assert dataset.layer.values.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(dataset.tokens, tokens)
    np.testing.assert_array_equal(dataset.length, LENGTHS)
    assert dataset.attrs["text"] == {"source": "none", "bos": "none"}
    identity = dataset.attrs["sweep"]
    assert identity["config"]["position"]["theta"] == 10_000.0
    assert (identity["dtype"], identity["precision"]) == ("float32", "highest")
    assert dataset.attrs["hardware"][0]["jax"] == jax.__version__
    assert dataset.resid_argmax.dtype == np.int32
    assert (dataset.resid_argmax.values[:, 0, :, 9:] == -1).all()


def test_what_returns_in_memory_is_what_a_store_holds(run, tmp_path):
    stored, kept = run(), run(out=None)
    xarray.testing.assert_identical(kept.drop_attrs(deep=False), stored.load().drop_attrs(deep=False))


def test_in_memory_no_file_is_written(run, monkeypatch):
    for of, name in ((Path, "mkdir"), (Path, "write_bytes"), (os, "link"), (Store, "__init__")):
        monkeypatch.setattr(of, name, lambda *_, **__: pytest.fail("a file"))
    run(out=None)


def test_an_interrupted_store_resumes_to_the_same_bits_with_its_own_plan(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})  # a call for each edit
    first = run(out=tmp_path / "first.zarr").load()
    interrupted(monkeypatch, 2, run)
    assert Store(tmp_path / "x.zarr").done.sum() == 2
    xarray.testing.assert_identical(run(memory=1).load(), first)  # a memory in which nothing fits: the plan is the store's


def closing_over(power):
    return lambda x, view: (x**power).mean(axis=-1)


def typed_in(power):
    """A function without a source, as in an interactive session."""
    return eval(f"lambda x, view: (x**{power}).mean(axis=-1)")


def with_a_default(power):
    def spread(x, view, power=power):
        return (x**power).mean(axis=-1)

    return spread


def closing_over_an_array(power):
    """Of 1,001 numbers NumPy writes the first and the last three."""
    numbers = np.ones(1001)
    numbers[500] = power
    return lambda x, view: (x * numbers[500]).mean(axis=-1)


@pytest.mark.parametrize("make", [closing_over, typed_in, with_a_default, closing_over_an_array])
def test_another_function_of_the_same_name_is_another_statistic(run, make):
    def probe(power):
        return Probe(extra=(Statistic("spread", Site.RESID, make(power), ("prompt", "depth", "position")),))

    first = run(probe=probe(2)).load()
    xarray.testing.assert_identical(run(probe=probe(2)).load(), first)
    with pytest.raises(SinkjaxError, match=r"(functions\.spread|probe) was"):
        run(probe=probe(3))


def test_functions_made_by_eval_in_a_typed_program_are_told_apart_and_a_file_keeps_its_digests(tmp_path):
    """Python 3.13 has the program of `python -c` as the source of every function that has no file."""
    program = """if True:
        from sinkjax.probes.statistics import Site, Statistic
        from sinkjax.probes.probe import Probe
        from sinkjax.sweeps.functions import own_functions
        for power in (2, 3):
            fn = eval(f"lambda x, view: (x**{power}).mean(axis=-1)")
            print(own_functions(Probe(extra=(Statistic("s", Site.RESID, fn, ("prompt", "depth", "position")),)))["s"])
        import mine
        print(own_functions(Probe(extra=(Statistic("s", Site.RESID, mine.make(2), ("prompt", "depth", "position")),)))["s"])
    """
    (tmp_path / "mine.py").write_text("def make(power):\n    return lambda x, view: (x**power).mean(axis=-1)\n")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})  # fmt: skip
    assert found.returncode == 0, found.stderr
    two, three, of_file = found.stdout.split()
    assert two != three
    assert of_file == digest("    return lambda x, view: (x**power).mean(axis=-1)\n[2]")  # as in stores of 0.4.0


def other_weights(model: Model) -> Model:
    """The same model but for one bit of one weight."""
    q = model.params["layers"]["q"]
    return replace(model, params=model.params | {"layers": model.params["layers"] | {"q": q.at[1, 2, 3, 4].multiply(1 + 2**-23)}})


@pytest.mark.parametrize(
    ("difference", "change"),
    [
        ("edits.sha256", lambda model, tokens: {"edits": EDITS[::-1]}),
        ("prompts.sha256", lambda model, tokens: {"lengths": LENGTHS - 1}),
        ("labels.edit.sha256", lambda model, tokens: {"labels": {"edit": ["a", "b", "c", "d"]}}),
        ("probe", lambda model, tokens: {"probe": Probe(attention_received=True)}),
        ("precision", lambda model, tokens: {"precision": "default"}),
        ('attention_impl was null, now "fused"', lambda model, tokens: {"attention_impl": "fused"}),
        ("parameters", lambda model, tokens: {"model": other_weights(model)}),
        (
            'config.activation was "silu", now "relu"',
            lambda model, tokens: {"model": replace(model, config=replace(model.config, activation="relu"))},
        ),
    ],
)
def test_a_store_of_another_sweep_is_refused_with_the_difference(run, model, tokens, tmp_path, difference, change):
    before = run().load()
    for name in ("unchanged", "overflowed"):  # a sweep says so of what it returns, from counts that the store holds
        del before.attrs[name]
    with pytest.raises(SinkjaxError, match="contains another sweep") as refused:
        run(**change(model, tokens))
    assert difference in str(refused.value)
    assert before.identical(xarray.open_zarr(tmp_path / "x.zarr", chunks=None).load())


def fill_disk(monkeypatch) -> None:
    """Let all writes of files fail for want of room."""

    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)


def test_a_full_disk_while_the_store_is_made_leaves_nothing(run, tmp_path, monkeypatch):
    fill_disk(monkeypatch)
    with pytest.raises(SinkjaxError, match=r"cannot write .*: No space"):
        run()
    assert not any(tmp_path.iterdir())


def test_a_full_disk_keeps_what_is_done_and_the_same_call_goes_on(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})  # a call for each edit
    with monkeypatch.context() as patch:
        interrupted(patch, 2, run)
        fill_disk(patch)
        with pytest.raises(SinkjaxError, match=r"No space .*; finished work is kept: .*same command"):
            run()
    assert Store(tmp_path / "x.zarr").done.sum() == 2
    assert_close(run().attention_received, run(out=None).attention_received, 1e-5)
