"""The devices that work is spread over: their limits, which a plan counts on, and the facts that results keep about a machine."""

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

DATA, MODEL = "data", "model"  # axes of a mesh: computations are divided along the first, parameters along the second
GB, TERA = 10**9, 1e12
SHARE = 0.9  # part of a device's memory that a plan may fill


@dataclass(frozen=True)
class Platform:
    """A device by its data sheet. kind: as JAX names it. memory: bytes. rates: FLOPs a second of dense products, by dtype."""

    kind: str
    memory: int
    rates: Mapping[str, float]


def _gpu(memory: int, float32: float, half: float) -> Platform:
    return Platform("gpu", memory * GB, {"float32": float32 * TERA, "bfloat16": half * TERA, "float16": half * TERA})


def _tpu(memory: int, bfloat16: float) -> Platform:
    """Float32 products at the precision "highest" are six of bfloat16 (jax.lax.Precision)."""
    return Platform("tpu", memory * GB, {"float32": bfloat16 / 6 * TERA, "bfloat16": bfloat16 * TERA})


# Gigabytes, and TFLOP/s of dense products: float32 without TF32, then bfloat16.
PLATFORMS = {
    "l4": _gpu(24, 30.3, 121),  # NVIDIA L4 data sheet (without sparsity)
    "a100-40": _gpu(40, 19.5, 312),  # NVIDIA A100 data sheet
    "a100-80": _gpu(80, 19.5, 312),  # the same
    "h100": _gpu(80, 67, 989),  # NVIDIA H100 data sheet, SXM (without sparsity)
    "h200": _gpu(141, 67, 989),  # NVIDIA H200 data sheet, SXM (without sparsity)
    "tpu-v4": _tpu(32, 275),  # Google Cloud TPU documentation, system architecture, a chip
    "tpu-v5e": _tpu(16, 197),  # the same
    "tpu-v5p": _tpu(95, 459),  # the same
    "tpu-v6e": _tpu(32, 918),  # the same
}


@dataclass(frozen=True)
class Hardware:
    """The hardware that a sweep is planned for.

    memory: bytes that the parameters and one call may take on a device, None: all that it has. devices: groups of devices over
    which prompts and edits are spread. shards: devices of a group, over which the parameters are. platform: "cpu", "gpu", "tpu"
    or one of PLATFORMS, None: this process's. processes: number of processes that fill the same store, each with these devices.
    """

    memory: int | None = None
    devices: int = 1
    shards: int = 1
    platform: str | None = None
    processes: int = 1

    @classmethod
    def of(cls, mesh: Mesh | None, memory: int | None = None) -> Hardware:
        """The hardware of a model on this mesh; None: all devices of this process, with a copy of the parameters on each."""
        if mesh is None:
            return cls(memory, jax.local_device_count())
        devices = math.prod(mesh.shape[axis] for axis in data_axes(mesh))
        return cls(memory, devices, mesh.size // devices)

    @property
    def kind(self) -> str:
        """As JAX names the platform."""
        return PLATFORMS[self.platform].kind if self.platform in PLATFORMS else self.platform or jax.default_backend()

    @property
    def calls_ahead(self) -> int:
        """Calls that are under way while one is written: more on many devices, so that they do not wait for each other."""
        return 1 if self.devices == 1 else 3

    def memory_bytes(self) -> int:
        """Bytes of a device to plan with: the stated number, else all that it has. Errors: not a number above 0."""
        if self.memory is None:
            return int(SHARE * PLATFORMS[self.platform].memory) if self.platform in PLATFORMS else device_memory()
        given: Any = self.memory
        if not isinstance(given, int | float | np.number) or not 0 < given < math.inf:
            raise SinkjaxError(f"memory must be a number of bytes above 0, not {short(given)}")
        return int(given)


ONE = Hardware()  # a device of this process


def device_memory() -> int:
    """Bytes of a device that a sweep may plan with: 90% of its limit; of a CPU, its share of half of the host's free memory."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(SHARE * stats["bytes_limit"])
    return host_memory() // 2 // jax.local_device_count()


def data_axes(mesh: Mesh | None) -> tuple[str, ...]:
    """The axes of a mesh over which prompts and edits are spread: all except the axes of the model's own sharding."""
    return tuple(axis for axis in mesh.axis_names if axis != MODEL) if mesh else ()


def axes_of(mesh: str | None, devices: int | None) -> dict[str, int] | None:
    """The axes that `--mesh` and `--devices` ask for, as {"data": ..., "model": ...}; None if they ask for nothing.

    Errors: a text that is not like "data=4,model=2"; an unknown axis; numbers below 1, or that do not fit each other.
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
    """The first devices of this process as a mesh, or all of joined processes. Errors: there are not so many."""
    wanted = math.prod(axes.values())
    devices = jax.devices() if wanted == jax.device_count() else jax.local_devices()
    if wanted > len(devices):
        hint = f"; JAX_NUM_CPU_DEVICES={wanted} makes so many of a CPU" if jax.default_backend() == "cpu" else ""
        raise SinkjaxError(f"{wanted} devices were asked for, but JAX has {len(devices)} here{hint}")
    return Mesh(np.array(devices[:wanted]).reshape(*axes.values()), tuple(axes))


def is_joined(mesh: Mesh | None) -> bool:
    """Whether a mesh has devices of other processes too."""
    return mesh is not None and not set(mesh.devices.flat) <= set(jax.local_devices())


def facts(mesh: Mesh | None = None) -> dict[str, Any]:
    """Facts about the machine of a computation, as JSON. mesh: None for all devices of this process."""
    devices = jax.local_devices() if mesh is None else list(mesh.devices.flat)
    return {
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "shards": Hardware.of(mesh).shards,
        "processor": processor(),
        **{name: version(name) for name in ("jax", "jaxlib")},
    }
