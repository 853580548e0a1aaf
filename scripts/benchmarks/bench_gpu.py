"""Measure a training step and a sweep on a GPU beside torch.compile and transformers: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_gpu.py              less than eight minutes; prints each row as it is measured
    python scripts/benchmarks/bench_gpu.py --quick      small cases on any device, in a minute; writes nothing

Rows are in the order of their worth, so that a run that is cut short leaves the first ones. The peers run in processes of their
own, because JAX and PyTorch each reserve memory. Weights are random. `--seconds` bounds the whole: later rows are then left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from bench_peers import command
from bench_peers.command import filled, span
from measured import Number, as_number

SWEEPS = ((64, 64), (16, 64), (256, 64), (16, 512))  # prompts, positions
TRAININGS = ("60m", "1b")
MODEL, QUICK_MODEL = "untrained:llama-3.2-3b", "mini-softmax"
ROUNDS = 5
HEAD = ("what", "sinkjax, ms", "peer, ms", "times as fast", "share of the product's rate")


@dataclass(frozen=True)
class Row:
    """A row of the table. taken: milliseconds of each round. theirs: the peer's, or why there are none. reached: a share."""

    what: str
    taken: Sequence[float] = ()
    theirs: float | str = ""
    reached: float | None = None
    rate: str = ""

    def cells(self) -> list[str]:
        """The row in Markdown."""
        ratio = f"{self.theirs / median(self.taken):.2f}" if isinstance(self.theirs, float) else ""
        theirs = f"{self.theirs:.4g}" if isinstance(self.theirs, float) else self.theirs
        share = self.rate if self.reached is None else f"{self.reached:.0%}"
        return [self.what, span(self.taken) if self.taken else "", theirs, ratio, share]

    def numbers(self) -> Iterator[Number]:
        """The numbers that other pages take."""
        if isinstance(self.theirs, float):
            yield as_number(self.what, [self.theirs / median(self.taken)], ".2f")
        if self.reached is not None:
            yield as_number(f"{self.what} (%)", [100 * self.reached], ".0f")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section; or, as a peer's process, print its milliseconds as JSON."""
    parser = command.parser(__doc__, "bench_gpu", "small cases on any device")
    parser.add_argument("--seconds", type=float, default=460, help="no row begins later than this")
    parser.add_argument("--peer", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.peer:
        kind, *rest = options.peer
        print(json.dumps({"trainings": peer_training, "sweeps": peer_sweeps}[kind](*rest, quick=options.quick)))
        return
    begun, rows = time.monotonic(), []
    for row in measured(options.quick):
        rows.append(row)
        command.say(f"[{time.monotonic() - begun:4.0f} s] {' | '.join(row.cells())}")
        if time.monotonic() - begun > options.seconds:
            command.say("stopped: out of time")
            break
    import jax

    from sinkjax.report.markdown import table as markdown

    device, table = jax.devices()[0].device_kind, markdown(HEAD, [row.cells() for row in rows])
    text = filled("gpu", model=MODEL.partition(":")[2], rounds=ROUNDS, device=device, jax=jax.__version__, table=table)
    command.publish(text, options, [one for row in rows for one in row.numbers()], device, "bench_accelerator_trainings")


def measured(quick: bool) -> Iterator[Row]:
    """The rows of the table. Each peer is measured before JAX takes the memory of the device."""
    peers = {name: peer("trainings", name, quick=quick) for name in TRAININGS[: 1 if quick else None]}
    of_sweeps = peer("sweeps", quick=quick)
    import jax
    import jax.numpy as jnp
    from bench_accelerator import PROBE, milliseconds, prompts
    from bench_context import causal_flops

    import sinkjax

    side = 256 if quick else 8192
    matrix = jnp.ones((side, side), jnp.bfloat16)
    product = jax.jit(lambda a: a @ a)
    rate = 2 * side**3 / min(milliseconds(lambda: product(matrix), ROUNDS)) * 1e3
    yield Row(f"product of {side} x {side}, bfloat16", rate=f"{rate / 1e12:.0f} TFLOP/s")
    for name, theirs in peers.items():
        for how in ("auto", "sinkjax"):
            yield training(name, how, theirs, rate, quick)
    model = sinkjax.load(QUICK_MODEL if quick else MODEL, dtype="bfloat16")
    jax.block_until_ready(model.params)
    layers = model.config.layers
    edits = [sinkjax.mask_key(0, layers=layer) for layer in range(layers)]
    for count, length in sizes(quick):
        tokens = prompts(model, count, length)
        taken = milliseconds(lambda tokens=tokens: sinkjax.sweep(model, tokens, edits, PROBE, progress=False), 3)
        blocks = layers + sum(range(1, layers + 1))
        reached = blocks * causal_flops(model.config, length) * count / median(taken) * 1e3 / rate
        theirs = of_sweeps.get(f"{count} x {length}", "not measured")
        yield Row(f"sweep of {layers} masks, {count} x {length}", taken, theirs, reached)


def training(name: str, how: str, theirs: Any, rate: float, quick: bool) -> Row:
    """Loss and gradient of a micro-batch."""
    import jax
    from bench_accelerator import milliseconds
    from bench_peers import pretrain_sinkjax

    shape = shape_of(name, quick) | {"attention_impl": how}
    task, values, batch = pretrain_sinkjax.begun(shape)
    gradient = jax.jit(jax.value_and_grad(lambda values, batch: task.loss(values, batch, 0)[0]))
    begun = time.perf_counter()
    try:
        jax.block_until_ready(gradient(values, batch))
        compiled = time.perf_counter() - begun
        taken = milliseconds(lambda: gradient(values, batch), ROUNDS)
    except Exception as error:
        return Row(f"{name}, {how}", rate=f"failed: {str(error).splitlines()[0][:80]}")
    flops = pretrain_sinkjax.about(shape)["flops"] * shape["batch"] * shape["context"]
    used = task.config.attention_impl
    command.say(f"{name}, {how}: compiled in {compiled:.0f} s")
    return Row(f"{name}, loss and gradient, {how} ({used})", taken, theirs, flops / median(taken) * 1e3 / rate)


def shape_of(name: str, quick: bool) -> dict[str, Any]:
    """The fields of a training of this size."""
    from bench_accelerator import training_shape

    if quick:
        return training_shape("mini", layers=1, context=32, batch=2)
    return training_shape(name, **({"remat": True} if name == "1b" else {}))


def sizes(quick: bool) -> Sequence[tuple[int, int]]:
    """Prompts and positions of the sweeps."""
    return ((2, 16),) if quick else SWEEPS


def peer(*arguments: str, quick: bool) -> Any:
    """The result of a peer's process, or its last line if it fails."""
    line = [sys.executable, __file__, *["--quick"] * quick, "--peer", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    lines = (done.stdout if done.returncode == 0 else done.stderr).splitlines() or ["no output"]
    if done.returncode == 0:
        return json.loads(lines[-1])
    failure = lines[-1][:100]
    return {} if arguments[0] == "sweeps" else failure


def peer_training(name: str, quick: bool) -> float:
    """Milliseconds of the loss and gradient by transformers' Llama: compiled by PyTorch, bfloat16 autocast, SDPA."""
    import torch
    import transformers

    shape = shape_of(name, quick)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["width"],
        intermediate_size=shape["mlp_width"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        max_position_embeddings=shape["context"],
        attn_implementation="sdpa",
        tie_word_embeddings=False,
    )
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    tokens = torch.randint(shape["vocabulary"], (shape["batch"], shape["context"] + 1), device=device)

    def loss() -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    compiled = torch.compile(loss)

    def step() -> None:
        compiled().backward()
        model.zero_grad()

    return min(timed(step, 3 if quick else 8)[2:])


def peer_sweeps(quick: bool) -> dict[str, float | str]:
    """Milliseconds of the same sweep by whole eager forwards of transformers, by size."""
    import jax.numpy as jnp
    import torch
    from bench_accelerator import eager_sweep

    from sinkjax.checkpoints.load import open_checkpoint

    config = open_checkpoint(QUICK_MODEL if quick else MODEL).config
    model: Any = SimpleNamespace(config=config, params=[jnp.zeros(1, jnp.bfloat16)])
    found: dict[str, float | str] = {}
    for count, length in sizes(quick):
        tokens = np.random.default_rng(0).integers(0, config.vocab_size, (count, length))
        try:
            whole = eager_sweep(model, tokens, "cuda" if torch.cuda.is_available() else "cpu")
            found[f"{count} x {length}"] = min(timed(whole, 2)[1:])
        except RuntimeError as error:
            found[f"{count} x {length}"] = str(error).splitlines()[0][:80]
    return found


def timed(call: Callable[[], Any], rounds: int) -> list[float]:
    """Milliseconds of each of `rounds` + 1 calls of PyTorch."""
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    found = []
    for _ in range(rounds + 1):
        wait()
        begun = time.perf_counter()
        call()
        wait()
        found.append((time.perf_counter() - begun) * 1e3)
    return found


if __name__ == "__main__":
    main()
