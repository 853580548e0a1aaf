"""The answer of a page follows from the words on its claims, or from its largest effect."""

from __future__ import annotations

import pytest

from sinkjax.analysis.evidence import Judgement
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.judgement import not_applicable
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.report.answer import about, answer
from sinkjax.report.section import Section


def interval(mean: float, half: float) -> Interval:
    return Interval(mean, mean - half, mean + half, 12, 0, 0.95, "t")


def claim(word: str, statement: str = "It moves.", **changes) -> Verdict:
    judged = Judgement(word, D=interval(2, 1), S=interval(0.6, 0.2), **changes)
    return Verdict("a", statement, "Fig. 4", "", judged, unit="points")


def section(verdicts=(), rows=(), findings=()) -> Section:
    return Section("a/b", "Title", "", tuple(findings), tuple(rows), (), (), provenance={"model": "m"}, verdicts=tuple(verdicts))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("replicates", "As in the paper: It moves (60% [40, 80] of the whole)."),
        ("opposite", "The opposite of the paper: It moves (60% [40, 80] of the whole)."),
        ("absent", "Absent here: It moves (60% [40, 80] of the whole)."),
        ("moves", "Not as in the paper: It moves (60% [40, 80] of the whole)."),
        ("undecided", "Undecided: It moves (60% [40, 80] of the whole)."),
    ],
)
def test_the_first_claim_that_is_tested_answers(word, said):
    found = [Verdict("b", "It cannot.", "", "", not_applicable("no gate")), claim(word), claim("absent", "It is later.")]
    assert str(answer(section(found))) == said


def test_a_statement_of_ours_answers_only_if_no_papers_is_tested_and_is_not_said_to_be_a_papers():
    def own(word: str) -> Verdict:
        return Verdict("c", "It stays.", "ours, on Li et al. 2026", "", claim(word).judgement)

    assert str(answer(section([own("replicates"), claim("moves")]))).startswith("Not as in the paper: It moves")
    assert str(answer(section([own("replicates")]))).startswith("True here: It stays")
    assert str(answer(section([own("moves")]))).startswith("Not true here: It stays")


def test_what_the_untrained_twin_does_too_is_said():
    absent = Judgement("absent", D=interval(2, 1), S=interval(0.05, 0.02))
    one = Verdict("a", "It moves.", "Fig. 4", "", claim("replicates").judgement, absent)
    assert str(answer(section([one]))).startswith("As in the paper: It moves")
    twin = Judgement("replicates", D=interval(2, 1), S=interval(0.9, 0.1))
    one = Verdict("a", "It moves.", "Fig. 4", "", claim("replicates").judgement, twin)
    assert str(answer(section([one]))).startswith("As in the paper, and in its untrained twin too: It moves")


def test_a_model_that_can_test_nothing_is_said_to():
    assert str(answer(section([Verdict("b", "It cannot.", "", "", not_applicable("no gate"))]))) == (
        "Not applicable: This model has nothing that the claims are about."
    )


def test_without_claims_the_largest_effect_answers():
    none = Row("no edit", "s", "rate (%)", interval(10, 1), interval(0, 0.0))
    small, large = (Row(name, "s", "rate (%)", interval(10 + by, 1), interval(by, 1)) for name, by in (("x", 2), ("y", -6)))
    other = Row("y", "s", "loss", interval(100, 1), interval(90, 1))
    found = str(answer(section(rows=[none, small, large, other])))
    assert found == "“y” moves rate (%) most, from 10.0 to 4.00 (effect -6.00 [-7.00, -5.00])."
    unsure = Row("z", "s", "rate (%)", interval(10, 1), interval(0.5, 1))
    assert "No condition moves rate (%)" in str(answer(section(rows=[none, unsure])))


def test_without_effects_the_first_finding_answers():
    assert str(answer(section(findings=["The largest is 4."]))) == "The largest is 4."
    assert answer(section()) is None


def test_with_checks_alone_their_number_answers_and_without_them_a_number_of_the_weights():
    def verdict(kind: str, word: str, **more: str) -> Verdict:
        return Verdict("a", "The cosine of the keys.", "", "", Judgement(word), kind=kind, **more)

    number = verdict("described", "described", label="first: 0.52; second: 0.4")
    checks = [verdict("identity", word) for word in ("holds", "fails", "not applicable")]
    assert str(answer(section([number, *checks]))) == "1 of 2 checks of the code hold."
    assert str(answer(section([number]))) == "The cosine of the keys (first: 0.52)."


def test_the_line_below_names_model_sample_and_words():
    found = [claim("replicates"), claim("absent"), claim("absent"), Verdict("b", "It cannot.", "", "", not_applicable("no gate"))]
    rows = [Row("no edit", "s", "rate (%)", interval(10, 1))]
    assert about(section(found, rows)) == "m · 12 prompts · 4 claims: 2 absent, 1 replicates; not judged: 1 not applicable"
