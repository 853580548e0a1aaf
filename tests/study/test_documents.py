"""What studies read and infer from: the split, the document and the genre of each prompt, and how results and pages say so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.config_files import documents
from sinkjax.data.corpora import chosen_split, packaged_documents, passages
from sinkjax.errors import SinkjaxError
from sinkjax.study.assemble import standard_notes
from sinkjax.study.choice import Chosen
from sinkjax.study.config import All
from sinkjax.study.facts import provenance, source
from sinkjax.study.inputs import prompts
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Stored
from sinkjax.study.results import summary
from sinkjax.study.settings import OnText
from sinkjax.study.work import Inputs
from tests.study.planted_results import SWEEP, planted_sweep
from tests.study.tiny import write_model, write_text

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
    return Stored(SimpleNamespace(seed=0), None, found, lambda store: sweep.points(), over)


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


def test_the_splits_have_no_document_in_common(model):
    found = {}
    for split in ("explore", "confirm"):
        config = OnText(model="tiny", text="packaged", split=split, prompts=84, length=20)
        found[split] = set(prompts(model, Chosen("made/up", config), Inputs(), 84).study["documents"])
    assert not found["explore"] & found["confirm"]
    assert len(found["explore"] | found["confirm"]) == 168


def test_prompts_that_are_no_text_have_no_documents(model):
    config = OnText(model="tiny", prompts=4, length=8)
    study = prompts(model, Chosen("made/up", config), Inputs("random"), 4).study
    assert not {"split", "documents", "genres"} & set(study)


def test_a_text_with_too_few_documents_in_the_split_is_refused_in_one_sentence(model, tmp_path):
    config = OnText(model="tiny", text=str(write_text(tmp_path / "text.txt")), prompts=30, length=8, split="confirm")
    with pytest.raises(SinkjaxError, match=r"30 passages .*'confirm' of file text.txt .*\d+ .*--split all") as error:
        prompts(model, Chosen("made/up", config), Inputs(), 2)
    assert "\n" not in str(error.value)
    assert prompts(model, Chosen("made/up", dataclasses.replace(config, split="auto")), Inputs(), 2).study["split"] == "all"


def test_configs_read_the_confirm_split_of_shipped_texts_and_all_of_ones_own():
    assert OnText().split == "auto"
    assert [chosen_split(source, "auto") for source in ("auto", "wikitext", "packaged", "my.txt", Path("texts"))] == [
        *["confirm"] * 3,
        "all",
        "all",
    ]
    assert chosen_split("my.txt", "explore") == "explore"
    assert documents.build(OnText, {"split": "explore"}, "the test").split == "explore"
    with pytest.raises(SinkjaxError, match="split"):
        documents.build(OnText, {"split": "test"}, "the test")
    assert All().split is None


@pytest.mark.parametrize(
    ("study", "over"), [(text(), "documents"), (text(each=3), "passages, clustered by document"), ({}, "prompts")]
)
def test_results_say_what_their_intervals_are_over(study, over):
    found = results(**study)
    assert found.over == over
    lab = SimpleNamespace(sweeps={SWEEP: planted_sweep(["none", "edit"], SIZE)}, columns=())
    assert f"95% intervals over 12 {over} (" in standard_notes(lab, found, summary(lab, found))[0]
    bands, of = source(found["sweep"])
    assert f"95% intervals over 12 {over}." in bands
    assert re.match("tiny .*float32, .*none, made up", of)


def test_text_beside_other_prompts_is_called_prompts_and_a_study_may_say_what_it_infers_from():
    assert results(stores={"random": store([[0], [1]])}, **text()).over == "prompts"
    assert results(over="heads", **text(each=3)).over == "heads"
    assert results(over="heads", **text(each=3)).clusters(12) is None


def test_numbers_are_clustered_by_the_documents_of_their_own_store():
    random, shared = store([[0] * 12, [1] * 12]), text(each=3)
    found = results(stores={"random": random, "more": store([[0] * 12, [1] * 12], **text(each=2))}, **shared)
    assert found.clusters(12).tolist() == found.clusters(12, SWEEP).tolist() == shared["documents"]
    assert found.clusters(12, "more").tolist() == text(each=2)["documents"]
    assert found.clusters(12, "random") is None
    values = np.repeat(np.arange(4.0), 3)
    assert found.interval(values).method == "clustered t"
    other = results(stores={"more": store([[0] * 12, [1] * 12], **shared)})  # the first sweep has no documents
    assert other.clusters(12) is None
    assert found.curve("a line", [0], values[:, None]).values[0].method == "clustered t"


def test_passages_of_one_document_widen_the_interval():
    lab = SimpleNamespace(sweeps={SWEEP: planted_sweep(["none", "edit"], SIZE)})
    alone, shared = (summary(lab, results(**text(each)))["edit", "size (m)"].effect for each in (1, 3))
    assert (alone.method, shared.method) == ("t", "clustered t")
    assert alone.mean == shared.mean
    assert shared.high - shared.low > 1.5 * (alone.high - alone.low)


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


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (text(), "confirm, 12 documents in 4 genres"),
        (text(each=12, genres=["news"] * 12), "confirm, 1 document in 1 genre"),
        (text(each=3, genres=[""] * 12), "confirm, 4 documents"),
        ({}, None),
    ],
)
def test_provenance_shows_the_split_and_how_many_documents_there_are(study, said):
    assert provenance(store([[0], [1]], **study)).get("split") == said
