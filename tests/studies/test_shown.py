"""Maps and texts beside the numbers: every recipe has them, of its own arms, and a folder without them is finished as well."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import views
from sinkjax.experiments.base import Calculation, Sample, Section
from sinkjax.experiments.illustrations import TOKENS, illustrated
from sinkjax.generation import generate_all
from sinkjax.report.page import LARGEST
from sinkjax.studies import run
from sinkjax.studies.inputs import prompts
from sinkjax.studies.registry import EXPERIMENTS, choose, recipe, trains
from sinkjax.sweeps.plan import plan
from tests.studies.tiny import study, write_both, write_model

T = 24
SMALL = {  # what makes each experiment fit the tiny model
    "background/streaming": {"cache": 8, "other_caches": [6]},
    "background/elsewhere": {"delimiters": [".", ","], "words": ["a"]},
    "gu/rope-positions": {"places": [4, 9]},
    "gu/repeat-bound": {"longest": T},
    "kiya/after-softmax": {"map_layers": [0]},
    "kiya/baseline": {"map_layers": [0]},
    "kiya/bos-swap": {"map_layers": [0], "positions": [8], "shown": 8},
    "kiya/self": {"map_layers": [0], "positions": [8], "shown": 8},
    "kiya/mask": {"map_layers": [0]},
    "li/variance": {},
}
REFUSED = {("background/compression", "one"), ("li/amplify", "one")}  # too few layers, or layers that are not there
WITHOUT = {"kiya/embedding", "kiya/rope", "kiya/mask", "sweep"}  # no text is read; its maps and texts are its own
NAMES = sorted(name for name in EXPERIMENTS if name not in WITHOUT and not trains(name))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_both(tmp_path_factory.mktemp("tiny"))
    write_model(folder / "four", num_hidden_layers=4)
    write_model(folder / "one", num_hidden_layers=1)
    return folder


@pytest.mark.parametrize("layers", ["four", "one"])
@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_that_reads_text_has_maps_or_texts_of_its_edits(name, layers, files):
    chosen = study(name, files, length=T, model=str(files / layers), **SMALL.get(name, {}))
    architecture = open_checkpoint(chosen.config.model).config
    if (name, layers) in REFUSED:
        with pytest.raises(SinkjaxError):
            recipe(name).jobs(chosen.config, architecture)
        return
    jobs = {job.name: job for job in recipe(name).jobs(chosen.config, architecture)}
    assert set(jobs) == {*recipe(name).STORES, *recipe(name).EXTRAS}
    for store in recipe(name).EXTRAS:
        assert jobs[store].prompts == 3
        if store.startswith("maps"):
            (capture,) = jobs[store].probe.captures
            assert capture.layers == ((0, 1, 2) if layers == "four" else (0,))
            jobs[store].probe.check(architecture, T)
            plan(architecture, jobs[store].edits, [T] * 3, T, jobs[store].probe)  # the edits fit
            labels = [arm.edit.label for arm in jobs[store].arms]
            assert labels[0] in ("no edit", "all keys")
            assert len(set(labels)) == len(labels) <= views.EDITS


def test_the_maps_of_all_recipes_leave_most_of_a_page_to_what_else_is_on_it():
    """As if nothing could be compressed, on the shape of SmolLM2-135M: 3 layers, 9 heads and their mean, in base 64."""
    shape = open_checkpoint("smollm2-135m", weights=False).config
    each = [recipe(name).jobs(choose(name).config, shape) for name in NAMES]
    arms = sum(len(job.arms) for jobs in each for job in jobs if job.name.startswith("maps"))
    assert 30 < arms < 80
    assert arms * views.PROMPTS * 3 * (9 + 1) * TOKENS**2 * 4 / 3 < LARGEST / 4


@pytest.mark.parametrize("name", ["background/compression", "background/patch", "background/quantise", "li/super-neurons"])
def test_what_the_model_decides_has_the_labels_of_its_stand_ins(name, files):
    chosen = study(name, files, length=T, model=str(files / "four"), **SMALL.get(name, {}))
    model = sinkjax.load(chosen.config.model)
    (maps,) = (job for job in recipe(name).jobs(chosen.config, model.config) if job.name == "maps")
    arms = maps.prepare(model, prompts(model, chosen, maps.inputs, maps.prompts))
    assert [arm.edit.label for arm in arms] == [arm.edit.label for arm in maps.arms]
    assert len(arms) > 1


def test_stores_become_views_and_samples_and_a_run_that_did_not_take_place_nothing():
    study = {"token_texts": [["a", "b"]], "bos": "none", "text": "a text"}
    attributes = {"study": study, "sweep": {"model": {"name": "m"}, "dtype": "float32"}}
    maps = xarray.Dataset(
        {
            "attention": (("edit", "prompt", "attention_layer", "head", "attention_query", "key"), np.ones((1, 1, 1, 2, 2, 2))),
            "resid_max": (("edit", "prompt", "depth", "position"), np.ones((1, 1, 2, 2))),
            "length": ("prompt", [2]),
        },
        {"edit": ["no edit"], "attention_layer": [0], "head": [0, 1]},
        attributes,
    )
    texts = xarray.Dataset(
        {"text": (("edit", "prompt"), np.array([["b"]])), "start": ("prompt", np.array(["a"]))}, {"edit": ["no edit"]}
    )
    absent = xarray.Dataset(attrs={"absent": "no BOS"})
    bare = Section("paper/one", "", "", (), (), (), ())
    found = illustrated(bare, {"maps": maps, "maps-bos": absent, "continuations": texts})
    assert [view.name for view in found.views] == ["paper-one-maps-attention", "paper-one-maps-activation"]
    assert all(view.caption.endswith("m in float32, BOS none, a text.") for view in found.views)
    assert found.samples == (Sample("a", "no edit", "b"),)
    own = dataclasses.replace(bare, views=found.views[1:])  # what the section shows itself is not shown twice
    assert [view.name for view in illustrated(own, {"maps": maps}).views] == [
        "paper-one-maps-activation",
        "paper-one-maps-attention",
    ]


def test_a_folder_without_extras_has_its_section_and_the_same_run_adds_them(files, tmp_path):
    chosen = study("li/isolate", files, length=T, controls=2, control_prompts=2)
    section = run.carry_out(chosen, tmp_path / "out")
    assert {view.name for view in section.views} == {"isolated-activation", "li-isolate-maps-attention"}
    assert {sample.edit for sample in section.samples} == {
        "no edit",
        "all layers",
        "even attention, all layers",
    }
    numbers = {file: file.read_bytes() for file in (tmp_path / "out" / "sweep.zarr").rglob("*") if file.is_file()}
    for extra in ("maps", "continuations"):
        shutil.rmtree(tmp_path / "out" / f"{extra}.zarr")
    bare = run.build(chosen, tmp_path / "out")
    assert (bare.rows, bare.claims, bare.samples, len(bare.views)) == (section.rows, section.claims, (), 1)
    again = run.carry_out(chosen, tmp_path / "out")
    assert again.samples == section.samples
    np.testing.assert_array_equal(again.views[1].values, section.views[1].values)
    assert numbers == {file: file.read_bytes() for file in (tmp_path / "out" / "sweep.zarr").rglob("*") if file.is_file()}


def test_an_edited_position_beyond_the_usual_start_lengthens_the_prompt(files):
    chosen = study("li/isolate", files, length=T, position=20)
    model = sinkjax.load(chosen.config.model)
    (texts,) = (job for job in recipe("li/isolate").jobs(chosen.config, model.config) if isinstance(job, Calculation))
    data = texts.compute(model, prompts(model, chosen, texts.inputs, texts.prompts))
    assert all(len(model.tokenizer.encode(str(start))) == 21 for start in data["start"].values)


def test_several_prompts_go_on_as_each_would_alone(files):
    model = sinkjax.load(str(files / "model"))
    starts = [[5, 9, 40, 7], [33, 21, 8, 4, 2, 60]]
    edit = sinkjax.mask_key(0)
    assert generate_all(model, starts, edit, tokens=6) == [sinkjax.generate(model, start, edit, tokens=6) for start in starts]


def test_a_finished_job_is_not_prepared_again_and_one_of_other_numbers_is_still_refused(files, tmp_path):
    chosen = study("kiya/mask", files, length=12, controls=2, control_prompts=2, map_layers=[0])
    model = sinkjax.load(chosen.config.model)
    (job,) = (job for job in recipe("kiya/mask").jobs(chosen.config, model.config) if job.name == "heads")
    batch, store, prepared = prompts(model, chosen, job.inputs, 2), tmp_path / "heads.zarr", []

    def prepare(model, batch):
        prepared.append(batch)
        return job.prepare(model, batch)

    counted = dataclasses.replace(job, prepare=prepare)
    run.store_job(counted, model, batch, store)
    run.store_job(counted, model, batch, store)
    assert len(prepared) == 1
    other = dataclasses.replace(batch, tokens=batch.tokens[::-1].copy(), lengths=batch.lengths[::-1].copy())
    fewer = dataclasses.replace(counted, arms=job.arms[:-1])
    for changed, of in ((counted, other), (fewer, batch)):
        with pytest.raises(SinkjaxError, match="holds another sweep"):
            run.store_job(changed, model, of, store)
    assert len(prepared) == 1
    configured = dataclasses.replace(batch, study={**batch.study, "config": {**batch.study["config"], "head_shares": [0.9]}})
    run.store_job(counted, model, configured, store)  # the values may differ, so they are made again and compared
    assert len(prepared) == 2
