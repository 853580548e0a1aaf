"""Write what every study found, on each model, beside the papers' claims: docs/findings.md and docs/findings.csv.

    sinkjax run all
    sinkjax run all --model untrained:smollm2-135m --out results/all-untrained
    sinkjax run all --model mini-sink --bos model --prompts 32 --out results/all-mini-sink
    python scripts/findings.py results/all results/all-untrained results/all-mini-sink

Each folder is that of a finished run, of one study or of a suite. Everything is made anew from the stores; nothing is computed on
a model, and nothing on the page is written by hand.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sinkjax.analysis.claims import Judgement, claims_csv, expected_false
from sinkjax.analysis.estimates import in_digits
from sinkjax.config_files.files import write
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.report.table import verdicts
from sinkjax.studies import run, suite
from sinkjax.studies.registry import choose, studies

PAGE = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
HEAD = """# What was found

Made by `python scripts/findings.py {folders}`; [findings.csv](findings.csv) holds every verdict as a row.

Some rules were fixed after a look at SmolLM2 and the small models on other texts (excerpts of novels); the studies' notes name
those. They are judged here on the *{split}* split of the texts. Some were changed once more, after a review of the rules, when
the verdicts of mini-sink, of mini-nosink (background and gu) and of SmolLM2 (kiya/mask) on that split were known under the
former rules; the CHANGELOG lists them. For a model that was looked at when rules were chosen this confirms across texts at best,
not across models.
A verdict is at the level of 5 % without a correction for the number of claims (the CSV has p corrected by Holm within each
study); [add-a-study.md](add-a-study.md#rules-and-verdicts) explains the rules. Settings, commands and run times are in
`configs/`.
"""
GROUPS = {
    "What holds on these models": "Supported on one or more trained models, contradicted on none.",
    "What does not hold": "Contradicted on one or more trained models, supported on none.",
    "What differs between models": "Supported on some trained models, contradicted on others.",
    "What cannot be said": "Neither supported nor contradicted on any trained model to which it applies.",
    "What does not apply": "The premise is not met on any of these models, or what it needs was not measured.",
}
VERDICTS = ("supported", "contradicted", "inconclusive", "not applicable", "holds", "fails")

Found = Mapping[str, Section | str]  # study -> its section, or why it has none


def main() -> None:
    """Read the folders and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    found: dict[str, dict[str, Section | str]] = {}
    splits: dict[str, str] = {}
    try:
        for folder in options.folders:
            model, split, sections = read(folder)
            found.setdefault(model, {}).update(sections)
            splits[model] = split
    except SinkjaxError as error:
        parser.error(str(error))
    write(options.out, page(found, splits, options.folders))
    write(options.out.with_suffix(".csv"), rows(found, splits))
    print(options.out)


def read(folder: Path) -> tuple[str, str, dict[str, Section | str]]:
    """A run's model (and whether BOS stood first), its split, and what its studies found. Errors: no folder of a run."""
    chosen = choose(str(folder))
    if not hasattr(chosen.config, "model"):
        raise SinkjaxError(f"{folder} holds models that were trained from scratch, and this page has a column for each model")
    bos = {"none": "", "model": ", after BOS"}.get(chosen.config.bos, f", with token {chosen.config.bos} as BOS")
    column = f"{chosen.config.model}{bos}"
    split = getattr(chosen.config, "split", None) or "confirm"
    if not chosen.suite:
        return column, split, {chosen.experiment: run.section_of(chosen, folder)}
    report = suite.gather(chosen, folder)
    return column, split, {**{section.study: section for section in report.sections}, **report.skipped}


def page(found: Mapping[str, Found], splits: Mapping[str, str], folders: Sequence[Path]) -> str:
    """The page: what can be said, verdicts counted, then a table for each study.

    found: model -> what its studies found. splits: model -> the split of its texts.
    """
    names = [name for name in studies() if any(name in column for column in found.values())]
    overview = [[f"[{name}](#{anchor(name)})", *(state(column.get(name)) for column in found.values())] for name in names]
    parts = [
        HEAD.format(folders=named(folders), split="* and *".join(dict.fromkeys(splits.values()))),
        models(found),
        counted(found),
    ]
    parts += ["## In short\n", by_paper(found), in_short(found), "## Studies\n", table(["study", *found], overview)]
    parts += [chapter(name, {model: column.get(name) for model, column in found.items()}) for name in names]
    return "\n".join(parts)


def models(found: Mapping[str, Found]) -> str:
    """What each column's weights are, with what they were stored as."""
    lines = []
    for column, sections in found.items():
        names = dict.fromkeys(section.provenance.get("model") for section in sections.values() if isinstance(section, Section))
        lines += [f"- *{column}*: {name}." for name in names if name and name != column]
    return "\n".join(lines) + "\n"


def counted(found: Mapping[str, Found]) -> str:
    """How many claims have which verdict, for each model."""
    lines = []
    for model, column in found.items():
        judged = [claim for section in column.values() if isinstance(section, Section) for claim in section.claims]
        chance = in_digits(expected_false([claim for claim in judged if claim.kind == "empirical"]))
        lines.append([model, *(str(sum(claim.verdict == verdict for claim in judged)) for verdict in VERDICTS), chance])
    heads = ["model", *VERDICTS[:4], "identities that hold", "that fail", "supported by chance, at most"]
    return table(heads, lines)


def in_short(found: Mapping[str, Found]) -> str:
    """Every empirical claim under what can be said of it: a row each, with its verdict on each model."""
    groups: dict[str, list[list[str]]] = {title: [] for title in GROUPS}
    for (study, statement), claims in by_claim(found).items():
        source = next((claim.source for claim in claims.values() if claim.source), "")
        about = f"{statement} *{source}*" if source else statement
        verdict_on = [claims[model].verdict if model in claims else "-" for model in found]
        groups[group(claims)].append([about, f"[{study}](#{anchor(study)})", *verdict_on])
    head = ["claim", "study", *found]
    parts = [f"### {title}\n\n{GROUPS[title]}\n\n{table(head, lines)}" for title, lines in groups.items() if lines]
    return "\n".join(parts)


def by_paper(found: Mapping[str, Found]) -> str:
    """How the claims of each paper fare on each model; a claim of two papers counts under the first."""
    claims = by_claim(found)
    papers: dict[str, dict[str, list[Judgement]]] = {}
    for judged in claims.values():
        source = next((claim.source for claim in judged.values() if claim.source), "")
        paper = match[0] if (match := re.match(r"(after )?.*?\d{4}", source)) else "our own"
        for model, claim in judged.items():
            papers.setdefault(paper.removeprefix("after "), {}).setdefault(model, []).append(claim)
    lines = [
        [paper, *(verdicts(columns.get(model, ())) if model in columns else "-" for model in found)]
        for paper, columns in papers.items()
    ]
    return table(["claims of", *found], lines)


def by_claim(found: Mapping[str, Found]) -> dict[tuple[str, str], dict[str, Judgement]]:
    """(study, statement) -> model -> verdict, of the empirical claims."""
    claims: dict[tuple[str, str], dict[str, Judgement]] = {}
    for model, column in found.items():
        for study, section in column.items():
            for claim in section.claims if isinstance(section, Section) else ():
                if claim.kind == "empirical":
                    claims.setdefault((study, claim.statement), {})[model] = claim
    return claims


def group(claims: Mapping[str, Judgement]) -> str:
    """What can be said of a claim. claims: model -> verdict."""
    holds, fails, differs, open_, absent = GROUPS
    found = {claim.verdict for model, claim in claims.items() if not model.startswith("untrained:")}
    if {"supported", "contradicted"} <= found:
        return differs
    if "supported" in found or "contradicted" in found:
        return holds if "supported" in found else fails
    return open_ if "inconclusive" in found else absent


def rows(found: Mapping[str, Found], splits: Mapping[str, str]) -> str:
    """All verdicts as CSV, in the columns of a run's `claims.csv`."""
    parts = [
        claims_csv(study, section.claims, model, splits[model])
        for model, column in found.items()
        for study, section in column.items()
        if isinstance(section, Section) and section.claims
    ]
    return "".join(parts[:1] + [part.partition("\n")[2] for part in parts[1:]])


def named(folders: Sequence[Path]) -> str:
    """Folders as one would type them: the parents of many."""
    return " ".join(map(str, folders) if len(folders) < 5 else dict.fromkeys(f"{folder.parent}/*" for folder in folders))


def chapter(name: str, columns: Mapping[str, Section | str | None]) -> str:
    """A study: its claims with one column a model, and why a model has none."""
    sections = {model: section for model, section in columns.items() if isinstance(section, Section)}
    statements = dict.fromkeys(claim.statement for section in sections.values() for claim in section.claims)
    sizes = [f"{model}, {section.provenance.get('prompts', 'no prompts')}" for model, section in sections.items()]
    parts = [f"## {name}\n", f"Prompts: {'; '.join(sizes)}.\n"]
    lines = []
    for statement in statements:
        claims = {
            model: next((claim for claim in section.claims if claim.statement == statement), None)
            for model, section in sections.items()
        }
        papers = dict.fromkeys(claim.paper for claim in claims.values() if claim and claim.paper)
        sources = dict.fromkeys(claim.source for claim in claims.values() if claim and claim.source)
        about = f" *{'; '.join(sources)}*" if sources else ""
        lines.append([statement + about, "; ".join(papers), *(cell(claims.get(model)) for model in columns)])
    if lines:
        parts.append(table(["claim", "the paper's number", *columns], lines))
    else:
        parts += [f"- {finding}" for section in sections.values() for finding in section.findings]
    parts += [f"\n{model}: not run, because {why}" for model, why in columns.items() if isinstance(why, str)]
    return "\n".join(parts) + "\n"


def cell(claim: Judgement | None) -> str:
    """A verdict and its evidence, or a dash."""
    return f"**{claim.verdict}**: {claim.evidence}" if claim else "-"


def state(found: Section | str | None) -> str:
    """A study on one model, in few words."""
    if found is None:
        return "-"
    return "not run" if isinstance(found, str) else verdicts(found.claims)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *([entry.replace("|", r"\|") for entry in line] for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def anchor(heading: str) -> str:
    """The anchor that a Markdown page gives a heading."""
    return heading.lower().replace("/", "").replace(" ", "-")


if __name__ == "__main__":
    main()
