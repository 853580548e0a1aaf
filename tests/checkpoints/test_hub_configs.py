"""config.json as released models and fine-tuning tools write it: all are read, and mean what `architectures` ships."""

from __future__ import annotations

import pytest
import transformers

from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Caps
from tests.checkpoints.files import FURTHER, HUB, LLAMA, without

# Keys with which the weights of a file cannot be read.
QUANTISED = {hub: values for hub, values in HUB.items() if "quantization_config" in values}
# Defaults of transformers that no released model has: what they lack in the other families' terms is stated here.
UNSTATED = {"mpt": {"layer_norm_epsilon": 1e-5}}


def read(values, where, ignore_keys=("auto_map",), **options):
    return read_config(values, where, ignore_keys, **options)[0]


def test_every_released_architecture_has_its_file():
    assert {entry.hub for entry in architectures().values()} == HUB.keys()


@pytest.mark.parametrize("name", architectures())
def test_a_released_file_means_what_ships(name):
    entry = architectures()[name]
    ignored = ("auto_map", "quantization_config") if entry.hub in QUANTISED else ("auto_map",)
    assert read(HUB[entry.hub], entry.hub, ignore_keys=ignored) == read(dict(entry.values), name)


@pytest.mark.parametrize("hub", FURTHER)
def test_further_uploads_are_read(hub):
    assert read(FURTHER[hub], hub).layers > 0


@pytest.mark.parametrize("hub", QUANTISED)
def test_quantised_weights_are_refused_with_the_reason(hub):
    with pytest.raises(SinkjaxError, match=r"quantised .*'mxfp4'.*--ignore-keys"):
        read(HUB[hub], hub)


@pytest.mark.parametrize("model_type", families())
def test_the_defaults_of_transformers_are_read(model_type):
    values = transformers.AutoConfig.for_model(model_type).to_dict()
    assert read(values | UNSTATED.get(model_type, {}), model_type).layers > 0


def test_null_means_absent():
    nulls = dict.fromkeys(("quantization_config", "mlp_bias", "rope_parameters", "brand_new", "head_dim"))
    assert read(LLAMA | nulls, "config.json") == read(LLAMA, "config.json")


def test_gemma_2_has_caps_unless_they_are_null():
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    values = without(HUB["google/gemma-2-2b"], *caps)
    config, assumed = read_config(values, "config.json")
    assert (config.caps, [assumed[key] for key in caps]) == (Caps(50.0, 30.0), [50.0, 30.0])
    assert read(values | dict.fromkeys(caps), "config.json").caps == Caps()


@pytest.mark.parametrize(("hub", "key"), [("gemma-2b", "hidden_act"), ("gemma-2-2b", "hidden_activation")])
def test_gelu_means_the_tanh_approximation_only_in_gemma_1(hub, key):
    values = HUB[f"google/{hub}"] | {key: "gelu"}
    assert (read(values, hub).activation == "gelu_tanh") == (key == "hidden_act")


def test_all_offending_keys_come_in_one_message_with_both_ways_to_pass_them():
    with pytest.raises(SinkjaxError) as caught:
        read(LLAMA | {"brand_new": 1, "rms_nrm_eps": 1, "another": [2]}, "config.json")
    message = str(caught.value)
    assert all(f"'{key}'" in message for key in ("another", "brand_new", "rms_nrm_eps"))
    assert "did you mean 'rms_norm_eps'?" in message
    assert "ignore_keys=('another', 'brand_new', 'rms_nrm_eps')" in message
    assert "--ignore-keys another brand_new rms_nrm_eps" in message
    assert "\n" not in message


