"""li/amplify: doses, controls of the size of the change that they stand beside, and the rules at their bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.claims import judge
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.li import amplify
from sinkjax.studies.papers.li.amplify import (
    BATCH,
    CENTRES,
    DIMS,
    NORM,
    POSITIONS,
    READINGS,
    SAME,
    STUDY,
    WAYS,
    WHOLE,
    Amplify,
    Dose,
)
from sinkjax.studies.results import Results
from sinkjax.studies.study import NO_EDIT, Batch
from tests.studies.planted import Planted, row
from tests.studies.tiny import write_both

K = 4
CONFIG = Amplify(position=K, length=9, layers=(0, 2), factors=(2.0, 5.0), factor=5.0, controls=20)
MODEL = SimpleNamespace(layers=3, heads=4, head_dim=8)
MEANS = {way: np.random.default_rng(1).normal(size=(3, 4, 8)).astype(np.float32) for way in (BATCH, WHOLE)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """More prompts than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (9, 9)).astype(np.int32)
    return Batch(tokens, np.array([9] * 8 + [6], np.int32), {})


def outputs(model, batch, edits: tuple = ()) -> np.ndarray:
    """float[prompt, layer, position, head, dim]."""
    probe = sinkjax.Probe(capture=(sinkjax.Capture("head_out"),))
    run = sinkjax.forward(model.params, batch.tokens, model.config, edits=edits, probe=probe, lengths=batch.lengths)
    return np.asarray(run.record["head_out"])


def test_the_conditions_are_every_factor_in_some_layers_and_one_factor_in_all():
    found = {entry.label: entry for entry in amplify.conditions(CONFIG, MODEL, MEANS)}
    assert len(found) == 1 + 5 + 5 * (2 * 2 + 1)
    assert Dose(NORM, 1, 5.0).label in found
    assert Dose(NORM, 1, 2.0).label not in found
    budgets = {label: entry.budget for label, entry in found.items() if entry.budget is not None}
    assert budgets == {Dose(way, layer, 5.0).label: (way, layer) for way in READINGS for layer in (0, 2)}


@pytest.mark.parametrize("way", [POSITIONS, DIMS, NORM])
def test_a_condition_scales_the_outputs_of_one_token_about_its_centre(way):
    edits = {entry.label: entry.edit for entry in amplify.conditions(CONFIG, MODEL, MEANS)}
    for factor, dose in ((5.0, Dose(way, 2, 5.0)), (1.0, Dose(way, 0, 1.0))):
        (term,) = edits[dose.label].terms
        assert (term.site, term.op, term.value, term.centre) == ("head_out", "scale", factor, CENTRES.get(way))
        assert (term.layers, term.queries, term.heads) == ((dose.layer,), (K,), None)


def test_means_over_prompts_are_of_each_layer_at_the_position_and_over_all_real_positions(model, batch):
    seen, means = outputs(model, batch), amplify.means_of(CONFIG, model, batch)
    np.testing.assert_allclose(means[BATCH], seen[:, :, K].mean(0), atol=1e-5)
    real = np.arange(9) < batch.lengths[:, None]
    np.testing.assert_allclose(means[WHOLE], seen.swapaxes(1, 2)[real].mean(0), atol=1e-5)
    blank = amplify.no_means(CONFIG, model.config, 9)
    assert {way: mean.shape for way, mean in blank.items()} == {way: mean.shape for way, mean in means.items()}


