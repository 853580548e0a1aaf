"""Every study runs on a tiny model, from its declaration to its section: nothing is rendered, and bootstraps are short."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.model import params
from sinkjax.model.norms import LayerNorm
from sinkjax.model.positions import Learned
from sinkjax.runtime import hardware
from sinkjax.study import results, run
from sinkjax.study.folder import open_store
from sinkjax.study.parts import NOOP
from sinkjax.study.registry import find, studies, trains
from sinkjax.study.results import changes
from sinkjax.study.views import MAPS, TEXTS
from tests.study.tiny import study, write_both, write_model

T = 24
SMALL = {  # what makes each study fit the tiny model
    "background/elsewhere": {"stops": ["t", "."], "tokens": [".", "a"]},
    "background/patch": {"places": [0, 1, 5]},
    "background/streaming": {"cache": 8, "caches": [6, 8], "keep": 2, "keeps": [0, 1, 2]},
    "background/windows": {"beyond": 8, "bos": "none"},
    "gu/repeat-bound": {"longest": T},
    "gu/positions": {"places": [4, 9], "text_places": [4]},
    "kiya/bos-swap": {"positions": [8], "shown": 8},
    "kiya/figures": {"map_layers": [0], "position": 8},
    "kiya/predictions": {"positions": [1, 8], "tokens": 20},
    "kiya/rope": {"positions": [1, 8]},
    "kiya/split": {"places": [4, 8, 10], "counts": [1, 3]},
    "kiya/self": {"positions": [4, 8], "shown": 8},
    "li/amplify": {"positions": [10]},
    "li/mediation": {"places": [6, 10], "keys": [2], "neurons": 2},
    "ours/off-signal": {"positions": [4, 8], "ends": [0]},
    "ours/off-subspace": {"positions": [4, 8], "dims": [1, 2], "ends": [0]},
    "sweep": {"edits": [{"compose": []}, {"mask_key": {"key": 0}}], "probe": ["attention_received", "resid_max", "nll"]},
}
NEEDING = {"background/windows": "windows", "background/mechanism": "vectors"}  # a study -> the model that has what it needs
NAMES = [name for name in studies() if not trains(name)]
# Studies that edit nothing, or that have a factor of 1 or the like among their conditions.
WITHOUT_NOOP = {
    *("gu/angles", "gu/norms", "gu/sink-rate", "kiya/baseline", "kiya/embedding", "li/dominance", "sweep"),
    *("gu/repeat-bound", "kiya/predictions", "kiya/scan", "kiya/split", "li/variance"),
}
# No text is read, or nothing is said of what is shown.
WITHOUT_MAPS = {
    *(
        "background/kinds",
        "background/mechanism",
        "background/stages",
        "background/windows",
        "gu/angles",
        "gu/norms",
        "gu/repeat-bound",
        "gu/positions",
    ),
    *("kiya/embedding", "kiya/figures", "kiya/predictions", "kiya/rope", "kiya/scan", "kiya/split"),
    *("li/dominance", "li/variance", "sweep"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_both(tmp_path_factory.mktemp("tiny"))
    write_model(folder / "four", num_hidden_layers=4)
    window = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 6}
    write_model(folder / "windows", num_hidden_layers=4, **window)
    write_gpt2(folder / "vectors", folder / "four")
    return folder


def write_gpt2(folder: Path, like: Path) -> None:
    """A model with learned position vectors and query biases, with the tokenizer of another one."""
    plain = sinkjax.load(str(like))
    config = dataclasses.replace(
        plain.config, position=Learned(), qkv_bias=True, norm=LayerNorm(1e-5), gated_mlp=False, activation="gelu_tanh"
    )
    sinkjax.save(sinkjax.Model(config, params.init(config, seed=0), plain.tokenizer, plain.source), folder)


@pytest.mark.apart
@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs_and_says_what_it_found(name, files, tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 100)
    monkeypatch.setattr(run, "build", results.section_of)
    monkeypatch.setattr(hardware, "device_memory", lambda: 1)  # so that each of its sweeps must know what the run may use
    fields = {field: 2 for field in ("controls", "control_prompts") if hasattr(find(name).settings, field)}
    model = files / NEEDING.get(name, "four")
    chosen = study(name, files, length=T, model=str(model), **fields | SMALL.get(name, {}))
    section = run.carry_out(chosen, tmp_path / "out", run.Machine(memory=10**9))
    stores = {path.stem: open_store(path) for path in (tmp_path / "out").glob("*.zarr")}
    assert "described" not in {one.judgement.word for one in section.verdicts}
    assert all(one.statement and (one.numbers or one.judgement.reason) for one in section.verdicts)
    judged = [one for one in section.verdicts if one.kind == "claim" and one.judgement.D is not None]
    assert all((one.judgement.rank is None) == bool(one.uncontrolled) for one in judged)
    assert all(one.judgement.reason or one.judgement.word == "replicates" for one in judged)
    assert any(row.value.mean is not None for row in section.rows)
    assert len({(row.condition, row.measure) for row in section.rows}) == len(section.rows)
    assert {*section.featured} <= {row.condition for row in section.rows}
    assert not [text for text in section.findings if text[0].islower()]
    assert not [text for text in (section.question, *section.findings, *section.notes) if re.search(r"\{\w+\}|  ", text)]
    assert len({drawing.name for drawing in section.drawings}) == len(section.drawings)
    assert (NOOP in stores) == (name not in WITHOUT_NOOP)
    if NOOP in stores:
        check_noop(stores[NOOP].load())
    assert bool(section.views) == (name not in WITHOUT_MAPS)
    assert all(view.said for view in section.views)
    assert bool(section.samples) == (TEXTS in stores)
    if MAPS in stores:
        assert stores[MAPS].sizes["prompt"] <= 3


def check_noop(data: xarray.Dataset) -> None:
    """A no-op edit acts on cells and changes no number."""
    labels = [str(label) for label in data["edit"].values[1:]]
    assert labels
    assert (data["cells_addressed"].sel(edit=labels) > 0).all()
    assert max(np.max(change) for change in changes(data).values()) < 1e-6
