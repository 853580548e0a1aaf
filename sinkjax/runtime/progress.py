"""Progress of long work: a bar on a terminal's error stream, one line in a notebook, else a line now and then.

A command that is interrupted (`interruption.py`) ends such work where it says how far it is.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from sinkjax.errors import printable
from sinkjax.runtime import interruption

QUIET = 60  # seconds between reports of progress where no terminal shows a bar
OFTEN = 0.5  # seconds between changes of the line in a notebook
MARK = {"sinkjax": "progress"}  # metadata of that line


@contextlib.contextmanager
def bar(name: str, show: bool, total: int, done: int, heed: bool = True) -> Iterator[Callable[[int, str], None]]:
    """A progress bar with the time left; yields the function that advances it by an amount and says, in words, at what rate.

    In a command, a signal waits for the next advance, which raises `interruption.Interrupted`; heed=False: for the caller to ask.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    counts = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    console = Console(stderr=True)
    shown = show and console.is_terminal  # rich 13 prints where it is disabled
    drawn = Progress(*counts, *times, console=console) if shown else None
    line = _line(f"{name}: {done} of {total}") if show else None
    with interruption.held(), drawn or contextlib.nullcontext():
        task = None if drawn is None else drawn.add_task(name, total=total, completed=done, rate="")
        said = time.monotonic()

        def advance(count: int, rate: str) -> None:
            nonlocal said, done
            if heed:
                interruption.check()
            done += count
            if drawn is not None and task is not None:
                drawn.update(task, completed=done, rate=rate)
            elif line is not None:
                if done == total or time.monotonic() - said > OFTEN:
                    said = time.monotonic()
                    line(f"{name}: {done} of {total}, {rate}")
            elif show and time.monotonic() - said > QUIET:
                said = time.monotonic()
                print(f"{name}: {done} of {total}, {rate}", file=sys.stderr, flush=True)

        yield advance


def _line(text: str) -> Callable[[str], None] | None:
    """Show a line in the output of a notebook's cell; returns what changes it. None where there is no notebook."""
    ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(ipython, "kernel"):
        return None
    from IPython.display import display

    handle = display({"text/plain": text}, raw=True, metadata=MARK, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True, metadata=MARK)


def say(line: str) -> None:
    """Print a line that a user must see, on the error stream, control characters escaped."""
    print(printable(line), file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Say nothing, where a function is to be told what to say."""


def duration(seconds: float) -> str:
    """Seconds in words: 40 s, 3 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
