"""Write what every study found, on each model, beside the papers' claims: docs/findings.md.

    sinkjax run all
    sinkjax run all --model untrained:smollm2-135m --out results/all-untrained
    sinkjax run all --model mini-sink --bos model --prompts 32 --out results/all-mini-sink
    python scripts/findings.py results/all results/all-untrained results/all-mini-sink

Each folder is that of a finished run, of one study or of a suite. A column is a model, a row a claim. Everything is made
anew from the stores; nothing is computed on a model.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from sinkjax.analysis.claims import Judgement
from sinkjax.config_files.files import write
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.report.table import verdicts
from sinkjax.studies import run, suite
from sinkjax.studies.registry import choose, studies

PAGE = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
HEAD = """# What was found

Made by `python scripts/findings.py {folders}`.
The numbers are read from stores, and each verdict is made from them by the rule that its cell states. Each study's settings,
command and run time are in `configs/`; a run may have had fewer prompts than its config says, so each section states them.
Intervals are bootstrap 95 % intervals over prompts unless a cell says otherwise.
"""

Found = Mapping[str, Section | str]  # study -> its section, or why it has none


def main() -> None:
    """Read the folders and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    found: dict[str, dict[str, Section | str]] = {}
    try:
        for folder in options.folders:
            model, sections = read(folder)
            found.setdefault(model, {}).update(sections)
    except SinkjaxError as error:
        parser.error(str(error))
    write(options.out, page(found, options.folders))
    print(options.out)


def read(folder: Path) -> tuple[str, dict[str, Section | str]]:
    """A run's model, and whether BOS stood first; and what its studies found. Errors: a folder that is not that of a run."""
    chosen = choose(str(folder))
    if not hasattr(chosen.config, "model"):
        raise SinkjaxError(f"{folder} holds models that were trained from scratch, and this page has a column for each model")
    column = f"{chosen.config.model}, after BOS" if chosen.config.bos == "model" else chosen.config.model
    if not chosen.suite:
        return column, {chosen.experiment: run.section_of(chosen, folder)}
    report = suite.gather(chosen, folder)
    return column, {**{section.study: section for section in report.sections}, **report.skipped}


def page(found: Mapping[str, Found], folders: Sequence[Path]) -> str:
    """The page: an overview, then a table for each study. found: model -> what its studies found."""
    names = [name for name in studies() if any(name in column for column in found.values())]
    overview = [[f"[{name}](#{anchor(name)})", *(state(column.get(name)) for column in found.values())] for name in names]
    parts = [HEAD.format(folders=named(folders)), table(["study", *found], overview)]
    parts += [chapter(name, {model: column.get(name) for model, column in found.items()}) for name in names]
    return "\n".join(parts)


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
        lines.append([statement, "; ".join(papers), *(cell(claims.get(model)) for model in columns)])
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
