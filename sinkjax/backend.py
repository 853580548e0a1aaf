"""The device that a command computes on, and how JAX starts there."""

from __future__ import annotations

import contextlib
import os
import sys

from sinkjax.errors import SinkjaxError
from sinkjax.resources import cache_folder

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
SHORTEST_COMPILATION = 0.1  # seconds; what compiled faster is not worth a file


def start_jax(backend: str, dtype: str) -> None:
    """Choose the device, and keep compiled programs for the next process. Errors: a back end that is not here."""
    import jax

    if not os.environ.get(CACHE_VARIABLE):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    if backend == "cpu":
        jax.config.update("jax_platforms", "cpu")
    found = jax.default_backend()
    if backend not in ("auto", found):
        raise SinkjaxError(
            f"back end {backend!r} was asked for, but JAX has only {found!r} here; sinkjax[cuda] and sinkjax[tpu] bring others"
        )
    print(f"back end: {found} ({jax.device_count()} x {jax.devices()[0].device_kind})", file=sys.stderr)


def use_all_cores() -> None:
    """Let JAX see each CPU core as a device, so that runs are divided among them; the environment may say how many instead."""
    import jax

    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with contextlib.suppress(RuntimeError):  # the back end runs already, in a notebook say, and keeps its devices
            jax.config.update("jax_num_cpu_devices", cores)
