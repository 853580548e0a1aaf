"""Write the tables of the trigger lab into docs/trigger.md, each between its own markers.

    sinkjax run trigger/all
    python scripts/trigger_tables.py results/trigger/all

The folder is that of a finished suite, or of one of its studies. Everything is computed from the stores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pretrain_tables import evidence
from sections import markdown, write_section

from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.report.table import table
from sinkjax.studies import run, suite
from sinkjax.studies.registry import choose

PAGE = Path(__file__).resolve().parents[1] / "docs" / "trigger.md"
HEAD = "# The trigger lab"
NOT_RUN = "not run"  # a cell of a training without any finished seed


def main() -> None:
    """Read the folder and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder of a finished run")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    try:
        sections = read(options.folder)
    except SinkjaxError as error:
        parser.error(str(error))
    for section in sections:
        write_section(options.out, section.study, text(section), HEAD)
    print(options.out)


def read(folder: Path) -> tuple[Section, ...]:
    """What the finished studies of a folder found. Errors: a folder without any."""
    chosen = choose(str(folder))
    if not chosen.suite:
        return (run.section_of(chosen, folder),)
    report = suite.gather(chosen, folder)
    if not report.sections:
        raise SinkjaxError(
            f"{folder} has no finished study: {'; '.join(f'{name}: {why}' for name, why in report.skipped.items())}"
        )
    return report.sections


def text(section: Section) -> str:
    """The verdicts on a study's claims, and the short table of what was trained."""
    shown = table(section.rows, section.featured)
    columns = [number for number, _ in enumerate(shown.columns) if any(cells[number].value for _, cells in shown.lines)]
    lines = [[label, *(cells[number].value or "-" for number in columns)] for label, cells in shown.lines]
    trained = [line for line in lines if NOT_RUN not in line]
    parts = [
        f"{section.title}. Means over {section.over}, 95% intervals over {section.over} in brackets"
        f" (seeds {section.provenance.get('seeds', '')}). Made by `python scripts/trigger_tables.py`."
    ]
    if missing := [line[0] for line in lines if NOT_RUN in line]:
        parts.append(f"{len(missing)} of {len(lines)} trainings were not run: {'; '.join(missing)}.")
    if section.verdicts:
        claims = [[v.statement, v.source, v.word, evidence(v)] for v in section.verdicts]
        parts.append(markdown(["claim", "source", "word", "evidence"], claims))
    return "\n\n".join([*parts, markdown([section.subject, *(shown.columns[number] for number in columns)], trained)])


if __name__ == "__main__":
    main()
