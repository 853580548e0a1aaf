"""Language models learn from text: the same runs however they are computed or interrupted; one sentence for what cannot be."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.hardware import Hardware
from sinkjax.tasks import train
from sinkjax.tasks.language_model import task as pretrain
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train import loop
from sinkjax.train.log import read
from sinkjax.train.state import factor, optimiser_of
from sinkjax.train.step import gradient_of

SIZES = {"limit": 60_000, "vocabulary": 300, "context": 24, "layers": 2, "width": 16, "heads": 2, "mlp_width": 24}
SMALL = Pretrain(**SIZES, batch=4, steps=40, eval_every=10, eval_batch=6, warmup=5, seeds=2)


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """One cache of corpora for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return train(SMALL, tmp_path_factory.mktemp("train") / "small", progress=False)


def same_bits(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def interrupted(config, folder, stop, monkeypatch):
    """Train to a step, stop there as a user would, and train on to the end."""
    call = loop.call

    def until(training, left):
        if training.done.step == stop:
            raise KeyboardInterrupt
        call(training, left)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call", until)
        with pytest.raises(KeyboardInterrupt):
            train(config, folder, progress=False, save_every=0)
    return train(config, folder, progress=False)


def test_the_loss_falls_towards_that_of_the_text(done):
    lines = [line for line in read(done.folder)[1] if line["run"] == 0]
    assert [line["step"] for line in lines] == [0, 10, 20, 30, 40]
    assert abs(lines[0]["loss"] - np.log(300)) < 0.5
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.5
    assert abs(lines[-1]["train_loss"] - lines[-1]["loss"]) < 0.4
    assert lines[0]["train_loss"] is None  # no step was made yet
    assert all(0 < line["gradient_norm"] <= line["gradient_norm_max"] for line in lines[1:])


def test_a_run_trains_as_it_would_alone(done, tmp_path):
    alone = train(dataclasses.replace(SMALL, seed=1, seeds=1), tmp_path / "alone", progress=False)
    assert same_bits(alone.of(0), done.of(1))


def test_an_interrupted_training_goes_on_with_the_same_bits_and_log(done, tmp_path, monkeypatch):
    again = interrupted(SMALL, tmp_path / "out", 20, monkeypatch)
    assert same_bits(again.params, done.params)
    assert (tmp_path / "out" / "log.jsonl").read_bytes() == (done.folder / "log.jsonl").read_bytes()


def test_the_first_parameters_have_the_papers_deviations():
    config = dataclasses.replace(SMALL, layers=5, width=64, mlp_width=96)
    params = pretrain.task(config).init(0)
    for leaf, fan_in in ((params["embed"], 64), (params["layers"]["o"], 64), (params["layers"]["gate"], 64)):
        assert np.std(leaf) == pytest.approx(np.sqrt(2 / (5 * fan_in)), rel=0.02)
    assert np.std(params["layers"]["down"]) == pytest.approx(1 / (5 * np.sqrt(96)), rel=0.02)
    assert (params["final_norm"] == 1).all()


def test_the_optimiser_is_adamw_with_decay_on_everything_and_clip(rng):
    import torch

    config = dataclasses.replace(SMALL, weight_decay=0.5, warmup=2, clip=1.0)
    start, scales = rng.normal(size=5).astype(np.float32), [0.1, 5.0, 1.0, 0.3]
    gradients = [scale * rng.normal(size=5).astype(np.float32) for scale in scales]
    theirs = torch.nn.Parameter(torch.tensor(start))
    adamw = torch.optim.AdamW([theirs], lr=1e-2, betas=(config.beta1, config.beta2), weight_decay=0.5)
    ours, optimiser = jnp.asarray(start), optimiser_of(config, jnp.float32(1e-2))
    state = optimiser.init(ours)
    for number, gradient in enumerate(gradients):
        adamw.param_groups[0]["lr"] = 1e-2 * min(1, (number + 1) / 2)
        theirs.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([theirs], 1.0)
        adamw.step()
        changes, state = optimiser.update(jnp.asarray(gradient), state, ours)
        ours = optax.apply_updates(ours, changes)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5)


def test_a_learning_rate_warms_up_and_stays_or_falls_as_a_cosine():
    config = Pretrain(steps=110, warmup=10, lowest=0.2)
    assert [float(factor(config, count)) for count in (0, 4, 9, 109)] == pytest.approx([0.1, 0.5, 1, 1])
    cosine = dataclasses.replace(config, schedule="cosine")
    assert [float(factor(cosine, count)) for count in (0, 10, 60, 110)] == pytest.approx([0.1, 1, 0.6, 0.2])


def gradient(config, params, batch):
    (loss, _), found = jax.jit(lambda params: gradient_of(params, batch, 0, pretrain.task(config)))(params)
    return float(loss), found


