"""Cards: classes with known answers, their files, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import evaluation
from sinkjax.cards import ground, plan
from sinkjax.cards.card import _bos, _quality
from sinkjax.cards.cause import _kind
from sinkjax.cards.cost import CostRow, cost
from sinkjax.cards.files import clamp, mask_program, sink_mask
from sinkjax.cards.ground import signed
from sinkjax.cards.page import as_section
from sinkjax.checkpoints.model import Model
from sinkjax.cli.main import main
from sinkjax.data.corpora import passages
from sinkjax.edits.edit import compose, edit
from sinkjax.edits.named import attend_self, mask_key, set_residual
from sinkjax.model import params
from sinkjax.model.normalisers import NAMED
from sinkjax.report.page import page
from sinkjax.transformer.forward import forward

SIZE = {"prompts": 8, "length": 32}
STRANGE = "nobody.has.this"


@pytest.fixture(scope="module")
def compiled():
    """The programs that the card of `softmax` compiles."""
    return []


@pytest.fixture(scope="module")
def softmax(compiled):
    """The card of a model whose sink is its BOS, which stood first in every block of its training."""

    def note(event, duration, **about):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(about["fun_name"])

    model = sinkjax.load("mini-softmax")
    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(note)
    made = sinkjax.card(model, **SIZE)
    jax.monitoring.unregister_event_duration_listener(note)
    return made


def test_a_card_compiles_few_programs(softmax, compiled):
    assert softmax.maker.left["mean"] < 0.5 < min(softmax.maker.left_controls)  # nothing was left out
    assert len(compiled) <= 12


def test_a_sink_that_a_model_learned_on_its_bos_hangs_on_that_token(softmax):
    assert softmax.where.position == 0
    assert softmax.where.token == "<|bos|>"
    assert softmax.cause.kind == "tokens"
    assert 0 in [token for token, _ in softmax.cause.tokens]
    assert softmax.bos["policy"] == "model"
    unedited, moved, isolated = (getattr(softmax.cause, name)["mean"] for name in ("unedited", "moved", "isolated"))
    assert isolated < unedited / 2 < moved
    assert softmax.prefix.tokens == (0,)  # its BOS, which the scan finds


def test_the_heads_of_a_card_are_those_of_the_sink_metric(softmax):
    record = sinkjax.forward(sinkjax.load("mini-softmax"), softmax.passages["sinks"]).record
    mean = np.asarray(record["attention_received"])[..., 0].mean(axis=0)
    np.testing.assert_allclose(softmax.where.by_head, mean, rtol=1e-5)
    assert [(layer, head) for layer, head, _ in softmax.where.heads] == [*zip(*np.nonzero(mean > 0.3), strict=True)]


def test_a_model_that_learned_nothing_has_no_sink():
    found = sinkjax.card(sinkjax.load("untrained:mini-softmax"), **SIZE)
    assert (found.where.heads, found.cause.kind, found.purpose) == ([], "nothing", None)
    assert "stands out" in str(found.maker)
    assert found.advice()[-1].startswith("nothing to protect")


def test_attention_to_no_key_is_told_from_none():
    config = dataclasses.replace(sinkjax.load("mini-softmax").config, normaliser=NAMED["sink-logit"])
    drawn = params.init(config, seed=0)
    drawn["layers"]["normaliser"] = jax.tree.map(lambda leaf: jnp.full_like(leaf, 8.0), drawn["layers"]["normaliser"])
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (6, 32))
    found = sinkjax.card(Model(config, jax.tree.map(jnp.asarray, drawn), None, {"kind": "arrays", "name": "planted"}), tokens)
    assert found.cause.kind == "a key without a token"
    assert found.where.no_key["mean"] > 0.9


@pytest.mark.parametrize(
    ("no_bos", "masked", "isolated", "moved", "share", "kind"),
    [
        (None, 0.55, 0.5, 0.05, 1.0, "any token that sees only itself"),
        (0.5, 0.05, 0.5, 0.5, 0.9, "any token that sees only itself"),
        (0.05, 0.05, 0.04, 0.4, 0.01, "tokens"),
        (0.5, 0.5, 0.04, 0.04, None, "position"),
        (0.05, 0.05, 0.04, 0.04, 0.01, "none of these"),
    ],
)
def test_the_class_follows_from_what_is_left_of_the_sink(no_bos, masked, isolated, moved, share, kind):
    means = {"unedited": 0.6, "masked": masked, "isolated": isolated, "no_bos": no_bos, "moved": moved}
    assert _kind({name: mean for name, mean in means.items() if mean is not None}, share) == kind


def test_the_edits_of_a_card_are_of_one_kind_and_equal_the_named_ones():
    about = ground.ground(sinkjax.load("mini-softmax"), prompts=2, length=16)
    later = edit("logits", "set", -np.inf, keys=0, queries=slice(6, None))
    for asked, named in (
        ({}, ()),
        ({"hidden": 0}, mask_key(0)),
        ({"hidden": 0, "behind": 5}, later),
        ({"isolated": 5, "hidden": 0, "behind": 5}, compose(attend_self(5), later)),
        ({"value": 0.0}, edit("value", "set", 0.0, keys=0)),
        ({"held": (1, [3, 5], [70.0, -2.0])}, set_residual(0, [70.0, -2.0], dims=[3, 5], layers=1)),
    ):
        edited, other = about.edited(about.own.tokens, **asked), about.run(about.own.tokens, ("received", "nll"), named)
        for name in ("received", "nll"):
            np.testing.assert_allclose(edited[name], other[name], rtol=1e-5, atol=1e-6, err_msg=str(asked))


@pytest.mark.parametrize("how", ["fused", "pallas"])
def test_a_card_measures_the_same_by_every_implementation_of_attention(monkeypatch, how):
    def noted(*given, **named):
        asked.append(named["attention_impl"])
        return forward(*given, **named)

    asked: list[str] = []
    monkeypatch.setattr(ground, "forward", noted)
    model = sinkjax.load("mini-softmax")
    base, other = (ground.ground(model, prompts=2, length=16, attention_impl=name) for name in ("auto", how))
    assert base.hidden["nll"] == pytest.approx(other.hidden["nll"], rel=1e-4, nan_ok=True)
    assert base.own.numbers["received"] == pytest.approx(other.own.numbers["received"], abs=1e-5)
    assert set(asked) == {"auto", how}


def test_the_program_on_a_card_s_page_marks_the_sinks(softmax, tmp_path, monkeypatch):
    """It runs beside the card's files without sinkjax."""
    monkeypatch.chdir(softmax.save(tmp_path / "card"))
    program = next(block.code for block in as_section(softmax).blocks if block.code)
    assert mask_program() in (Path(__file__).parents[2] / "docs/how-to/card.md").read_text(encoding="utf-8")
    assert "sinkjax" not in program
    known = {"tokens": np.array([[0, 100, 101], [102, 0, 103]])}
    exec(program, known)
    np.testing.assert_array_equal(known["mask"], sink_mask(known["tokens"], softmax.sink_tokens()))
    assert program in unescape(page([as_section(softmax)], "card"))


