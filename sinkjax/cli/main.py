"""The command line, from its start to its exit code.

A mistake is one sentence on standard error and exit code 2. SIGINT ends a command with code 130 and SIGTERM with 143, with a line
that says how to go on; nearly everything is imported after these are provided for, so that they do at any moment.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence

from sinkjax.errors import SinkjaxError
from sinkjax.runtime import interruption

RESUMABLE = ("run", "sweep", "train")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for a mistake, 130 or 143 for a signal, 1 if nobody reads the output.

    arguments: None for the process's own; then it ends with this command.
    """
    process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with interruption.handled():
            from sinkjax.cli.verbs import carry_out

            carry_out(arguments)
    except SinkjaxError as error:
        return _fail(str(error), 2, process)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its exit
        return 1
    except OSError as error:
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2, process)
    except KeyboardInterrupt as stop:
        if process:
            interruption.leave()
        resume = f"; resume with: {shlex.join(['sinkjax', *arguments])}" if arguments and arguments[0] in RESUMABLE else ""
        why = f" ({stop.__cause__})" if isinstance(stop.__cause__, SinkjaxError) else ""  # e.g. no room for the last checkpoint
        number = stop.number if isinstance(stop, interruption.Interrupted) else signal.SIGINT
        return _fail(f"interrupted{why}{resume}", 128 + number, process)
    return 0


def _fail(message: str, code: int, alone: bool = False) -> int:
    """Print why, and return the code. alone: whether this may be one of several processes, which cannot go on without it."""
    print(f"sinkjax: {message}", file=sys.stderr)
    if alone and (joined := sys.modules.get("sinkjax.runtime.processes")):  # which imports JAX
        joined.end(code)
    return code
