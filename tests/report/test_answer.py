"""The answer of a page follows from the words on its claims, or from its largest effect."""

from __future__ import annotations

import re

from sinkjax.analysis.evidence import Judgement
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.judgement import not_applicable
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.report.answer import answer
from sinkjax.report.section import Section


def interval(mean: float, half: float) -> Interval:
    return Interval(mean, mean - half, mean + half, 12, 0, 0.95, "t")


def claim(word: str, statement: str = "It moves.", **changes) -> Verdict:
    judged = Judgement(word, D=interval(2, 1), S=interval(0.6, 0.2), **changes)
    return Verdict("a", statement, "Fig. 4", "", judged, unit="points")


def section(verdicts=(), rows=(), findings=()) -> Section:
    return Section("a/b", "Title", "", tuple(findings), tuple(rows), (), (), provenance={"model": "m"}, verdicts=tuple(verdicts))


def lead(verdicts) -> str:
    return str(answer(section(verdicts))).partition(":")[0]


def test_the_first_claim_that_is_tested_answers():
    found = [Verdict("b", "It cannot.", "", "", not_applicable("no gate")), claim("moves"), claim("absent", "It is later.")]
    assert re.match(r"Not as in the paper: It moves .*60% \[40, 80\]", str(answer(section(found))))


def test_a_statement_of_ours_answers_only_if_no_papers_is_tested_and_is_not_said_to_be_a_papers():
    def own(word: str) -> Verdict:
        return Verdict("c", "It stays.", "ours, on Li et al. 2026", "", claim(word).judgement)

    assert lead([own("replicates"), claim("moves")]) == "Not as in the paper"
    assert lead([own("replicates")]) == "True here"
    assert lead([own("moves")]) == "Not true here"


def test_what_the_untrained_twin_does_too_is_said():
    absent = Judgement("absent", D=interval(2, 1), S=interval(0.05, 0.02))
    one = Verdict("a", "It moves.", "Fig. 4", "", claim("replicates").judgement, absent)
    assert lead([one]) == "As in the paper"
    twin = Judgement("replicates", D=interval(2, 1), S=interval(0.9, 0.1))
    one = Verdict("a", "It moves.", "Fig. 4", "", claim("replicates").judgement, twin)
    assert re.match("As in the paper.*untrained twin", lead([one]))


def test_a_model_that_can_test_nothing_is_said_to():
    assert lead([Verdict("b", "It cannot.", "", "", not_applicable("no gate"))]) == "Not applicable"


def test_without_claims_the_largest_effect_answers():
    none = Row("no edit", "s", "rate (%)", interval(10, 1), interval(0, 0.0))
    small, large = (Row(name, "s", "rate (%)", interval(10 + by, 1), interval(by, 1)) for name, by in (("x", 2), ("y", -6)))
    other = Row("y", "s", "loss", interval(100, 1), interval(90, 1))
    found = str(answer(section(rows=[none, small, large, other])))
    assert re.search(r"“y” .*rate \(%\) .* 10\.0 .*4\.00 .*-6\.00 \[-7\.00, -5\.00\]", found)
    unsure = Row("z", "s", "rate (%)", interval(10, 1), interval(0.5, 1))
    assert "No condition moves rate (%)" in str(answer(section(rows=[none, unsure])))


def test_with_checks_alone_their_number_answers_and_without_them_a_number_of_the_weights():
    def verdict(kind: str, word: str, **more: str) -> Verdict:
        return Verdict("a", "The cosine of the keys.", "", "", Judgement(word), kind=kind, **more)

    number = verdict("described", "described", label="first: 0.52; second: 0.4")
    checks = [verdict("identity", word) for word in ("holds", "fails", "not applicable")]
    assert str(answer(section([number, *checks]))).startswith("1 of 2 checks")
    assert str(answer(section([number]))).endswith("keys (first: 0.52).")
