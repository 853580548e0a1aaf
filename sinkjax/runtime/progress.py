"""Progress of long work, with the time left: a bar on a terminal's stderr, one line in a notebook, otherwise occasional lines.

An interrupted command (`interruption.py`) stops such work when it reports progress.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from sinkjax.errors import printable
from sinkjax.runtime import interruption

QUIET = 60  # seconds between progress lines if no terminal shows a bar
OFTEN = 0.5  # seconds between updates of the line in a notebook
MARK = {"sinkjax": "progress"}  # metadata of that line


@contextlib.contextmanager
def bar(name: str, show: bool, total: int, done: int, heed: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar with the time left; yields a function that sets how much is done and takes the rate as text.

    In a command, a signal is deferred to the next advance, which raises `interruption.Interrupted`; heed=False leaves the check
    to the caller.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    counts = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    console = Console(stderr=True)
    shown = show and console.is_terminal  # rich 13 prints even if it is disabled
    drawn = Progress(*counts, *times, console=console) if shown else None
    line = _line(f"{name}: {done} of {total}") if show else None
    with interruption.held(), drawn or contextlib.nullcontext():
        task = None if drawn is None else drawn.add_task(name, total=total, completed=done, rate="")
        shown_at = begun = time.monotonic()
        first = done  # before this work

        def advance(done: int, rate: str) -> None:
            nonlocal shown_at
            if heed:
                interruption.check()
            due = time.monotonic() - shown_at > (OFTEN if line else QUIET) or (line is not None and done == total)
            if drawn is not None and task is not None:
                drawn.update(task, completed=done, rate=rate)
            elif show and due:
                shown_at = time.monotonic()
                rest = (shown_at - begun) / max(1, done - first) * (total - done)
                left = f", {duration(rest)} left" if first < done < total else ""
                (line or say)(f"{name}: {done} of {total}, {rate}{left}")

        yield advance


def _line(text: str) -> Callable[[str], None] | None:
    """Show a line in a notebook cell's output and return a function that updates it; None outside a notebook."""
    ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(ipython, "kernel"):
        return None
    from IPython.display import display

    handle = display({"text/plain": text}, raw=True, metadata=MARK, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True, metadata=MARK)


def say(line: str) -> None:
    """Print a line for the user on stderr, with control characters escaped."""
    print(printable(line), file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Discard a line, for functions that expect a logger."""


def duration(seconds: float) -> str:
    """Format seconds: 40 s, 3 min, 2.5 h."""
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
