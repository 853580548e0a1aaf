"""Write the tables of the trigger lab into docs/results/trigger.md, each between its own markers.

    sinkjax run trigger/all
    python scripts/trigger_tables.py results/trigger/all

The folder is that of a finished suite, or of one of its studies. Everything is computed from the stores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sections import write_section

from sinkjax.errors import SinkjaxError
from sinkjax.report.markdown import claims, summary
from sinkjax.report.section import Section
from sinkjax.studies import run, suite
from sinkjax.studies.registry import choose

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "trigger.md"
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
    found = f"{section.title}. Means over {section.over}, 95% intervals over {section.over} in brackets"
    parts = [f"{found} (seeds {section.provenance.get('seeds', '')}). Made by `python scripts/trigger_tables.py`."]
    without = {row.condition for row in section.rows if row.value.note == NOT_RUN}
    missing = [label for label in section.featured if label in without]
    if missing:
        parts.append(f"{len(missing)} of {len(section.featured)} trainings were not run: {'; '.join(missing)}.")
    return "\n\n".join(filter(None, [*parts, claims(section.verdicts, paper=False), summary(section, NOT_RUN)]))


if __name__ == "__main__":
    main()
