"""The command line: `sinkjax run | sweep | train | plan | report | models | sites`.

Each verb is a function of its arguments, in a module of this folder. What it needs of JAX is imported when it runs, so that help
and mistakes answer at once.
A mistake is one sentence on standard error and exit code 2; an interruption is exit code 130.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sinkjax import __version__
from sinkjax.cli.common import Verb
from sinkjax.cli.models import models, sites
from sinkjax.cli.plan import plan
from sinkjax.cli.report import report
from sinkjax.cli.run import run, sweep
from sinkjax.cli.train import train
from sinkjax.errors import SinkjaxError, unknown

VERBS: dict[str, Verb] = {verb.__name__: verb for verb in (run, sweep, train, plan, report, models, sites)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for a mistake, 130 for an interruption, 1 if nobody reads the output."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verb, *rest = arguments or ["--help"]
    try:
        if verb in ("-h", "--help"):
            print(overview())
        elif verb == "--version":
            print(f"sinkjax {__version__}")
        elif verb in VERBS:
            VERBS[verb](rest)
        else:
            raise unknown("command", verb, VERBS)
    except SinkjaxError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its exit
        return 1
    except OSError as error:
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command resumes", 130)
    return 0


def overview() -> str:
    """What `sinkjax --help` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {verb.__doc__}" for name, verb in VERBS.items())
    return (
        f"sinkjax {__version__}: attention sinks and massive activations, by causal intervention\n\n"
        f"usage: sinkjax COMMAND [...]\n\n{verbs}\n\n"
        "sinkjax COMMAND --help says more; sinkjax run NAME --help lists every field of a study's config."
    )


def _fail(message: str, code: int) -> int:
    print(f"sinkjax: {message}", file=sys.stderr)
    return code
