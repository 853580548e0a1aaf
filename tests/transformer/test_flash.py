"""The Pallas kernels give the numbers of the forward's own attention, edited and measured, and lower for GPUs and TPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.edits.edit import resolve
from sinkjax.errors import SinkjaxError
from sinkjax.model.attention_bias import KeyBias, KeyValueBias, SinkToken, ValueBias
from sinkjax.model.config import Caps, Config, NoPosition
from sinkjax.model.normalisers import OffByOne, SinkLogit
from sinkjax.model.positions import Alibi, PowerAlibi
from sinkjax.probes.statistics import sinking_heads
from sinkjax.transformer import tiles
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec
from tests.model.variants import draw

TOKENS, LENGTHS = np.random.default_rng(3).integers(0, 61, (3, 40)), np.array([40, 7, 23])
PROBE = Probe(attention_received=True, attention_received_bias=True, resid_norm=True, extra=(sinking_heads(0.1),))
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "windows": {"windows": (4, None, 17)},
    "prefix": {"prefix": 5},
    "soft cap": {"caps": Caps(scores=0.7)},
    "scales": {"score_scale": (0.1, 0.5, 0.9)},
    "sink logit": {"normaliser": SinkLogit()},
    "off by one": {"normaliser": OffByOne()},
    "alibi": {"position": Alibi()},
    "power alibi": {"position": PowerAlibi()},
    "no position": {"position": NoPosition()},
    "key bias": {"kv_bias": KeyBias(value="ones")},
    "key-value bias": {"kv_bias": KeyValueBias(shared=True)},
    "value bias": {"kv_bias": ValueBias()},
    "sink token": {"kv_bias": SinkToken()},
    "one head each": {"kv_heads": 6},
    "all at once": {"windows": (9, None, 3), "prefix": 2, "caps": Caps(2.0), "position": Alibi(), "normaliser": SinkLogit()},
}
EDITS = {
    "mask": sinkjax.mask_key(0, layers=1),
    "several": [
        sinkjax.mask_key(0, layers=[0, 2], heads=[1, 4]),
        sinkjax.add_logit(2, 0.7),
        sinkjax.edit("logits", "set", -0.3, keys=1, heads=0),
    ],
    "self": sinkjax.edit("logits", "set", -np.inf, queries=3, relation="others", layers=[0, 1]),
    "of prompts": sinkjax.add_logit(sinkjax.per_prompt([1, 2, 0]), 1.5),
    "values": sinkjax.edit("head_value", "scale", 0.5, keys=2, heads=[0, 5]),
    "elsewhere": [sinkjax.swap_embeddings(0, 3), sinkjax.shift_positions(key=2)],
}


def both(config: Config, edits: Any, probe: Probe = PROBE, tokens: np.ndarray = TOKENS) -> list:
    """The output by the forward's own attention, and by the kernels."""
    with jax.enable_x64(True):
        params = draw(config)
        given = (params, tokens, config, edits, probe, LENGTHS if len(tokens) == 3 else None)
        return [jax.device_get(sinkjax.forward(*given, attention_impl=how)) for how in ("sinkjax", "pallas")]


def agree(own: Any, other: Any, lengths: np.ndarray = LENGTHS) -> None:
    for b, length in enumerate(lengths):
        np.testing.assert_allclose(other.logits[b, :length], own.logits[b, :length], rtol=1e-11, atol=1e-12)
    assert set(own.record) == set(other.record)
    for name, values in own.record.items():
        np.testing.assert_allclose(other.record[name], values, rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.fixture
def small_tiles(monkeypatch) -> Iterator[None]:
    """Tiles of 16 x 8, so that a short prompt has whole ones, some on the diagonal, and some that a window cuts."""
    usual = tiles.Tiling.of
    monkeypatch.setattr(tiles.Tiling, "of", lambda *given: dataclasses.replace(usual(*given), queries=16, keys=8))
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("variant", "edits"),
    [(name, ()) for name in VARIANTS]
    + [(name, sinkjax.mask_key(1, layers=[0, 2], heads=[0, 3])) for name in ("windows", "prefix", "all at once", "key bias")],
)
def test_every_kind_of_attention_gives_the_same_numbers(variant: str, edits: Any, tiny_config) -> None:
    agree(*both(dataclasses.replace(tiny_config, **VARIANTS[variant]), edits))


