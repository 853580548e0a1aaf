"""kiya/bos-swap: the conditions and controls, effects at the right places, and verdicts by their rules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray

from sinkjax.analysis.claims import judge
from sinkjax.analysis.estimates import present
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import bos_swap
from sinkjax.studies.papers.kiya.bos_swap import STUDY, BosSwap
from sinkjax.studies.results import Results
from sinkjax.studies.specs import ABSENT

T, LAYERS, PROMPTS = 30, 4, 16
CONFIG = BosSwap(length=T, positions=(2, 5), shown=5)
CONTROLS = list(bos_swap.other_tokens(CONFIG, None))


def record(moves: bool = False, from_layer: int = 0, sinks: bool = True, massive: bool = True) -> xarray.Dataset:
    """A model whose sink and massive activation go with the first token, or stay where they are, from one layer on."""
    places = (0, *CONFIG.positions)
    received = np.full((len(places), PROMPTS, LAYERS, 2, T), 0.01)
    largest = np.ones((len(places), PROMPTS, LAYERS + 1, T))
    for edit, place in enumerate(places):
        at = place if moves else 0
        received[edit, :, from_layer:, :, at] = 0.9 if sinks or edit == 0 else 0.01
        largest[edit, :, from_layer + 1 :, at] = 100 if massive or edit == 0 else 1
    return dataset([entry.label for entry in bos_swap.conditions(CONFIG, None)], received, largest)


def dataset(labels: list[str], received: np.ndarray, largest: np.ndarray) -> xarray.Dataset:
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "resid_max": (("edit", "prompt", "depth", "position"), largest),
            "nll": (("edit", "prompt", "position"), np.ones((*largest.shape[:2], T))),
        },
        {"edit": labels},
    )


def random_swaps(moves: bool = False) -> xarray.Dataset:
    """Controls: the sink stays at position 0, or (moves) it comes to where the second token goes."""
    received = np.full((len(CONTROLS), 8, LAYERS, 2, T), 0.01)
    largest = np.ones((len(CONTROLS), 8, LAYERS + 1, T))
    for row, entry in enumerate(CONTROLS):
        at = entry.at[0] if moves else 0
        received[row, ..., at], largest[row, :, 1:, at] = 0.9, 150
    return dataset([entry.label for entry in CONTROLS], received, largest)


def results(
    plain: xarray.Dataset, bos: xarray.Dataset | None, text: str = "<s>", config: BosSwap = CONFIG, **more: xarray.Dataset
) -> Results:
    """Both runs; without `bos` the model has none."""
    stores = {"plain": plain, "bos": xarray.Dataset(attrs={ABSENT: "no BOS"}) if bos is None else bos}
    stores |= {"plain-controls": random_swaps(), "bos-controls": random_swaps()} | more
    attributes = {"sweep": {"config": {"layers": LAYERS}, "model": {"name": "m"}, "dtype": "float32"}}
    attributes["study"] = {"text": "a text", "bos": "model", "first_tokens": [[1, text], [7, "a"]]}
    return Results(STUDY, config, {name: store.assign_attrs({**attributes, **store.attrs}) for name, store in stores.items()})


def verdicts(found: Results) -> str:
    """By their first letters: follows in layer 0, in no layer 0 and stays, stays, follows over all layers, any first token."""
    return "".join(judge(claim, found).verdict[0] for claim in STUDY.claims(found.config, found.architecture))


def test_conditions_swap_position_0_with_each_place_and_controls_another_token_with_each():
    none, *swaps = bos_swap.conditions(CONFIG, None)
    assert none.edit.terms == ()
    assert [entry.edit.terms[0].value.tolist() for entry in swaps] == [[0, 2], [0, 5]]
    assert [entry.at for entry in (none, *swaps)] == [(0,), (2,), (5,)]
    assert [entry.budget for entry in swaps] == [2, 5]
    pairs = [tuple(entry.edit.terms[0].value.tolist()) for entry in CONTROLS]
    assert [place for _, place in pairs] == [2, 5] * 20
    assert len(set(pairs)) == 40
    assert all(token != place and 0 < token <= T - 8 for token, place in pairs)
    assert [(entry.budget, entry.at) for entry in CONTROLS] == [(place, (place,)) for _, place in pairs]
    every = bos_swap.random_swaps(dataclasses.replace(CONFIG, controls=99))
    assert len(set(every)) == len(every) == 2 * (T - 9)  # all other tokens at each place


def test_effects_and_controls_are_compared_with_the_same_place_without_an_edit(rng):
    data, random, at = record(), random_swaps().isel(prompt=slice(2)), [entry.at for entry in CONTROLS]
    data["resid_max"][:] = 50 + rng.standard_normal(data["resid_max"].shape)
    random["resid_max"][:] = 50 + rng.standard_normal(random["resid_max"].shape)
    found = results(data, None, **{"plain-controls": random})
    largest, others = (store["resid_max"].values.max(axis=2) for store in (data, random))
    row = found.table["without BOS: first token to 5", "largest |h| at the moved token"]
    assert row.series == "swap"
    assert row.value.mean == pytest.approx(largest[2, :, 5].mean())
    assert row.effect.mean == pytest.approx((largest[2, :, 5] - largest[0, :, 5]).mean())
    effect = (largest[2, :2, 5] - largest[0, :2, 5]).mean()
    random_effects = [(others[n, :, place] - largest[0, :2, place]).mean() for n, (place,) in enumerate(at)]
    assert (row.rank.below, row.rank.controls) == ((np.array(random_effects[1::2]) < effect).sum(), 20)  # those at position 5
    assert found.table["without BOS: no edit", "largest |h| at the moved token"].value.mean == pytest.approx(
        largest[0, :, 0].mean()
    )


def test_a_mean_over_places_is_ranked_among_means_over_the_same_places(rng):
    data, random = record(), random_swaps()
    data["attention_received"][1:, :, :, :, [2, 5]] = 0.5 * (rng.random((2, PROMPTS, LAYERS, 2, 2)) < 0.5)
    random["attention_received"][:, :, :, :, [2, 5]] = 0.5 * (rng.random((40, 8, LAYERS, 2, 2)) < 0.5)
    look = bos_swap.rate(CONFIG, slice(None), "of all layers")
    found = bos_swap.Run(CONFIG, bos_swap.WITHOUT, "token").gained(look)(results(data, None, **{"plain-controls": random}))

    def sinks(store: xarray.Dataset, row: int, place: int) -> float:
        return 100 * (store["attention_received"].values[row, :8, ..., place] > 0.3).mean()

    effect = np.mean([sinks(data, 1, 2), sinks(data, 2, 5)])  # nothing sinks there without an edit
    controls = [np.mean([sinks(random, 2 * n, 2), sinks(random, 2 * n + 1, 5)]) for n in range(20)]
    assert (found.rank.below, found.rank.controls) == (sum(control < effect for control in controls), 20)
    assert 0 < found.rank.below < 20


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (record(True), "sccsc"),
        (record(False), "ccscs"),
        (record(False, 2), "nsscs"),
        (record(True, 2), "nccsc"),
        (record(False, LAYERS), "nnnnn"),
        (record(True, massive=False), "iccsc"),
        (record(True, sinks=False), "iccic"),
        (record(False, 2, massive=False), "ncccc"),
        (record(False, 2, sinks=False), "nccic"),
    ],
)
def test_verdicts_follow_where_sink_and_massive_activation_go(data, expected):
    assert verdicts(results(data, data)) == expected


def test_what_follows_bos_must_not_follow_any_token():
    assert verdicts(results(record(True), record(True), **{"bos-controls": random_swaps(moves=True)})) == "iccic"


def test_a_new_first_token_with_a_sink_of_its_own_refutes_the_first_claim():
    data = record(True)
    data["attention_received"][1:, :, 0, :, 0] = 0.5
    assert verdicts(results(data, data))[0] == "c"


def test_without_a_bos_the_claims_on_it_do_not_apply():
    found = results(record(), None)
    assert verdicts(found) == "nnnns"
    first, *_ = STUDY.claims(CONFIG, found.architecture)
    assert judge(first, found).reason == "no BOS"
    figures = present(STUDY.figures(CONFIG, found.architecture), found)
    assert [figure.name for figure in figures if figure] == ["by-layer", "by-place", "largest-activation"]


def test_a_chat_marker_is_no_bos_unless_the_config_names_it():
    chat = results(record(), record(), "<|im_start|>")
    assert verdicts(chat) == "nnnns"
    first, *_ = STUDY.claims(CONFIG, chat.architecture)
    assert "is no chat marker" in judge(first, chat).reason
    assert "'<|im_start|>' (token 1), which the files of the model name" in STUDY.notes(CONFIG, chat)[0]
    named = dataclasses.replace(CONFIG, bos=1)
    found = results(record(), record(), "<|im_start|>", named)
    assert verdicts(found) == "ccscs"
    assert STUDY.notes(named, found)[0] == "BOS is '<|im_start|>' (token 1), as the config says."


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"positions": (0,), "shown": 0}, "positions has 0, but must lie in 1 to 56: a sink needs 8 queries"),
        ({"positions": (57,), "shown": 57}, "positions has 57, .* a sink needs 8 queries"),
        ({"positions": (1, 1), "shown": 1}, "each of them once"),
        ({"shown": 3}, "shown must be one of positions"),
        ({"massive": 1.0}, "massive must be above 1"),
    ],
)
def test_a_swap_that_cannot_be_read_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        BosSwap(**fields)
