"""Edits, probes and sweeps in blocks that are not a Llama's: parallel, norms after sums or after the rotation, experts."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Config, Edit, Probe, Site
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.config import Caps
from sinkjax.model.experts import Experts
from sinkjax.model.heads import HeadGate
from sinkjax.model.norms import AfterRotation, LayerNorm, RMSNorm
from sinkjax.model.positions import Learned
from sinkjax.model.rotary import QueryGrowth, Rope
from sinkjax.model.site import BEFORE_BLOCKS, SITES, lacks
from sinkjax.model.xielu import XIELU
from tests.edits.cases import at
from tests.edits.test_sites import INJECTED, NEUTRAL

SIZES = {"layers": 3, "width": 12, "heads": 6, "kv_heads": 2, "head_dim": 4, "mlp_width": 10, "vocab_size": 23, "context": 12}
BLOCKS: dict[str, Config] = {
    "parallel": Config(
        **SIZES, norm=LayerNorm(1e-5), position=Rope(100.0, dims=2), activation="gelu", tied=False, gated_mlp=False,
        norm_place="parallel-shared", qkv_bias=True, out_bias=True, mlp_bias=True,
    ),
    "post": Config(
        **SIZES, norm=LayerNorm(1e-5), position=Learned(offset=2), activation="relu", tied=True, gated_mlp=False,
        norm_place="post", embed_width=8,
    ),
    "experts": Config(
        **SIZES, norm=LayerNorm(1e-5, bias=False), position=Rope(100.0), activation="silu", tied=False,
        norm_place="sandwich", experts=Experts(4, 2, bias=True), caps=Caps(5.0, 5.0), mlp_bias=True,
    ),
    "late": Config(
        **SIZES, norm=RMSNorm(1e-5), position=Rope(100.0, growth=QueryGrowth(0.7, 3)), activation=XIELU(), tied=False,
        gated_mlp=False, qk_norm=AfterRotation(RMSNorm(1e-5)), gate=HeadGate(),
    ),
}  # fmt: skip
LENGTHS = np.array([10, 7])
POSITION, LAYER = 4, 1
RESIDUAL = Probe(capture=(Capture(Site.RESID),))
CASES = [(block, site) for block, config in BLOCKS.items() for site in Site if not lacks(config, site)]


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def model(block: str) -> Model:
    """A model of float64 in which nothing is trivial."""
    config, noise = BLOCKS[block], np.random.default_rng(0)

    def draw(leaf: params.Leaf) -> jax.Array:
        drawn = 0.3 * noise.standard_normal(leaf.shape) + (leaf.init == "ones")
        return jax.numpy.asarray(2 * drawn if leaf.init == "normal" else drawn)

    return Model(config, jax.tree.map(draw, params.abstract(config)), None, {"kind": "toy"})


def tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, SIZES["vocab_size"], (2, 10))


def run(block: str, edits: Edit | tuple = (), probe: Probe = RESIDUAL):
    drawn = model(block)
    return sinkjax.forward(drawn.params, tokens(), drawn.config, edits, probe, LENGTHS)


def changed(plain: jax.Array, edited: jax.Array) -> np.ndarray:
    """Where two arrays differ by more than rounding: a token that goes to another expert moves the rows of all others."""
    return ~np.isclose(np.asarray(plain), np.asarray(edited), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("block", "site"), CASES)
def test_an_edit_changes_the_logits_from_its_position_and_layer_on(block: str, site: Site) -> None:
    lopsided = {"dims": [0]} if SITES[site].dims == "width" else {}  # LayerNorm takes a constant out
    plain, edited = run(block), run(block, at(site, POSITION, layer=LAYER, **lopsided))
    differs = changed(plain.logits, edited.logits)
    assert differs[:, POSITION].any(axis=-1).all()
    assert not differs[:, :POSITION].any()
    depths = changed(plain.record["resid"], edited.record["resid"]) & ~np.isnan(plain.record["resid"])
    assert depths[:, :LAYER].any() == (site in BEFORE_BLOCKS)
    assert depths[:, LAYER:].any(axis=(0, 2, 3)).all()
    assert (np.asarray(edited.record["cells_changed"]) > 0).all()


@pytest.mark.parametrize("block", BLOCKS)
def test_neutral_strengths_give_the_numbers_of_no_edit(block: str) -> None:
    """But for rounding: with a composition of edits at every site XLA fuses other operations."""
    here = [site for site in Site if not lacks(BLOCKS[block], site)]
    fitting = [term for site in here for term in (NEUTRAL | INJECTED)[site].terms if site != Site.POSITION or term.layers is None]
    plain, neutral = run(block), run(block, Edit(tuple(fitting)))
    np.testing.assert_allclose(neutral.logits, plain.logits, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(neutral.record["resid"], plain.record["resid"], rtol=1e-11, atol=1e-12)
    assert (np.asarray(neutral.record["cells_addressed"]) > 0).all()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_sweep_over_layers_gives_what_one_forward_for_each_edit_gives(block: str) -> None:
    edits = [sinkjax.compose(), sinkjax.swap_embeddings(0, 3)]
    edits += [sinkjax.mask_key(0, layers=layer) for layer in range(3)] + [sinkjax.drop_mlp(2, layers=layer) for layer in (1, 2)]
    edits += [sinkjax.edit("router", "set", 9.0, dims=[0], layers=1)] if block == "experts" else []
    probe = Probe(attention_received=True, resid_norm=True, nll=True)
    drawn = model(block)
    swept = sinkjax.sweep(drawn, tokens(), edits, probe=probe, lengths=LENGTHS)
    for number, edit in enumerate(edits):
        record = sinkjax.forward(drawn.params, tokens(), drawn.config, edit, probe, LENGTHS, logits=False).record
        for name in probe.dims():
            np.testing.assert_allclose(swept[name][number], record[name], rtol=1e-12, atol=1e-12, err_msg=edit.label)


def test_a_neuron_of_an_expert_has_a_number() -> None:
    """Scaling all units of the experts that a token takes by 0 leaves their biases alone; of others it changes nothing."""
    probe = Probe(capture=(Capture(Site.ROUTER, layers=(LAYER,)), Capture(Site.NEURON, layers=(LAYER,))))
    record = run("experts", probe=probe).record
    F = SIZES["mlp_width"]
    assert record["neuron"].shape == (2, 1, 10, 4 * F)
    taken = np.argsort(-np.asarray(record["router"])[0, 0, POSITION])[:2]
    units = np.asarray(record["neuron"])[0, 0, POSITION].reshape(4, F)
    assert {int(expert) for expert in np.flatnonzero(units.any(axis=-1))} == {int(expert) for expert in taken}
    other = next(expert for expert in range(4) if expert not in taken)
    for expert, changes in ((int(taken[0]), True), (other, False)):
        dims = list(range(expert * F, (expert + 1) * F))
        edited = run("experts", sinkjax.edit("neuron", "set", 2.0, dims=dims, queries=POSITION, layers=LAYER))
        assert edited.record["cells_changed"][0, 0] == (F if changes else 0)
        assert (np.asarray(edited.logits)[0] != np.asarray(run("experts").logits)[0]).any() == changes
