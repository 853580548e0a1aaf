"""docs/findings.md: a row a claim, a column a model, no claim or refusal lost, and what was found before is kept."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinkjax.analysis.claims import Judgement, claims_csv
from sinkjax.analysis.estimates import Estimate, constant
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "findings.py"
MOVES = Judgement("The sink moves.", "supported", "it is in 9 of 10 |prompts|", paper="95 %")
STAYS = Judgement("The activation stays.", "inconclusive", "it is 0.1")


@pytest.fixture(autouse=True, scope="module")
def beside() -> Iterator[None]:
    """The script finds the modules that lie beside it, as where it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        yield


@pytest.fixture(scope="module")
def script(beside) -> dict:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def of(script):
    """What a study found: verdicts -> an entry of the page."""

    def made(*claims: Judgement, name: str = "kiya/mask", model: str = "trained"):
        section = Section(name, "A title", "A claim.", ("Found nothing to judge.",), (), (), (), claims=claims)
        return script["of_section"](section, model, "confirm")

    return made


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]


def test_a_row_is_a_claim_and_a_column_a_model(script, of):
    found = script["by_model"]([of(MOVES, STAYS), of(STAYS, model="random")])
    text = script["page"](found)
    overview, head, _, *claims = rows(text.split("## Studies")[1])[2:]
    assert overview == ["[kiya/<wbr>mask](#kiyamask)", "1 supported, 1 inconclusive", "1 inconclusive"]
    assert head == ["claim", "the paper's number", "trained", "random"]
    assert claims == [
        ["The sink moves.", "95 %", "**supported**", "-"],
        ["The activation stays.", "", "**inconclusive**", "**inconclusive**"],
    ]
    evidence = text.split("<details>")[1]
    assert "**The sink moves.** Rule: it is in 9 of 10 |prompts|." in evidence
    assert "- *random*, inconclusive:" in evidence


def test_a_rule_that_names_numbers_of_the_model_stands_with_each(script, of):
    other = dataclasses.replace(STAYS, rule="it is 0.2", reason="that is not decided")
    text = script["page"](script["by_model"]([of(STAYS), of(other, model="random")]))
    assert "- *trained*, inconclusive: Rule: it is 0.1." in text
    assert "- *random*, inconclusive: Rule: it is 0.2. That is not decided." in text


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ((0.5, 0.25, 0.75), "**supported** 0.500 [0.250, 0.750]"),
        ((23512.0, 23512.0, 23512.0), "**supported** 23,512"),
        ((1.0, None, None), "**supported** 1.00"),
        (("no finite samples", None, None), "**supported**"),
    ],
)
def test_a_verdict_stands_with_the_estimate_that_decides(script, numbers, shown):
    claim = dict(zip(("estimate", "low", "high"), numbers, strict=True))
    assert script["cell"](claim | {"verdict": "supported"}) == shown
    assert script["cell"](claim | {"verdict": "not applicable"}) == "**not applicable**"


@pytest.mark.parametrize(
    ("verdicts", "title"),
    [
        ({"a": "supported", "b": "inconclusive"}, "Supported"),
        ({"a": "contradicted", "b": "not applicable"}, "Contradicted"),
        ({"a": "contradicted", "b": "supported"}, "Different on different models"),
        ({"a": "inconclusive", "b": "not applicable"}, "Undecided"),
        ({"a": "not applicable"}, "Not applicable"),
    ],
)
def test_a_claim_stands_under_what_the_models_say(script, verdicts, title):
    assert script["group"](verdicts) == title


@pytest.mark.parametrize("other", ["untrained:trained", "mini-sink, after BOS"])
def test_what_is_found_on_a_control_or_a_selected_model_stands_under_its_study_alone(script, of, other):
    contradicted = dataclasses.replace(MOVES, verdict="contradicted")
    text = script["page"](script["by_model"]([of(contradicted, model=other), of(MOVES)]))
    short, chapters = text.split("## In short")[1].split("## Studies")
    assert rows(short)[-1] == ["The sink moves. ([kiya/<wbr>mask](#kiyamask))", "supported", "1 of 1"]
    assert rows(chapters)[-1] == ["The sink moves.", "95 %", "**supported**", "**contradicted**"]


def test_a_sentence_has_the_numbers_of_its_claims_and_is_refused_once_its_verdicts_are_others(script, of):
    sentence = script["Sentence"]("It moves in {0}.", (("trained", "kiya/mask", "The sink", "supported"),))
    held = script["by_model"]([of(dataclasses.replace(MOVES, estimates=(Estimate("rate", constant(0.5)),)))])
    assert script["filled"](sentence, held) == "It moves in 0.500."
    assert script["filled"](sentence, script["by_model"]([of(MOVES, model="other")])) == ""  # it has not run on that model
    with pytest.raises(SinkjaxError, match="to be supported, but found"):
        script["filled"](sentence, script["by_model"]([of(dataclasses.replace(MOVES, verdict="contradicted"))]))


