"""The numbers of the page are those of `sinkjax.forward` and of the code that it shows, and moving a control compiles nothing."""

from __future__ import annotations

import ast
import base64
import contextlib
import dataclasses
import io
import itertools
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.explorer import compute
from sinkjax.explorer.answers import codes, save
from sinkjax.explorer.compute import WORDS, Workbench
from sinkjax.explorer.state import KINDS, State, edits_of

TEXT = "They sent for Ness at half past two to bring the doctor over."
PLAIN = State(prompt=TEXT, bos="model", layer=1)
EDITS = {
    "mask_key": {"layers": (1, 3)},
    "attend_self": {"token": 5, "heads": (1,)},
    "add_logit": {"value": -2.5, "heads": (0,)},
    "swap_embeddings": {"other": 7},
    "scale_head_output": {"token": 4, "value": 3.0, "layers": (0, 2)},
    "set_residual": {"dim": 17, "value": -4.0, "layers": (0, 0)},
    "drop_mlp": {"token": 0, "layers": (0, 1)},
    "edit_weights": {"matrix": "down", "col": 17, "value": -1.0, "layers": (0, 2)},
}
SHOWN = ("attention", "received", "largest", "sink", "loss", "chances")


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench(sinkjax.load("mini-softmax"))


def numbers(side: dict, name: str) -> np.ndarray:
    """An array of the page, as its script reads it."""
    return np.frombuffer(base64.b64decode(side[name]["data"]), "<f4").reshape(side[name]["shape"])


@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_are_what_forward_gives(bench, kind):
    state = dataclasses.replace(PLAIN, kind=kind, head=1, key=2, **EDITS[kind])
    shown, model = bench.view(state), bench.model
    tokens, lengths = sinkjax.encode(model, [TEXT], bos="model", length=32)
    n = int(lengths[0])
    probe = sinkjax.Probe(attention=(1,), attention_received=True, resid_max=True, resid_argmax=True, nll=True)
    for side, edits in (("before", ()), ("after", edits_of(state))):
        out = sinkjax.forward(model.params, tokens, model.config, edits=edits, probe=probe, lengths=lengths)
        chances = np.sort(np.asarray(jax.nn.softmax(out.logits[0, n - 1])))[::-1][:WORDS]
        expected = {
            "attention": out.record["attention"][0, 0, 1, :n, :n],
            "received": out.record["attention_received"][0, :, :, :n].mean(axis=1),
            "largest": out.record["resid_max"][0, :, :n],
            "sink": sinkjax.metrics.sink_rate(out.record, key=2, per="layer")[0],
            "loss": out.record["nll"][0, :n],
            "chances": chances,
        }
        for name, array in expected.items():
            np.testing.assert_allclose(numbers(shown[side], name), array, rtol=2e-5, atol=1e-6, err_msg=f"{side} {name}")
        assert shown[side]["dim"] == np.asarray(out.record["resid_argmax"])[0, :, :n].tolist()
    differ = [name for name in SHOWN if not np.array_equal(numbers(shown["before"], name), numbers(shown["after"], name), True)]
    assert {"attention", "received", "largest", "loss", "chances"} <= {*differ}
    assert shown["changed"] > 0


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_the_python_that_is_shown_gives_the_numbers_of_the_page(bench, kind):
    state = dataclasses.replace(PLAIN, kind=kind, head=None if kind == "add_logit" else 0, **EDITS.get(kind, {}))
    shown = bench.view(state)
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(codes(bench, state, Path("out"))["python"], names)
    side, n = shown["after"] or shown["before"], len(shown["tokens"])
    cut = {"attention": np.s_[:n, :n], "received": np.s_[:, :n], "largest": np.s_[:, :n], "loss": np.s_[:n]}
    for name in SHOWN:
        found = np.asarray(names[name])[cut.get(name, ...)]
        np.testing.assert_allclose(numbers(side, name), found, rtol=2e-5, atol=1e-6, err_msg=name)
    assert len(ast.literal_eval(printed.getvalue())) == WORDS


def test_no_control_but_the_kind_of_the_edit_compiles_anything(bench, monkeypatch):
    kinds = 1 + len(KINDS) - 1  # no edit is one; masks of a key and of a query are of one kind
    traced = jax.jit(chex.assert_max_traces(compute.measured.__wrapped__, kinds), static_argnames="config")
    monkeypatch.setattr(compute, "measured", traced)
    fresh = Workbench(bench.model)
    assert [*fresh.warm(PLAIN)] == ["none", *KINDS]
    moves = (
        {},
        {"layers": (2, 2)},
        {"heads": (0,)},
        {"token": 3, "other": 9},
        {"value": 1.5},
        {"dim": 3, "col": 3},
        {"layer": 3, "head": 1, "key": 4},
        {"prompt": "A shorter prompt, which is padded to as many positions.", "token": 1},
    )
    for kind, moved in itertools.product(EDITS, moves):
        fresh.view(dataclasses.replace(PLAIN, **({"kind": kind} | EDITS[kind] | moved)))


@pytest.mark.long
@pytest.mark.parametrize("bos", ["model", "none"])
def test_what_is_saved_is_a_store_for_report_and_a_config_for_sweep_with_the_same_numbers(bench, bos, tmp_path, capsys):
    import xarray

    state = dataclasses.replace(PLAIN, bos=bos, key=1, **{"kind": "add_logit"} | EDITS["add_logit"])
    store = save(bench, state, tmp_path / "kept")
    assert save(bench, state, tmp_path / "kept") == store  # the same state, the same files
    assert cli.main(["report", str(store)]) == 0
    assert store.with_name(f"{store.stem}-report").joinpath("report.html").is_file()
    config = store.with_suffix(".yaml")
    assert cli.main(["sweep", str(config), "--out", str(tmp_path / "run")]) == 0
    mine, again = xarray.open_zarr(store).load(), xarray.open_zarr(tmp_path / "run" / "sweep.zarr").load()
    shown = bench.view(state)
    n = len(shown["tokens"])
    for data in (mine, again):
        assert data.edit.values.tolist() == ["no edit", edits_of(state)[0].label]
        received = data.attention_received.isel(prompt=0).mean("head").values
        np.testing.assert_allclose(received[1], numbers(shown["after"], "received"), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(data.nll.values[0, 0, :n], numbers(shown["before"], "loss"), rtol=2e-5, atol=1e-5)
    np.testing.assert_array_equal(mine.attention_received.values, again.attention_received.values)
