"""Write docs/results/data/trigger.csv and trigger-claims.csv: the summaries of the trigger studies, and the words on its claims.

    sinkjax run trigger/all
    python scripts/trigger_tables.py results/trigger/all
    python scripts/front_page.py        # the page that shows some of these numbers

The folder is that of a finished suite, or of one of its studies, whose lines take the place of older ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from long_tables import CLAIMS, COLUMNS, claims, of_section, replace
from named import DATA, DOCS

from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section
from sinkjax.study import results, suite
from sinkjax.study.registry import choose


def main() -> None:
    """Read the folder and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder of a finished run")
    parser.add_argument("--data", type=Path, default=DOCS / DATA, help="the folder of the tables")
    options = parser.parse_args()
    try:
        sections = read(options.folder)
    except SinkjaxError as error:
        parser.error(str(error))
    for section in sections:
        name = section.study.removeprefix("trigger/")
        replace(options.data / "trigger.csv", COLUMNS, of_section(section, name))
        replace(options.data / "trigger-claims.csv", CLAIMS, claims(section, name))
    print(options.data / "trigger.csv")


def read(folder: Path) -> tuple[Section, ...]:
    """What the finished studies of a folder found. Errors: a folder without any."""
    chosen = choose(str(folder))
    if not chosen.suite:
        return (results.section_of(chosen, folder),)
    report = suite.gather(chosen, folder)
    if not report.sections:
        raise SinkjaxError(
            f"{folder} has no finished study: {'; '.join(f'{name}: {why}' for name, why in report.skipped.items())}"
        )
    return report.sections


if __name__ == "__main__":
    main()
