"""The forward as a program: padding, precision, size, and what it compiles to. Its numbers are proven in test_parity."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site, add_logit, compose, edit, mask_key, swap_embeddings
from sinkjax.model import params
from sinkjax.model.rotary import DynamicScaling, Rope

EVERYTHING = Probe(
    **{field.name: True for field in dataclasses.fields(Probe) if field.type == "bool"},
    attention=(0, 2),
    capture=tuple(Capture(site) for site in Site if site not in (Site.POSITION, Site.POSITION_VECTOR, Site.ROUTER)),
)
LENGTHS = np.array([9, 30])
DYNAMIC = Rope(10_000.0, DynamicScaling(4.0, 12))


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 61, (2, 30))


def crop(name: str, array: np.ndarray, dims: tuple[str, ...], length: int) -> np.ndarray:
    """The part of one prompt's array that is within its length; the rest must say that it is beyond."""
    for axis, dim in enumerate(dims):
        if dim in ("position", "query", "key"):
            beyond = np.take(array, np.arange(length, array.shape[axis]), axis)
            expected = np.isnan(beyond) if array.dtype.kind == "f" else beyond == -1
            assert expected.all(), name
            array = np.take(array, np.arange(length), axis)
    return array


@pytest.mark.parametrize(
    ("dtype", "position"),
    [("float64", Rope(10_000.0)), ("float64", DYNAMIC), ("float32", DYNAMIC)],
    ids=["rope", "dynamic", "float32"],
)
def test_a_prompt_alone_equals_its_row_in_a_padded_batch(tiny_params, tiny_config, tokens, dtype: str, position) -> None:
    """Logits, every statistic and every capture, with an edit at several sites."""
    config = dataclasses.replace(tiny_config, position=position)
    edits = compose(mask_key(1, layers=1), edit("resid", "scale", 1.5, queries=4, layers=0), swap_embeddings(0, 2))
    with jax.enable_x64(dtype == "float64"):
        weights = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), tiny_params)
        batch = sinkjax.forward(weights, tokens, config, edits, EVERYTHING, LENGTHS)
        relative = 1e-12 if dtype == "float64" else 1e-5
        for b, length in enumerate(LENGTHS):
            alone = sinkjax.forward(weights, tokens[b : b + 1, :length], config, edits, EVERYTHING)
            np.testing.assert_allclose(batch.logits[b, :length], alone.logits[0], rtol=relative, atol=relative)
            for name, array in alone.record.items():
                row = crop(name, np.asarray(batch.record[name])[b], batch.record.dims[name][1:], length)
                largest = np.abs(np.where(np.isfinite(array), array, 0)).max()
                np.testing.assert_allclose(row, np.asarray(array)[0], rtol=0, atol=relative * largest, err_msg=name)


def test_a_model_without_a_vocabulary_takes_and_gives_vectors(tiny_params, tiny_config, tokens) -> None:
    """Fed with the embedding rows, it computes what the model with a vocabulary computes before the unembedding."""
    config = dataclasses.replace(tiny_config, vocab_size=None)
    bare = {name: tiny_params[name] for name in ("layers", "final_norm")}
    rows = tiny_params["embed"][tokens]
    out = sinkjax.forward(bare, rows, config, probe=Probe(resid_norm=True), lengths=LENGTHS)
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=Probe(resid_norm=True), lengths=LENGTHS)
    assert out.logits is None
    np.testing.assert_allclose(out.output @ tiny_params["unembed"], whole.logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(out.record["resid_norm"], whole.record["resid_norm"])


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a program, those of loops, branches and calls included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def program(config, dtype: str, probe: Probe = EVERYTHING) -> list[Any]:
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), params.abstract(config))
    edits = (add_logit(1, 0.5), edit("head_out", "scale", 1.5, centre="dims"))
    tokens = np.zeros((2, 300), int)
    run = lambda weights: sinkjax.forward(weights, tokens, config, edits, probe)  # noqa: E731
    return list(equations(jax.make_jaxpr(run)(shapes).jaxpr))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_product_states_its_precision_and_every_function_is_computed_wide(tiny_config, dtype: str) -> None:
    config = dataclasses.replace(tiny_config, context=512, position=DYNAMIC)
    eqns = program(config, dtype)
    products = [eqn for eqn in eqns if eqn.primitive.name == "dot_general"]
    assert len(products) >= 10
    for eqn in products:
        assert eqn.params["precision"] == (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST), eqn
    functions = [eqn for eqn in eqns if eqn.primitive.name in ("exp", "log", "rsqrt", "sqrt", "sin", "cos", "pow", "cumsum")]
    sums = [eqn for eqn in eqns if eqn.primitive.name in ("reduce_sum", "reduce_max") and eqn.invars[0].aval.dtype.kind != "i"]
    assert {eqn.primitive.name for eqn in functions} >= {"exp", "rsqrt", "sin", "cos"}
    for eqn in functions + sums:
        assert eqn.invars[0].aval.dtype not in ("bfloat16", "float16"), eqn


def test_the_program_does_not_grow_with_depth(tiny_config) -> None:
    deep = dataclasses.replace(tiny_config, layers=40)
    probe = dataclasses.replace(EVERYTHING, attention=(0, 2), capture=())
    context = {"context": 512}
    sizes = [len(program(dataclasses.replace(config, **context), "float32", probe)) for config in (tiny_config, deep)]
    assert sizes[0] == sizes[1]
