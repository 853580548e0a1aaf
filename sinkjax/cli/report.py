"""`sinkjax report`: pages of finished runs, and comparisons of two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from sinkjax.cli.card import CardOptions, is_card, of_cards
from sinkjax.cli.common import asked_location, own_study
from sinkjax.config_files.archives import SUFFIX, unpack
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import write
from sinkjax.config_files.locations import Location, reached
from sinkjax.config_files.programs import NotTyped
from sinkjax.errors import printable
from sinkjax.report.terminal import show, terminal
from sinkjax.runtime.progress import say
from sinkjax.study.registry import STORE_SUFFIX, choose

if TYPE_CHECKING:
    from sinkjax.report.section import Report, Section


@dataclass(frozen=True)
class ReportOptions:
    """Rebuild the summary, figures and page of a finished run from its stores, compare two of the same edits, draw the courses of
    one or two trainings, or show one or two cards."""

    results: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RESULTS")]]
    """the folder of a run, a training or a card, its URL, a store in it, or a zip of the folder, which is unpacked next to it"""
    other: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[OTHER]")]] = None
    """a second folder, to compare the sweeps that both have, or a second store"""
    study: str | None = None
    """the file of your own study (.py, .yaml) that made these results; without it, a study in Python does not run, and the page
    is made of the texts and numbers that the run kept"""


def report(options: ReportOptions) -> None:
    """rebuild the figures and the page of a run from its stores, compare two runs or stores, or show cards"""
    given = [path for path in (options.results, options.other) if path is not None]
    if all(map(is_card, given)):
        of_cards(CardOptions(models=tuple(given)))
        return
    results, *others = map(_there, given)
    from sinkjax.report.page import page
    from sinkjax.report.training import is_training, training_section
    from sinkjax.study import compare
    from sinkjax.study.folder import PAGE

    with reached(results):
        if all(map(is_training, (results, *others))):
            section = training_section([results, *others])
            folder = results if not others else results.with_name(f"{results.name}-and-{others[0].name}")
            write(folder / PAGE, page([section], section.title))
            for block in section.blocks:
                show(section.title, block.columns, block.lines)
            print(printable(str(folder / PAGE)))
            return
        refuse(bool(others) and options.study is not None, "--study is for the results of a run, not for a comparison")
        shown, folder = compare.carry_out(results, *others) if others else _rebuilt(results, options.study)
        terminal(shown)
        print(printable(str(folder / PAGE)))


def _rebuilt(results: Location, study: str | None) -> tuple[Section | Report, Location]:
    """Make the pages of results again, from what the run kept if their study is a program that the user did not name."""
    from sinkjax.study import suite
    from sinkjax.study.folder import rebuild_kept
    from sinkjax.study.results import build

    if results.suffix == SUFFIX and results.is_file():
        results = unpack(results)
    own = None if study is None else own_study(study)
    try:
        chosen = choose(str(results), own)
    except NotTyped as error:
        folder = results if results.is_dir() and results.suffix != STORE_SUFFIX else results.parent
        if (kept := rebuild_kept(folder)) is None:
            raise
        say(f"shown as the run kept it, because {error}")
        return kept, folder
    refuse(chosen.folder is None, f"{results} is a config, not the results of a run")
    return (suite.build if chosen.suite else build)(chosen, chosen.folder), chosen.folder


def _there(path: str) -> Location:
    """Return the existing location that a user names."""
    location = asked_location(path)
    with reached(location):
        refuse(not location.exists(), f"there is no folder or store {location}")
    return location
