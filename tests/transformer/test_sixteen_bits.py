"""In bfloat16 every large product has operands of 16 bits, in the program for a GPU: forward, loss and gradient."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.edits.edit import resolve
from sinkjax.model import params
from sinkjax.model.attention_bias import KeyValueBias, SinkToken
from sinkjax.model.config import Config, RMSNorm
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import Rope
from sinkjax.papers.pretrain._task import SIZES
from sinkjax.tasks import registry
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.transformer.forward import run
from sinkjax.transformer.implementations import check_implementation
from sinkjax.transformer.spec import ForwardSpec

LARGE = 4_000_000  # entries
PRODUCT = re.compile(
    r"stablehlo\.dot_general [^,]*, [^,]*, (?:batching_dims = \[([\d, ]*)\] x \[[\d, ]*\], )?contracting_dims = \[([\d, ]*)\] .*"
    r" : \(tensor<([\dx]*)x(\w+)>, tensor<([\dx]*)x(\w+)>\)"
)
SHAPES = (4, 2048)  # prompts and positions
WIDE = Config(
    layers=2, width=2048, heads=16, kv_heads=8, head_dim=128, mlp_width=4096, vocab_size=32_000, context=2048,
    norm=RMSNorm(1e-5), position=Rope(10_000.0), activation="silu", tied=False,
)  # fmt: skip
MODELS = {
    "llama": WIDE,
    "tied": dataclasses.replace(WIDE, tied=True),
    "sink logit": dataclasses.replace(WIDE, normaliser=NAMED["sink-logit"]),
    "kernel": dataclasses.replace(WIDE, normaliser=NAMED["mlp-kernel-max"]),
    "extra key": dataclasses.replace(WIDE, kv_bias=KeyValueBias()),
    "sink token": dataclasses.replace(WIDE, kv_bias=SinkToken()),
}
PROBE = Probe(attention_received=True, resid_norm=True, nll=True)
SUPPORTED = {"sinkjax": [*MODELS], "fused": ["llama", "tied"], "pallas": [name for name in MODELS if name != "kernel"]}


def wide_products(function: Callable, *shapes: Any) -> tuple[list[str], int]:
    """The products of two float32 matrices, one of them large, in the program for CUDA, and the number of all products.

    A product of a matrix with a vector, for each head, is a sum along an axis: no device has another rate for it in 16 bits.
    """
    text = jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
    found = PRODUCT.findall(text)
    assert len(found) == text.count("stablehlo.dot_general ") > 0
    large = []
    for batched, contracted, *operands in found:
        left, right = ([int(size) for size in each.split("x")] for each in operands[::2])
        shared = math.prod(left[int(axis)] for each in (batched, contracted) if each for axis in each.split(","))
        vectors = min(math.prod(left), math.prod(right)) == shared
        if set(operands[1::2]) == {"f32"} and max(math.prod(left), math.prod(right)) > LARGE and not vectors:
            large.append(f"{left} x {right}")
    return large, len(found)


def abstract(config: Config, dtype: str = "bfloat16") -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), params.abstract(config))


def test_a_large_product_in_float32_is_found() -> None:
    found, count = wide_products(lambda x: x @ x, jax.ShapeDtypeStruct((2048, 2048), "float32"))
    assert (found, count) == (["[2048, 2048] x [2048, 2048]"], 1)
    assert wide_products(lambda x: x @ x[0], jax.ShapeDtypeStruct((2048, 2048), "float32")) == ([], 1)


@pytest.mark.parametrize("how", ["sinkjax", "fused"])
@pytest.mark.parametrize("size", ["60m", "1b"])
def test_loss_and_gradient(size: str, how: str) -> None:
    fields = dict(SIZES[size].fields)
    named = {field.name for field in dataclasses.fields(Pretrain)}
    fields = {name: value for name, value in fields.items() if name in named and name not in ("text", "tokenizer")}
    config = Pretrain(**{**fields, "batch": fields["micro_batch"], "attention_impl": how})  # type: ignore[arg-type]
    assert config.compute_dtype == "bfloat16"
    task: Any = registry.task(config)
    values = jax.eval_shape(lambda: task.init(0))
    found, count = wide_products(jax.value_and_grad(lambda *given: task.loss(*given, 0)[0]), values, task.batch_shapes())
    assert found == []
    assert count > 20


def request_of(model: str, how: str) -> tuple[Callable, Any, Any, Any]:
    """A forward with logits, their loss, statistics and an edit of the scores, and the shapes of its arguments."""
    config = MODELS[model]
    edits = resolve(sinkjax.mask_key(0, layers=1), config, [SHAPES[1]] * SHAPES[0], SHAPES[1], "bfloat16")
    check_implementation(how, config, edits, PROBE)
    spec = ForwardSpec(config=config, probe=PROBE, logits=True, attention_impl=how)
    tokens, lengths = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in (SHAPES, SHAPES[:1]))
    return partial(run, edits=edits, spec=spec), abstract(config), tokens, lengths


@pytest.mark.parametrize(("model", "how"), [(model, how) for how, models in SUPPORTED.items() for model in models])
def test_forward(model: str, how: str) -> None:
    found, count = wide_products(*request_of(model, how))
    assert found == []
    assert count > 10
