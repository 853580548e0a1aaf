"""The implementations of attention, and their limits.

The kernels are imported only on request, because JAX still calls Pallas experimental.
"""

from __future__ import annotations

from typing import Any

from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.transformer import attention, fused


def implementation(name: str) -> Any:
    """Return the module that computes attention. It has `attend`, as in `attention.py`, and all others also have `cannot`."""
    if name == "pallas":
        from sinkjax.transformer import flash

        return flash
    return fused if name == "fused" else attention


def check_implementation(name: str, config: Config, edits: Edits, probe: Probe) -> None:
    """Raise an error that names a requested feature that this implementation does not support."""
    for what, asked in {} if name == "sinkjax" else implementation(name).cannot(config, edits, probe).items():
        if asked:
            raise SinkjaxError(f'attention_impl "{name}" does not support {what}; choose "sinkjax"')
