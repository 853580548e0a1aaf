"""Claims and the verdicts on them, as data from which sentences are made."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sinkjax.analysis.estimates import Absent, Estimate, Quantity, in_ends, present, sentence
from sinkjax.analysis.intervals import interval
from sinkjax.analysis.rules import LEVEL, Rule
from sinkjax.analysis.summary import bounds

Kind = Literal["empirical", "identity"]
Verdict = Literal["supported", "contradicted", "inconclusive", "not applicable", "holds", "fails"]
JUDGED = ("supported", "contradicted", "inconclusive")
COLUMNS = (
    "study",
    "model",
    "split",
    "claim",
    "source",
    "kind",
    "rule",
    "estimate",
    "low",
    "high",
    "n",
    "unit",
    "controls",
    "p",
    "p_holm",
    "verdict",
    "reason",
    "paper",
)


@dataclass(frozen=True)
class Claim:
    """A statement and how it is judged.

    Attributes:
        statement: In one sentence.
        rule: What must be shown for it to be supported; where the opposite is shown, it is contradicted.
        given: What must be shown for the claim to apply at all; None: it always does.
        source: Paper and figure, table or section; "" for a statement of ours.
        paper: The paper's own number, on its own model; "" if it gives none.
        kind: "identity" for a proposition that cannot fail if the code is right: it is a check, and no finding.
        also: Further quantities that are reported beside.
    """

    statement: str
    rule: Rule
    given: Rule | None = None
    source: str = ""
    paper: str = ""
    kind: Kind = "empirical"
    also: tuple[Quantity, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict.

    Attributes:
        statement, source, kind, paper: Those of the claim.
        verdict: Supported, contradicted, inconclusive or not applicable; holds or fails for an identity.
        rule: In words.
        estimates: What the verdict rests on, the first one before all.
        unit: What its samples are (documents, seeds); "model" for a property of the weights.
        p: Of the rule; None where nothing was tested (exact numbers, too few samples, not applicable).
        p_holm: The same, corrected by Holm (1979) for all claims of the study that were tested; no verdict uses it.
        against: Of the opposite, by which a claim is contradicted; None as for `p`.
        reason: Why it is inconclusive or not applicable, or "".
        ranked: Whether p rests on a rank among controls.
    """

    statement: str
    verdict: Verdict
    rule: str
    estimates: tuple[Estimate, ...] = ()
    reason: str = ""
    paper: str = ""
    kind: Kind = "empirical"
    source: str = ""
    unit: str = ""
    p: float | None = None
    p_holm: float | None = None
    against: float | None = None
    ranked: bool = False

    @property
    def parts(self) -> tuple[str, str, str]:
        """The estimates (the first one with its interval by genre) and p; the rule; the reason: each a sentence or ""."""
        wider = self.estimates[0].by_genre if self.estimates else None
        ends = f", clustered by genre {in_ends(wider)}" if wider and in_ends(wider) else ""
        numbers = [f"{found}{ends * (number == 0)}" for number, found in enumerate(self.estimates)]
        if self.verdict == "contradicted" and self.against is not None:
            p = f"p of the opposite {_p(self.against)}"
        else:
            p = "" if self.p is None else f"p {_p(self.p)}" + ("" if self.p_holm is None else f" ({_p(self.p_holm)} by Holm)")
        said = "; ".join(filter(None, (*numbers, p)))
        rule, reason = (sentence(text) if text else "" for text in (self.rule and f"Rule: {self.rule}", self.reason))
        return sentence(said) if said else "", rule, reason

    @property
    def evidence(self) -> str:
        """The estimates, p, the rule and the reason in words."""
        return " ".join(filter(None, self.parts))


def judge(claim: Claim, results: Any, unit: str = "") -> Judgement:
    """The verdict on a claim; one on what was not measured is not applicable.

    Args:
        claim: The claim.
        results: Of its study; `results.config.seed` seeds the bootstrap, and `results.genres`, where there is one, gives the
            genres of its prompts.
        unit: What the samples are.

    Returns:
        The verdict, without the correction for several claims (`judge_all`).
    """
    said = Judgement(
        claim.statement,
        "not applicable",
        claim.rule.criterion,
        paper=claim.paper,
        kind=claim.kind,
        source=claim.source,
        unit=unit,
    )
    try:
        found = claim.rule(results)
    except Absent as error:
        return dataclasses.replace(said, reason=str(error))
    estimates = tuple(_by_genre(one, results) for one in _once([*found.estimates, *present(claim.also, results)]))
    unit = "model" if found.exact else unit
    said = dataclasses.replace(said, estimates=estimates, unit=unit)
    if claim.given is not None:
        try:
            premise = claim.given(results)
        except Absent as error:
            return dataclasses.replace(said, reason=str(error))
        if not premise.holds:
            listed = "; ".join(map(str, _once(premise.estimates)))
            reason = f"applies only if {claim.given.criterion}" + (f" ({listed})" if listed else "")
            if premise.refuted:
                return dataclasses.replace(said, reason=reason)
            return dataclasses.replace(said, verdict="inconclusive", reason=f"{reason}; {premise.why or 'that is not decided'}")
    if claim.kind == "identity":
        return dataclasses.replace(said, verdict="holds" if found.holds else "fails")
    verdict: Verdict = "supported" if found.holds else "contradicted" if found.refuted else "inconclusive"
    tested = not found.exact and not found.why
    p, against = (found.p, found.against) if tested else (None, None)
    return dataclasses.replace(said, verdict=verdict, p=p, against=against, reason=found.why, ranked=found.ranked)


