"""What studies read and infer from: the split, the document and the genre of each prompt, and how results and pages say so."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.data.corpora import packaged_documents, passages
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Numbers
from sinkjax.study.registry import Chosen
from sinkjax.study.run import prompts
from sinkjax.study.settings import OnText
from sinkjax.study.work import Inputs
from tests.study.planted_results import SWEEP, planted_sweep
from tests.study.tiny import write_model

SIZE = Measure("size (m)", lambda data: data["size"].values)
GENRES = np.repeat(["letters", "lists", "news", "poems"], 3).tolist()
MADE = {
    "config": {"layers": 1},
    "model": {"name": "tiny", "dtype": "float32", "sha256": "0" * 64},
    "dtype": "float32",
    "prompts": {"count": 12, "positions": 8},
    "precision": "highest",
    "versions": {},
}
MACHINE = {"devices": "1 x cpu", "jax": "0.7.2", "jaxlib": "0.7.2"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return sinkjax.load(write_model(tmp_path_factory.mktemp("model")))


def store(values, **study):
    """A store of one number for each condition and prompt. study: what it says of its prompts."""
    attributes = {"sweep": MADE, "hardware": [MACHINE], "study": {"text": "made up", "bos": "none", **study}}
    return xarray.Dataset({"size": (("edit", "prompt"), np.array(values, float))}, {"edit": ["none", "edit"]}, attributes)


def results(over="documents", stores=None, **study):
    """The results of a sweep on twelve prompts. study: what its store says of them; stores: further ones."""
    rng = np.random.default_rng(0)
    shared = np.repeat(rng.normal(size=4), 3)  # the three prompts of a genre resemble each other
    values = [np.zeros(12), 1 + shared + 0.1 * rng.normal(size=12)]

    sweep = planted_sweep(["none", "edit"], SIZE)
    found = {SWEEP: store(values, **study), **(stores or {})}
    return Numbers(SimpleNamespace(seed=0), None, found, lambda store: sweep.conditions(), over)


def text(each=1, genres=GENRES):
    """What a store says of twelve prompts, `each` of which are from one document."""
    return {"split": "confirm", "documents": [number // each for number in range(12)], "genres": list(genres)}


def test_a_batch_says_its_split_and_the_document_and_genre_of_each_prompt(model):
    config = OnText(model="tiny", text="packaged", prompts=9, length=20, bos="none")
    batch = prompts(model, Chosen("made/up", config), Inputs(), 5)
    whole = passages("packaged", 9, split="confirm", length=20, size=lambda text: len(model.tokenizer.encode(text)))
    assert batch.study["split"] == "confirm"
    assert batch.study["documents"] == list(whole.documents[:5])
    assert batch.study["genres"] == list(whole.genres[:5])
    for row, number in zip(batch.tokens, batch.study["documents"], strict=True):
        assert packaged_documents()[number].startswith(model.tokenizer.decode(row))


BESIDE = {"random": store([[0] * 12, [1] * 12])}


@pytest.mark.parametrize(
    ("found", "stores", "clusters"),
    [
        (results(**text()), [SWEEP], GENRES[:5]),
        (results(**text(genres=[""] * 12)), [SWEEP], None),
        (results(**text(each=2, genres=[""] * 12)), [SWEEP], [0, 0, 1, 1, 2]),
        (results(), [SWEEP], None),
        (results(over="seeds", **text()), [SWEEP], None),
        (results(stores=BESIDE, **text()), [SWEEP], GENRES[:5]),
        (results(stores=BESIDE, **text(each=2)), ["random"], None),
        (results(stores=BESIDE, **text()), ["random", SWEEP], GENRES[:5]),
    ],
    ids=["text", "no genres", "documents", "no text", "seeds", "random tokens elsewhere", "random tokens", "both"],
)
def test_numbers_are_clustered_by_the_genres_of_their_own_prompts_or_else_by_documents(found, stores, clusters):
    given = found.clusters(5, *stores, genres=True)
    assert (given if given is None else given.tolist()) == clusters
    assert found.clusters(13, *stores, genres=True) is None