def test_precision_and_recall_are_split_by_position_and_token():
    """Of four heads, two sink on position 0, which always has token 7; one on token 9 wherever it is; tokens 5 never are."""
    tokens = np.full((2, 16), 5, np.int32)
    tokens[:, 0], tokens[0, 3], tokens[1, 2] = 7, 9, 9
    tokens[1, 4] = 7  # that is no sink there
    received = np.zeros((2, 1, 4, 16))
    received[:, 0, :2, 0] = received[0, 0, 2, 3] = received[1, 0, 2, 2] = 0.9
    places = SimpleNamespace(sinks=True, position=0, elsewhere=[(9, "b", 0.3)])
    found = _quality(received, tokens, places, SimpleNamespace(tokens=[(7, "a")]))
    assert (found["precision"], found["recall"]) == (2 / 3, 4 / 6)  # the file marks token 7 anywhere
    assert found["by_position"] == {"position": 0, "precision": 1.0, "recall": 4 / 6}
    assert found["by_token"] == [
        {"token": 7, "text": "a", "precision": 2 / 3, "recall": 4 / 6},
        {"token": 9, "text": "b", "precision": 1.0, "recall": 2 / 6},
    ]
    of_position = _quality(received, tokens, places, SimpleNamespace(tokens=[]))
    assert (of_position["precision"], of_position["recall"]) == (1.0, 4 / 6)