@pytest.mark.parametrize("edits", EDITS)
def test_every_edit_of_scores_acts_in_the_tile(edits: str, tiny_config) -> None:
    """Numbers and counts of cells."""
    own, other = both(tiny_config, EDITS[edits])
    agree(own, other)
    assert own.record["cells_changed"].sum() > 0


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("T", [1, 15, 16, 17, 64])
def test_positions_need_not_fill_tiles(T: int, tiny_config) -> None:
    tokens = np.random.default_rng(T).integers(0, 61, (1, T))
    agree(*both(tiny_config, (), tokens=tokens), lengths=np.array([T]))


def test_rows_that_an_edit_leaves_empty_are_counted_and_give_zeros(tiny_config, monkeypatch) -> None:
    """Such edits are refused before they run; this is what the pass itself makes of one."""
    monkeypatch.setattr("sinkjax.edits.edit.refuse_empty_rows", lambda *args: None)
    own, other = both(tiny_config, sinkjax.edit("logits", "set", -np.inf, queries=2, layers=1, heads=[0, 3]))
    agree(own, other)
    assert (np.asarray(other.record["empty_rows"]) == 2).all()


@pytest.mark.parametrize(
    ("platform", "device", "kernel"), [("cuda", "NVIDIA H100", "triton"), ("tpu", "TPU v5e", "tpu_custom_call")]
)
@pytest.mark.parametrize("variant", ["grouped heads", "all at once", "key-value bias"])
def test_the_kernels_lower_for_accelerators(variant, platform, device, kernel, tiny_config, monkeypatch) -> None:
    """Both kernels, in 16 bits and with an edit, as far as that shows without the device: Triton's and Mosaic's code is made."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    config = dataclasses.replace(tiny_config, context=512, head_dim=64, **VARIANTS[variant])
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), draw(config, "float32"))
    tokens, lengths = jnp.zeros((1, 512), jnp.int32), np.array([512])
    edits = resolve(sinkjax.mask_key(0, layers=1), config, lengths, 512, "bfloat16")
    spec = ForwardSpec(config=config, probe=PROBE, logits=False, attention_impl="pallas")
    axes = {"axis_sizes": (1,), "axis_names": ("x",), "axis_types": (jax.sharding.AxisType.Auto,)}
    mesh = jax.sharding.AbstractMesh(**axes, abstract_device=jax.sharding.AbstractDevice(device, 1, platform))
    with jax.sharding.use_abstract_mesh(mesh):
        jitted = jax.jit(lambda params: run(params, tokens, jnp.asarray(lengths), edits, spec=spec).record)
        allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in ("__gpu$xla.gpu.triton", "tpu_custom_call")]
        text = jax.export.export(jitted, platforms=[platform], disabled_checks=allowed)(params).mlir_module()
    assert text.count(kernel) >= 3  # the outputs, attention received and sinking heads


def test_in_16_bits_weights_are_rounded_before_their_product_and_measured_before_that(tiny_config) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), draw(tiny_config))
    own, other = (
        sinkjax.forward(params, TOKENS, tiny_config, (), Probe(attention_received=True), LENGTHS, attention_impl=how)
        for how in ("sinkjax", "pallas")
    )
    first = [np.asarray(out.record["attention_received"][:, 0]) for out in (own, other)]
    np.testing.assert_allclose(*first, rtol=1e-5, atol=1e-6)  # of the first layer, whose input is the same
    assert not np.array_equal(own.logits, other.logits)
    np.testing.assert_allclose(other.logits[0], own.logits[0], atol=0.1 * float(np.abs(own.logits[0]).max()))


def test_a_derivative_is_refused(tiny_config, tiny_params) -> None:
    loss = lambda params: sinkjax.forward(params, TOKENS, tiny_config, attention_impl="pallas").logits.sum()  # noqa: E731
    with pytest.raises(SinkjaxError, match=r'"pallas" .*derivative; .*"sinkjax"'):
        jax.grad(loss)(tiny_params)
