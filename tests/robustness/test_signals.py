"""A command that gets SIGINT or SIGTERM ends within the call under way, says how to go on, and loses nothing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sinkjax.runtime import interruption
from sinkjax.runtime.interruption import Interrupted, handled
from sinkjax.runtime.progress import bar

ROOT = Path(__file__).parents[2]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
PATIENCE = 60  # seconds for the call under way, which may be a compilation on a machine with other work


pytestmark = pytest.mark.usefixtures("as_in_a_terminal")


def wait(seconds: float = 60) -> None:
    """Python code that a signal can interrupt."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


def interrupted(body: Callable[[], object]) -> tuple[int, float]:
    """The signal that ends a command which does `body`, and the seconds that this takes."""
    begun = time.monotonic()
    with pytest.raises(Interrupted) as caught:
        command(body)
    return caught.value.number, time.monotonic() - begun


def command(body: Callable[[], object]) -> None:
    with handled():
        body()


@pytest.mark.parametrize("number", CODES)
def test_a_signal_ends_python_code_where_it_is(number):
    def body():
        signal.raise_signal(number)
        wait()

    found, seconds = interrupted(body)
    assert found == number
    assert seconds < 30


IMPORTING = """
import os, sys, types

class Signal:
    @staticmethod
    def find_spec(name, *rest):
        if name == "numpy.lib":
            sys.meta_path.remove(Signal)
            os.kill(os.getpid(), {number})

verbs = sys.modules["sinkjax.cli.verbs"] = types.ModuleType("sinkjax.cli.verbs")
verbs.carry_out = lambda arguments: __import__("jax")
sys.meta_path.insert(0, Signal)
from sinkjax.cli.main import main
code = main()
assert Signal not in sys.meta_path
sys.exit(code)
"""


@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_a_native_module_is_imported_ends_the_command_with_a_line(number):
    """jaxlib imports NumPy from C++, which aborts the process if that import raises."""
    found = subprocess.run([sys.executable, "-c", IMPORTING.format(number=int(number))], capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stderr) == (CODES[number], "sinkjax: interrupted\n")


class Trap:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("place", ["garbage collection", "finaliser"])
def test_a_signal_that_lands_where_nothing_can_be_raised_is_not_lost(place, capsys):
    def callback(phase, info):
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGINT)

    def body():
        if place == "finaliser":
            Trap()
        else:
            gc.callbacks.append(callback)
            gc.collect()
        wait()

    assert interrupted(body)[1] < 30
    assert capsys.readouterr().err == ""


def test_a_loop_is_left_between_two_of_its_steps():
    steps = []

    def body():
        with bar("test", False, 10, 0) as advance:
            for step in range(10):
                signal.raise_signal(signal.SIGTERM)
                steps.append(step)  # nothing is raised within a step
                assert interruption.received()
                advance(step + 1, "")

    assert interrupted(body)[0] == signal.SIGTERM
    assert steps == [0]


BUSY = """
import hashlib, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process was started to ignore
from sinkjax.runtime import interruption
with interruption.handled(), interruption.held():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 400_000_000)  # minutes in C, in which Python handles no signal
"""


@pytest.mark.parametrize("number", CODES)
def test_a_second_signal_ends_at_once_whatever_is_under_way(number):
    with started([sys.executable, "-c", BUSY]) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(number)
        assert process.wait(PATIENCE) == CODES[number]


def started(command: list[str], **environment: str) -> subprocess.Popen[str]:
    """A process that is told what it does by its streams."""
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
