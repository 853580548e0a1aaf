"""config.json as released models and fine-tuning tools write it: all are read, and mean what `architectures` ships."""

from __future__ import annotations

import pytest

from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.hf_config import INERT, NEUTRAL, read_config
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import FURTHER, HUB, LLAMA, without

# Keys with which the weights of a file cannot be read.
QUANTISED = {hub: values for hub, values in HUB.items() if "quantization_config" in values}


def read(values, where, ignore_keys=("auto_map",), **options):
    return read_config(values, where, ignore_keys, **options)[0]


@pytest.mark.parametrize("name", architectures())
def test_a_released_file_means_what_ships(name):
    entry = architectures()[name]
    ignored = ("auto_map", "quantization_config") if entry.hub in QUANTISED else ("auto_map",)
    assert read(HUB[entry.hub], entry.hub, ignore_keys=ignored) == read(dict(entry.values), name)


@pytest.mark.parametrize("hub", FURTHER)
def test_further_uploads_are_read(hub):
    assert read(FURTHER[hub], hub).layers > 0


def test_quantised_weights_are_refused_with_the_reason():
    """But for gpt-oss in MXFP4, whose blocks and scales are read."""
    packed = HUB["openai/gpt-oss-20b"]
    assert read(packed, "config.json") == read(packed | {"quantization_config": None}, "config.json")
    for values, kind in ((packed, "fp8"), (LLAMA | {"quantization_config": {}}, "mxfp4")):
        table = (values["quantization_config"] or {}) | {"quant_method": kind}
        with pytest.raises(SinkjaxError, match=rf"quantised .*'{kind}'.*--ignore-keys"):
            read(values | {"quantization_config": table}, "config.json")
    with pytest.raises(SinkjaxError, match=r"unknown config key 'quantization_config\.group_size'"):
        read(packed | {"quantization_config": packed["quantization_config"] | {"group_size": 16}}, "config.json")


@pytest.mark.parametrize(("hub", "key"), [("gemma-2b", "hidden_act"), ("gemma-2-2b", "hidden_activation")])
def test_gelu_means_the_tanh_approximation_only_in_gemma_1(hub, key):
    values = HUB[f"google/{hub}"] | {key: "gelu"}
    assert (read(values, hub).activation == "gelu_tanh") == (key == "hidden_act")


def test_keys_without_effect_and_absent_features_change_nothing():
    for key, value in {**dict.fromkeys(INERT - {"model_type"}, 3), **NEUTRAL, "quantization_config": None, "new": None}.items():
        assert read(LLAMA | {key: value}, "config.json") == read(LLAMA, "config.json"), key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lm_head_bias", True),
        ("use_sliding_window", True),
        ("head_dim", 8),
        ("layer_types", ["sliding_attention", "full_attention"]),
    ],
)
def test_with_another_value_it_is_refused(key, value):
    values = LLAMA | {"model_type": "olmo2"} if key == "head_dim" else LLAMA
    with pytest.raises(SinkjaxError, match=key):
        read(without(values, *(("mlp_bias",) if key == "head_dim" else ())) | {key: value}, "config.json")


def test_code_beside_a_config_is_refused_until_it_is_ignored():
    """Code may attend both ways under the name of a known family; harmless and harmful code look alike."""
    values = LLAMA | {"auto_map": {"AutoModelForCausalLM": "modeling_mine.LlamaForCausalLM", "AutoTokenizer": ["x.T", None]}}
    with pytest.raises(SinkjaxError, match=r"modeling_mine\.LlamaForCausalLM.*ignore_keys=\('auto_map',\)"):
        read_config(values, "config.json")
    assert read(values, "config.json") == read(LLAMA, "config.json")
    assert read_config(LLAMA | {"auto_map": {}}, "config.json")[0] == read(LLAMA, "config.json")


def test_an_mscale_of_0_is_absent_as_in_transformers():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16.0, "mscale": 0.7}
    read_as = [read(LLAMA | {"rope_scaling": yarn | {"mscale_all_dim": each}}, "config.json") for each in (0, 0.0, None, 1.0)]
    assert read_as[0] == read_as[1] == read_as[2] != read_as[3]
