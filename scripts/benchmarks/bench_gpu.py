"""Measure and judge sweeps, a study and trainings on a GPU, beside PyTorch: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_gpu.py                        about fifteen minutes on one GPU with 70 GB
    python scripts/benchmarks/bench_gpu.py --only sweeps study    some parts; the others keep what they had
    python scripts/benchmarks/bench_gpu.py --quick                small cases on any device, a minute; prints and writes nothing

Each part is a process of its own, with the whole GPU, and is kept in .cache/bench_gpu; a part that is there is not measured again
unless --only names it. Parts are in the order of their worth, and --seconds bounds when the last one begins. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from bench_peers import command
from bench_peers.command import filled, table_of
from bench_peers.worker import ROOT
from measured import Goal, Number, as_number

KEPT = ROOT / ".cache" / "bench_gpu"
SWEEPS = ((64, 64), (16, 64), (256, 64), (16, 512))  # prompts, positions
MODEL, QUICK_MODEL = "untrained:llama-3.2-3b", "mini-softmax"
STUDY, QUICK_STUDY, TOKENIZER = "kiya/mask", "sweep/first-key", "mini-softmax"
ROUNDS, SWEEP_ROUNDS = 5, 3
PEERS = ("transformers", "60m-PyTorch", "1b-PyTorch")  # parts without JAX
STUDY_RUN = "study-run"  # a process of the study's part
Found = dict[str, Any]

# Goals: at least, at most.
AS_FAST, SHARE, FULL_FROM = 3, 55, 64 * 64  # a sweep beside transformers; percent of its bound, from so many tokens on
ALONE = 1.1  # a sweep, times its calls alone
STEP = {"60m": 1.1}  # loss and gradient, times PyTorch's
UTILISATION = {"60m": 35, "1b": 50}  # percent of the rate of a product
COMPILED = 60  # seconds
STUDIES = {"empty": 45, "full": 20}  # seconds, by the state of the compilation cache


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section; or, as the process of a part, print what it found as JSON."""
    parser = command.parser(__doc__, "bench_gpu", "small cases on any device")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=(), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seconds", type=float, default=3600, help="no part begins later than this")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        refuse_slow(options.part, options.quick)
        print(json.dumps((PARTS | {STUDY_RUN: study_run})[options.part](options.quick)))
        return
    found, failed, begun = {}, {}, time.monotonic()
    for name in QUICK_PARTS if options.quick else PARTS:
        kept = KEPT / f"{name}.json"
        if not options.quick and kept.exists() and name not in options.only:
            found[name] = json.loads(kept.read_text())
            continue
        if options.only and name not in options.only:
            continue
        if time.monotonic() - begun > options.seconds:
            failed[name] = "out of time"
            continue
        try:
            found[name] = in_process(name, options.quick)
        except RuntimeError as error:
            failed[name] = str(error)
            command.say(f"{name}: {error}")
            continue
        if not options.quick:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found[name]))
        command.say(f"[{time.monotonic() - begun:4.0f} s] {name}")
    devices = {each["device"] for each in found.values() if "device" in each}
    if len(devices) != 1:
        raise SystemExit(f"{KEPT} has parts from several devices, or none ({', '.join(devices)}); remove it")
    (device,), numbers = devices, [*judged(found)]
    command.publish(section(numbers, failed, device, found), options, numbers, device, "bench_accelerator_trainings")


def refuse_slow(part: str, quick: bool) -> None:
    """Raise SystemExit if a full part would run on a CPU."""
    if quick or part == "study":
        return
    import jax
    import torch

    there = torch.cuda.is_available() if part in PEERS else jax.default_backend() != "cpu"
    if not there:
        raise SystemExit("no GPU here; --quick runs small cases on any device")


def in_process(name: str, quick: bool) -> Found:
    """What a part finds in a process of its own. Errors: RuntimeError with its last line, if it fails."""
    line = [sys.executable, __file__, *["--quick"] * quick, "--part", name]
    environment = os.environ | ({"JAX_PLATFORMS": "cpu"} if name in PEERS else {})
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    lines = (done.stdout if done.returncode == 0 else done.stderr).splitlines() or [f"ended with {done.returncode}"]
    if done.returncode:
        raise RuntimeError(lines[-1][:120])
    result: Found = json.loads(lines[-1])
    return result


