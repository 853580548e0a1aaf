"""The command line, from its start to its exit code.

An error is one sentence on standard error, with exit code 2. SIGINT exits with code 130 and SIGTERM with 143, after printing how
to resume. The handlers are installed before nearly all imports, so this works at any point.
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
    """Run one command and return its exit code: 0, 2 for an error, 130 or 143 for a signal, 1 if the output is closed.

    arguments: None for the process's own.
    """
    process, arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    try:
        with interruption.handled():
            from sinkjax.cli.verbs import carry_out

            carry_out(arguments)
            print(end="", flush=True)  # a closed output is an error of this command
    except SinkjaxError as error:
        return _fail(str(error), 2, process)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python would complain at exit
        return 1
    except OSError as error:
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2, process)
    except KeyboardInterrupt as stop:
        resume = f"; resume with: {shlex.join(['sinkjax', *arguments])}" if arguments and arguments[0] in RESUMABLE else ""
        why = f" ({stop.__cause__})" if isinstance(stop.__cause__, SinkjaxError) else ""  # e.g. no space for the last checkpoint
        number = stop.number if isinstance(stop, interruption.Interrupted) else signal.SIGINT
        return _fail(f"interrupted{why}{resume}", 128 + number, process)
    except Exception as error:
        programs = sys.modules.get("sinkjax.config_files.programs")
        if programs is None or not (where := programs.place_of(error)):
            raise
        return _fail(where, 2, process)  # an error in a program of the user's
    return 0


def _fail(message: str, code: int, alone: bool = False) -> int:
    """Print the message and return the code. alone: whether other processes may depend on this one."""
    print(f"sinkjax: {message}", file=sys.stderr)
    if alone and (joined := sys.modules.get("sinkjax.runtime.processes")):  # deferred because it imports JAX
        joined.end(code)
    return code