@pytest.mark.parametrize(
    ("fields", "tolerance"),
    [
        ({"micro_batch": 2}, 1e-5),
        ({"remat": True}, 1e-5),
        ({"attention_impl": "fused"}, 1e-5),
        ({"compute_dtype": "bfloat16"}, 3e-2),
    ],
    ids=str,
)
def test_how_a_gradient_is_computed_does_not_change_what_it_is(fields, tolerance, done):
    params, batch = done.of(0), done.task.open(lambda line: None).batch(0, 3)
    loss, found = gradient(SMALL, params, batch)
    other_loss, other = gradient(dataclasses.replace(SMALL, **fields), params, batch)
    assert other_loss == pytest.approx(loss, rel=tolerance)
    whole, difference = optax.tree.norm(found), optax.tree.norm(jax.tree.map(jnp.subtract, found, other))
    assert difference < tolerance * whole
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(other))


@pytest.mark.parametrize(
    "fields",
    [
        {"normaliser": "scaled", "alpha": 0.5},
        {"gate": "element", "head_norm": "head-offset", "qk_norm": True},
        {"attention_bias": "kv", "bias_shared": True},
        {"attention_bias": "k", "bias_dims": 4, "bias_value": "ones", "bias_scale": 5.0},
        {"window": 7, "mlp": "reglu", "position": "none", "tied": True},
        {"mlp": "relu", "position": "learned", "norm": "sandwich", "prefix": 3},
        {"mlp": "gelu", "position": "alibi", "norm": "post", "summed_heads": True},
        {"norm_type": "layer", "norm": "parallel", "rope_dims": 4, "biases": True, "mlp": "gelu"},
        {"norm": "output", "qk_norm": True, "qk_norm_joint": True},
        {"norm": "sandwich", "score_cap": 50.0, "logit_cap": 30.0, "mlp": "geglu"},
        {"norm_type": "single-scale", "gate": "value-scale"},
        {"norm_type": "tanh", "norm": "sandwich"},
        {"position": "relative", "attention_bias": "v"},
        {"position": "bucket", "norm": "parallel-shared", "norm_type": "layer"},
        {"position": "sinusoidal", "attention_bias": "sink-token", "normaliser": "sigmoid-p", "p": 3.0},
    ],
    ids=str,
)
def test_every_option_of_the_model_has_a_finite_loss_and_gradient(fields, done):
    config = dataclasses.replace(SMALL, layers=1, **fields)
    task = pretrain.task(config)
    loss, found = gradient(config, task.init(0), done.task.open(lambda line: None).batch(0, 0))
    assert loss == pytest.approx(np.log(300), abs=1)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_a_feed_gives_the_batches_of_each_step_whoever_goes_on_and_wherever_it_begins():
    source = pretrain.task(SMALL).open(lambda line: None)
    for first, rows in ((0, None), (5, np.array([1, 3]))):
        fed = loop.HostBatches(source, [0, 1, 2], 3, rows)
        asked = [((0, 1, 2), first), ((0, 1, 2), first), ((0, 1, 2), first + 3), ((0, 2), first + 6), ((0, 2), first + 9)]
        for runs, step in asked:  # the first is asked for twice, then run 1 has ended
            tokens = fed.at(runs, step)["tokens"]
            for run, of_run in zip(runs, tokens, strict=True):
                wanted = np.stack([source.batch(run, step + k)["tokens"] for k in range(3)])
                np.testing.assert_array_equal(of_run, wanted if rows is None else wanted[:, rows])
    shared = pretrain.task(dataclasses.replace(SMALL, shared_data=True)).open(lambda line: None)
    for text, same in ((source, False), (shared, True)):
        assert np.array_equal(text.batch(0, 8)["tokens"], text.batch(1, 8)["tokens"]) == same


