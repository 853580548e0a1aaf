"""Measure how far bfloat16 moves a forward and a gradient from float32, beside transformers:
docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_bfloat16.py            SmolLM2 on a CPU; a quarter of an hour where it multiplies no bfloat16
    python scripts/benchmarks/bench_bfloat16.py --quick    one passage; prints and writes nothing

Every number compares with the same library in float32, from the same weights rounded to bfloat16 and then cast to float32. So
only the computation differs, not the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from bench_peers import command
from measured import as_number
from transformers import AutoModelForCausalLM

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.checkpoints.presets import find_preset
from sinkjax.data.corpora import packaged_documents
from sinkjax.report.markdown import table as markdown
from sinkjax.tasks.language_model.task import cross_entropy

MODEL = "smollm2-135m"
PROMPTS = {64: 8, 512: 2}  # prompts by their length
WAYS = ("sinkjax", "fused", "pallas")
QUANTITIES = {
    "logits": "logits",
    "loss": "loss of a token",
    "resid": "residual stream after the last block",
    "received": "attention received",
    "gradient": "gradient of the loss",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_bfloat16", "one short prompt").parse_args(arguments)
    rows = [row for length, count in ({16: 1} if options.quick else PROMPTS).items() for row in measured(length, count)]
    lines = [[size, side, *(f"{found[name]:.3g}%" if name in found else "" for name in QUANTITIES)] for size, side, found in rows]
    table = markdown(["prompts x positions", "in bfloat16", *QUANTITIES.values()], lines)
    numbers = [
        as_number(f"{QUANTITIES[name]}, {size}, {side} (%)", [error], ".3g")
        for size, side, found in rows
        for name, error in found.items()
    ]
    command.publish(command.filled("bfloat16", model=MODEL, table=table), options, numbers)


def measured(length: int, count: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """The size of the prompts, who computes, and the error of each quantity in per cent, for prompts of this length."""
    model = sinkjax.load(MODEL)
    assert model.tokenizer
    ids = model.tokenizer.encode("\n\n".join(packaged_documents()))
    tokens = np.array(ids[: count * length], np.int32).reshape(count, length)
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.params)
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), narrow)
    want = ours(wide, tokens, model, "sinkjax")
    for how in WAYS:
        command.say(f"{count} x {length}, {how}")
        yield f"{count} x {length}", f"sinkjax, {how}", errors(ours(narrow, tokens, model, how), want)
    command.say(f"{count} x {length}, transformers")
    yield f"{count} x {length}", "transformers, eager", errors(theirs(tokens, torch.bfloat16), theirs(tokens, torch.float32))


def ours(params: Any, tokens: np.ndarray, model: sinkjax.Model, how: str) -> dict[str, Any]:
    """The quantities of a forward and a gradient of sinkjax, by name."""
    probe = Probe(attention_received=True, nll=True, capture=(Capture(Site.RESID, layers=(model.config.layers - 1,)),))
    out = sinkjax.forward(params, tokens, model.config, probe=probe, attention_impl=how)
    found = {"logits": out.logits, "loss": out.record["nll"][:, :-1], "resid": out.record["resid"]}
    found["received"] = out.record["attention_received"]
    if how == "pallas":  # it has no derivative
        return found

    def loss(params: Any) -> jax.Array:
        logits = sinkjax.forward(params, tokens, model.config, probe=Probe(), attention_impl=how).logits
        return cross_entropy(logits[:, :-1], tokens[:, 1:]).mean()

    return found | {"gradient": jax.jit(jax.grad(loss))(params)}


def theirs(tokens: np.ndarray, dtype: torch.dtype) -> dict[str, Any]:
    """The same of transformers."""
    file = find_preset(MODEL)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, attn_implementation="eager", dtype=torch.float32
    )
    model = model.to(torch.bfloat16).to(dtype)
    last: list[torch.Tensor] = []
    model.model.layers[-1].register_forward_hook(lambda module, inputs, output: last.append(output))  # before the final norm
    given = torch.from_numpy(tokens.astype(np.int64))
    out = model(given, output_attentions=True, use_cache=False)
    loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].float().flatten(0, 1), given[:, 1:].flatten(), reduction="none")
    loss.mean().backward()
    seen = torch.arange(tokens.shape[1], 0, -1)
    found = {
        "logits": out.logits,
        "loss": loss,
        "resid": last[0],
        "received": torch.stack([weights.float().sum(dim=2) / seen for weights in out.attentions]),
    }
    gradient = {name: value.grad.float().numpy() for name, value in model.named_parameters() if value.grad is not None}
    return {name: value.detach().float().numpy() for name, value in found.items()} | {"gradient": gradient}


def errors(found: dict[str, Any], want: dict[str, Any]) -> dict[str, float]:
    """The relative error of each quantity, in per cent."""
    shown = {}
    for name in found:
        have, right = ([np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(each[name])] for each in (found, want))
        middle = [leaf.mean() * (name == "loss") for leaf in right]
        difference = sum(np.square(a - b).sum() for a, b in zip(have, right, strict=True))
        whole = sum(np.square(b - m).sum() for b, m in zip(right, middle, strict=True))
        shown[name] = float(100 * np.sqrt(difference / whole))
    return shown


if __name__ == "__main__":
    main()
