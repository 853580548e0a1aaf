"""Devices for computation: their limits, for plans, and the facts about a machine that results store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.runtime.backend import host_memory, processor

DATA, MODEL = "data", "model"  # axes of a mesh: computations are sharded along the first, parameters along the second
GB, TERA = 10**9, 1e12
SHARE = 0.9  # fraction of a device's memory that a plan may fill


@dataclass(frozen=True)
class Platform:
    """A device from its data sheet.

    kind: its name in JAX. memory: bytes. rates: FLOP/s of dense products, by dtype. capability: compute capability of an NVIDIA
    GPU.
    """

    kind: str
    memory: int
    rates: Mapping[str, float]
    capability: tuple[int, int] | None = None


def _gpu(memory: int, float32: float, half: float, capability: tuple[int, int]) -> Platform:
    rates = {"float32": float32 * TERA, "bfloat16": half * TERA, "float16": half * TERA}
    return Platform("gpu", memory * GB, rates, capability)


def _tpu(memory: int, bfloat16: float) -> Platform:
    """Make a TPU; a float32 product at precision "highest" takes six bfloat16 products (jax.lax.Precision)."""
    return Platform("tpu", memory * GB, {"float32": bfloat16 / 6 * TERA, "bfloat16": bfloat16 * TERA})


# Gigabytes, and TFLOP/s of dense products: float32 without TF32, then bfloat16.
PLATFORMS = {
    "l4": _gpu(24, 30.3, 121, (8, 9)),  # NVIDIA L4 data sheet (without sparsity)
    "a100-40": _gpu(40, 19.5, 312, (8, 0)),  # NVIDIA A100 data sheet
    "a100-80": _gpu(80, 19.5, 312, (8, 0)),  # the same
    "h100": _gpu(80, 67, 989, (9, 0)),  # NVIDIA H100 data sheet, SXM (without sparsity)
    "h200": _gpu(141, 67, 989, (9, 0)),  # NVIDIA H200 data sheet, SXM (without sparsity)
    "tpu-v4": _tpu(32, 275),  # Google Cloud TPU documentation, system architecture, a chip
    "tpu-v5e": _tpu(16, 197),  # the same
    "tpu-v5p": _tpu(95, 459),  # the same
    "tpu-v6e": _tpu(32, 918),  # the same
}


@dataclass(frozen=True)
class Hardware:
    """The hardware that a sweep is planned for.

    memory: bytes that the parameters and one call may use on a device; None for all. devices: number of device groups over which
    prompts and edits are spread. shards: devices per group, over which the parameters are sharded. platform: "cpu", "gpu",
    "tpu"
    or one of PLATFORMS; None for this process's. processes: number of processes that fill the same store, each with these
    devices.
    """

    memory: int | None = None
    devices: int = 1
    shards: int = 1
    platform: str | None = None
    processes: int = 1

    @classmethod
    def of(cls, mesh: Mesh | None, memory: int | None = None) -> Hardware:
        """Return the hardware of a model on this mesh; None for all devices of this process, each with a copy of the
        parameters."""
        if mesh is None:
            return cls(memory, jax.local_device_count())
        devices = math.prod(mesh.shape[axis] for axis in data_axes(mesh))
        return cls(memory, devices, mesh.size // devices)

    @classmethod
    def holding(cls, params: Any) -> Hardware:
        """Return the devices that hold these parameters, as shards: one for parameters that are traced or on the host."""
        leaf = jax.tree.leaves(params)[0]
        known = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
        return cls(shards=len(leaf.devices()) if known else 1)

    @property
    def kind(self) -> str:
        """The platform's name in JAX."""
        return PLATFORMS[self.platform].kind if self.platform in PLATFORMS else self.platform or jax.default_backend()

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability of its GPUs; None unless they are NVIDIA's."""
        if self.platform in PLATFORMS or self.kind != "gpu":
            return PLATFORMS[self.platform].capability if self.platform in PLATFORMS else None
        major, _, minor = str(getattr(jax.local_devices()[0], "compute_capability", "")).partition(".")
        return (int(major), int(minor or 0)) if major.isdecimal() else None

    @property
    def calls_ahead(self) -> int:
        """Calls that each device may have before it while the results of earlier ones are kept.

        Several, so that devices wait neither for each other nor for the host; but one on a single CPU, which is the host.
        """
        return 1 if self.devices == 1 and self.kind == "cpu" else 3

    def memory_bytes(self) -> int:
        """Return the bytes per device to plan with: the stated number, else all of its memory. Errors: not a number above 0."""
        if self.memory is None:
            return int(SHARE * PLATFORMS[self.platform].memory) if self.platform in PLATFORMS else device_memory()
        given: Any = self.memory
        if not isinstance(given, int | float | np.number) or not 0 < given < math.inf:
            raise SinkjaxError(f"memory must be a number of bytes above 0, not {short(given)}")
        return int(given)


