"""Write the tables of the pretraining lab into docs/pretraining.md, each between its own markers.

    sinkjax run pretrain/mini --text FOLDER_OF_BOOKS
    python scripts/pretrain_tables.py results/pretrain/mini

The folders are those of studies, finished or not; everything is made anew from what is there. A study of which there is no folder
keeps its table; one that was never run has the paper's numbers alone, made anew from its file, and says so.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from sections import markdown, write_section

from sinkjax.config_files.files import shipped
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.report.table import table
from sinkjax.studies.assemble import assemble
from sinkjax.studies.papers import pretrain
from sinkjax.studies.papers._pretrain.config import Ablation
from sinkjax.studies.registry import choose
from sinkjax.studies.run import section_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "pretraining.md"
HEAD = "# The pretraining lab"
NONE = ("", "-")  # cells that hold nothing
NOT_RUN = "Not run."
WIDTH = 130


def main() -> None:
    """Read the folders and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="the folders of studies")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    try:
        found = dict(read(folder) for folder in options.folders)
    except SinkjaxError as error:
        parser.error(str(error))
    page = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    for name, config in studies().items():
        if name not in found and not was_run(page, name):
            found[name] = assemble(pretrain.STUDY, config, {})
    for name, section in found.items():
        write_section(options.out, name, text(section), HEAD)
    print(options.out)


def studies() -> dict[str, Ablation]:
    """The studies that ship, in the order of the page: what is measured at mini size first."""
    names = [name for name in shipped() if choose(name).experiment == "pretrain"]
    return {name: choose(name).config for name in sorted(names, key=lambda name: (name != "pretrain/mini", name))}


def was_run(page: str, name: str) -> bool:
    """Whether a page has numbers of our own in a study's table."""
    section = page.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]
    return bool(section) and f"\n{NOT_RUN}\n" not in section


def read(folder: Path) -> tuple[str, Section]:
    """The marker of a study's table, and what its folder holds. Errors: a folder of something else."""
    chosen = choose(str(folder))
    if chosen.experiment != "pretrain":
        raise SinkjaxError(f"{folder} is no study of pretraining, but of {chosen.experiment}")
    section = section_of(chosen, folder)
    own = {name: config.size for name, config in studies().items()}
    larger = chosen.config.size != own.get(section.study, chosen.config.size)
    return section.study + (f" at {chosen.config.size}" if larger else ""), section


def text(section: Section) -> str:
    """A study's short table with the paper's numbers, the verdicts on its claims, and what a reader has to know."""
    shown = table(section.rows, section.featured)
    columns = [
        number for number, _ in enumerate(shown.columns) if any(cells[number].value not in NONE for _, cells in shown.lines)
    ]
    lines = [[label, *(cells[number].value or "-" for number in columns)] for label, cells in shown.lines]
    ran = bool(section.provenance)
    said = ", ".join(f"{name} {value}" for name, value in section.provenance.items()) if ran else NOT_RUN
    parts = [
        f"## {section.title}",
        fill(f"`sinkjax run {section.study}`. {section.question}"),
        fill(f"{' '.join(section.findings)} Means over {section.over}, 95 % intervals in brackets. {said}.") if ran else said,
        markdown([section.subject, *(shown.columns[number].replace("_*", "_\\*") for number in columns)], lines),
    ]
    if ran and section.claims:
        head = ["claim", "source", "verdict", "evidence", "the paper's"]
        parts.append(
            markdown(
                head,
                [[c.statement, c.source or "ours", c.verdict, c.evidence.replace("_*", "_\\*"), c.paper] for c in section.claims],
            )
        )
    return "\n\n".join([*parts, *map(fill, section.notes[: len(section.notes) - pretrain.COMMON])])


def fill(paragraph: str) -> str:
    """A paragraph in lines, its stars as they are."""
    return textwrap.fill(paragraph.replace("_*", "_\\*"), WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
