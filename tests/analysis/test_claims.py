"""Verdicts: the kinds of claims, what keeps one from being judged, Holm's correction, and what is written to files."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest

from sinkjax.analysis import intervals
from sinkjax.analysis.claims import (
    COLUMNS,
    Claim,
    Judgement,
    claims_csv,
    claims_json,
    expected_false,
    judge,
    judge_all,
    limits_of_ranks,
)
from sinkjax.analysis.estimates import Absent, Estimate, Quantity, number, quantity
from sinkjax.analysis.rules import Outcome, Rule, above, above_controls, all_of, any_of, at_most, below, below_controls, never
from sinkjax.analysis.summary import Rank
from sinkjax.report.table import chance

RESULTS = SimpleNamespace(config=SimpleNamespace(seed=0), interval=lambda values: intervals.interval(values, seed=0))
SPREAD = np.array([-1, -0.7, -0.4, -0.1, 0.1, 0.4, 0.7, 1])


def effect(mean: float, n: int = 8, controls: int = 0) -> Quantity:
    """A quantity of a given mean over `n` documents, above all of some controls."""

    def of(results) -> Estimate:
        rank = Rank(controls, 0, controls) if controls else None
        return Estimate("the effect", intervals.interval(mean + SPREAD[:n]), "nats", True, rank)

    return Quantity("the effect", of)


def missing(results):
    raise Absent("the model names no BOS")


def test_an_empirical_claim_is_supported_contradicted_or_neither():
    verdicts = [judge(Claim("It rises.", above(effect(mean))), RESULTS).verdict for mean in (2, -2, 0.1)]
    assert verdicts == ["supported", "contradicted", "inconclusive"]
    assert "p of the opposite < 0.001" in judge(Claim("It rises.", above(effect(-2))), RESULTS).evidence


def test_too_few_samples_decide_nothing_and_say_so():
    found = judge(Claim("It rises.", above(effect(9, n=7))), RESULTS)
    assert (found.verdict, found.p) == ("inconclusive", None)
    assert found.reason == "7 independent samples cannot decide: at least 8 are needed"


def test_too_few_controls_decide_nothing_and_say_so():
    rule = all_of(above(effect(9)), above_controls(effect(9, controls=18)))
    found = judge(Claim("It rises.", rule), RESULTS)
    assert (found.verdict, found.reason) == ("inconclusive", "18 controls cannot decide: at least 19 are needed")
    rule = all_of(above(effect(9)), above_controls(effect(9, controls=19)))
    assert judge(Claim("It rises.", rule), RESULTS).p == pytest.approx(0.05)


def test_a_premise_that_is_not_shown_makes_a_claim_not_applicable():
    half = Claim("Half of it stays.", above(effect(2)), given=above(effect(-2)))
    found = judge(half, RESULTS)
    assert (found.verdict, found.p) == ("not applicable", None)
    assert found.reason.startswith("applies only if the interval of the effect lies above 0 (the effect: -2.00 [")
    assert judge(Claim("Half.", above(effect(2)), given=above(effect(2))), RESULTS).verdict == "supported"
    assert judge(Claim("Wings.", above(effect(2)), given=never("the model has wings")), RESULTS).verdict == "not applicable"


def test_a_premise_that_is_not_decided_leaves_the_claim_open():
    for premise, why in ((effect(0.1), "that is not decided"), (effect(9, n=7), "7 independent samples cannot decide")):
        found = judge(Claim("Half of it stays.", above(effect(2)), given=above(premise)), RESULTS)
        assert (found.verdict, found.p) == ("inconclusive", None)
        assert why in found.reason


@pytest.mark.parametrize(
    "claim", [Claim("s", above(Quantity("x", missing))), Claim("s", above(effect(2)), above(Quantity("x", missing)))]
)
def test_what_was_not_measured_makes_a_claim_not_applicable(claim):
    found = judge(claim, RESULTS)
    assert (found.verdict, found.reason) == ("not applicable", "the model names no BOS")


@pytest.mark.parametrize(("error", "verdict"), [(1e-9, "holds"), (1e-3, "fails")])
def test_an_identity_holds_or_fails(error, verdict):
    claim = Claim("All are equal.", at_most(number("the largest difference", lambda results: error), 1e-6), kind="identity")
    found = judge(claim, RESULTS, "documents")
    assert (found.verdict, found.p, found.unit) == (verdict, None, "model")


def test_a_property_of_the_weights_has_no_p():
    found = judge(Claim("It is large.", above(number("the norm", lambda results: 3.0), 2)), RESULTS, "documents")
    assert (found.verdict, found.p, found.unit) == ("supported", None, "model")


def test_holm_corrects_what_was_tested_and_changes_no_verdict():
    def of(p: float) -> Claim:
        return Claim("s", Rule("so", lambda results: Outcome(p, 1.0)))

    exact = Claim("e", above(number("x", lambda results: 1.0)))
    found = judge_all([of(0.02), exact, of(0.01), of(0.9), of(0.04)], RESULTS)
    assert [one.p_holm for one in found] == [
        pytest.approx(0.06),
        None,
        pytest.approx(0.04),
        pytest.approx(0.9),
        pytest.approx(0.08),
    ]
    assert [one.verdict for one in found] == ["supported", "supported", "supported", "inconclusive", "supported"]
    assert expected_false(found) == pytest.approx(0.2)


def test_what_ranks_can_reach_is_said_where_a_tested_claim_rests_on_one():
    clear, rank = above(effect(9)), above_controls(effect(9, controls=20))
    plain, ranked = Claim("s", clear), Claim("r", all_of(clear, rank))
    assert limits_of_ranks(judge_all([plain, Claim("e", any_of(clear, rank)), Claim("n", rank, never("so"))], RESULTS)) == ""
    one, two = (judge_all([plain, *[ranked] * count], RESULTS) for count in (1, 2))
    assert limits_of_ranks(one) == (
        "With m controls no rank has a p below 1 / (m + 1), so that the claim that rests on a rank cannot reach 5 % by Holm with"
        " m below 19."
    )
    pair = Claim("p", all_of(*(above_controls(effect(by, controls=20)) for by in (9, 8))))
    assert limits_of_ranks(judge_all([pair], RESULTS)).endswith(
        "with m below 19, and a rule of two ranks alone cannot be contradicted with m below 39."
    )
    assert "the 2 claims that rest on ranks cannot reach 5 % by Holm with m below 39." in limits_of_ranks(two)
    assert one[1].p_holm <= 0.05 < two[1].p_holm == two[2].p_holm  # with 20 controls
    enough = Claim("r", all_of(clear, above_controls(effect(9, controls=39))))
    assert judge_all([plain, enough, enough], RESULTS)[2].p_holm <= 0.05
    low = all_of(*(below_controls(effect(9, controls=38)),) * 2), all_of(*(below_controls(effect(9, controls=39)),) * 2)
    assert [judge(Claim("two ranks", rule), RESULTS).verdict for rule in low] == ["inconclusive", "contradicted"]
    assert limits_of_ranks(two) in chance(two)
    assert chance(judge_all([plain], RESULTS)).endswith("Holm-corrected p values are also listed; no verdict depends on them.")


def test_a_claim_as_csv_and_json():
    rule = all_of(above(effect(2)), above_controls(effect(2, controls=19)))
    claim = Claim(
        "It rises.", rule, source="Kiya et al. 2026, Fig. 4", paper="95 %", also=(number("a count", lambda results: 3),)
    )
    judged = judge_all([claim, Claim("n", above(effect(1)), never("it flies"))], RESULTS, "documents")
    text = claims_csv("kiya/mask", judged, "mini-sink", "confirm")
    first, second = csv.DictReader(io.StringIO(text))
    assert tuple(first) == COLUMNS
    assert (first["study"], first["model"], first["split"], first["unit"], first["n"]) == (
        "kiya/mask",
        "mini-sink",
        "confirm",
        "documents",
        "8",
    )
    assert (first["claim"], first["source"], first["paper"]) == ("It rises.", "Kiya et al. 2026, Fig. 4", "95 %")
    assert (float(first["estimate"]), first["controls"], float(first["p"])) == (2.0, "19", 0.05)
    assert (first["verdict"], first["p_holm"], second["p"], second["verdict"]) == ("supported", "0.05", "", "not applicable")
    entry = json.loads(claims_json("kiya/mask", judged, "mini-sink", "confirm"))[0]
    assert entry["estimates"][0] == {"name": "the effect", "mean": 2.0, "low": pytest.approx(1.42, abs=0.01)} | {
        "high": pytest.approx(2.58, abs=0.01), "n": 8, "measured_in": "nats", "interval": "t", "percentile": 100.0, "controls": 19
    }  # fmt: skip
    assert entry["estimates"][2]["name"] == "a count"
    assert entry["p_opposite"] == judged[0].against


def test_evidence_in_words():
    found = judge_all([Claim("It rises.", all_of(above(effect(2)), below(effect(2), 9)))], RESULTS)[0]
    assert found.evidence.startswith("The effect: +2.00 [1.42, 2.58] nats; p < 0.001")
    assert "Rule: the interval of the effect lies above 0, and the interval of the effect lies below 9.00." in found.evidence
    assert Judgement("s", "not applicable", "so it is", reason="there is none").evidence == "Rule: so it is. There is none."


def test_a_quantity_of_samples_keeps_them_when_scaled():
    half = quantity("it", lambda results: SPREAD).times(-0.5, "minus half")(RESULTS)
    assert half.value.samples == pytest.approx(-SPREAD / 2)
    assert (half.value.low, half.value.high) == pytest.approx((-0.288, 0.288), abs=1e-3)