# Keys that uploads of popular tools put into a Llama's file; none of them changes a number.
HARMLESS = {
    "_num_labels": 2,
    "is_causal": True,
    "custom_pipelines": {},
    "unsloth_fixed": True,
    "unsloth_version": "2025.1",
    "_flash_attn_2_enabled": True,
    "_attn_implementation": "sdpa",
    "attn_implementation": "flash_attention_2",
    "use_flash_attention": True,
    "gradient_checkpointing": True,
    "model_max_length": 4096,
    "max_seq_len": 4096,
    "tokenizer_model_max_length": 4096,
    "tokenizer_padding_side": "right",
    "padding_side": "left",
    "decoder_start_token_id": 1,
    "mask_token_id": 4,
    "ignore_index": -100,
    "output_past": True,
    "classifier_dropout": 0.1,
    "attention_probs_dropout_prob": 0.0,
    "embedding_dropout": 0.0,
    "residual_dropout": 0.0,
    "num_labels": 2,
    "use_return_dict": True,
    "pruned_heads": {},
    "min_p": 0.1,
    "max_new_tokens": 20,
    "license": "apache-2.0",
    "model_name": "mine",
    "neuron": {"task": "text-generation"},
    "_commit_hash": "0" * 40,
    "trust_remote_code": True,
    "kv_cache_dtype": "auto",
}
# Keys that other architectures have, with the value that says: not here.
NEUTRAL = {
    "attention_bias": False,
    "mlp_bias": False,
    "lm_head_bias": False,
    "use_sliding_window": False,
    "tie_encoder_decoder": False,
    "is_decoder": False,
    "layer_types": ["full_attention", "full_attention"],
    "partial_rotary_factor": 1.0,
    "alibi": False,
    "num_nextn_predict_layers": 0,
    "qk_layernorm": False,
    "use_qk_norm": False,
    "num_local_experts": 0,
}


@pytest.mark.parametrize("key", HARMLESS | NEUTRAL)
def test_what_fine_tuning_tools_add_is_read(key):
    assert read(LLAMA | {key: (HARMLESS | NEUTRAL)[key]}, "config.json") == read(LLAMA, "config.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lm_head_bias", True),
        ("use_sliding_window", True),
        ("alibi", True),
        ("num_local_experts", 8),
        ("head_dim", 8),
        ("layer_types", ["sliding_attention", "full_attention"]),
        ("qk_layernorm", True),
        ("is_causal", False),
    ],
)
def test_with_another_value_it_is_refused(key, value):
    values = LLAMA | {"model_type": "olmo2"} if key == "head_dim" else LLAMA
    with pytest.raises(SinkjaxError, match=key):
        read(without(values, *(("mlp_bias",) if key == "head_dim" else ())) | {key: value}, "config.json")


def test_code_beside_a_config_is_refused_until_it_is_ignored():
    """Code may attend both ways under the name of a known family; harmless and harmful code look alike."""
    values = LLAMA | {"auto_map": {"AutoModelForCausalLM": "modeling_mine.LlamaForCausalLM", "AutoTokenizer": ["x.T", None]}}
    with pytest.raises(
        SinkjaxError, match=r"modeling_mine\.LlamaForCausalLM.*ignore_keys=\('auto_map',\).*--ignore-keys auto_map"
    ):
        read_config(values, "config.json")
    assert read(values, "config.json") == read(LLAMA, "config.json")
    assert read_config(LLAMA | {"auto_map": {}}, "config.json")[0] == read(LLAMA, "config.json")


FLOATS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "head_dim")


def test_floats_in_place_of_integers_are_read():
    assert read(LLAMA | {key: float(LLAMA[key]) for key in FLOATS}, "config.json") == read(LLAMA, "config.json")
    with pytest.raises(SinkjaxError, match=r"'hidden_size' .* not 16\.5"):
        read(LLAMA | {"hidden_size": 16.5}, "config.json")


def test_an_mscale_of_0_is_absent_as_in_transformers():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16.0, "mscale": 0.7}
    read_as = [read(LLAMA | {"rope_scaling": yarn | {"mscale_all_dim": each}}, "config.json") for each in (0, 0.0, None, 1.0)]
    assert read_as[0] == read_as[1] == read_as[2] != read_as[3]