def test_what_a_run_behind_another_bos_repeats_counts_once(script, of):
    number = (Estimate("rate", constant(0.5)),)
    same, other = dataclasses.replace(MOVES, estimates=number), dataclasses.replace(STAYS, estimates=number)
    found = script["by_model"]([of(same), of(same, other, model="trained, after token 0")])
    text = script["page"](found)
    assert rows(text)[2:4] == [
        ["trained", "1", "0", "0", "0", "0", "0 of 0", "0"],
        ["trained, after token 0", "0", "0", "0", "1", "0", "0 of 0", "0"],
    ]


def test_the_verdicts_of_a_model_without_a_column_are_in_the_csv(script, of):
    found = script["by_model"]([of(MOVES), of(MOVES, model="mini-nosink, after BOS")])
    text = script["page"](found)
    assert "- *mini-nosink, after BOS*" in text
    assert "mini-nosink" not in text.split("## In short")[1]
    assert 'kiya/mask,"mini-nosink, after BOS"' in script["rows"](found)


def test_a_study_without_numbers_of_the_paper_has_no_column_for_them(script, of):
    text = script["page"](script["by_model"]([of(STAYS), of(name="gu/norms", model="random")]))
    assert rows(text)[-2:] == [["---", "---"], ["The activation stays.", "**inconclusive**"]]


def test_the_page_opens_with_what_can_be_said_and_the_csv_holds_every_verdict(script, of):
    identity = Judgement("All are equal.", "holds", "r", kind="identity")
    found = script["by_model"]([of(MOVES, identity), of(STAYS, model="random")])
    text = script["page"](found)
    counts = rows(text)[2:4]
    assert counts == [["trained", "1", "0", "0", "0", "0", "1 of 1", "0"], ["random", "0", "0", "0", "1", "0", "0 of 0", "0"]]
    short = text.split("## In short")[1].split("## Studies")[0]
    assert ["The sink moves. ([kiya/<wbr>mask](#kiyamask))", "supported", "-", "1 of 1"] in rows(short)
    assert "All are equal" not in short
    own = claims_csv("kiya/mask", [MOVES, identity], "trained", "confirm")
    assert script["rows"](found) == own + claims_csv("kiya/mask", [STAYS], "random", "confirm").partition("\n")[2]


def test_the_claims_of_a_paper_are_counted_together(script, of):
    def sourced(verdict, source):
        return Judgement(f"{verdict} by {source}", verdict, "r", source=source)

    own = sourced("supported", "")
    first, second = sourced("supported", "Kiya et al. 2026, Fig. 2"), sourced("contradicted", "after Kiya et al. 2026, section 3")
    third = sourced("inconclusive", "Bondarenko et al. 2023; Sun et al. 2024")
    found = script["by_model"]([of(third, own, name="gu/norms"), of(first, second), of(first, model="random")])
    assert rows(script["by_paper"](found))[2:] == [
        ["Bondarenko et al. 2023", "1 inconclusive", "-"],
        ["our own", "1 supported", "-"],
        ["Kiya et al. 2026", "1 supported, 1 contradicted", "1 supported"],
    ]


def test_a_model_that_was_refused_and_a_study_without_claims_are_told(script, of):
    refused = script["Found"]("kiya/mask", "gateless", refused="it has no gate")
    text = script["page"](script["by_model"]([of(), refused]))
    assert "no claims to judge | not run" in text
    assert "- Found nothing to judge." in text
    assert "gateless: not run, because it has no gate" in text


def test_a_run_adds_to_what_was_found_before_and_replaces_its_own(tmp_path, monkeypatch, capsys, script, of):
    files = write_both(tmp_path / "files")
    chosen = study("sweep", files, edits=[{"compose": []}, {"mask_key": {"key": 0}}])
    run.carry_out(chosen, tmp_path / "one")
    page = tmp_path / "findings.md"
    before = [of(MOVES, model="trained"), of(MOVES, name=chosen.experiment, model=str(files / "model"))]
    page.with_suffix(".json").write_text(json.dumps([dataclasses.asdict(entry) for entry in before]))

    def make(*options):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, options), "--out", str(page)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        assert capsys.readouterr().out.strip() == str(page)
        return [
            (entry["study"], entry["model"], len(entry["claims"])) for entry in json.loads(page.with_suffix(".json").read_text())
        ]

    both = [("kiya/mask", "trained", 1), (chosen.experiment, str(files / "model"), 0)]
    assert make(tmp_path / "one") == both
    assert f"| study | trained | {files / 'model'} |" in page.read_text()
    assert make() == both
    assert make(tmp_path / "one", "--anew") == both[1:]
    assert "trained |" not in page.read_text()


def test_the_page_of_the_repository_is_what_its_data_say(script):
    docs = ROOT / "docs"
    found = script["by_model"]([script["Found"](**entry) for entry in json.loads((docs / "findings.json").read_text("utf-8"))])
    assert (docs / "findings.md").read_text("utf-8") == script["page"](found)
    assert (docs / "findings.csv").read_text("utf-8") == script["rows"](found)
    assert len(list(csv.DictReader(io.StringIO(script["rows"](found))))) == sum(
        len(entry.claims) for column in found.values() for entry in column.values()
    )
