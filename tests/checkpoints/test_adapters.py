"""Adapters of peft: merged by its arithmetic, or refused with the way to merge them."""

import json

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints import adapters
from sinkjax.checkpoints.adapters import matches
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import LLAMA, random_weights, write_folder

SETTINGS = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]}
SETTINGS |= {"bias": "none", "init_lora_weights": True, "layer_replication": None}
MODULES = ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj")


@pytest.fixture
def weights():
    return random_weights(LLAMA)


def write_adapter(folder, base, arrays, **settings):
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    save_file(arrays, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(SETTINGS | {"base_model_name_or_path": str(base)} | settings))
    return folder


def low_rank(weights, rng, rank=3):
    """Name in an adapter's file -> array, for two linear layers."""
    arrays = {}
    for module in MODULES:
        outputs, inputs = weights[f"{module}.weight"].shape
        arrays[f"base_model.model.{module}.lora_A.weight"] = rng.standard_normal((rank, inputs), np.float32)
        arrays[f"base_model.model.{module}.lora_B.weight"] = rng.standard_normal((outputs, rank), np.float32)
    return arrays


def merged(weights, arrays, scale):
    """The arithmetic of peft, in float64."""
    found = dict(weights)
    for module in MODULES:
        a, b = (arrays[f"base_model.model.{module}.lora_{which}.weight"].astype(np.float64) for which in "AB")
        found[f"{module}.weight"] = weights[f"{module}.weight"] + scale * b @ a
        length = arrays.get(f"base_model.model.{module}.lora_magnitude_vector")
        if length is not None:
            found[f"{module}.weight"] *= (length / np.linalg.norm(found[f"{module}.weight"], axis=1))[:, None]
    return found


def same(model, weights):
    want = sinkjax.from_arrays(LLAMA, {name: array.astype(np.float32) for name, array in weights.items()})
    jax.tree.map(lambda have, other: np.testing.assert_allclose(have, other, rtol=1e-5, atol=1e-5), model.params, want.params)


KINDS = {"LoRA": ({}, 2.0), "rsLoRA": ({"use_rslora": True}, 6 / 3**0.5), "DoRA": ({"use_dora": True}, 2.0)}


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_merged(tmp_path, rng, weights, kind, beside):
    base, arrays = write_folder(tmp_path / "base", LLAMA, weights), low_rank(weights, rng)
    if kind == "DoRA":
        for module in MODULES:
            lengths = rng.uniform(1, 2, weights[f"{module}.weight"].shape[0]).astype(np.float32)
            arrays[f"base_model.model.{module}.lora_magnitude_vector"] = lengths
    settings, scale = KINDS[kind]
    plain = sinkjax.load(base)
    model = sinkjax.load(write_adapter(base if beside else tmp_path / "adapter", base, arrays, **settings))
    same(model, merged(weights, arrays, scale))
    assert model.source["adapter"].startswith(f"{kind} in ")
    assert model.source["sha256"] != plain.source["sha256"]


def test_an_alpha_of_its_own_and_tensors_that_were_trained_whole(tmp_path, rng, weights):
    arrays = low_rank(weights, rng)
    head = rng.standard_normal(weights["lm_head.weight"].shape, np.float32)
    whole = {"base_model.model.lm_head.weight": head, "base_model.model.model.norm.modules_to_save.weight": head[0, :16].copy()}
    base = write_folder(tmp_path / "base", LLAMA, weights)
    model = sinkjax.load(write_adapter(tmp_path / "a", base, arrays | whole, alpha_pattern={"mlp.down_proj": 12}))
    want = merged(weights, arrays, 2.0)
    want[f"{MODULES[1]}.weight"] = merged(weights, arrays, 4.0)[f"{MODULES[1]}.weight"]
    same(model, want | {"lm_head.weight": head, "model.norm.weight": head[0, :16]})


def test_an_embedding_is_stored_the_other_way_round(tmp_path, rng, weights):
    a, b = rng.standard_normal((3, 32), np.float32), rng.standard_normal((16, 3), np.float32)
    names = [f"base_model.model.model.embed_tokens.lora_embedding_{which}" for which in "AB"]
    base = write_folder(tmp_path / "base", LLAMA, weights)
    model = sinkjax.load(write_adapter(tmp_path / "a", base, dict(zip(names, (a, b), strict=True))))
    same(model, weights | {"model.embed_tokens.weight": weights["model.embed_tokens.weight"] + 2 * (b @ a).T})


