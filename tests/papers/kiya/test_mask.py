"""kiya/mask: which logits are masked, which controls there are, when Figs. 4c and 8c apply, and the words of planted sinks."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.papers.kiya.mask import first_heads, hide_from_heads, top_heads
from sinkjax.study import rebuild, run
from sinkjax.study.baseline import Unedited
from sinkjax.study.parts import parts
from sinkjax.study.registry import program
from sinkjax.study.work import NO_EDIT, Point
from tests.study import planted
from tests.study.budget import Conditions, budget
from tests.study.planted import where
from tests.study.stores import Numbers, store
from tests.study.tiny import mask, write_both

STUDY = program("kiya/mask")
FORMS = "layers 0 to the one in which it forms"
LAYERS: dict[str, Any] = {"layer 0": 0, "layer 1": 1, "layer 2": 2, "layers 0 to 1": [0, 1], "all layers": None, FORMS: [0, 1]}
CLAIMED = {"layer 0", "layer 1", FORMS, "all layers"}
N = 64


@pytest.fixture(scope="module")
def study(tiny_config) -> Conditions:
    """On three layers of six heads, of which the heads of layer 2 attend to key 0 most; the activation forms in layer 1."""
    known = {"forms": 1, "attention": np.repeat([[0.2], [0.1], [0.8]], 6, axis=1)}
    return Conditions(STUDY, tiny_config, known, length=24, controls=5, head_shares=(0.3, 0.7))


def test_the_logits_towards_the_key_are_masked_in_each_set_of_layers(study):
    found = study.of("masks")
    assert [*found] == ["no edit", *LAYERS]
    for label, layers in LAYERS.items():
        study.assert_same(found[label].edit, sinkjax.mask_key(0, layers=layers))


def test_heads_are_masked_in_the_layers_that_they_are_in(study):
    found = study.of("heads")
    assert [*found][1:] == [
        "the 6 heads with the largest attention", "the 12 heads with the largest attention",
        "the 6 heads of layer 0", "the 12 heads of layers 0 to 1",
    ]  # fmt: skip
    for label, layers in zip([*found][1:], ([2], [0, 2], [0], [0, 1]), strict=True):
        (term,) = found[label].edit.terms
        assert set(np.argwhere(np.isneginf(term.value[:, 0]))[:, 0]) == set(layers)
        assert np.isneginf(term.value).sum() == 6 * len(layers)


def test_controls_mask_another_key_or_other_heads(study):
    for point in study.random("masks"):
        (term,) = point.edit.terms
        (key,) = term.keys
        assert 1 < key < 23
        study.assert_same(point.edit, sinkjax.mask_key(key, layers=LAYERS[budget(point)]))
    assert {len({point.draw for point in study.random("masks", label)}) for label in CLAIMED} == {5}
    for point in study.random("heads"):
        (term,) = point.edit.terms
        assert term.keys == (0,)
        assert np.isneginf(term.value).sum() == (6 if " 6 " in budget(point) else 12)


def test_controls_run_for_what_claims_are_about_and_for_all_sets_of_heads(tiny_config):
    study = Conditions(STUDY, tiny_config, {"forms": 1}, controls=2, length=24)
    assert {budget(point) for point in study.random("masks")} == CLAIMED
    assert len({budget(point) for point in study.random("heads")}) == 4


def test_the_activation_forms_where_it_passes_half_of_its_peak():
    data = store(
        [{("size", 0, 1): 4, ("size", 0, 2): 49, ("size", 0, 3): 51, ("size", 0, 4): 100, ("size", 0, 0): 900}], 3, (4, 2, 12)
    )
    architecture, values = SimpleNamespace(layers=4, heads=2), dict[str, Any]()
    STUDY.trace(STUDY.settings(length=12), architecture, unedited=Unedited(None, None, data, 2), values=values)
    assert values["forms"] == 2
    assert values["attention"].shape == (4, 2)


def moves(first: float = 10.0, second: float | None = None, twin: float = 20.0, **edited: tuple[float, ...]) -> Any:
    """Attention to keys 0 and 1 (%), and largest |h| there, of the conditions in some places; others change nothing.

    first, second: attention to key 0 in layers 0 and 1 without an edit; None: as in layer 0. twin: in the untrained twin.
    """

    def numbers(name: str, point: Point) -> Numbers:
        noises = iter(np.random.default_rng(zlib.crc32(f"{name} {point.label}".encode())).uniform(-1, 1, (4, N)))
        place = where(point).replace(" ", "_") if point.draw < 0 and not name.endswith("-twin") else ""
        place = "forms" if where(point) == FORMS and place else place
        seen, after, size, size_1 = edited.get(place, (90.0, 2.0, 500.0, 10.0))
        seen = twin if name.endswith("-twin") else seen
        return {
            ("seen", 0): seen + next(noises), ("seen", 1): after + next(noises), ("seen", 0, 0): first if place == "" else seen,
            ("seen", 0, 1): (first if second is None else second) if place == "" else seen,
            ("size", 0): size, ("size", 1): size_1 * np.exp(next(noises) / 50),
        }  # fmt: skip

    return numbers


def words(numbers: Any, **options: Any) -> dict[str, str]:
    settings = {"prompts": N, "control_prompts": N, "length": 32}
    return planted.words(STUDY, numbers, layers=8, heads=2, **settings, **options)


MOVED = (1.0, 80.0, 500.0, 400.0)


@pytest.mark.parametrize(
    ("first", "judged"),
    [
        (10.0, {"first": "not applicable", "second-stays": "not applicable", "second-moves": "absent"}),
        (50.0, {"first": "replicates", "second-stays": "replicates (untrained too)", "second-moves": "not applicable"}),
    ],
)
def test_a_sink_that_moves_to_the_next_token_replicates_and_a_mask_that_does_nothing_is_absent(first, judged):
    """Figs. 4b and 4c are about a first layer with a sink, Fig. 8c about one without."""
    found = words(moves(first, all_layers=MOVED, layer_0=MOVED, forms=(1.0, 30.0, 500.0, 10.0)))
    assert found == judged | {"all": "replicates", "forms": "confirmed", "activation": "replicates", "kept": "holds"}


def test_without_a_massive_activation_no_claim_is_about_it():
    found = words(moves(all_layers=(1.0, 80.0, 99.0, 90.0), **{"": (90.0, 2.0, 99.0, 10.0)}))
    assert (found["all"], found["forms"], found["activation"]) == ("replicates", "not applicable", "not applicable")


def test_a_key_that_another_one_outdoes_has_no_sink_that_could_move():
    def numbers(name: str, point: Point) -> Numbers:
        return moves(50.0, all_layers=MOVED, layer_0=MOVED)(name, point) | {("seen", 9): 95.0}

    found = words(numbers)
    assert {name for name, word in found.items() if word == "not applicable"} == {
        "all", "first", "second-stays", "second-moves", "forms",
    }  # fmt: skip


@pytest.mark.parametrize(("twin", "word"), [(80.0, "replicates"), (82.0, "not applicable"), (95.0, "not applicable")])
def test_a_key_that_gets_as_much_in_the_untrained_twin_has_no_sink_that_could_move(twin, word):
    """Of 90, a tenth must be missing in the twin."""
    found = words(moves(50.0, twin=twin, all_layers=MOVED, layer_0=MOVED))
    assert (found["all"], found["first"]) == (word, word)


@pytest.mark.parametrize("source", ["model", "untrained:model"])
def test_an_untrained_model_replicates_nothing(source, tmp_path, monkeypatch):
    """Random weights, as a model of its own and as a twin: causal attention favours key 0 all the same."""
    monkeypatch.setattr(run, "build", rebuild.section_of)
    files = write_both(tmp_path)
    section = run.carry_out(
        mask(files, model=source.replace("model", str(files / "model")), prompts=14, twin=False), tmp_path / "out"
    )
    found = {one.name: one for one in section.verdicts if one.kind == "claim"}
    assert {one.plain for one in found.values()} == {"not applicable"}
    assert ("untrained twin" if source == "model" else "the model is untrained") in found["all"].judgement.reason
    assert (tmp_path / "out" / "masks-twin.zarr").exists() is (source == "model")


@pytest.mark.parametrize("twin", [True, False])
def test_the_untrained_twin_is_always_measured_for_the_premise(tiny_config, twin):
    found = {one.name: one for one in parts(STUDY.trace(STUDY.settings(twin=twin, length=24), tiny_config))}
    labels = [point.label for point in found["masks-twin"].planned()]
    assert len(labels) > 1 if twin else labels == [NO_EDIT]
    assert found["masks-twin"].optional is not twin  # runs that were made without it still report
    assert words(moves(50.0, all_layers=MOVED), twin=twin)["all"] == "replicates"


@pytest.mark.parametrize(
    ("first", "second", "applies"),
    [
        (10.0, 29.9, "second-moves"),
        (29.9, 10.0, "second-moves"),
        (10.0, 30.0, None),
        (30.0, 30.0, "second-stays"),
        (50.0, 10.0, "second-stays"),
    ],
)
def test_the_second_layer_alone_is_judged_by_one_figure_or_the_other(first, second, applies):
    """By Fig. 4c if the first layer has a sink already, by Fig. 8c if the third layer is the first with one."""
    found = words(moves(first, second, layer_1=MOVED))
    assert [name for name in ("second-stays", "second-moves") if found[name] != "not applicable"] == (
        [applies] if applies else []
    )
    assert applies is None or found[applies] == ("replicates" if applies == "second-moves" else "moves")


def test_what_any_mask_does_is_not_the_keys_doing():
    def numbers(name: str, point: Point) -> Numbers:
        return moves(all_layers=MOVED)(name, point) | ({("seen", 1): 99.0} if point.draw >= 0 else {})

    assert words(numbers)["all"] == "opposite"


# Sets of heads.

L, H = 3, 6
SCORES = np.roll(np.arange(18.0)[::-1], 16).reshape(L, H)  # head 4 of layer 2 receives most, then head 5 and those of layer 0
SHARES = (0.2, 0.5, 0.9)


def test_heads_are_whole_layers_many_the_strongest_or_the_first():
    strongest, first = top_heads(SCORES, SHARES, "attention"), first_heads(L, H, SHARES)
    assert [len(one.heads or ()) for one in strongest] == [len(one.heads or ()) for one in first] == [6, 12]  # not none, not all
    assert strongest[0].heads == ((2, 4), (2, 5), (0, 0), (0, 1), (0, 2), (0, 3))
    assert first[0].heads == tuple((0, head) for head in range(H))
    assert (strongest[0].layers, first[1].layers) == ((0, 2), (0, 1))
    assert [one.x for one in strongest] == [6, 12]
    assert [one.label for one in (strongest[0], *first)] == [
        *("the 6 heads with the largest attention", "the 6 heads of layer 0", "the 12 heads of layers 0 to 1")
    ]
    for share in (0.0, 1.0):
        with pytest.raises(SinkjaxError, match=f"share of heads .* 0 and 1, not {share:g}"):
            top_heads(SCORES, [0.5, share], "attention")


def test_a_mask_in_some_heads_hides_the_key_from_these_alone(tiny_config):
    (place, _) = top_heads(SCORES, SHARES, "attention")
    (term,) = hide_from_heads(2, place.heads or (), L, H).resolve(tiny_config, [16], 16)
    assert term.op == "add"  # 0 elsewhere, which changes nothing
    hidden = np.isneginf(np.asarray(term.value)[:, 0]) & np.asarray(term.layer_head)
    assert {(int(layer), int(head)) for layer, head in np.argwhere(hidden)} == {*(place.heads or ())}
    assert set(np.unique(np.asarray(term.value))) == {-np.inf, 0.0}
    (plain,) = sinkjax.mask_key(2).resolve(tiny_config, [16], 16)
    np.testing.assert_array_equal(term.key, plain.key)
    assert term.relation == plain.relation