@pytest.mark.parametrize("fields", [{}, {"summed_heads": True}, {"kv_heads": 1, "normaliser": "sigmoid"}], ids=str)
def test_an_evaluation_measures_what_numpy_does(fields, done):
    config = dataclasses.replace(SMALL, **fields)
    task = pretrain.task(config)
    params, tokens = task.init(1), jnp.asarray(done.task.open(lambda line: None).held_out()["tokens"])
    assert (tokens[:, 0] == 0).all()
    measured = jax.tree.map(np.asarray, pretrain.measure(params, tokens, task.architecture, "highest"))
    sites = (sinkjax.Capture(sinkjax.Site.VALUE), sinkjax.Capture(sinkjax.Site.RESID))
    probe = sinkjax.Probe(attention=(0, 1), capture=sites)
    record = sinkjax.forward(params, tokens[:, :-1], task.architecture, probe=probe).record
    weights, values, h = (np.asarray(record[name], np.float64) for name in ("attention", "values", "resid"))
    norms = np.linalg.norm(values, axis=-1)  # prompt, layer, position, kv_head
    o = np.asarray(params["layers"]["o"], np.float64)
    o = np.broadcast_to(o if o.ndim == 4 else o[:, None], (2, 2, *o.shape[-2:]))
    writes = np.einsum("blkhd,lhdn->blhkn", np.repeat(values, 2 // values.shape[3], axis=3), o)
    first = np.linalg.norm(weights[..., 1:, :1] * writes[:, :, :, :1], axis=-1).mean(axis=(0, 3))
    whole = np.linalg.norm(np.einsum("blhik,blhkn->blhin", weights, writes), axis=-1)[..., 1:].mean(axis=(0, 3))
    sizes = np.abs(h).reshape(*h.shape[:2], -1)
    for name, wanted in {
        "value_ratio": (norms[:, :, 0] / norms[:, :, 1:].mean(axis=2)).mean(axis=(0, 2)),
        "written": first / whole,
        "spike": (sizes.max(-1) / np.median(sizes, axis=-1)).mean(axis=0),
        "kurtosis": stats.kurtosis(h, axis=-1).mean(axis=(0, 2)),
        "disparity": (np.abs(h[:, :, 0]).max(-1) / np.abs(h[:, :, 0]).mean(-1)).mean(axis=0),
    }.items():
        np.testing.assert_allclose(measured[name], wanted, rtol=2e-4, err_msg=name)
    logged, received = task.summarise(measured), weights[..., 0].mean(axis=3)
    np.testing.assert_allclose(logged["received"], received.mean(axis=0), rtol=1e-4)
    assert logged["sink"][0] == (received > 0.3).mean()
    for layer in range(2):
        sizes = np.linalg.svd(h[:, layer].reshape(-1, h.shape[-1]), compute_uv=False)
        shares = sizes / sizes.sum()
        assert logged["effective_rank"][layer] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-3)


@pytest.mark.parametrize(("separator", "bos"), [("eos", "none"), ("bos", "first")])
def test_evaluation_can_begin_where_documents_do(separator, bos, tmp_path):
    words = "Some words of a document, and not the same as in another one. "
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(f"Document {number}. " + words * (1 if number % 2 else 12))
    fields = {"text": str(tmp_path), "limit": None, "vocabulary": 270, "validation": 0.5, "separator": separator, "bos": bos}
    config = dataclasses.replace(SMALL, **fields, context=80, eval_batch=8, evaluate_on="documents")
    source = pretrain.task(config).open(lambda line: None)
    rows = source.held_out()["tokens"]
    assert len(rows) >= 4
    assert ((rows[:, 0] == 0) == (bos == "first" or separator == "bos")).all()
    assert (rows[:, 1] != 0).all()  # no second BOS
    text = [source.tokenizer.decode(row[(row > 1)][:64]) for row in rows]
    assert all(line.startswith("Document ") and int(line.split()[1].rstrip(".")) % 2 == 0 for line in text)
    assert len(set(text)) == len(text)
    train_rows = source.batch(0, 0)["tokens"]
    blocks = pretrain.task(dataclasses.replace(config, evaluate_on="blocks")).open(lambda line: None)
    np.testing.assert_array_equal(train_rows, blocks.batch(0, 0)["tokens"])


def test_a_training_keeps_the_attention_that_it_began_with(tmp_path, monkeypatch):
    """Its log names it, and "auto" on another machine goes on with it."""
    few = dataclasses.replace(SMALL, steps=2, eval_every=2, eval_batch=4, seeds=1, layers=1)
    begun = train(dataclasses.replace(few, attention_impl="fused"), tmp_path / "run", progress=False)
    assert begun.task.config.attention_impl == read(tmp_path / "run")[0]["config"]["attention_impl"] == "fused"
    again = train(few, tmp_path / "run", progress=False)
    assert again.task.config.attention_impl == "fused"
    assert same_bits(again.of(0), begun.of(0))
    assert pretrain.task(few).config.attention_impl == "sinkjax"
    with pytest.raises(SinkjaxError, match="attention_impl was 'fused', now 'sinkjax'"):
        train(dataclasses.replace(few, attention_impl="sinkjax"), tmp_path / "run", progress=False)
    monkeypatch.setattr(Hardware, "capability", (9, 0))
    long = dataclasses.replace(few, context=512, compute_dtype="bfloat16")
    assert pretrain.task(long).config.attention_impl == "fused"
    assert pretrain.task(dataclasses.replace(long, mesh=(1, 2))).config.attention_impl == "sinkjax"
