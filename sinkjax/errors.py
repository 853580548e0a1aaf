"""The one exception a user meets: a clear sentence that names what is wrong, what is allowed, and the nearest match."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SinkjaxError(ValueError):
    """Wrong input, said in one sentence. The command line prints it and exits with code 2."""


class MissingStatistic(SinkjaxError, KeyError):
    """A record was asked for a statistic that its probe did not ask for."""

    __str__ = Exception.__str__  # KeyError would print the sentence in quotes


def unknown(what: str, name: object, allowed: Iterable[object], hint: str = "") -> SinkjaxError:
    """The error for a name outside a closed set: names it, the nearest match and everything allowed."""
    options = sorted(str(option) for option in allowed)
    near = difflib.get_close_matches(str(name), options, n=1, cutoff=0.5)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return SinkjaxError(f"unknown {what} {name!r}{guess}; allowed: {', '.join(options) or 'none'}{hint}")


def one_of(what: str, name: object, allowed: Iterable[object]) -> None:
    """Raise `unknown` unless `name` is one of `allowed`."""
    allowed = list(allowed)
    if name not in allowed:
        raise unknown(what, name, allowed)