@pytest.mark.parametrize("way", [BATCH, WHOLE])
def test_outputs_are_pushed_away_from_the_mean_over_prompts(model, batch, way):
    means, plain = amplify.means_of(CONFIG, model, batch), outputs(model, batch)
    edited = outputs(model, batch, (amplify.amplified(CONFIG, Dose(way, 2, 5.0), means),))
    mu = means[way][2]
    np.testing.assert_allclose(edited[:, 2, K], mu + 5 * (plain[:, 2, K] - mu), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(edited[:, 2, :K], plain[:, 2, :K], atol=1e-6)


def test_a_factor_of_1_changes_nothing_and_is_measured_for_each_way(model, batch):
    found = [entry for entry in amplify.conditions(CONFIG, MODEL, MEANS) if entry.series == SAME]
    assert [entry.label for entry in found] == [Dose(way, 0, 1.0).label for way in WAYS]
    assert [np.abs(term.value).max() for entry in found for term in entry.edit.terms] == [1, 1, 1, 1, 0, 1, 0]


def test_controls_add_a_change_of_the_same_size_to_each_head(model, batch):
    sizes = amplify.away(CONFIG, model, batch)
    assert {way: size.shape for way, size in sizes.items()} == {
        way: size.shape for way, size in amplify.nothing(CONFIG, model.config, 9).items()
    }
    seen = outputs(model, batch)[:, 2]
    own, few = seen[:, K], np.sqrt(9 / 8)  # a mean over nine prompts has a ninth of each
    np.testing.assert_allclose(sizes[POSITIONS][1], 4 * np.linalg.norm(own - seen[:, : K + 1].mean(1), axis=-1), rtol=1e-4)
    np.testing.assert_allclose(sizes[BATCH][1], 4 * few * np.linalg.norm(own - own.mean(0), axis=-1), rtol=1e-4)
    drawn = list(STUDY.controls[0].conditions(CONFIG, model.config, sizes))
    assert [entry.budget for entry in drawn] == [(way, layer) for way in READINGS for layer in (0, 2) for _ in range(20)]
    for entry in drawn:
        (term,), (way, layer) = entry.edit.terms, entry.budget
        assert (term.site, term.op, term.layers, term.queries) == ("head_out", "add", (layer,), (K,))
        np.testing.assert_allclose(np.linalg.norm(term.value[0], axis=-1), sizes[way][CONFIG.layers.index(layer)], rtol=1e-4)
    assert not np.allclose(drawn[0].edit.terms[0].value, drawn[1].edit.terms[0].value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"factor": 3.0}, "factors must be above 1 and include factor"),
        ({"factors": (0.5, 10.0)}, "factors must be above 1"),
        ({"layers": ()}, "layers must name at least one, and each of them once"),
        ({"layers": (-1,)}, "negative layer -1"),
        ({"position": 63}, "the last of 64"),
    ],
)
def test_doses_that_do_not_fit_are_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Amplify(**fields)


def test_a_layer_that_the_model_does_not_have_is_refused():
    with pytest.raises(SinkjaxError, match="layers has layer 9, but the model has 3, 0 to 2"):
        STUDY.check(Amplify(layers=(9,)), MODEL)


def heads(per_cent: float, spread: bool = True) -> np.ndarray:
    """How many of HEADS heads sink in each of 16 prompts, two more or less."""
    return np.round(HEADS * per_cent / 100 + 2 * spread * np.tile([-1, 1, 0, 0], 4)).clip(0)


HEADS = 200
READ = {way: number for number, way in enumerate(READINGS)}  # claims of a reading: 2 n and 2 n + 1