def test_the_clamp_limits_every_dim_that_the_card_names_where_it_stands_out(softmax, tmp_path):
    found = dataclasses.replace(softmax.where.activation, dims=[4, 58], layer=2, elsewhere=1.0)
    found = dataclasses.replace(found, by_layer=[2.0, 9.0, 10.0, 0.5], held=[[2.0, 0.1], [-9.0, 3.0], [-10.0, 0.5], [0.5, 0.1]])
    changed = dataclasses.replace(softmax, where=dataclasses.replace(softmax.where, activation=found))
    kept = json.loads((changed.save(tmp_path) / "clamp.json").read_text())
    assert (kept["position"], kept["dims"], kept["layers"], kept["bound"]) == (0, [4, 58], [1, 2], 1.0)
    assert kept["values"] == [[-9.0, 3.0], [-10.0, 0.5]]
    model = sinkjax.load("mini-softmax")
    tokens = np.zeros((1, 12), np.int32)
    probe = sinkjax.Probe(capture=[sinkjax.Capture("resid", name="h")])
    h = np.asarray(forward(model, tokens, edits=clamp(kept), probe=probe, logits=False).record["h"])[0]
    np.testing.assert_allclose(h[1, 0, [4, 58]], [-1.0, 1.0], rtol=1e-6)
    assert h[2, 0, 4] == pytest.approx(-1.0)
    assert abs(h[2, 0, 58]) != pytest.approx(1.0)  # its mean there is within the bound


def test_a_card_has_a_page_with_its_lines(softmax):
    section = as_section(softmax)
    assert len(section.findings) == len(softmax.lines())
    assert softmax.advice()
    assert all(one in section.question for one in softmax.advice())  # on the first screen
    blocks = {block.title: block for block in section.blocks}
    cells = [line[1:] for line in blocks["What the heads that sink do"].lines]
    assert sum(len(cell.split(", ")) for line in cells for cell in line if cell) == len(softmax.where.heads)
    layers = [line[0] for line in blocks["The activation at position 0"].lines]
    assert layers == [str(layer) for layer in softmax.where.activation.layers]
    text = page([section], section.title)
    together = text.partition('<div class="halves">')[2].partition("</div>")[0]
    assert together.count("<figure>") == text.count("<figure>") == 2  # they share a line, or stack on a narrow screen


def test_short_texts_of_ones_own_are_used_at_the_length_that_they_have(tmp_path, capsys):
    model, records = sinkjax.load("mini-softmax"), tmp_path / "prompts.jsonl"
    texts = [" ".join(one.split()[:16]) for one in passages("packaged", 14, length=200).texts]
    records.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in [*texts, "No."]))
    shortest = min(len(model.tokenizer.encode(text)) for text in texts)
    assert 12 <= shortest < 64
    about = ground.ground(model, text=records, field="prompt")
    assert (len(about.own.tokens), len(about.other.tokens)) == (10, 4)
    assert about.own.tokens.shape[1] == shortest
    command = ["card", "mini-softmax", "--text", str(records), "--field", "prompt", "--out", str(tmp_path / "card")]
    assert main(command) == 0
    made = json.loads((tmp_path / "card" / "card.json").read_text())["prompts"]
    assert made["length"] == shortest
    assert f"cut to {shortest} tokens" in capsys.readouterr().err
    assert main([*command, "--length", "100"]) == 2  # what is asked for is not changed
    assert "100" in capsys.readouterr().err


def test_a_plan_counts_the_tokens_that_run(monkeypatch):
    """All but those of the scan, which are read by a program of its own."""
    counts = {"scored": 0, "plain": 0}

    def counted(call, probe_of):
        def wrapped(model, tokens, *given, **options):
            counts["scored" if probe_of(options).nll else "plain"] += tokens.size
            return call(model, tokens, *given, **options)

        return wrapped

    monkeypatch.setattr(ground, "forward", counted(forward, lambda options: options["probe"]))
    monkeypatch.setattr(evaluation, "run", counted(evaluation.run, lambda options: options["spec"].probe))
    model = sinkjax.load("mini-softmax")
    sinkjax.card(model, prompts=16, length=48)
    scored, plain = plan.tokens(model.config, 16, 48, bos=True, more=False)
    assert 0.9 * scored <= counts["scored"] <= scored  # fewer if no token is likely to sink
    in_scan = 8 * 48 + model.config.vocab_size
    assert counts["plain"] == plain - in_scan
    assert plan.flops(model.config, 16, 48, True, True) > plan.flops(model.config, 16, 48, True, False)


