"""The identity edit of every recipe: of the recipe's own kind, on cells of its own, and it changes no number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.experiments import identity
from sinkjax.experiments.base import Job
from sinkjax.report.table import table
from sinkjax.studies import folder as results
from sinkjax.studies import run
from sinkjax.studies.inputs import prompts
from sinkjax.studies.registry import EXPERIMENTS, recipe, trains
from sinkjax.sweeps.plan import plan
from tests.experiments.test_illustrations import SMALL, T
from tests.studies.tiny import study, write_both, write_model

AMONG_ITS_ARMS = {"gu/rope-positions", "li/amplify", "li/isolate", "li/super-neurons"}
NOTHING_EDITED = {"gu/angles", "gu/norms", "gu/sink-rate", "kiya/baseline", "kiya/embedding", "kiya/rope", "li/dominance"}
TRAINED = {name for name in EXPERIMENTS if not trains(name)} - {"sweep"}
NAMES = sorted(name for name in TRAINED if identity.STORE in getattr(recipe(name), "EXTRAS", ()))
OF_CALCULATIONS = {"gu/repeat-bound", "li/variance"}  # their edits are made inside of a calculation


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_both(tmp_path_factory.mktemp("tiny"))
    write_model(folder / "four", num_hidden_layers=4)
    return folder


def test_every_recipe_has_one_or_edits_nothing():
    groups = set(NAMES), AMONG_ITS_ARMS, NOTHING_EDITED
    assert set.union(*groups) == TRAINED
    assert sum(map(len, groups)) == len(set.union(*groups))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_of_the_recipes_kind_and_fits_the_model(name, files):
    chosen = study(name, files, length=T, model=str(files / "four"), **SMALL.get(name, {}))
    architecture = open_checkpoint(chosen.config.model).config
    jobs = {job.name: job for job in recipe(name).jobs(chosen.config, architecture)}
    same = jobs.pop(identity.STORE)
    sites = {term.site for edit in same.edits for term in edit.terms}
    used = {term.site for job in jobs.values() if isinstance(job, Job) for edit in job.edits for term in edit.terms}
    assert sites
    assert sites <= used or name in OF_CALCULATIONS
    assert all(edit.label.startswith("identity (") for edit in same.edits[1:])
    plan(architecture, same.edits, [T] * same.prompts, T, same.probe)


@pytest.mark.parametrize("name", ["background/elsewhere", "background/massive", "background/patch"])
def test_it_changes_nothing_where_the_model_gives_its_values(name, files, tmp_path):
    chosen = study(name, files, length=T, model=str(files / "four"), **SMALL.get(name, {}))
    model = sinkjax.load(chosen.config.model)
    (same,) = (job for job in recipe(name).jobs(chosen.config, model.config) if job.name == identity.STORE)
    run.store_job(same, model, prompts(model, chosen, same.inputs, same.prompts), tmp_path / "identity.zarr")
    data = results.open_store(tmp_path / "identity.zarr").load()
    labels = [str(label) for label in data["edit"].values[1:]]
    assert labels == [edit.label for edit in same.edits[1:]]
    assert (data["cells_addressed"].sel(edit=labels) > 0).all()
    assert max(change.max() for change in identity.changes(data, labels).values()) < 1e-6


def test_changes_are_parts_of_the_largest_value_and_an_undefined_number_is_no_match():
    values = np.array([[[1.0, -4.0, np.nan], [2.0, 0.0, np.nan]], [[1.0, -3.0, np.nan], [2.0, np.nan, np.nan]]])
    data = xarray.Dataset(
        {
            "one": (("edit", "prompt", "position"), values),
            "zeros": (("edit", "prompt"), np.zeros((2, 2))),
            "cells_addressed": (("edit", "prompt"), np.array([[0.0, 0.0], [3.0, 4.0]])),
            "length": (("prompt",), np.array([2, 2])),
        },
        {"edit": ["no edit", "identity (times 1)"]},
    )
    changes = identity.changes(data, ["identity (times 1)"])
    assert changes.keys() == {"one", "zeros"}
    np.testing.assert_array_equal(changes["one"], [[0.25, np.inf]])
    np.testing.assert_array_equal(changes["zeros"], [[0, 0]])
    first = data.isel(prompt=[0])
    assert identity.finding(first, ["identity (times 1)"]) == (
        "The identity edit (times 1), 3 cells, changes no number by more than 2.5e-01 of its statistic's largest value (one), on"
        " 1 prompts."
    )
    assert identity.finding(data[["zeros", "cells_addressed"]], ["identity (times 1)"]) == (
        "The identity edit (times 1), 7 cells, changes no number: zeros are bit for bit those without an edit, on 2 prompts."
    )


def test_a_folder_without_its_store_has_its_section_and_the_store_adds_a_sentence_and_a_row(files, tmp_path):
    chosen = study("background/streaming", files, controls=2, length=T, first=[0, 2], **SMALL["background/streaming"])
    model = sinkjax.load(chosen.config.model)
    jobs = {job.name: job for job in recipe("background/streaming").jobs(chosen.config, model.config)}

    def store(name: str) -> None:
        batch = prompts(model, chosen, jobs[name].inputs, jobs[name].prompts)
        run.store_job(jobs[name], model, batch, results.store_path(tmp_path, name))

    store("sweep")
    store("controls")
    bare = run.section_of(chosen, tmp_path)
    store(identity.STORE)
    section = run.build(chosen, tmp_path)
    *others, row = section.rows
    assert (tuple(others), section.findings[:-1]) == (bare.rows, bare.findings)
    assert (row.arm, row.group) == ("identity (0 added to the logits beyond the last 8 keys)", identity.GROUP)
    assert row.value.mean < 1
    assert section.findings[-1].startswith("The identity edit (0 added to the logits beyond the last 8 keys), ")
    shown, whole = table(section.rows, section.featured), table(section.rows)
    assert identity.LARGEST in whole.columns
    assert identity.LARGEST not in shown.columns  # no arm of the short table has that measure