def judged(
    rates: dict[Dose, float],
    first: float = 80,
    controls: Sequence[float] = (),
    scores: dict[Dose, float] | None = None,
    before: float = 0,
) -> list[str]:
    """The verdicts where doses have these shares of heads that sink on the token, in per cent, and the others have none.

    first: heads that sink on key 0 without an edit. controls: heads that do on the token in the first controls. scores: how much
    attention doses have beside. before: heads that sink on the token without an edit.
    """
    model = SimpleNamespace(layers=3, heads=4, head_dim=8)
    means, sizes = amplify.no_means(CONFIG, model, 1), amplify.nothing(CONFIG, model, 1)
    labels = [entry.label for entry in amplify.conditions(CONFIG, model, means)]
    by_label = {NO_EDIT: before} | {dose.label: rate for dose, rate in rates.items()}
    more = {dose.label: score for dose, score in (scores or {}).items()}

    def store(labels: list[str], rates: list[float], prompts: int) -> xarray.Dataset:
        received = np.zeros((len(labels), 16, 1, HEADS, 9))
        for number, (label, rate) in enumerate(zip(labels, rates, strict=True)):
            sinks = np.arange(HEADS) < heads(rate, rate > 0)[:, None]
            received[number, :, 0, :, K] = np.where(
                sinks, 0.9, 0.1 + more.get(label, 0.0) * (1 + 0.1 * np.arange(16)[:, None] % 3)
            )
        received[0, :, 0, :, 0] = np.arange(HEADS) < heads(first)[:, None]
        arrays = {"attention_received": (("edit", "prompt", "layer", "head", "key"), received[:, :prompts])}
        return xarray.Dataset(arrays, {"edit": labels}, {"sweep": {"config": vars(model)}})

    drawn = [entry.label for entry in STUDY.controls[0].conditions(CONFIG, model, sizes)]
    stores = {
        "sweep": store(labels, [by_label.get(label, 0.0) for label in labels], 16),
        "controls": store(drawn, [*controls, *[0] * (len(drawn) - len(controls))], 8),
    }
    study = dataclasses.replace(STUDY, measures=lambda config: amplify.measures(config)[:3])
    results = Results(study, CONFIG, stores)
    return [judge(claim, results).verdict for claim in STUDY.claims(CONFIG, results.architecture)]


def pushed(two: float, five: float, way: str = POSITIONS) -> dict[Dose, float]:
    return {Dose(way, 2, 2.0): two, Dose(way, 2, 5.0): five}


@pytest.mark.parametrize("way", READINGS)
@pytest.mark.parametrize(
    ("two", "five", "options", "sink", "growth"),
    [
        (20, 45, {}, "supported", "supported"),
        (20, 40, {}, "inconclusive", "supported"),  # at the bound
        (20, 35, {}, "contradicted", "supported"),
        (45, 20, {}, "contradicted", "inconclusive"),  # half of a sink at a factor without controls alone
        (60, 45, {}, "supported", "inconclusive"),  # most of a sink at the smaller factor; the other layer has no effect
        (45, 0, {}, "contradicted", "not applicable"),  # no effect at the matched factor
        (20, 45, {"controls": [60] * 120}, "inconclusive", "supported"),  # random directions do as much
        (20, 45, {"first": 0}, "not applicable", "supported"),  # no sink on key 0 to compare with
        (0, 0, {}, "contradicted", "not applicable"),
        (1, 5, {}, "contradicted", "supported"),  # an effect, but no sink
        (0, 1, {}, "contradicted", "inconclusive"),  # at the bound of an effect
        (20, 0.4, {}, "contradicted", "not applicable"),
    ],
)
def test_a_reading_is_judged_at_its_bounds(way, two, five, options, sink, growth):
    found = judged(pushed(two, five, way), **options)
    assert found[2 * READ[way] : 2 * READ[way] + 2] == [sink, growth]
    others = [verdict for other in READINGS if other != way for verdict in found[2 * READ[other] : 2 * READ[other] + 2]]
    assert "supported" not in others


def test_a_sink_that_falls_in_every_layer_does_not_grow():
    falling = pushed(60, 45) | {dose._replace(layer=0): rate for dose, rate in pushed(60, 45).items()}
    assert judged(falling)[:2] == ["supported", "contradicted"]


def test_a_sink_that_grows_below_the_threshold_grows():
    """The same heads sink at both factors, and the others' attention rises."""
    rates = pushed(20, 20)
    assert judged(rates)[1] != "supported"
    assert judged(rates, scores={Dose(POSITIONS, 2, 5.0): 0.05})[1] == "supported"