def judged(found: Mapping[str, Found]) -> Iterator[Number]:
    """The numbers of all parts that were measured, with their goals."""
    if "sweeps" in found:
        yield from sweep_numbers(found["sweeps"], found.get("transformers", {}))
    for size in UTILISATION:
        if size in found:
            yield from training_numbers(size, found[size], found.get(f"{size}-PyTorch", {}))
    for state, seconds in found.get("study", {}).get("seconds", {}).items():
        yield as_number(f"{found['study']['name']}, {state} compilation cache (s)", [seconds], goal=(None, STUDIES[state]))


def sweep_numbers(ours: Found, theirs: Found) -> Iterator[Number]:
    """The numbers of sweeps, by size. The bound is the time of the products of the blocks computed."""
    yield as_number("product in bfloat16 (TFLOP/s)", [ours["rate"] / 1e12])
    for size, each in ours["sizes"].items():
        least = each["flops"] / ours["rate"] * 1e3
        yield as_number(f"sweep, {size} (ms)", each["sweep"])
        if size in theirs.get("sizes", {}):
            other = theirs["sizes"][size]
            yield as_number(f"sweep, {size}, transformers (ms)", [other])
            ratio, bound = [other / taken for taken in each["sweep"]], f"{other / least:.2f}"
            yield as_number(f"sweep, {size}, times as fast as transformers", ratio, ".2f", (AS_FAST, None), bound)
        goal: Goal = (SHARE if each["tokens"] >= FULL_FROM else None, None)
        yield as_number(f"sweep, {size}, share of its bound (%)", [100 * least / taken for taken in each["sweep"]], ".0f", goal)
        alone = [taken / calls for taken, calls in zip(each["sweep"], each["calls"], strict=True)]
        yield as_number(f"sweep, {size}, times its calls alone", alone, ".2f", (None, ALONE))


def training_numbers(size: str, ours: Found, theirs: Found) -> Iterator[Number]:
    """The numbers of a training's loss and gradient."""
    what = f"{size}, loss and gradient"
    yield as_number(f"{what} (ms)", ours["taken"])
    if theirs:
        yield as_number(f"{what}, PyTorch, compiled (ms)", [theirs["milliseconds"]])
        ratio = [taken / theirs["milliseconds"] for taken in ours["taken"]]
        yield as_number(f"{what}, times PyTorch's", ratio, ".2f", (None, STEP.get(size)))
    share = [100 * ours["flops"] / taken * 1e3 / ours["rate"] for taken in ours["taken"]]
    yield as_number(f"{what}, share of the product's rate (%)", share, ".0f", (UTILISATION[size], None))
    yield as_number(f"{what}, first call with compilation (s)", [ours["compiled"]], goal=(None, COMPILED))


def section(numbers: Sequence[Number], failed: Mapping[str, str], device: str, found: Mapping[str, Found]) -> str:
    """The section, in Markdown."""
    missing = "".join(f"\n\nNot measured: {name} ({reason})." for name, reason in failed.items())
    jax = ", ".join(sorted({each["jax"] for each in found.values() if "jax" in each}))
    return filled("gpu", model=MODEL.partition(":")[2], study=STUDY, device=device, jax=jax, table=table_of(numbers) + missing)


# The parts. Each runs in a process of its own.


def sweeps(quick: bool) -> Found:
    """Milliseconds of sweeps that mask key 0 in one layer after the other, in turn with those of their calls alone."""
    import jax
    from bench_accelerator import PROBE, milliseconds, prompts
    from bench_context import causal_flops

    import sinkjax
    from sinkjax.sweeps.calls import compute
    from sinkjax.sweeps.run import prepared

    model = sinkjax.load(QUICK_MODEL if quick else MODEL, dtype="bfloat16")
    layers, found = model.config.layers, {}
    edits = [sinkjax.mask_key(0, layers=layer) for layer in range(layers)]
    for count, length in sizes(quick):
        tokens = prompts(model, count, length)

        def calls(tokens: Any = tokens) -> None:
            """The calls of the same sweep, with as many ahead as a sweep has, but nothing kept."""
            computation = prepared(model, tokens, edits, PROBE)
            schedule, hardware = computation.schedule(None), computation.hardware()
            waiting: deque[Callable[[], Any]] = deque()
            for _, _, fetch in compute(computation, schedule, computation.rounds(schedule)):
                waiting.append(fetch)
                if len(waiting) > hardware.calls_ahead * hardware.devices:
                    waiting.popleft()()
            for fetch in waiting:
                fetch()

        whole = lambda tokens=tokens: sinkjax.sweep(model, tokens, edits, PROBE, progress=False)  # noqa: E731
        calls(), whole()
        taken = [(milliseconds(whole, 1, 0)[0], milliseconds(calls, 1, 0)[0]) for _ in range(SWEEP_ROUNDS)]
        blocks = layers + sum(range(1, layers + 1))  # the baseline, and each edit from its own layer on
        found[f"{count} x {length}"] = {
            "sweep": [each[0] for each in taken],
            "calls": [each[1] for each in taken],
            "tokens": count * length,
            "flops": blocks * sum(causal_flops(model.config, length)) * count,
        }
    return {"sizes": found, **of_device(quick), "jax": jax.__version__}


