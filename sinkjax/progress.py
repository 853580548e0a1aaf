"""Progress of long work: a bar on a terminal's error stream, a line now and then where there is no terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

QUIET = 60  # seconds after which work that has no terminal for its bar says how far it is


@contextlib.contextmanager
def bar(name: str, show: bool, total: int, done: int, rate: Callable[[float, float], str]) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and time left; yields the function that advances it.

    rate: from the amount done here and the seconds that took, to words.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as shown:
        task = shown.add_task(name, total=total, completed=done, rate="")
        begun = said = time.monotonic()

        def advance(count: int) -> None:
            nonlocal said
            shown.advance(task, count)
            completed, now = shown.tasks[0].completed, time.monotonic()
            words = rate(completed - done, now - begun)
            shown.update(task, rate=words)
            if show and not console.is_terminal and now - said > QUIET:
                said = now
                print(f"{name}: {completed:.0f} of {total}, {words}", file=sys.stderr, flush=True)

        yield advance
