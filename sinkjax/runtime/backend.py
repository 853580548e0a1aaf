"""Choice of a command's device, and the start of JAX."""

from __future__ import annotations

import contextlib
import os
import platform as host
import sys
from pathlib import Path

from sinkjax.errors import SinkjaxError

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
PLATFORMS_VARIABLE = "JAX_PLATFORMS"
SHORTEST_COMPILATION = 0.1  # seconds; programs that compile faster are not worth a file
CACHE_BYTES = 2 * 2**30  # of compiled programs; those that were used longest ago go first. 0.4's unbounded folder was another


def start_jax(platform: str, dtype: str, join: bool = False) -> None:
    """Fix JAX's settings, choose the platform, and cache compiled programs for later processes.

    Errors: the platform is not available.

    join: whether this is one of several processes that compute together; errors as for `processes.join`.
    """
    import jax

    from sinkjax.runtime.settings import FIXED

    for name, value in FIXED.items():
        jax.config.update(f"jax_{name}", value)
    if not os.environ.get(CACHE_VARIABLE):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "programs"))
        if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
            jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if join:
        from sinkjax.runtime import processes

        processes.join()
    try:
        backend = jax.default_backend()
    except (AssertionError, RuntimeError) as error:  # AssertionError: a platform without an installed plugin
        why = " ".join(str(error).split()) or f"{PLATFORMS_VARIABLE} names a platform that JAX does not have"
        raise SinkjaxError(f"JAX finds no device to compute on: {why}") from None
    if platform not in ("auto", backend):
        raise SinkjaxError(
            f"platform {platform!r} was asked for, but JAX has only {backend!r} here; sinkjax[cuda12], sinkjax[cuda13] and"
            " sinkjax[tpu] bring others"
        )
    print(f"platform: {backend} ({jax.local_device_count()} x {jax.local_devices()[0].device_kind})", file=sys.stderr)


def use_all_cores() -> None:
    """Make JAX treat each CPU core as a device, to divide runs among them; the environment can override the number."""
    import jax

    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with contextlib.suppress(RuntimeError):  # the back end already runs, e.g. in a notebook, and keeps its devices
            jax.config.update("jax_num_cpu_devices", cores)


def cache_folder() -> Path:
    """Return the user's cache folder for sinkjax."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sinkjax"


def host_memory(entry: str = "MemAvailable") -> int:
    """Available host memory in bytes, including reclaimable file cache on Linux; total memory for "MemTotal"."""
    try:
        entries = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(entries[entry].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        pages = "SC_PHYS_PAGES" if entry == "MemTotal" else "SC_AVPHYS_PAGES"
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def processor() -> str:
    """Return the name of the host's processor on Linux, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return host.machine()


def refuse_larger_than_memory(what: str, size: int) -> None:
    """Raise if all devices of this machine together cannot hold arrays of `size` bytes."""
    import jax

    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.local_devices()]
    most = sum(filter(None, limits)) or host_memory("MemTotal")
    if size > most * (jax.device_count() / jax.local_device_count()):
        raise SinkjaxError(f"{what} of {size / 1e9:,.1f} GB cannot be held by this machine, which has {most / 1e9:,.1f} GB")
