"""Write what every study found, on each model, beside the papers' claims: docs/findings.md and docs/findings.csv.

    sinkjax run all
    sinkjax run all --model untrained:smollm2-135m --out results/all-untrained
    sinkjax run all --model mini-softmax --bos model --out results/all-mini-softmax
    python scripts/findings.py results/all results/all-untrained results/all-mini-softmax

Each folder is that of a finished run, of one study or of a suite. What they found is kept in docs/findings.json, from which the
page and the CSV are made; a study that is given again on a model takes the place of what was there, so that they grow run by run.
`--anew` keeps nothing. Nothing is computed on a model here, and nothing on the page is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentences import SENTENCES, Sentence

from sinkjax.analysis.claims import COLUMNS, JUDGED, claims_json
from sinkjax.analysis.estimates import in_digits
from sinkjax.analysis.rules import LEVEL
from sinkjax.config_files.files import write
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.studies import run, suite
from sinkjax.studies.registry import choose, studies

PAGE = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
HEAD = """# What was found

Made by `python scripts/findings.py` from [findings.json](findings.json), to which every finished run adds;
[findings.csv](findings.csv) holds every verdict as a row.

The prompts are {text}. All verdicts are made on the *{split}* split. The rules were chosen after a look at SmolLM2 and the
small models on other texts (excerpts of novels). Some were changed again, in reviews, when verdicts on this split were known:
each study says so under its evidence, and the CHANGELOG gives the reasons. So a verdict here confirms a statement across
texts at best, for the models below, and says nothing of other models. *mini-softmax* and *mini-head-norm* were not seen when
rules were chosen, but `kiya/mask` and `emergence/causal` had run on the training that became *mini-softmax* before the last
rules changed.

