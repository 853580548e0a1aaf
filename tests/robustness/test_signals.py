"""A command that gets SIGINT or SIGTERM ends within the call under way, says how to go on, and loses nothing."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sinkjax.cli import main as cli
from sinkjax.cli.verbs import VERBS
from sinkjax.runtime import interruption
from sinkjax.runtime.interruption import Interrupted, check, handled, held
from sinkjax.runtime.progress import bar
from tests.study.tiny import write_both

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


def test_a_signal_in_the_last_step_of_a_loop_is_raised_after_it():
    def body():
        with held():
            signal.raise_signal(signal.SIGINT)
        pytest.fail("the loop was left as if there had been no signal")

    interrupted(body)


def test_without_a_command_python_does_as_ever():
    before = [signal.getsignal(number) for number in CODES]
    with held(), pytest.raises(KeyboardInterrupt) as caught:
        signal.raise_signal(signal.SIGINT)
    assert type(caught.value) is KeyboardInterrupt
    interrupted(lambda: signal.raise_signal(signal.SIGINT))
    assert [signal.getsignal(number) for number in CODES] == before
    check()  # what was received is forgotten with its command


def test_a_signal_while_a_command_ends_leaves_nothing_behind(monkeypatch):
    before, setitimer = [signal.getsignal(number) for number in CODES], signal.setitimer

    def interrupt(*timer):
        signal.raise_signal(signal.SIGINT)
        setitimer(*timer)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "setitimer", interrupt)
        command(lambda: None)
    assert [signal.getsignal(number) for number in CODES] == before
    assert signal.set_wakeup_fd(-1) == -1
    interrupted(lambda: signal.raise_signal(signal.SIGINT))


def test_a_process_that_was_started_to_ignore_a_signal_ignores_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        command(lambda: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)


def again(error: type[BaseException] | None) -> None:
    """Code that catches what a signal raises, and raises another error or none."""
    try:
        signal.raise_signal(signal.SIGTERM)
        wait()
    except BaseException:
        if error:
            raise error from None


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, None])
def test_code_that_catches_everything_hides_no_signal(error):
    assert interrupted(lambda: again(error))[0] == signal.SIGTERM


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("verb", ["run", "sweep", "train", "report"])
def test_the_line_says_how_to_go_on(verb, number, capsys, monkeypatch):
    def stop(arguments):
        signal.raise_signal(number)
        wait()

    monkeypatch.setitem(VERBS, verb, stop)
    assert cli.main([verb, "kiya/mask", "--out", "my results"]) == CODES[number]
    resume = "" if verb == "report" else f"; .*: sinkjax {verb} kiya/mask --out 'my results'"
    assert re.fullmatch(f"sinkjax: interrupted{resume}\n", capsys.readouterr().err)


LATE = """
import atexit, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from sinkjax.cli import main
from sinkjax.cli.verbs import VERBS
def carry_out(arguments): print("done")
VERBS["report"] = carry_out
number, place = int(sys.argv[2]), sys.argv[3]
sys.argv = ["sinkjax", "report"]
class Late:
    def __del__(self): os.kill(os.getpid(), number)
if place == "threads": threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), number), time.sleep(5))).start()
if place == "exit": atexit.register(os.kill, os.getpid(), number)
if place == "end": sys.late = Late()
code = main.main()
if place == "now": signal.raise_signal(number)
sys.exit(code)
"""


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("place", ["now", "threads", "exit", "end"])
def test_a_signal_after_the_last_line_changes_nothing(number, place):
    done = subprocess.run([sys.executable, "-c", LATE, "-", str(int(number)), place], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


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


SWEEP = """
experiment: sweep
model: {model}
text: {text}
prompts: 8
length: 48
probe: [attention_received, resid_max]
edits:
  - compose: []
  - mask_key: {{key: {{each: "0:40"}}, layers: {{each: "0:3"}}}}
  - mask_key: {{key: {{each: "0:40"}}, layers: {{each: "0:3"}}, heads: {{each: "0:4"}}}}
"""
TRAIN = """
training: pretrain
seeds: 2
steps: 100000
eval_every: 5
context: 24
vocabulary: 300
batch: 4
eval_batch: 4
layers: 2
width: 16
heads: 2
mlp_width: 24
"""
# Each command is begun `rounds` times in one process, so that JAX starts once, with a collector that runs all the time.
ROUNDS = """
import gc, os, random, signal, sys, threading, time, shutil
from pathlib import Path
import xarray  # with pandas, which cannot be imported again in a process in which a signal interrupted its import
from sinkjax.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process was started to ignore
folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
commands = [["sweep", str(folder / "sweep.yaml")], ["train", str(folder / "train.yaml")]]
for round in range(-len(commands), rounds):
    command = commands[round % len(commands)]
    out = folder / f"{command[0]}-{round}"
    number = rng.choice([signal.SIGINT, signal.SIGTERM])
    sent, over = [], []

    def send():
        first = round < 0  # what compiles, and is not counted
        while first and not over and not (list(out.glob("sweep.zarr/.calls/0.*")) + list(out.glob("speed.jsonl"))):
            time.sleep(0.01)
        time.sleep(0 if first else rng.uniform(0, 1.5))
        if over:
            sys.exit(f"the command ended before its signal, with code {over[0]}")
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    gc.set_threshold(100, 10, 1000)
    thread.start()
    code = main([*command, "--out", str(out)])
    over.append(code)
    gc.set_threshold(700, 10, 10)
    ended = time.monotonic()
    thread.join()
    if round >= 0:
        print(code, 128 + number, ended - sent[0] if sent else float("inf"), flush=True)
    print(flush=True, file=sys.stderr)
    shutil.rmtree(out, ignore_errors=True)
"""


@pytest.mark.parametrize("rounds", [pytest.param(10, marks=pytest.mark.kill), pytest.param(200, marks=pytest.mark.battery)])
def test_no_signal_is_swallowed(rounds, tmp_path):
    files = write_both(tmp_path)
    (tmp_path / "sweep.yaml").write_text(SWEEP.format(model=files / "model", text=files / "text.txt"))
    (tmp_path / "train.yaml").write_text(TRAIN)
    with started(
        [sys.executable, "-c", ROUNDS, str(tmp_path), str(rounds), "0"], XDG_CACHE_HOME=str(tmp_path / "cache")
    ) as process:
        try:
            out, errors = process.communicate(timeout=60 + PATIENCE * rounds)
        finally:
            process.kill()
    assert process.returncode == 0, errors[-3000:]
    found = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert len(found) == rounds
    assert [got for got, wanted, _ in found if got != wanted] == []
    assert max(float(seconds) for *_, seconds in found) < PATIENCE
    assert errors.count("sinkjax: interrupted; resume with: sinkjax ") in range(rounds, rounds + 3)  # two of them not counted
    assert "Exception ignored" not in errors
    assert "Traceback" not in errors, errors[errors.index("Traceback") :][:6000]
