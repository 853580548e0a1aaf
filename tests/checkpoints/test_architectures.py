"""The models of the papers: their shapes ship, fit one device of 16 GB, and their families run at a size that fits a test."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import pytest

import sinkjax
from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.cli import main as cli
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.model.rotary import Llama3Scaling
from sinkjax.runtime.hardware import Hardware
from sinkjax.study import run
from sinkjax.study.choice import Chosen
from sinkjax.study.registry import find
from tests.study.tiny import study, write_model, write_text

DEVICE = 16 * 10**9
PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "tinyllama-1.1b": 1_100_048_384,
    "bloom-560m": 559_214_592,
    "gemma-2b": 2_506_172_416,
    "gemma2-2b": 2_614_341_888,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "mixtral-8x7b": 46_702_792_704,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "phi-2": 2_779_683_840,
    "pythia-70m": 70_426_624,
    "pythia-12b": 11_846_072_320,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen3-30b-a3b": 30_532_122_624,
}
OF_THE_PAPERS = ("llama-2-7b", "llama-3.2-3b", "mistral-7b", "tinyllama-1.1b")


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_has_the_published_size_without_a_network(name):
    checkpoint = open_checkpoint(name, weights=False)
    assert params.count(checkpoint.config) == PARAMETERS[name]
    assert (checkpoint.source["kind"], checkpoint.source["name"], checkpoint.tensors) == ("architecture", name, {})


def test_what_the_papers_need_of_them():
    configs = {name: open_checkpoint(name, weights=False).config for name in OF_THE_PAPERS}
    assert configs["llama-3.2-3b"].position.scaling == Llama3Scaling(32.0, 1.0, 4.0, 8192)
    assert configs["llama-3.2-3b"].tied
    assert configs["mistral-7b"].windows == (4096,) * 32
    assert {name: config.heads // config.kv_heads for name, config in configs.items()} == {
        "llama-2-7b": 1,
        "llama-3.2-3b": 3,
        "mistral-7b": 4,
        "tinyllama-1.1b": 8,
    }


@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_its_weights_are_looked_for_on_the_hub(name):
    for call in (sinkjax.load, open_checkpoint):
        with pytest.raises(SinkjaxError, match=f"config.json of {architectures()[name].hub}"):
            call(name)


@pytest.mark.parametrize("platform", ["tpu", "cpu"])
@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_masking_every_layer_fits_one_device_of_16_gb_in_bfloat16(name, platform):
    Mask = find("kiya/mask").settings

    chosen = Chosen("kiya/mask", Mask(model=name, dtype="bfloat16"))
    planned = [part for part in run.work(chosen, Hardware(DEVICE, platform=platform)) if part[2] is not None]
    assert {spec.name for spec, _, _ in planned} >= {"masks", "masks-controls", "maps"}
    for _, architecture, plan in planned:
        assert 2 * params.count(architecture) < plan.peak_bytes < DEVICE


@pytest.mark.parametrize("platform", ["tpu", "cpu"])
def test_a_device_that_is_too_small_is_refused(platform):
    Mask = find("kiya/mask").settings

    chosen = Chosen("kiya/mask", Mask(model="llama-3.2-3b", dtype="bfloat16"))
    with pytest.raises(SinkjaxError, match="needs about 6"):
        list(run.work(chosen, Hardware(4 * 10**9, platform=platform)))


def test_the_command_line_plans_and_lists_them(capsys, monkeypatch):
    monkeypatch.setattr("sinkjax.study.plan.block_rate", lambda *args: 1e12)
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.main(["plan", "kiya/mask", "--model", "llama-3.2-3b", "--dtype", "bfloat16", "--platform", "tpu-v5e"]) == 0
    shown = capsys.readouterr().out
    assert "memory: peak" in shown
    assert "6.4 GB" in shown  # two bytes for each parameter
    assert cli.main(["models"]) == 0
    assert "3,212,749,824" in capsys.readouterr().out
    assert cli.main(["models", "mistral-7b"]) == 0
    assert "7,241,732,096" in capsys.readouterr().out


def shrunk(name: str) -> dict:
    """The values of an architecture with as few layers, heads and dims as keep its family: grouping, tying, scaling, window."""
    values = dict(architectures()[name].values)
    heads, kv_heads = values["num_attention_heads"], values["num_key_value_heads"]
    group = heads // kv_heads
    values |= {"num_attention_heads": 2 * group, "num_key_value_heads": 2, "hidden_size": 8 * group, "head_dim": 4}
    values |= {"intermediate_size": 24, "num_hidden_layers": 3, "max_position_embeddings": 64}
    if "sliding_window" in values:
        values["sliding_window"] = 8
    if "rope_scaling" in values:
        values["rope_scaling"] = {**values["rope_scaling"], "original_max_position_embeddings": 16}
    return {"attention_bias": None, "mlp_bias": None, "rope_theta": 10000.0, **values}


@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_a_small_model_is_of_its_family(name, tmp_path: Path):
    write_model(tmp_path / "model", **shrunk(name))
    small, large = (open_checkpoint(source, weights=False).config for source in (str(tmp_path / "model"), name))
    assert small.group == large.group
    assert (small.tied, type(small.position.scaling), small.windows is None) == (
        large.tied,
        type(large.position.scaling),
        large.windows is None,
    )


@pytest.mark.parametrize("name", ["llama-3.2-3b", "mistral-7b"])  # tied and scaled; with a window: the others have less
def test_a_small_model_of_its_family_runs_the_same_study_in_bfloat16(name, tmp_path: Path):
    write_model(tmp_path / "model", **shrunk(name))
    write_text(tmp_path / "text.txt")
    edits = [{"compose": []}, {"mask_key": {"key": 0, "layers": {"each": "0:3"}}}]
    statistics = ["attention_received", "resid_max", "nll"]
    for out, model in (("trained", str(tmp_path / "model")), ("random", f"untrained:{tmp_path / 'model'}")):
        chosen = study("sweep", tmp_path, edits=edits, probe=statistics, dtype="bfloat16", model=model)
        section = run.carry_out(chosen, tmp_path / out)
        assert len(section.featured) == 4
        assert all(math.isfinite(row.value.mean) for row in section.rows)


def test_a_short_name_can_have_random_weights_without_a_network():
    """Shapes only: 1.1 billion numbers would take a while."""
    checkpoint = open_checkpoint("untrained:tinyllama-1.1b")
    assert (checkpoint.source["kind"], checkpoint.initializer_range, checkpoint.tokenizer) == ("untrained", 0.02, None)
    shapes = jax.eval_shape(lambda: params.init(checkpoint.config, 0, "bfloat16", 0.02))
    params.check(shapes, checkpoint.config)


def test_models_says_what_separated_documents_in_each_family(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["models", "--verbose"]) == 0
    lines = capsys.readouterr().out.split("what stood between documents")[1].splitlines()
    said = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert {*families()} <= {*said}
    assert said["gpt_neox"][:2] == ["<|endoftext|>", "no"]
    assert said["gemma2"][:2] == ["<bos>", "yes"]
    assert said["gpt_oss"][:4] == ["not", "known", "not", "known"]