@pytest.mark.parametrize("dora", [False, True])
def test_linear_layers_stored_inputs_first(tmp_path, rng, dora):
    """GPT-2's projections, which peft marks as fan_in_fan_out."""
    from tests.model import families as small

    small.write_random(small.DRAWS["gpt2"](small.Turn(0)), 0, tmp_path / "base")
    arrays, name = sinkjax.to_arrays(sinkjax.load(tmp_path / "base")), "transformer.h.0.mlp.c_fc"
    inputs, outputs = arrays[f"{name}.weight"].shape
    a, b = rng.standard_normal((3, inputs), np.float32), rng.standard_normal((outputs, 3), np.float32)
    adapter = {f"base_model.model.{name}.lora_{which}.weight": array for which, array in (("A", a), ("B", b))}
    changed = arrays[f"{name}.weight"] + 2 * (b @ a).T
    if dora:
        lengths = adapter[f"base_model.model.{name}.lora_magnitude_vector"] = rng.uniform(1, 2, outputs).astype(np.float32)
        changed = changed * lengths / np.linalg.norm(changed, axis=0)
    folder = write_adapter(tmp_path / "a", tmp_path / "base", adapter, fan_in_fan_out=True, use_dora=dora)
    np.testing.assert_allclose(sinkjax.to_arrays(sinkjax.load(folder))[f"{name}.weight"], changed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"layer_replication": [[0, 1]]}, r"'layer_replication'.*merge_and_unload"),
        ({"init_lora_weights": "pissa"}, r"'init_lora_weights': 'pissa'.*merge_and_unload"),
        ({"lora_bias": True}, r"'lora_bias'.*merge_and_unload"),
        ({"base_model_name_or_path": None}, r"base_model_name_or_path.*merge_and_unload"),
    ],
)
def test_another_kind_is_refused(tmp_path, rng, weights, settings, named):
    folder = write_adapter(tmp_path / "a", write_folder(tmp_path / "base", LLAMA, weights), low_rank(weights, rng), **settings)
    with pytest.raises(SinkjaxError, match=named):
        sinkjax.load(folder)


def test_a_model_beside_an_adapter_of_another_one_is_not_guessed(tmp_path, rng, weights):
    """Such a folder may hold the merged weights, or the base's."""
    folder = write_adapter(write_folder(tmp_path / "m", LLAMA, weights), "other/base", low_rank(weights, rng))
    with pytest.raises(SinkjaxError, match=r"'other/base'.*ignore_keys=\('adapter_config.json',\)"):
        sinkjax.load(folder)
    same(sinkjax.load(folder, ignore_keys=("adapter_config.json",)), weights)


def test_weights_with_an_adapter_inside_are_refused(weights):
    inside = {name.replace("q_proj.", "q_proj.base_layer."): array for name, array in weights.items()}
    with pytest.raises(SinkjaxError, match=r"q_proj\.base_layer\.weight.*merge_and_unload"):
        sinkjax.from_arrays(LLAMA, inside)


Q, DOWN = MODULES
PATTERNS = (
    *(["mlp.down_proj"], [f"^{Q}"], [r".*\.layers\.0\..*(q_proj|v_proj)$"], ["(q|down)_proj"], ["layers.1.mlp.down.proj"]),
    *([r"layers\.\d+.*", "mlp.down_proj", "q_proj"], ["q_proj", "down_proj"]),
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_they_mean_what_they_mean_in_peft(pattern):
    from peft.utils import other

    more = [*MODULES, "q_proj", "model.layers.10.self_attn.q_proj", "model.layers.1.mlp.up_proj", "lm_head"]
    matched = matches(pattern, more, "x")
    for module in more:
        assert next((key for key in pattern if module in matched[key]), module) == other.get_pattern_key(pattern, module)


def test_a_rank_of_its_own_is_that_of_the_tensors(tmp_path, rng, weights):
    base, arrays = write_folder(tmp_path / "base", LLAMA, weights), low_rank(weights, rng)
    down = {name: array for name, array in low_rank(weights, rng, 5).items() if DOWN in name}
    folder = write_adapter(tmp_path / "a", base, arrays | down, rank_pattern={r"(up|down)_proj": 5})
    want = merged(weights, arrays | down, 6 / 3)
    want[f"{DOWN}.weight"] = merged(weights, arrays | down, 6 / 5)[f"{DOWN}.weight"]
    same(sinkjax.load(folder), want)
    for ranks, settings in (({}, {}), ({"down_proj": 4}, {}), ({"down_proj": 5}, {"r": 4})):
        write_adapter(tmp_path / "a", base, arrays | down, rank_pattern=ranks, **settings)
        with pytest.raises(SinkjaxError, match=r"has A \((5|3), \d+\) for model.*, whose rank is [34] in adapter_config.json"):
            sinkjax.load(folder)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"k_proj": 12}, r"unknown module in alpha_pattern.*'k_proj'.*q_proj"),
        ({"q_proj": 12, r"layers\.2\..*": 12}, r"unknown module in alpha_pattern.*layers"),
        ({"q_pro(j": 12}, r"alpha_pattern in .* must be regular expressions: .*unterminated"),
        ({"q_proj": "12"}, r"'q_proj' in alpha_pattern .* must be a number"),
        ([12], r"'alpha_pattern' .* must be a table"),
    ],
)
def test_a_pattern_that_changes_nothing_or_is_none_is_refused(tmp_path, rng, weights, pattern, message):
    base = write_folder(tmp_path / "base", LLAMA, weights)
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load(write_adapter(tmp_path / "a", base, low_rank(weights, rng), alpha_pattern=pattern))
    assert "\n" not in str(caught.value)


def test_an_expression_without_an_end_is_stopped(tmp_path, rng, weights, monkeypatch):
    monkeypatch.setattr(adapters, "TIME", 0.5)
    base = write_folder(tmp_path / "base", LLAMA, weights)
    folder = write_adapter(tmp_path / "a", base, low_rank(weights, rng), alpha_pattern={"(([a-z0-9_.]+)+)+X": 12})
    with pytest.raises(SinkjaxError, match=r"takes more than 0.5 s .*simplify.*\+X"):
        sinkjax.load(folder)