def transformers(quick: bool) -> Found:
    """Milliseconds of the same sweeps by whole eager forwards of transformers; a size that fails is left out."""
    import jax.numpy as jnp
    import torch

    from sinkjax.checkpoints.load import open_checkpoint

    config, found = open_checkpoint(QUICK_MODEL if quick else MODEL).config, {}
    model: Any = SimpleNamespace(config=config, params=[jnp.zeros(1, jnp.bfloat16)])
    for count, length in sizes(quick):
        tokens = np.random.default_rng(0).integers(0, config.vocab_size, (count, length))
        try:
            whole = eager_sweep(model, tokens, "cuda" if torch.cuda.is_available() else "cpu")
            found[f"{count} x {length}"] = min(timed(whole, 2)[1:])
        except torch.OutOfMemoryError as error:
            command.say(f"transformers, {count} x {length}: {str(error).splitlines()[0]}")
    return {"sizes": found}


def llama(shape: Mapping[str, Any], **more: Any) -> Any:
    """The config of transformers' Llama of a shape."""
    from transformers import LlamaConfig

    names = {"vocab_size": "vocabulary", "hidden_size": "width", "intermediate_size": "mlp_width"}
    names |= {"num_hidden_layers": "layers", "num_attention_heads": "heads"}
    return LlamaConfig(**{name: shape[own] for name, own in names.items()}, **more)


def eager_sweep(model: Any, tokens: np.ndarray, device: str) -> Callable[[], Any]:
    """The same sweep by whole forwards of transformers' Llama of this shape, with the same statistics. Weights are random."""
    import jax
    import torch
    from bench_peers.transformers_side import MaskedKey
    from transformers import LlamaForCausalLM

    ours, edit = model.config, MaskedKey()
    sizes = {name: getattr(ours, name) for name in ("layers", "width", "heads", "mlp_width")} | {"vocabulary": ours.vocab_size}
    more = {"num_key_value_heads": ours.kv_heads, "head_dim": ours.head_dim, "tie_word_embeddings": ours.tied}
    config = llama(sizes, attn_implementation=edit.name, **more)
    dtype = getattr(torch, str(jax.tree.leaves(model.params)[0].dtype))
    with torch.device(device):
        blocks = LlamaForCausalLM(config).to(dtype).eval().model
        given = torch.from_numpy(tokens.astype(np.int64)).to(device)
        seen = torch.arange(given.shape[1], 0, -1)

    @torch.inference_mode()
    def whole() -> list[Any]:
        found = []
        for edit.layer in range(ours.layers):
            out = blocks(given, output_attentions=True, output_hidden_states=True, use_cache=False)
            received = [weights.sum(dim=2) / seen for weights in out.attentions]
            depths = [(*state.abs().max(dim=-1), torch.linalg.vector_norm(state, dim=-1)) for state in out.hidden_states]
            found.append([part.cpu() for part in (*received, *(part for depth in depths for part in depth))])
        return found

    return whole


def training(size: str, quick: bool) -> Found:
    """Milliseconds of loss and gradient of a micro-batch, its FLOPs, and the seconds of the first call."""
    import jax
    from bench_accelerator import milliseconds
    from bench_peers import pretrain_sinkjax

    shape = training_shape(size, quick) | {"attention_impl": "auto"}
    task, values, batch = pretrain_sinkjax.begun(shape)
    gradient = jax.jit(jax.value_and_grad(lambda values, batch: task.loss(values, batch, 0)[0]))
    begun = time.perf_counter()
    jax.block_until_ready(gradient(values, batch))
    compiled = time.perf_counter() - begun
    taken = milliseconds(lambda: gradient(values, batch), ROUNDS)
    flops = pretrain_sinkjax.about(shape)["flops"] * shape["batch"] * shape["context"]
    command.say(f"{size}: attention {task.config.attention_impl}")
    return {"taken": taken, "compiled": compiled, "flops": flops, **of_device(quick), "jax": jax.__version__}