ONE = Hardware()  # a device of this process


def device_memory() -> int:
    """Return the bytes that a sweep may use per device: 90% of its limit; on CPUs, a share of half of the host's free memory."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(SHARE * stats["bytes_limit"])
    return host_memory() // 2 // jax.local_device_count()


def data_axes(mesh: Mesh | None) -> tuple[str, ...]:
    """Return the mesh axes over which prompts and edits are spread: all except the axes of the model's own sharding."""
    return tuple(axis for axis in mesh.axis_names if axis != MODEL) if mesh else ()


def axes_of(mesh: str | None, devices: int | None) -> dict[str, int] | None:
    """Return the axes requested by `--mesh` and `--devices`, as {"data": ..., "model": ...}, or None.

    Errors: the text is not like "data=4,model=2"; an axis is unknown; numbers are below 1 or contradict each other.
    """
    if devices is not None and devices < 1:
        raise SinkjaxError(f"--devices must be at least 1, not {devices}")
    if mesh is None:
        return None if devices is None else {DATA: devices, MODEL: 1}
    axes = {DATA: 1, MODEL: 1}
    for part in mesh.split(","):
        name, _, size = part.partition("=")
        if not size.isdecimal() or int(size) < 1:
            raise SinkjaxError(f"--mesh is written like data=4,model=2, with numbers of devices of at least 1, not {short(mesh)}")
        one_of("axis of a mesh", name, axes)
        axes[name] = int(size)
    if devices not in (None, math.prod(axes.values())):
        raise SinkjaxError(f"--mesh {mesh} takes {math.prod(axes.values())} devices, but --devices is {devices}")
    return axes


def make_mesh(axes: Mapping[str, int]) -> Mesh:
    """Make a mesh of the first devices of this process, or of all joined processes. Errors: there are too few devices."""
    wanted = math.prod(axes.values())
    devices = jax.devices() if wanted == jax.device_count() else jax.local_devices()
    if wanted > len(devices):
        hint = f"; JAX_NUM_CPU_DEVICES={wanted} makes so many of a CPU" if jax.default_backend() == "cpu" else ""
        raise SinkjaxError(f"{wanted} devices were asked for, but JAX has {len(devices)} here{hint}")
    return Mesh(np.array(devices[:wanted]).reshape(*axes.values()), tuple(axes))


def is_joined(mesh: Mesh | None) -> bool:
    """Return whether a mesh includes devices of other processes."""
    return mesh is not None and not set(mesh.devices.flat) <= set(jax.local_devices())


def facts(mesh: Mesh | None = None) -> dict[str, Any]:
    """Return facts about the machine of a computation, as JSON. mesh: None for all devices of this process."""
    devices = jax.local_devices() if mesh is None else list(mesh.devices.flat)
    return {
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "shards": Hardware.of(mesh).shards,
        "processor": processor(),
        **{name: version(name) for name in ("jax", "jaxlib")},
    }
