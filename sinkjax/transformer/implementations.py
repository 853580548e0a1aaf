"""The implementations of attention, their limits, and the choice of the fastest one.

The kernels are imported only on request, because JAX still calls Pallas experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import jax.numpy as jnp

from sinkjax.config_files.checks import refuse
from sinkjax.edits.term import Edits
from sinkjax.errors import one_of
from sinkjax.model.config import Config
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.runtime.hardware import Hardware
from sinkjax.transformer import attention, fused
from sinkjax.transformer.spec import IMPLEMENTATIONS

AUTO = "auto"
LONG = 512  # positions from which a kernel is faster than the default (docs/performance.md)
# Compute capabilities (of A100, H100, B200 and B300) with the shared memory that a tile of the kernels takes (`tiles.Tiling.of`).
ROOMY = ((8, 0), (9, 0), (10, 0), (10, 3))

Derivative = Literal["none", "first", "any"]  # "first": of first order, in reverse mode


def implementation(name: str) -> Any:
    """Return the module that computes attention. It has `attend`, as in `attention.py`, and all others also have `cannot`."""
    if name == "pallas":
        from sinkjax.transformer import flash

        return flash
    return fused if name == "fused" else attention


def check_implementation(name: str, config: Config, edits: Edits, probe: Probe, past: int = 0) -> None:
    """Raise an error that names a requested feature that this implementation does not support."""
    for what, asked in {} if name == "sinkjax" else implementation(name).cannot(config, edits, probe, past).items():
        refuse(asked, f'attention_impl "{name}" does not support {what}; choose "sinkjax"')


def chosen(
    name: str,
    config: Config,
    edits: Iterable[Edits],
    probe: Probe,
    T: int,
    dtype: str,
    hardware: Hardware,
    derivative: Derivative = "none",
    past: int = 0,
) -> str:
    """Return the implementation that `name` means: itself, or for "auto" the fastest one for this request.

    The default computes everything; a kernel is faster on some NVIDIA GPUs, in 16 bits and from `LONG` positions. One name serves
    all edits, so that edited runs and the baseline are one program.

    Args:
        name: One of IMPLEMENTATIONS, or "auto".
        config: The architecture.
        edits: The resolved edits of each run.
        probe: The measurements.
        T: Positions of a prompt.
        dtype: Dtype of the activations.
        hardware: Where it runs. A model whose parameters are spread over devices takes the default.
        derivative: What is differentiated. "none" allows the kernels of Pallas, and "first" cuDNN's.
        past: The number of keys in front of the tokens.

    Raises:
        SinkjaxError: The name is unknown, or that implementation does not support the request.
    """
    every = list(edits)
    if name != AUTO:
        one_of("attention_impl", name, (AUTO, *IMPLEMENTATIONS))
        for terms in every:
            check_implementation(name, config, terms, probe, past)
        return name
    capability = hardware.capability
    if T < LONG or jnp.dtype(dtype).itemsize != 2 or hardware.shards > 1 or capability is None or derivative == "any":
        return "sinkjax"
    kernel = "pallas" if derivative == "none" else "fused"
    if kernel == "pallas":
        fits = capability in ROOMY
    else:  # with edited scores or values of query heads, "fused" is the default with another place of the division
        by_blocks = any(term.site in (Site.LOGITS, Site.HEAD_VALUE) for terms in every for term in terms)
        fits = not by_blocks and fused.fits_cudnn(config.head_dim, capability)
    unsupported = (asked for terms in every for asked in implementation(kernel).cannot(config, terms, probe, past).values())
    return kernel if fits and not any(unsupported) else "sinkjax"