def peer_training(size: str, quick: bool) -> Found:
    """Milliseconds of the loss and gradient by transformers' Llama: compiled by PyTorch, bfloat16 autocast, SDPA."""
    import torch
    import transformers

    shape = training_shape(size, quick)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    more = {"max_position_embeddings": shape["context"], "tie_word_embeddings": False}
    config = llama(shape, attn_implementation="sdpa", **more)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    tokens = torch.randint(shape["vocabulary"], (shape["batch"], shape["context"] + 1), device=device)

    def loss() -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    compiled = loss if quick else torch.compile(loss)  # which needs a C++ compiler on a CPU

    def step() -> None:
        compiled().backward()
        model.zero_grad()

    return {"milliseconds": min(timed(step, 3 if quick else 8)[2:])}


def study(quick: bool) -> Found:
    """Seconds of a whole study, loading aside, with an empty compilation cache and then with what that run left there."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in STUDIES:
            environment = os.environ | {"XDG_CACHE_HOME": folder, "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax"}
            line = [sys.executable, __file__, *["--quick"] * quick, "--part", STUDY_RUN]
            done = subprocess.run(line, stdout=subprocess.PIPE, text=True, env=environment, check=True)
            seconds[state] = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return {"name": QUICK_STUDY if quick else STUDY, "seconds": seconds}


def study_run(quick: bool) -> Found:
    """Seconds of one run of the study in this process, without those of its loads."""
    import jax

    import sinkjax
    from sinkjax.config_files import documents
    from sinkjax.runtime.backend import start_jax
    from sinkjax.study.registry import choose
    from sinkjax.study.run import carry_out

    start_jax("auto", "bfloat16")
    loading = 0.0

    def load(*given: Any, **named: Any) -> sinkjax.Model:
        nonlocal loading
        begun = time.perf_counter()
        model = sinkjax.load(*given, **named)
        jax.block_until_ready(model.params)
        loading += time.perf_counter() - begun
        return model

    chosen, model = choose(QUICK_STUDY if quick else STUDY), QUICK_MODEL if quick else MODEL
    fields = {"model": model, "tokenizer": TOKENIZER, "dtype": "bfloat16", "prompts": 2 if quick else 64}
    config = documents.build(type(chosen.config), documents.fields(chosen.config) | fields, chosen.experiment)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        carry_out(replace(chosen, config=config), Path(folder) / "out", load=load, log=command.say)
        whole = time.perf_counter() - begun
    command.say(f"{whole:.1f} s, {loading:.1f} of them loading")
    return {"seconds": whole - loading}


PARTS: dict[str, Callable[[bool], Found]] = {
    "sweeps": sweeps,
    "transformers": transformers,
    "60m": partial(training, "60m"),
    "60m-PyTorch": partial(peer_training, "60m"),
    "study": study,
    "1b": partial(training, "1b"),
    "1b-PyTorch": partial(peer_training, "1b"),
}


QUICK_PARTS = tuple(name for name in PARTS if not name.startswith("1b"))  # which would be the small training again


def of_device(quick: bool) -> Found:
    """The device, and FLOP/s of a product of 16-bit matrices on it."""
    import bench_accelerator as bench
    import jax

    return {"device": jax.devices()[0].device_kind, "rate": bench.product_rate(bench.QUICK if quick else bench.FULL, "bfloat16")}


def sizes(quick: bool) -> Sequence[tuple[int, int]]:
    """Prompts and positions of the sweeps."""
    return ((2, 16),) if quick else SWEEPS


def training_shape(size: str, quick: bool) -> dict[str, Any]:
    """A micro-batch of a size of the pretraining studies, on random tokens; a small one in its place."""
    from sinkjax.papers.pretrain._task import SIZES

    fields = SIZES["mini" if quick else size].fields
    names = ("layers", "width", "heads", "mlp_width", "context", "compute_dtype")
    shape = {name: fields[name] for name in names if name in fields}
    shape |= {"batch": fields.get("micro_batch", fields["batch"]), "vocabulary": fields.get("vocab_size", 2048)}
    if quick:
        return shape | {"layers": 1, "context": 32, "batch": 2}
    return shape | ({"remat": True} if size == "1b" else {})


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
