"""The implementations of attention, and their limits.

The kernels are imported only if they are asked for, because JAX still calls Pallas experimental.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.transformer import attention, fused


def implementation(name: str) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """The function that computes attention, with the arguments of `attention.attend`."""
    if name == "pallas":
        from sinkjax.transformer import flash

        return flash.attend
    return fused.attend if name == "fused" else attention.attend


def check_implementation(name: str, config: Config, edits: Edits, probe: Probe) -> None:
    """Raise an error that names what attention by this implementation cannot do."""
    for what, asked in _limits(name, config, edits, probe).items():
        if asked:
            raise SinkjaxError(f'attention_impl "{name}" keeps no scores and weights, so it cannot do {what}; choose "sinkjax"')


def _limits(name: str, config: Config, edits: Edits, probe: Probe) -> dict[str, bool]:
    """Each request that an implementation does not support, and whether it is made."""
    if name == "pallas":
        from sinkjax.transformer import flash

        return flash.cannot(config, edits, probe)
    return fused.cannot(config, edits, probe) if name == "fused" else {}
