"""kiya/mask: which logits are masked, which controls there are, when Figs. 4c and 8c apply, and the words of planted sinks."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.study.registry import find
from sinkjax.study.work import Condition
from tests.study import planted
from tests.study.budget import Conditions, budget
from tests.study.planted import where
from tests.study.stores import Values

STUDY = find("kiya/mask")
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


def test_sets_are_the_heads_that_attend_most_and_those_of_the_first_layers(study):
    layers = {label: point.edit.terms[0].layers for label, point in study.of("heads").items() if point.edit.terms}
    most = {"the 6 heads with the largest attention": (2,), "the 12 heads with the largest attention": (0, 2)}
    assert layers == {**most, "the 6 heads of layer 0": (0,), "the 12 heads of layers 0 to 1": (0, 1)}


def moves(first: float = 10.0, second: float | None = None, twin: float = 20.0, **edited: tuple[float, ...]) -> Any:
    """Attention to keys 0 and 1 (%), and largest |h| there, of the conditions in some places; others change nothing.

    first, second: attention to key 0 in layers 0 and 1 without an edit; None: as in layer 0. twin: in the untrained twin.
    """

    def numbers(name: str, point: Condition) -> Values:
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


def test_what_any_mask_does_is_not_the_keys_doing():
    def numbers(name: str, point: Condition) -> Values:
        return moves(all_layers=MOVED)(name, point) | ({("seen", 1): 99.0} if point.draw >= 0 else {})

    assert words(numbers)["all"] == "opposite"
