"""Checks of config fields; every error names the field. This module does not import JAX."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sinkjax.errors import SinkjaxError, unknown

LARGEST = 2**31 - 1  # largest int32, because positions, seeds and sizes have 32 bits on a device
MANY = 1_000_000
# Sanity limits: no real study needs more.
MOST = {
    **dict.fromkeys(("prompts", "control_prompts", "batch", "eval_batch", "sequences", "map_sequences", "permutations"), MANY),
    **dict.fromkeys(("controls", "seeds"), 10_000),
    "layers": 4096,
}
LISTED = 4  # most reasons in one sentence
MIN_QUERIES = 8  # keys seen by fewer queries are not searched for a sink, because these say little about a key


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def at_least(config: Any, most: int = LARGEST, /, **bounds: int) -> None:
    """Raise if a field is not a number between its bound and `most`; None passes."""
    for name, bound in bounds.items():
        value, limit = getattr(config, name), min(MOST.get(name, most), most)
        if value is not None:
            finite = ", and finite" * (value == math.inf)
            refuse(not bound <= value < math.inf, f"{name} must be at least {bound}{finite}, not {value}")
            refuse(value > limit, f"{name} must be at most {limit}, not {value}")


def last_seed(config: Any) -> None:
    """Raise if the seeds of the runs, counting from the first, exceed the range of seeds."""
    last = config.seed + config.seeds - 1
    refuse(last > LARGEST, f"seed must be at most {LARGEST}, but the last of {config.seeds} runs would have {last}")


def above(config: Any, **bounds: float) -> None:
    """Raise if a field is not a number above its bound; None passes."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        finite = ", and finite" * (value == math.inf)
        refuse(value is not None and not bound < value < math.inf, f"{name} must be above {bound}{finite}, not {value}")


def only_for(config: Any, name: str, here: bool, what: str) -> None:
    """Raise if a field that nothing reads differs from its default."""
    refuse(not here and getattr(config, name) != type(config).__dataclass_fields__[name].default, f"{name} is for {what}")


def below(config: Any, name: str, limit: str) -> None:
    """Raise unless the field `name` is below the field `limit`."""
    value, most = getattr(config, name), getattr(config, limit)
    refuse(value >= most, f"{name} must be below {limit} ({most}), not {value}")


def share(config: Any, name: str) -> None:
    """Raise unless a field is strictly between 0 and 1."""
    refuse(not 0 < getattr(config, name) < 1, f"{name} must lie between 0 and 1, not {getattr(config, name)}")


def each_once(config: Any, name: str) -> None:
    """Raise unless a field is a non-empty list without repeats."""
    listed = getattr(config, name)
    repeated = len(set(listed)) < max(1, len(listed))
    refuse(repeated, f"{name} must name at least one, and each of them once, not {list(listed)}")


def check_keys(given: Iterable[str], allowed: Collection[str], where: str) -> None:
    """Errors: a key that is not allowed."""
    for key in given:
        if key not in allowed:
            raise SinkjaxError(f"{where}: {unknown('key', key, allowed)}")


def positions(config: Any, *names: str, plus: int = 0, queries: int = MIN_QUERIES) -> None:
    """Raise if fields name positions that prompts of the config's length lack, or that fewer than `queries` queries see.

    plus: added to each position, where the study reads a later one.
    """
    asked = {name: value if isinstance(value := getattr(config, name), tuple) else (value,) for name in names}
    plus_of = f" + {plus}" if plus else ""
    needs = [
        (f"{name}{plus_of}: position {position + plus}", position + plus, queries)
        for name, listed in asked.items()
        for position in sorted(listed)[-1:]
    ]
    long_enough(needs, config.length)


def long_enough(needs: Iterable[tuple[str, int, int]], length: int) -> None:
    """Raise for all positions that prompts of `length` tokens lack, or that too few queries see; say how long prompts must be.

    needs: what each position is for, the position, and the number of queries that must see it.
    """
    short: list[str] = []
    least = length
    for what, position, queries in needs:
        if position >= length:
            seen = f", and {queries} queries must see it" if queries > 1 else ""
            short.append(f"{what} is beyond prompts of {length} tokens{seen}")
        elif position + queries > length:
            short.append(f"{what} is seen by fewer than {queries} of {length} queries")
        least = max(least, position + queries)
    short = list(dict.fromkeys(short))
    more = f"; and {len(short) - LISTED} more" if len(short) > LISTED else ""
    refuse(bool(short), f"{'; '.join(short[:LISTED])}{more}: choose --length {least} or more")


def among(config: Any, name: str, values: str) -> None:
    """Raise if the value of a field is not one of another field's."""
    value, listed = getattr(config, name), getattr(config, values)
    refuse(value not in listed, f"{name} is {value}, but must be one of {values}: {', '.join(map(str, listed))}")


def layers_below(config: Any, name: str, L: int) -> None:
    """Raise if a field lists a layer that a model of `L` layers lacks."""
    for layer in getattr(config, name):
        refuse(layer >= L, f"{name} has layer {layer}, but the model has {L}, 0 to {L - 1}")


def refuse(wrong: bool, why: str) -> None:
    """Raise an error with the reason `why` if a value is wrong."""
    if wrong:
        raise SinkjaxError(why)


def without_repeats(name: str, values: Sequence[Any]) -> None:
    """Raise if a field lists a value twice."""
    refuse(len(set(values)) < len(values), f"{name} names a value twice: {', '.join(map(str, values))}")