def judge_all(claims: Iterable[Claim], results: Any, unit: str = "") -> tuple[Judgement, ...]:
    """The verdicts on all claims of a study, with p values corrected by Holm beside."""
    found = [judge(claim, results, unit) for claim in claims]
    tested = sorted((one.p, number) for number, one in enumerate(found) if one.p is not None and one.kind == "empirical")
    corrected = 0.0
    for rank, (p, number) in enumerate(tested):
        corrected = min(1.0, max(corrected, (len(tested) - rank) * p))
        found[number] = dataclasses.replace(found[number], p_holm=corrected)
    return tuple(found)


def expected_false(judgements: Sequence[Judgement]) -> float:
    """How many of these claims would be supported by chance on average if each were just not so: at most this number."""
    return LEVEL * sum(one.p is not None and one.verdict in JUDGED for one in judgements)


def limits_of_ranks(judgements: Sequence[Judgement]) -> str:
    """What the number of controls rules out, in a sentence; "" where no tested claim rests on a rank."""
    k = sum(one.ranked and one.p is not None and one.kind == "empirical" for one in judgements)
    if not k:
        return ""
    many = f"the {k} claims that rest on ranks" if k > 1 else "the claim that rests on a rank"
    least = [round(count / LEVEL) - 1 for count in (k, 2)]
    two = any(sum(estimate.rank is not None for estimate in one.estimates) > 1 for one in judgements if one.ranked)
    return (
        f"With m controls no rank has a p below 1 / (m + 1), so that {many} cannot reach {100 * LEVEL:g} % by Holm with m below"
        f" {least[0]}{f', and a rule of two ranks alone cannot be contradicted with m below {least[1]}' * two}."
    )


def claims_csv(study: str, judgements: Sequence[Judgement], model: str = "", split: str = "") -> str:
    """Claims as CSV, one line each with the estimate that decides; all estimates are in `claims_json`."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    for found in judgements:
        table.writerow({name: "" if value is None else value for name, value in _line(found, study, model, split).items()})
    return out.getvalue()


def claims_json(study: str, judgements: Sequence[Judgement], model: str = "", split: str = "") -> str:
    """Claims as JSON: the cells of `claims_csv`, with the p value of the opposite and every estimate."""

    def estimate(found: Estimate) -> dict[str, Any]:
        value, rank = found.value, found.rank
        held = {"name": found.name, "mean": value.mean, "low": value.low, "high": value.high, "n": value.n}
        held |= {"measured_in": found.unit, "interval": value.method}
        if found.by_genre is not None:
            held |= {"low_by_genre": found.by_genre.low, "high_by_genre": found.by_genre.high}
        return held if rank is None else held | {"percentile": rank.percentile, "controls": rank.controls}

    entries = [
        {name: None if value == "" else value for name, value in _line(found, study, model, split).items()}
        | {"p_opposite": found.against, "estimates": [estimate(one) for one in found.estimates]}
        for found in judgements
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def _line(found: Judgement, study: str, model: str, split: str) -> Mapping[str, Any]:
    first = found.estimates[0] if found.estimates else None
    mean, low, high = bounds(first.value) if first else ("", "", "")
    ranked = next((one.rank for one in found.estimates if one.rank), None)
    cells = (
        study,
        model,
        split,
        found.statement,
        found.source,
        found.kind,
        found.rule,
        mean,
        low,
        high,
        first.value.n if first else "",
        found.unit,
        ranked.controls if ranked else 0,
        found.p,
        found.p_holm,
        found.verdict,
        found.reason,
        found.paper,
    )
    return dict(zip(COLUMNS, cells, strict=True))


def _by_genre(found: Estimate, results: Any) -> Estimate:
    """An estimate with its interval clustered by genre, where its samples are prompts that have genres."""
    samples = found.value.samples
    genres = None if samples is None or not hasattr(results, "genres") else results.genres(len(samples))
    if samples is None or genres is None:
        return found
    return dataclasses.replace(found, by_genre=interval(samples, level=found.value.level, clusters=genres))


def _once(estimates: Iterable[Estimate]) -> tuple[Estimate, ...]:
    return tuple({(estimate.name, str(estimate)): estimate for estimate in estimates}.values())


def _p(value: float) -> str:
    """A p value in words."""
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"
