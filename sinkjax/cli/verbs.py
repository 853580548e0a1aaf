"""Commands: `sinkjax card | run | sweep | train | evaluate | retrofit | picture | plan | report | study | models | sites |
verify | explore | doctor`.

Each command is a function of its options, in a module of this folder, or of its arguments if the first one decides which options
there are. JAX is imported only when a command runs, so that help and errors appear immediately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_type_hints

from sinkjax.cli.card import card
from sinkjax.cli.common import Verb
from sinkjax.cli.doctor import doctor
from sinkjax.cli.evaluate import evaluate
from sinkjax.cli.explore import explore
from sinkjax.cli.models import models, sites, study
from sinkjax.cli.options import entries, read
from sinkjax.cli.picture import picture
from sinkjax.cli.plan import plan
from sinkjax.cli.report import report
from sinkjax.cli.retrofit import retrofit
from sinkjax.cli.run import run, sweep
from sinkjax.cli.train import train
from sinkjax.cli.verify import verify
from sinkjax.errors import one_of
from sinkjax.runtime.folding import folded
from sinkjax.version import __version__

VERBS: dict[str, Verb] = {
    verb.__name__: verb
    for verb in (
        card,
        run,
        sweep,
        train,
        evaluate,
        retrofit,
        picture,
        plan,
        report,
        study,
        models,
        sites,
        verify,
        explore,
        doctor,
    )
}


def carry_out(arguments: Sequence[str]) -> None:
    """Run a command line. Errors: an unknown command, or the command's own."""
    verb, *rest = arguments or ["--help"]
    if verb in ("-h", "--help"):
        print(overview())
    elif verb == "--version":
        print(f"sinkjax {__version__}")
    else:
        one_of("command", verb, VERBS)
        kind = get_type_hints(VERBS[verb]).get("options")
        VERBS[verb](read(kind, rest, verb) if kind else rest)


def overview() -> str:
    """Return the text of `sinkjax --help`."""
    verbs = entries({name: verb.__doc__ for name, verb in VERBS.items()})
    return (
        f"sinkjax {__version__}: attention sinks and massive activations, by causal intervention\n\n"
        f"usage: sinkjax COMMAND [...]\n\n{verbs}\n\n"
        + folded("sinkjax COMMAND --help shows its options; sinkjax run NAME --help lists every field of a study's config.")
    )
