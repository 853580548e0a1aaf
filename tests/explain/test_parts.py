"""Parts of scores, values and logits: they sum to the whole in every family, and each is what a plain loop says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.heads import ElementGate, HeadNorm, ValueGate, ValueScale
from sinkjax.model.norms import DynamicTanh, EachHead, RMSNorm, SingleScaleRMSNorm
from sinkjax.model.ops import soft_cap
from sinkjax.model.positions import Alibi, ScorePosition
from tests.model import families as small
from tests.transformer.test_families_edited import BLOCKS

pytestmark = pytest.mark.usefixtures("x64")
LENGTHS, KEY = np.array([10, 7]), 1
QUERIES = LENGTHS - 1
VARIANTS = {
    **BLOCKS,
    "no residual": dataclasses.replace(BLOCKS["post"], residual=False, embed_width=None),
    "no norm": dataclasses.replace(BLOCKS["post"], norm=None, norm_place="pre"),
    "gates": dataclasses.replace(BLOCKS["experts"], experts=None, gate=ValueGate(), head_norm=HeadNorm(offset=True)),
    "single scale": dataclasses.replace(BLOCKS["post"], norm=SingleScaleRMSNorm(1e-5)),
    "tanh": dataclasses.replace(BLOCKS["parallel"], norm=DynamicTanh(), gate=ValueScale()),
    "gated heads": dataclasses.replace(BLOCKS["parallel"], gate=ElementGate(), embed_norm=True, windows=(None, 9, None)),
    "summed heads": dataclasses.replace(BLOCKS["parallel"], summed_heads=True, score_scale=(0.5, 1.0, 2.0), mlp_bias=False),
    "clipped": dataclasses.replace(BLOCKS["post"], qkv_clip=0.3, qk_norm=EachHead(RMSNorm(1e-5)), position=Alibi()),
}


def model(variant: str) -> Model:
    """A model of float64 in which nothing is trivial."""
    config, noise = VARIANTS[variant], np.random.default_rng(0)

    def random(leaf: params.Leaf) -> jax.Array:
        drawn = 0.3 * noise.standard_normal(leaf.shape) + (leaf.init == "ones")
        return jax.numpy.asarray(2 * drawn if leaf.init == "normal" else drawn)

    return Model(config, jax.tree.map(random, params.abstract(config)), None, {"kind": "arrays", "name": variant})


def tokens(model: Model) -> np.ndarray:
    return np.random.default_rng(0).integers(0, model.config.vocab_size, (2, 10))


def check_sums(model: Model) -> None:
    """Parts sum to what the forward itself has: scores at LOGITS, the norms of W_O v, logits; lens and model agree at the end."""
    config, batch = model.config, tokens(model)
    probe = Probe(capture=(Capture("logits"), Capture("value")), nll=True)
    out = sinkjax.forward(model.params, batch, config, probe=probe, lengths=LENGTHS)
    prompts = np.arange(2)
    for side in ("key", "query"):
        found = sinkjax.explain_score(model, batch, query=QUERIES, key=KEY, side=side, lengths=LENGTHS)
        np.testing.assert_allclose(found.contribution.sum("part"), found.score, rtol=1e-9, atol=1e-10)
        number = np.zeros((config.heads, 10))
        if isinstance(config.position, ScorePosition):
            number = np.asarray(config.position.by_distance(10, config.heads, {}))
        scores = np.asarray(soft_cap(found.score.values, config.caps.scores)) + number[:, QUERIES - KEY].T[:, None]
        wanted = np.asarray(out.record["logits"])[prompts, :, :, QUERIES, KEY]
        seen = np.isfinite(wanted)  # a layer's window may hide the key, whose score then stands in no row of attention
        assert seen.any() or all(config.windows or [None])
        np.testing.assert_allclose(scores[seen], wanted[seen], rtol=1e-9, atol=1e-10)
    found = sinkjax.explain_value(model, batch, key=QUERIES, lengths=LENGTHS)
    np.testing.assert_allclose(found.contribution.sum("part"), found.value_norm, rtol=1e-9, atol=1e-10)
    values = np.repeat(np.asarray(out.record["values"]), config.heads // config.kv_heads, axis=3)[prompts, :, QUERIES]
    o = np.asarray(model.params["layers"]["o"]).reshape(config.layers, -1, config.head_dim, config.width)
    o = np.broadcast_to(o, (config.layers, config.heads, *o.shape[2:]))
    np.testing.assert_allclose(found.value_norm, np.linalg.norm(np.einsum("blhk,lhkd->blhd", values, o), axis=-1), rtol=1e-9)
    found = sinkjax.explain_logit(model, batch, position=QUERIES, token=3, lengths=LENGTHS)
    np.testing.assert_allclose(found.contribution.sum("part"), found.logit, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        soft_cap(found.logit.values, config.caps.logits), out.logits[prompts, QUERIES, 3], rtol=1e-9, atol=1e-10
    )
    lens = sinkjax.logit_lens(model, batch, positions=[2, 4], lengths=LENGTHS).isel(depth=-1)
    np.testing.assert_allclose(lens.nll, np.asarray(out.record["nll"])[:, [2, 4]], rtol=1e-9)
    np.testing.assert_allclose(lens.kl, 0, atol=1e-12)
    np.testing.assert_array_equal(lens.top, np.asarray(out.logits)[:, [2, 4]].argmax(axis=-1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_sum_to_the_whole(variant: str) -> None:
    check_sums(model(variant))


@pytest.mark.apart
@pytest.mark.parametrize("family", small.DRAWS)
def test_parts_sum_to_the_whole_in_every_family(family: str, tmp_path: Path) -> None:
    small.write_model(family, 1, tmp_path)
    check_sums(sinkjax.load(tmp_path, dtype="float64"))


def plain_parts(model: Model, record: sinkjax.Record, place: int, layer: int) -> dict[str, np.ndarray]:
    """The parts [B, d] of the stream before a block, of a model without biases whose norms are on the inputs."""
    parts = {"embedding": np.asarray(record["embed"])[:, place]}
    for before in range(layer):
        for head in range(model.config.heads):
            out = np.asarray(record["head_out"])[:, before, place, head]
            parts[f"head {before}.{head}"] = out @ np.asarray(model.params["layers"]["o"])[before, head]
        parts[f"MLP {before}"] = np.asarray(record["mlp_out"])[:, before, place]
    return parts


def test_each_part_of_a_score_is_what_a_loop_gives(tiny: Model) -> None:
    """Key 0 is not rotated, so its own rotated queries meet W_K of each part, times gain over the root mean square."""
    config, batch, layer, query = tiny.config, tokens(tiny), 2, 6
    sites = ("embed", "head_out", "mlp_out", "resid", "neuron", "query")
    record = sinkjax.forward(tiny.params, batch, config, probe=Probe(capture=tuple(Capture(site) for site in sites))).record
    found = sinkjax.explain_score(tiny, batch, query=query, key=0, layers=layer, neurons=1).contribution[:, 0]
    h = np.asarray(record["resid"])[:, layer - 1, 0]
    scale = np.asarray(tiny.params["layers"]["attn_norm"])[layer] / np.sqrt((h**2).mean(axis=-1, keepdims=True) + config.norm.eps)
    half = np.asarray(record["queries"])[:, layer, query].reshape(2, config.heads, 2, config.head_dim // 2)
    turn = query * 10_000.0 ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    first, second = half[:, :, 0], half[:, :, 1]
    q = np.concatenate([first * np.cos(turn) - second * np.sin(turn), second * np.cos(turn) + first * np.sin(turn)], axis=-1)
    w_k = np.repeat(np.asarray(tiny.params["layers"]["k"])[layer], config.heads // config.kv_heads, axis=1)

    def expected(part: np.ndarray) -> np.ndarray:
        return np.einsum("bd,dhk,bhk->bh", part * scale, w_k, q) * config.head_dim**-0.5

    parts = plain_parts(tiny, record, 0, layer)
    units = np.asarray(record["neuron"])[:, 1, 0]
    parts |= {
        f"neuron 1.{n}": units[:, n, None] * np.asarray(tiny.params["layers"]["down"])[1, n] for n in range(config.mlp_width)
    }
    del parts["MLP 1"]
    for name, part in parts.items():
        np.testing.assert_allclose(found.sel(part=name), expected(part), rtol=1e-9, atol=1e-13)
    others = found.sel(part=[name for name in found.part.values if name not in parts])
    assert set(others.part.values) == {"MLP 1 bias", "bias", "MLP 2", *(f"head 2.{head}" for head in range(config.heads))}
    assert not others.any()


def test_the_mean_over_queries_is_that_of_single_queries(tiny: Model) -> None:
    windowed = Model(dataclasses.replace(tiny.config, windows=(None, 4, None)), tiny.params, None, tiny.source)
    mean = sinkjax.explain_score(windowed, tokens(tiny), key=2, lengths=LENGTHS)
    each = [sinkjax.explain_score(windowed, tokens(tiny), query=query, key=2, lengths=LENGTHS) for query in range(3, 7)]
    for layer, last in ((0, 6), (1, 5), (2, 6)):  # prompt 1 has 7 tokens, and a window of 4 shows key 2 to queries up to 5
        want = np.mean([one.contribution[1, layer] for one in each[: last - 2]], axis=0)
        np.testing.assert_allclose(mean.contribution[1, layer], want, rtol=1e-9, atol=1e-12)


def test_a_part_taken_out_of_a_logit_is_measured_with_the_norm_that_is_left(tiny: Model) -> None:
    batch = tokens(tiny)
    probe = Probe(capture=tuple(Capture(site) for site in ("embed", "head_out", "mlp_out", "resid")))
    out = sinkjax.forward(tiny.params, batch, tiny.config, probe=probe)
    found = sinkjax.explain_logit(tiny, batch, against=5)
    token = np.asarray(out.logits)[:, -1].argmax(axis=-1)
    np.testing.assert_array_equal(found.token, token)
    unembed = np.asarray(tiny.params["unembed"])

    def logit(h: np.ndarray) -> np.ndarray:
        x = h / np.sqrt((h**2).mean(axis=-1, keepdims=True) + tiny.config.norm.eps) * np.asarray(tiny.params["final_norm"])
        return np.einsum("bd,db->b", x, unembed[:, token] - unembed[:, [5]])

    h = np.asarray(out.record["resid"])[:, -1, -1]
    np.testing.assert_allclose(found.logit, logit(h), rtol=1e-9)
    for name, part in plain_parts(tiny, out.record, 9, 3).items():
        np.testing.assert_allclose(found.removed.sel(part=name), logit(h) - logit(h - part), rtol=1e-8, atol=1e-12)


def test_a_quadratic_form_is_what_a_gated_mlp_computes(tiny: Model) -> None:
    layers = {name: np.asarray(leaf)[1] for name, leaf in tiny.params["layers"].items()}
    forms = np.einsum("dn,en,nk->kde", layers["gate"], layers["up"], layers["down"])
    forms = (forms + forms.swapaxes(1, 2)) / 2
    h = np.random.default_rng(0).standard_normal(32)
    np.testing.assert_allclose(np.einsum("kde,d,e->k", forms, h, h), (h @ layers["gate"] * (h @ layers["up"])) @ layers["down"])
    found = sinkjax.spike_forms(tiny, layers=1, count=32)
    np.testing.assert_allclose(found.norm[0], np.linalg.norm(forms, axis=(1, 2)), rtol=1e-10)
    assert (np.diff(found.form_norm[0]) <= 0).all()
    for number, dim in enumerate(found.form_dim.values[0]):
        values = np.linalg.eigvalsh(forms[dim])
        np.testing.assert_allclose(found.eigenvalue[0, number], values[np.abs(values).argmax()], rtol=1e-9)
        direction = found.direction.values[0, number]
        np.testing.assert_allclose(forms[dim] @ direction, float(found.eigenvalue[0, number]) * direction, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.share, abs(found.eigenvalue) / found.form_norm)
    named = sinkjax.spike_forms(tiny, layers=1, dims=[4, 7])
    np.testing.assert_allclose(named.form_norm[0], np.linalg.norm(forms[[4, 7]], axis=(1, 2)), rtol=1e-10)