A verdict is at the level of 5 % without a correction for the number of claims; the first table also counts the claims that stay
supported with Holm's correction within each study. [How verdicts are made](verdicts.md) explains the rules. The number beside a
verdict is the estimate that decides it, with its interval of 95 %. A dagger (†) marks a comparison of exact numbers, such as
weights or counts: it has no sampling error, so nothing is tested. n and all other estimates are in the evidence and in the CSV.
Where the number that decides is a count (of positions, layers, tokens) or a property of the weights, n is 1; how many documents
are behind a count stands under *Prompts*. "Natural text" in a claim is the paper's word: here it is the text above.
{ranked}"""
GROUPS = {
    "Supported": "Supported on one or more models, contradicted on none; the last column counts them among the models judged.",
    "Contradicted": "Contradicted on one or more models, supported on none; the last column counts them among the models judged.",
    "Different on different models": "Supported on some models, contradicted on others.",
    "Undecided": "Neither supported nor contradicted on any model to which it applies.",
    "Not applicable": "The premise is not met on any of these models, or what it needs was not measured.",
}
ABOUT = {  # what the weights alone do not say
    "smollm2-135m, after token 0": "behind `<|endoftext|>`, which separated the documents of its pretraining",
    "mini-softmax": "1.4 million parameters in 4 layers, trained on novels; of the eight seeds that were trained once the setting"
    " was fixed, the one with the lower median of sinks",
    "mini-head-norm": "as large, of the same seed and text, with a norm of each head's output",
    "mini-sink": "1.4 million parameters in 4 layers, trained on novels",
    "mini-nosink": "as mini-head-norm, of the seed of mini-sink",
}
ELSEWHERE = ("mini-nosink",)  # their verdicts stand in the CSV alone: with one more column the tables are wider than the page
IN_SHORT = "These tables hold the models whose verdicts count; what was found on the others stands under each study.\n"
MANY_CONTROLS = 99
CHANGED = re.compile("first look|second reading|results known|frozen|Until 2026")  # in a note on how a rule came about
APART = {  # models that count for no heading, and why
    "mini-head-norm": "A control (none of its heads sinks)",
    "mini-nosink": "A control (none of its heads sinks)",
    "mini-sink": "Selected (of eleven seeds the one with most sinks, and one of three on which the setting was chosen; set apart"
    " on 2026-11-23, with its verdicts known)",
}
UNTRAINED = "A control (with weights as they are drawn)"
VERDICTS = ("supported", "contradicted", "inconclusive", "not applicable", "holds", "fails")


@dataclass(frozen=True)
class Found:
    """What a study found on a model.

    model: its name, and whether BOS stood first. weights: what they were stored as. prompts: how many, how long. text: where they
    are from. refused: why the study cannot run on it, or "". more_controls: whether 99 were asked for. changes: notes on rules
    that were changed after a look at results. findings: sentences. claims: those of `claims.json`, each with its evidence in
    words.
    """

    study: str
    model: str
    split: str = "confirm"
    weights: str = ""
    prompts: str = ""
    text: str = ""
    refused: str = ""
    more_controls: bool = False
    changes: Sequence[str] = ()
    findings: Sequence[str] = ()
    claims: Sequence[Mapping[str, Any]] = ()


Table = Mapping[str, Mapping[str, Found]]  # model -> study -> what was found


def main() -> None:
    """Read the folders, add them to what is kept, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders of finished runs; none: make the page again")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--anew", action="store_true", help="keep nothing of what was found before")
    parser.add_argument("--drop", nargs="*", default=[], metavar="MODEL", help="columns of the page that are not kept")
    options = parser.parse_args()
    kept = options.out.with_suffix(".json")
    found = [] if options.anew or not kept.exists() else [Found(**entry) for entry in json.loads(kept.read_text("utf-8"))]
    try:
        for folder in options.folders:
            found += read(folder)
    except SinkjaxError as error:
        parser.error(str(error))
    latest = {(entry.model, entry.study): entry for entry in found if entry.model not in options.drop}
    table = by_model([*latest.values()])
    entries = [dataclasses.asdict(entry) for column in table.values() for entry in column.values()]
    write(kept, json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    write(options.out, page(table))
    write(options.out.with_suffix(".csv"), rows(table))
    print(options.out)


def read(folder: Path) -> list[Found]:
    """What the studies of a run found. Errors: no folder of a run."""
    chosen = choose(str(folder))
    if not hasattr(chosen.config, "model"):
        raise SinkjaxError(f"{folder} holds models that were trained from scratch, and this page has a column for each model")
    stated = (
        "none" if chosen.config.bos is None else chosen.config.bos
    )  # a suite that leaves it to its studies, none of which ships with a BOS
    bos = {"none": "", "model": ", after BOS"}.get(stated, f", after token {stated}")
    model = f"{chosen.config.model}{bos}"
    split = getattr(chosen.config, "split", None) or "confirm"
    more = max(getattr(chosen.config, name, None) or 0 for name in ("controls", "headline_controls")) >= MANY_CONTROLS
    if not chosen.suite:
        return [of_section(run.section_of(chosen, folder), model, split, more)]
    report = suite.gather(chosen, folder)
    refused = [Found(study, model, split, refused=why) for study, why in report.skipped.items()]
    return [*(of_section(section, model, split, more) for section in report.sections), *refused]


def of_section(section: Section, model: str, split: str, more_controls: bool = False) -> Found:
    """What a section of a report says, as data."""
    entries = json.loads(claims_json(section.study, section.claims, model, split))
    claims = [entry | {"evidence": claim.parts[0]} for entry, claim in zip(entries, section.claims, strict=True)]
    weights, prompts, text = (str(section.provenance.get(name, "")) for name in ("model", "prompts", "text"))
    text = text.partition(", because")[0]  # no better one was at hand
    changes = [note for note in section.notes if CHANGED.search(note)]
    said = {"changes": changes, "findings": list(section.findings), "claims": claims}
    return Found(section.study, model, split, weights, prompts, text, more_controls=more_controls, **said)


def by_model(found: Sequence[Found]) -> Table:
    """The columns, those that count first, in the order in which models came; studies in that of the registry."""
    columns: dict[str, dict[str, Found]] = {}
    order = {name: number for number, name in enumerate(studies())}
    for entry in sorted(found, key=lambda entry: order.get(entry.study, len(order))):
        columns.setdefault(entry.model, {})[entry.study] = entry
    return {
        model: columns[model]
        for model in sorted(dict.fromkeys(entry.model for entry in found), key=lambda name: bool(apart(name)))
    }


def page(found: Table) -> str:
    """The page: what can be said, verdicts counted, then a part for each study."""
    found = without_repeats(found)
    everything, found = found, {model: column for model, column in found.items() if base(model) not in ELSEWHERE}
    names = list(dict.fromkeys(name for name in [*studies(), *(study for column in found.values() for study in column)]))
    names = [name for name in names if any(name in column for column in found.values())]
    splits, texts = (
        dict.fromkeys(getattr(entry, name) for column in found.values() for entry in column.values() if getattr(entry, name))
        for name in ("split", "text")
    )
    overview = [[link(name), *(state(column.get(name)) for column in found.values())] for name in names]
    parts = [
        HEAD.format(split="* and *".join(splits), text="; ".join(texts) or "those of the studies' configs", ranked=ranked(found)),
        models(everything),
        counted(everything),
    ]
    judged = {model: column for model, column in found.items() if not apart(model)}
    parts += [
        "## In words\n",
        *in_words_of(found),
        "## In short\n",
        IN_SHORT,
        by_paper(judged),
        in_short(judged),
        "## Studies\n",
        table(["study", *map(heading, found)], overview),
    ]
    parts += [chapter(name, {model: column.get(name) for model, column in found.items()}) for name in names]
    return "\n".join(parts)


def in_words_of(found: Table) -> list[str]:
    """What holds, what does not and what cannot be said."""
    parts = []
    for title, sentences in SENTENCES.items():
        lines = [line for sentence in sentences if (line := filled(sentence, found))]
        parts += [f"**{title}**\n", *(f"- {line}" for line in lines), ""] if lines else []
    return parts


def filled(sentence: Sentence, found: Table) -> str:
    """A sentence with its numbers; "" where a study has not run. Errors: a verdict is another one, so that it is not true."""
    numbers = []
    for model, study, start, verdict in sentence.rests_on:
        entry = found.get(model, {}).get(study)
        if entry is None:
            return ""
        claims = [claim for claim in entry.claims if claim["claim"].startswith(start)]
        if [claim["verdict"] for claim in claims] != [verdict]:
            verdicts = [(claim["claim"], claim["verdict"]) for claim in claims]
            raise SinkjaxError(f"“{sentence.text}” needs “{start} ...” ({study}, {model}) to be {verdict}, but found {verdicts}")
        numbers.append(cell(claims[0]).partition("** ")[2].removeprefix("† "))
    return sentence.text.format(*numbers)


def without_repeats(found: Table) -> Table:
    """The columns, without claims that a model's other prefix repeats to the last digit: those on prompts without any."""

    def number(claim: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(claim[name] for name in ("claim", "verdict", "estimate", "low", "high") if claim["estimate"] is not None)

    table: dict[str, Mapping[str, Found]] = {}
    for model, column in found.items():
        same = found.get(base(model), {}) if base(model) != model else {}
        known = [number(claim) for entry in same.values() for claim in entry.claims if len(number(claim)) > 1]
        table[model] = {
            study: dataclasses.replace(entry, claims=[claim for claim in entry.claims if number(claim) not in known])
            for study, entry in column.items()
        }
    return table


def models(found: Table) -> str:
    """What each column's weights are, with what they were stored as."""
    lines = []
    for column, entries in found.items():
        weights = dict.fromkeys(entry.weights for entry in entries.values() if entry.weights not in ("", column))
        why = apart(column)
        role = f" {why}: its verdicts count neither for the headings below nor in their last column." if why else ""
        role += " Its verdicts are in the CSV alone." if base(column) in ELSEWHERE else ""
        about = ABOUT.get(column, ABOUT.get(base(column), ""))
        lines += [f"- *{column}*: {name}{about and f' ({about})'}.{role}" for name in weights]
        lines += [f"- *{column}*.{role}"] * bool(why and not weights)
    return "\n".join(lines) + "\n"


def ranked(found: Table) -> str:
    """Which studies ranked effects among more controls than usual, which was decided when verdicts were known."""
    more = [
        f"{study} on {model} ({most})"
        for model, column in found.items()
        for study, entry in sorted(column.items())
        if entry.more_controls and (most := max((claim["controls"] or 0 for claim in entry.claims), default=0))
    ]
    if not more:
        return ""
    return f"""
Effects were ranked anew among {MANY_CONTROLS} controls, or as many as there are (their number in brackets), on 16 documents or
more, when verdicts with 20 were known, which lowers a rank's p from 0.048 to 0.01 at best: {", ".join(more)}.
"""


def counted(found: Table) -> str:
    """How many claims have which verdict, for each model."""
    lines = []
    for model, column in found.items():
        judged = [claim for entry in column.values() for claim in entry.claims]
        verdicts = Counter(claim["verdict"] for claim in judged)
        tested = [one for one in judged if one["kind"] == "empirical" and one["p"] is not None and one["verdict"] in JUDGED]
        counts = [str(verdicts[verdict]) for verdict in VERDICTS]
        hold = f"{verdicts['holds']} of {verdicts['holds'] + verdicts['fails']}"
        holm = sum(one["verdict"] == "supported" and one["p_holm"] <= LEVEL for one in tested)
        lines.append([heading(model), counts[0], str(holm), *counts[1:4], hold, in_digits(LEVEL * len(tested))])
    heads = [
        "model",
        "supported",
        "by Holm too",
        *VERDICTS[1:4],
        "identities hold",
        "by chance, at most",
    ]
    return table(heads, lines)


def in_short(found: Table) -> str:
    """Every empirical claim under what can be said of it: a row each, with its verdict on each model."""
    groups: dict[str, list[list[str]]] = {title: [] for title in GROUPS}
    for (study, statement), claims in by_claim(found).items():
        source = next((claim["source"] for claim in claims.values() if claim["source"]), "")
        about = f"{statement} *{source}*" if source else statement
        about += f" ({link(study)})"
        verdict_on = [claims[model]["verdict"] if model in claims else "-" for model in found]
        title = group({model: claim["verdict"] for model, claim in claims.items()})
        judged = {model: claim["verdict"] for model, claim in claims.items() if claim["verdict"] in JUDGED}
        alike = [model for model, verdict in judged.items() if verdict == title.lower()]
        # A model with another BOS is the same model.
        of = " of ".join(str(len({base(model) for model in some})) for some in (alike, judged)) if alike else "-"
        groups[title].append([about, *verdict_on, of])
    head = ["claim", *map(heading, found), "models"]
    parts = [f"### {title}\n\n{GROUPS[title]}\n\n{table(head, lines)}" for title, lines in groups.items() if lines]
    return "\n".join(parts)


def by_paper(found: Table) -> str:
    """How the claims of each paper fare on each model; a claim of two papers counts under the first."""
    papers: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for claims in by_claim(found).values():
        source = next((claim["source"] for claim in claims.values() if claim["source"]), "")
        paper = match[0] if (match := re.match(r"(after )?.*?\d{4}", source)) else "our own"
        for model, claim in claims.items():
            papers.setdefault(paper.removeprefix("after "), {}).setdefault(model, []).append(claim)
    lines = [
        [paper, *(in_words(columns[model]) if model in columns else "-" for model in found)] for paper, columns in papers.items()
    ]
    return table(["claims of", *map(heading, found)], lines)


def by_claim(found: Table) -> dict[tuple[str, str], dict[str, Mapping[str, Any]]]:
    """(study, statement) -> model -> its claim, of the empirical claims."""
    claims: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for model, column in found.items():
        for study, entry in column.items():
            for claim in entry.claims:
                if claim["kind"] == "empirical":
                    claims.setdefault((study, claim["claim"]), {})[model] = claim
    return claims


def apart(model: str) -> str:
    """Why the verdicts of a model count for no heading, or "". model: as the columns are called."""
    return UNTRAINED if model.startswith("untrained:") else APART.get(base(model), "")


def base(model: str) -> str:
    """The model of a column, whatever stood first."""
    return model.partition(",")[0]


def group(verdict_on: Mapping[str, str]) -> str:
    """What can be said of a claim. verdict_on: model -> verdict."""
    holds, fails, differs, open_, absent = GROUPS
    found = {*verdict_on.values()}
    if {"supported", "contradicted"} <= found:
        return differs
    if "supported" in found or "contradicted" in found:
        return holds if "supported" in found else fails
    return open_ if "inconclusive" in found else absent


def rows(found: Table) -> str:
    """All verdicts as CSV, in the columns of a run's `claims.csv`."""
    out = io.StringIO()
    lines = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    lines.writeheader()
    for column in found.values():
        for entry in column.values():
            lines.writerows({name: "" if cell is None else cell for name, cell in claim.items()} for claim in entry.claims)
    return out.getvalue()


def heading(model: str) -> str:
    """A column's name as it stands in tables: a browser breaks a line at spaces, and no table may be wider than the page."""
    return model.replace(":", ": ")


def link(study: str) -> str:
    """To a study's part of the page; its name may be broken behind the folder."""
    return f"[{study.replace('/', '/<wbr>')}](#{anchor(study)})"


def chapter(name: str, columns: Mapping[str, Found | None]) -> str:
    """A study: its claims with one column a model, the evidence below, and why a model has none."""
    ran = {model: entry for model, entry in columns.items() if entry and not entry.refused}
    statements = dict.fromkeys(claim["claim"] for entry in ran.values() for claim in entry.claims)
    sizes = [f"{model}, {entry.prompts or 'no prompts'}" for model, entry in ran.items()]
    parts = [f"## {name}\n", f"Prompts: {'; '.join(sizes)}.\n"] if sizes else [f"## {name}\n"]
    lines, evidence = [], []
    for statement in statements:
        claims = {model: claim for model, entry in ran.items() for claim in entry.claims if claim["claim"] == statement}
        papers, sources = (dict.fromkeys(claim[cell] for claim in claims.values() if claim[cell]) for cell in ("paper", "source"))
        about = f" *{'; '.join(sources)}*" if sources else ""
        lines.append([statement + about, "; ".join(papers), *(cell(claims.get(model)) for model in ran)])
        evidence.append(evidence_of(statement, claims))
    if lines:
        head = ["claim", "the paper's number", *map(heading, ran)]
        if not any(numbers for _, numbers, *_ in lines):
            head, lines = [head[0], *head[2:]], [[about, *verdicts] for about, _, *verdicts in lines]
        changes = next((entry.changes for entry in ran.values() if entry.changes), ())  # but for numbers, alike on all models
        origins = [f"How the rules came about: {note}\n" for note in changes]
        parts += [table(head, lines), folded("\n".join([*origins, *evidence]))]
    else:
        parts += [f"- {finding}" for entry in ran.values() for finding in entry.findings]
    parts += [f"{model}: not run, because {entry.refused}\n" for model, entry in columns.items() if entry and entry.refused]
    return "\n".join(parts)


def cell(claim: Mapping[str, Any] | None) -> str:
    """A verdict with the estimate that decides, or a dash."""
    if claim is None:
        return "-"
    numbers = [claim[name] for name in ("estimate", "low", "high")]
    judged, number = claim["verdict"] != "not applicable", isinstance(numbers[0], float | int)
    verdict = f"**{claim['verdict']}**" + " †" * (judged and claim.get("unit") == "model" and claim.get("kind") == "empirical")
    if not judged or not number:
        return verdict
    first = next(iter(claim.get("estimates", ())), {})
    if str(first.get("measured_in", "")).startswith("of "):
        return f"{verdict} {numbers[0]:.0f} {first['measured_in']}"
    mean, *ends = (in_digits(value) if isinstance(value, float | int) else "" for value in numbers)
    return f"{verdict} {mean}" + (f" [{ends[0]}, {ends[1]}]" if all(ends) and ends[0] != ends[1] else "")


def evidence_of(statement: str, claims: Mapping[str, Mapping[str, Any]]) -> str:
    """The evidence for a claim on each model, with its rule, which may name numbers of the model."""
    rules = {model: claim["rule"] for model, claim in claims.items()}
    one = len(set(rules.values())) == 1
    lines = [f"**{statement}**" + (f" Rule: {next(iter(rules.values()))}." if one else ""), ""]
    for model, claim in claims.items():
        reason = claim["reason"] and f"{claim['reason'][0].upper()}{claim['reason'][1:]}."
        rule = "" if one else f"Rule: {rules[model]}."
        size = f", n = {claim['n']}" if claim["unit"] not in ("", "model") and claim["n"] else ""
        lines.append(f"- *{model}*{size}, {claim['verdict']}: {' '.join(filter(None, (claim['evidence'], rule, reason)))}")
    return "\n".join(lines) + "\n"


def folded(text: str) -> str:
    """A text that a reader opens."""
    return f"<details><summary>Evidence and rules</summary>\n\n{text}\n</details>\n"


def in_words(claims: Iterable[Mapping[str, Any]]) -> str:
    """How many empirical claims have which verdict."""
    found = Counter(claim["verdict"] for claim in claims if claim["kind"] == "empirical")
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict]) or "no claims to judge"


def state(found: Found | None) -> str:
    """A study on one model, in few words."""
    if found is None:
        return "-"
    return "not run" if found.refused else in_words(found.claims)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *([entry.replace("|", r"\|") for entry in line] for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def anchor(heading: str) -> str:
    """The anchor that a Markdown page gives a heading."""
    return heading.lower().replace("/", "").replace(" ", "-")


if __name__ == "__main__":
    main()
