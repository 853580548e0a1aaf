"""JAX settings that would change or stop a computation: the package's functions run under fixed values of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    import jax

FIXED = {  # records use NaN for padding, scores use -inf for masked keys; the last setting affects random draws
    "debug_nans": False,
    "debug_infs": False,
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    "threefry_partitionable": True,
}
GENERATOR = "threefry2x32"  # named for every key, so that JAX_DEFAULT_PRNG_IMPL does not change a draw

P = ParamSpec("P")
R = TypeVar("R")


def fixed_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function run under the values in `FIXED`, whatever the environment or the program has set."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        import jax  # only where something is computed

        with contextlib.ExitStack() as changed:
            for name, value in FIXED.items():
                if getattr(jax.config, f"jax_{name}") != value:  # entering an equal value would compile programs again
                    changed.enter_context(getattr(jax, name)(value))
            return function(*args, **kwargs)

    return run


def random_key(seed: int | jax.Array) -> jax.Array:
    """Return the random key of a seed."""
    import jax

    return jax.random.key(seed, impl=GENERATOR)