@pytest.mark.parametrize(("place", "lack"), [(0, 0), (3, 6), (None, 6)])
def test_token_ids_without_the_bos_of_the_training_are_warned_of(softmax, place, lack):
    """The BOS of `mini-softmax`, which stood first in every block of its training, is first, elsewhere or nowhere."""
    model = sinkjax.load("mini-softmax")
    ids = np.random.default_rng(0).integers(3, 512, (6, 16))
    if place is not None:
        ids[:, place] = model.tokenizer.bos
    found = _bos(ground.ground(model, text=ids))
    assert (found["gain"], found["trained"], found["lack"]) == (None, "<|bos|>", lack)
    of_ids = dataclasses.replace(softmax, bos=found, prompts={"number": 6, "length": 16, "text": "token ids"})
    warned = f"{lack} of 6 prompts do not begin with '<|bos|>'"
    assert (warned in dict(of_ids.lines()).get("BOS", "")) == bool(lack)
    assert ("begin every prompt with '<|bos|>'" in of_ids.advice()) == bool(lack)
    assert softmax.bos["lack"] == 0  # a text gets it


def loss(mean):
    return {"mean": mean, "low": mean - 0.005, "high": mean + 0.005, "n": 8}


@pytest.mark.parametrize(
    ("evicted", "text"),
    [
        ([{"keys": 16, "kept": 1, **loss(0.004)}, {"keys": 64, "kept": 1, **loss(0.2)}], "the last 64 keys cost +0.20 nats"),
        ([{"keys": 16, "kept": 1, **loss(0.004)}], None),  # the interval includes 0
        ([], "hiding it from all later tokens costs +0.30 nats"),
    ],
)
def test_the_advice_on_eviction_names_its_number_and_its_basis(softmax, evicted, text):
    purpose, costs = softmax.purpose, dataclasses.replace(softmax.cost, evicted=evicted)
    purpose = dataclasses.replace(purpose, loss={"key hidden": loss(0.3)})
    advice = dataclasses.replace(softmax, purpose=purpose, cost=costs).advice()
    found = [each for each in advice if each.startswith("never evict the key at position 0")]
    assert len(found) == (text is not None)
    assert all(text in each for each in found)


def test_a_remedy_is_advised_only_if_its_problem_is_shown(softmax):
    rows = [CostRow("8 bits, tensor", loss(0.3)), CostRow("8 bits, token", loss(0.1), saved=loss(0.2))]
    for plain, saved, there in ((loss(0.3), loss(0.2), True), (wide(0.3), loss(0.2), False), (loss(0.3), wide(0.2), False)):
        changed = [dataclasses.replace(rows[0], loss=plain), dataclasses.replace(rows[1], saved=saved)]
        advice = dataclasses.replace(softmax, cost=dataclasses.replace(softmax.cost, rows=changed)).advice()
        assert any(f"use a scale per token: {signed(loss(0.1))}" in one for one in advice) == there


def wide(mean):
    return {"mean": mean, "low": mean - 0.4, "high": mean + 0.4, "n": 8}


def test_the_cost_of_evicting_the_sink_is_paired_by_prompt(softmax, monkeypatch):
    """A window loses 1 nat in one prompt and 2 in another, of which the first key saves 0.5 in each."""

    def faked(model, tokens, **setting):
        cache = setting.get("cache")
        added = np.resize([1.0, 2.0], len(tokens)) - (0.5 if isinstance(cache, sinkjax.Streaming) and cache.sinks == 1 else 0.0)
        nll = about.other.numbers["nll"] + (added[:, None] if isinstance(cache, sinkjax.Streaming) else 0.0)
        return evaluation.Evaluation(nll, np.arange(len(tokens)))

    monkeypatch.setattr("sinkjax.cards.cost.evaluate", faked)
    about = ground.ground(sinkjax.load("mini-softmax"), prompts=8, length=20)
    (found,) = cost(about, softmax.where, more=True).evicted
    assert (found["keys"], found["kept"]) == (16, 1)
    assert [found[name] for name in ("mean", "low", "high")] == pytest.approx([0.5, 0.5, 0.5], abs=1e-5)
    assert cost(about, softmax.where).evicted == []
