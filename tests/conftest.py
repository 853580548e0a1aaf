"""What all tests share. JAX, Hugging Face and OpenMP read their environment once, so it is set before they are imported."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

MOST_MAPS = 16_000  # of the 65,530 that Linux allows by default; a test file has added 8,000
CACHE = Path(__file__).parents[1] / ".cache" / "jax-tests"

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing may wait for a network
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the tolerances are those of a CPU
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # the tests that are marked "mesh" run in processes with eight: `make mesh`
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)  # measured: a second run of the parity tests takes a quarter of the time
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # workers share small programs too
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # measured: workers that share the cores run torch 1.6 times as fast on one thread each

import hypothesis
import jax
import numpy as np
import pytest

# A slow machine fails no test: how long an example takes, or is drawn, says nothing of the code.
hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any machine")

if not hasattr(jax, "enable_x64"):  # JAX 0.7 has it under another name
    from jax.experimental import enable_x64

    jax.enable_x64 = enable_x64

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.model.params import Params


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file run in one worker, or, if they are marked "apart", those of one set of parameters; so do all that need
    SmolLM2's weights, read once then.

    In a process of fewer devices than a mesh needs, its tests are skipped, and the summary says where they run; so are those of
    Gemma 3 where its package is not installed, and the summary says how to install it.
    """
    from sinkjax.checkpoints import presets
    from sinkjax.errors import SinkjaxError

    heavy = {item.path for item in items if "smollm2" in getattr(item, "fixturenames", ())}
    for item in items:
        group = str(item.path)
        if item.get_closest_marker("apart"):
            parameters = item.callspec.id if hasattr(item, "callspec") else item.name
            group += ":" + parameters.replace("]", ")")  # xdist takes no group from a name that ends in a bracket
        item.add_marker(pytest.mark.xdist_group("smollm2" if item.path in heavy else group))
    if int(os.environ["JAX_NUM_CPU_DEVICES"]) < 8:
        for item in items:
            if item.get_closest_marker("mesh"):
                item.add_marker(pytest.mark.skip(reason="a mesh needs JAX_NUM_CPU_DEVICES=8: make mesh"))
    try:
        presets.preset_files("gemma3-270m")
    except SinkjaxError as missing:
        for item in items:
            if item.get_closest_marker("gemma3"):
                item.add_marker(pytest.mark.skip(reason=str(missing)))


def pytest_collection_finish() -> None:
    """What the imports made stays to the end: the collector need not walk through it again while programs are traced."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The URL of a bucket in a server of the S3 protocol on this machine, one for each worker. For tests that are marked
    "processes": the extra `floors` has no such server."""
    from sinkjax.config_files.locations import location

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-c", f"from moto.server import main; main(['-p', '{port}'])"]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        settings = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}
        for name, value in {**settings, "ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            patch.setenv(f"AWS_{name}", value)
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < end
            time.sleep(0.1)
        location("s3://results").fs.mkdir("results")
        yield "s3://results"
    server.kill()
    server.wait()


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Compiled programs are dropped before they fill what Linux lets a process map: beyond that, the next one is a crash."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """A shell starts its background jobs with SIGINT ignored; Python leaves it so, and every process that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of the test's own, the same in every run and whatever runs beside it."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.partition("@")[0].encode()))


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """Three layers, six query heads that share two key-value heads, a head width that is not width / heads."""
    from sinkjax.model.config import Config, RMSNorm
    from sinkjax.model.rotary import Rope

    return Config(
        layers=3,
        width=32,
        heads=6,
        kv_heads=2,
        head_dim=8,
        mlp_width=48,
        vocab_size=61,
        context=64,
        norm=RMSNorm(1e-5),
        position=Rope(10_000.0),
        activation="silu",
        tied=False,
    )


@pytest.fixture(scope="session")
def tiny_params(tiny_config: Config) -> Params:
    """Float32 parameters for `tiny_config` with no two leaves, heads, layers or norm gains alike."""
    from sinkjax.model import params

    drawn, treedef = jax.tree.flatten(params.init(tiny_config, seed=0))
    noise = np.random.default_rng(0)
    return jax.tree.unflatten(treedef, [leaf + 0.05 * noise.standard_normal(leaf.shape, np.float32) for leaf in drawn])


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct in float32: `.config`, `.params`, `.tokenizer`. Read only."""
    import sinkjax

    return sinkjax.load("smollm2-135m")


@pytest.fixture(scope="session")
def smollm2_unread() -> Model:
    """SmolLM2 with no weights, for texts: `.config`, `.tokenizer`, `.source`."""
    from sinkjax.checkpoints.load import open_checkpoint
    from sinkjax.checkpoints.model import Model

    checkpoint = open_checkpoint("smollm2-135m")
    assert checkpoint.tokenizer
    ids = {"bos": checkpoint.tokenizer.bos, "eos": checkpoint.tokenizer.eos}
    return Model(checkpoint.config, {}, checkpoint.tokenizer, {**checkpoint.source, **ids})


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """A headless Chromium that logs its console and its network."""
    programs = [shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")]
    if None in programs:
        pytest.fail("these tests need a browser: apt-get install chromium chromium-driver", pytrace=False)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1000", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    driver.set_script_timeout(300)
    yield driver
    driver.quit()