def test_a_token_that_was_a_sink_before_is_not_made_one():
    assert judged(pushed(20, 45), before=30)[0] == "supported"
    assert judged(pushed(20, 45), before=45)[0] == "inconclusive"
    assert judged(pushed(20, 45), before=60)[0] == "contradicted"


@pytest.mark.parametrize("way", READINGS)
@pytest.mark.parametrize("layer", CONFIG.layers)
@pytest.mark.parametrize(
    ("rate", "verdict"),
    [(0, "supported"), (5, "supported"), (35, "supported"), (40, "inconclusive"), (45, "contradicted")],
    ids=["none", "some", "less", "bound", "more"],
)
def test_scaling_must_be_shown_to_do_less_than_a_sink_in_every_layer(way, layer, rate, verdict):
    """Half of the heads on key 0 are 40 %, as for pushing."""
    assert judged(pushed(20, 45, way) | {Dose(NORM, layer, 5.0): rate})[-1] == verdict


@pytest.mark.parametrize("dose", [Dose(NORM, 0, 2.0), Dose(NORM, 2, 2.0), Dose(NORM, 1, 5.0)], ids=str)
def test_scaling_is_judged_where_pushing_is(dose):
    """At another factor, or in another layer, there is no pushing to compare it with."""
    assert judged(pushed(20, 45) | {dose: 60})[-1] == "supported"


@pytest.mark.parametrize(
    ("rates", "options", "verdict"),
    [
        (pushed(20, 40), {}, "inconclusive"),  # whether that is a sink is not shown
        (pushed(20, 35), {}, "not applicable"),
        (pushed(60, 35), {}, "not applicable"),  # a sink at another factor
        (pushed(20, 35) | {Dose(POSITIONS, 1, 5.0): 60}, {}, "not applicable"),  # in another layer
        (pushed(20, 35) | {Dose(NORM, 0, 5.0): 60}, {}, "not applicable"),
        (pushed(20, 45, DIMS), {}, "not applicable"),  # no reading of the paper's mean
        (pushed(20, 45), {"before": 60}, "not applicable"),  # pushing takes away
        (pushed(20, 45), {"first": 0}, "not applicable"),  # no sink on key 0 to compare with
        (pushed(20, 45) | {Dose(NORM, 0, 5.0): 1}, {"first": 0}, "not applicable"),
        (pushed(20, 0.4), {}, "not applicable"),
    ],
)
def test_where_pushing_makes_no_sink_scaling_is_not_judged(rates, options, verdict):
    assert judged(rates, **options)[-1] == verdict


def test_the_largest_effect_of_several_layers_is_ranked_among_the_largest_of_as_many_controls():
    """One control of 20 in the layer without an effect is as large, so p = 2 / 21."""
    assert judged(pushed(20, 45), controls=[0] * 40)[0] == "supported"
    assert judged(pushed(20, 45), controls=[60, *[0] * 39])[0] == "inconclusive"


def test_the_dose_that_is_judged_has_controls_and_is_named():
    controlled = {entry.label for entry in amplify.conditions(CONFIG, MODEL, MEANS) if entry.budget is not None}
    assert controlled == {dose.label for dose in amplify.matched(CONFIG)}
    statements = [claim.statement for claim in STUDY.claims(CONFIG, MODEL)]
    expected = "Head outputs of token 4 pushed away from the mean over positions by s = 5 in layer 0 or 2 give it at least half"
    assert statements[0] == f"{expected} of the sink of key 0."


def test_the_strongest_dose_is_found_in_the_dose_response_alone():
    sinks = amplify.measures(CONFIG)[0].name
    beside = Dose(POSITIONS, 1, 5.0)  # not a layer of the dose-response
    rows = {(dose.label, sinks): row(dose.label, sinks, rate, rate) for dose, rate in {beside: 90, **pushed(7, 3)}.items()}
    results = Planted(STUDY, CONFIG, vars(MODEL), rows)
    assert amplify.best(CONFIG, POSITIONS)(results) == Dose(POSITIONS, 2, 2.0).label
