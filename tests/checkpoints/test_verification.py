"""A model is compared with transformers on eight tokens: equal ones pass, and any change that is not in the weights is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import sinkjax
from sinkjax.checkpoints.verification import compare
from sinkjax.cli.main import main
from sinkjax.errors import SinkjaxError
from tests.model import families as small


def live(family: str = "llama", dtype: torch.dtype = torch.float32) -> Any:
    """A random model whose parameters have a dtype, with rotary frequencies in float32, as `from_pretrained` makes it."""
    model = small.random_model(small.DRAWS[family](small.Turn(1)), 1).float()
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def hook(model: Any) -> None:
    model.model.layers[1].register_forward_hook(lambda _, __, output: output + 1.0)


def patched(model: Any) -> None:
    plain = model.model.layers[1].mlp.forward
    model.model.layers[1].mlp.forward = lambda hidden: 0 * plain(hidden)


def scaling(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 0.5


def norm(model: Any) -> None:
    model.model.norm.variance_epsilon = 0.5


def rotation(model: Any) -> None:
    model.model.rotary_emb.inv_freq *= 0.5


CHANGES = {hook: "block 1", patched: "block 1", scaling: "block 1", norm: "logits", rotation: "block 0"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_that_is_not_in_the_weights_is_refused_where_it_acts(change: Callable[[Any], None], dtype: torch.dtype) -> None:
    model = live(dtype=dtype)
    change(model)
    with pytest.raises(SinkjaxError, match=f"LlamaForCausalLM .* after {CHANGES[change]},.*float32.*verify=False"):
        sinkjax.from_transformers(model)
    assert sinkjax.from_transformers(model, verify=False).source["kind"] == "transformers"


@pytest.mark.parametrize("made", ["float32", "bfloat16", None])
def test_sixteen_bits_are_compared_in_float32_and_the_model_is_as_before(made: str | None) -> None:
    model = live(dtype=torch.bfloat16)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ours = sinkjax.from_transformers(model, dtype=made)
    assert all(torch.equal(value, before[name]) and value.dtype == torch.bfloat16 for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    exact = sinkjax.from_transformers(model, dtype="float32", verify=False)
    found = compare(model, ours, lambda: exact)
    assert (found.first, found.dtype) == (None, "float32")
    assert max(found.relative) < 1e-5
    assert compare(model.bfloat16(), ours, lambda: exact).first is None  # which rounds the rotary frequencies too


def test_where_no_copy_fits_the_dtype_at_hand_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinkjax.checkpoints.verification.host_memory", lambda: 0)
    model = live(dtype=torch.bfloat16)
    ours = sinkjax.from_transformers(model)
    found = compare(model, ours, lambda: pytest.fail("a copy was made"))
    assert (found.first, found.dtype) == (None, "bfloat16")
    assert 1e-4 < max(found.relative) < found.tolerance
    hook(model)
    with pytest.raises(SinkjaxError, match="block 1"):
        sinkjax.from_transformers(model)


@pytest.mark.parametrize(("kind", "more"), [("dynamic", {"factor": 4.0}), ("linear", {"factor": 4.0})])
def test_rotary_settings_that_a_loaded_model_does_not_read_are_refused(kind: str, more: dict[str, float]) -> None:
    """Dynamic scaling acts beyond the context only, so eight tokens do not show it."""
    model = live()
    before = model.config.rope_parameters
    model.config.rope_parameters = {**before, "rope_type": kind, **more}
    with pytest.raises(SinkjaxError, match=r"rotary_emb .*dynamic" if kind == "dynamic" else "differs first after block 0"):
        sinkjax.from_transformers(model)
    model.config.rope_parameters = before
    sinkjax.from_transformers(model)


def test_files_are_compared_and_a_wrong_reading_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live().save_pretrained(tmp_path)
    found = sinkjax.verify(tmp_path)
    assert found.first is None
    assert found.places[:2] == ("embedding", "block 0")
    assert sinkjax.load(tmp_path, verify=True).source["kind"] == "folder"
    assert sinkjax.load(tmp_path, dtype="bfloat16", verify=True).source["dtype"] == "bfloat16"
    for how in ("auto", "pallas"):
        assert main(["verify", str(tmp_path), "--attention-impl", how]) == 0
        assert "logits" in capsys.readouterr().out
    with pytest.raises(SinkjaxError, match="random weights"):
        sinkjax.verify(f"untrained:{tmp_path}")
    with pytest.raises(SinkjaxError, match=r"mini-softmax .*format"):
        sinkjax.verify("mini-softmax")
