"""config.json: both spellings, every field consumed or refused, no size, epsilon or tying made up."""

import contextlib

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.hf_config import INERT, effective, read_config
from sinkjax.checkpoints.hf_rope import one_spelling
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, Rope, YarnScaling
from tests.checkpoints.files import FURTHER, HUB, LLAMA, MISTRAL, QWEN2, SIZES, without

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32}
SCALINGS = {
    "default": ({}, None, 64),
    "linear": ({"factor": 2.0}, LinearScaling(2.0), 64),
    "dynamic": ({"factor": 3.0}, DynamicScaling(3.0, 64), 192),
    "llama3": (LLAMA3, Llama3Scaling(8.0, 1.0, 4.0, 32), 64),
    "yarn": (YARN, YarnScaling(4.0, 32), 128),
}


def read(values, **options) -> Config:
    return read_config(values, "config.json", **options)[0]


def refused(values, message, **options):
    with pytest.raises(SinkjaxError, match=message) as caught:
        read(values, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("spelling", ["type", "rope_type", "rope_parameters", "transformers"])
def test_every_spelling_of_every_scaling_means_the_same(kind, spelling):
    fields, scaling, context = SCALINGS[kind]
    bare = without(LLAMA, "rope_theta", "rope_scaling")
    parameters = {"rope_type": kind, "rope_theta": 5e5, **fields}
    values = {
        "type": bare | {"rope_theta": 5e5, "rope_scaling": {"type": kind, **fields}},
        "rope_type": bare | {"rope_theta": 5e5, "rope_scaling": {"rope_type": kind, "type": kind, **fields}},
        "rope_parameters": bare | {"rope_parameters": parameters},
        "transformers": transformers.LlamaConfig(**SIZES, head_dim=4, rope_parameters=dict(parameters)).to_dict(),
    }[spelling]
    config = read(values)
    assert config.position == Rope(5e5, scaling)
    assert config.context == context


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "longrope", "factor": 2.0}, "unknown rope_type .*'longrope'.*llama3"),
        ({"factor": 2.0}, "does not state 'rope_type'"),
        ({"rope_type": "linear"}, "does not state 'factor'"),
        ({"rope_type": "linear", "type": "yarn", "factor": 2.0}, "'rope_type' twice and differently"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 32}, "unknown config key 'rope_scaling.beta_fast'"),
        ({"rope_type": "default", "factor": 2.0}, "unknown config key 'rope_scaling.factor'"),
        ({"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4.0}, "must be below high_freq_factor"),
        ({"rope_type": "yarn", **YARN, "beta_fast": 1, "beta_slow": 2}, "must be above beta_slow"),
        ({"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, "partial_rotary_factor.*1.0, the only value"),
    ],
)
def test_a_scaling_that_is_not_understood_is_refused(scaling, message):
    refused(LLAMA | {"rope_scaling": scaling}, message)


REQUIRED = [key for key in LLAMA if key not in ("rope_scaling", "model_type", *families()["llama"].defaults)]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_key_that_must_be_stated_has_no_default(key):
    refused(without(LLAMA, key), f"'{key}'.*assume={{'{key}'")
    assert read(without(LLAMA, key), assume={key: LLAMA[key]}) == read(LLAMA)


def test_a_mistral_window_holds_in_every_layer():
    assert read(MISTRAL).windows == (8, 8)
    assert read(MISTRAL | {"sliding_window": None}).windows is None
    refused(without(MISTRAL, "sliding_window"), "does not state 'sliding_window'")


def test_qwen2_windows_are_those_of_transformers():
    assert read(QWEN2).windows is None
    assert read(QWEN2).qkv_bias
    assert not read(QWEN2).out_bias
    used = QWEN2 | {"use_sliding_window": True}
    assert read(used).windows == (None, 8)
    assert read(used | {"max_window_layers": 9}).windows is None
    assert read(used | {"layer_types": ["sliding_attention", "full_attention"]}).windows == (8, None)
    refused(used | {"layer_types": ["sliding_attention"]}, "a list of 2 ")
    refused(used | {"layer_types": ["sliding_attention", "chunked_attention"]}, "made of full_attention and sliding_attention")
    refused(QWEN2 | {"layer_types": ["sliding_attention"] * 2}, "no sliding window")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lama"}, "model_type 'lama' .*llama, "),
        ({"model_type": "glm4_next"}, "'glm4_next' in config.json; supported: "),  # and not "did you mean"
        ({"model_type": "glm4_moe"}, "'glm4_moe' .*shared expert"),
        ({"model_type": "qwen3_next"}, "'qwen3_next' .*recurrent layers"),
        ({"model_type": "deepseek_v3"}, "'deepseek_v3' .*latent attention"),
        ({"model_type": ["llama"]}, "unknown model_type"),
        ({"rms_nrm_eps": 1e-6}, r"'rms_nrm_eps' .*'rms_norm_eps'.*ignore_keys=\('rms_nrm_eps',\)"),
        ({"quantization_config": {}}, "'quantization_config' .*quantised"),
        ({"sliding_window": 8}, "'sliding_window' .*changes numbers elsewhere, but a llama has none of its kind.*null"),
        ({"query_pre_attn_scalar": 8, "brand_new": 1}, "'query_pre_attn_scalar' .*changes numbers"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'factor', which has no default; write it into the file"),
        ({"hidden_size": "16"}, "'hidden_size' .*integer from 1 .*'16'"),
        ({"rms_norm_eps": 0}, "'rms_norm_eps' .* number above 0"),
        ({"num_key_value_heads": 3}, "4 query heads .* 3 key-value"),
    ],
)
def test_wrong_values_are_named(change, message):
    refused(LLAMA | change, message)


def test_keys_of_every_family_are_known_to_change_numbers():
    """Files of all families, read on their own: what they read is no key that an error may advise to leave out."""
    for hub, values in {**HUB, **FURTHER}.items():
        family = families()[values["model_type"]]
        fields = Fields(one_spelling(values, hub, family.spelled), hub, dict(family.defaults))
        family.read(fields)
        assert fields.read <= effective() | INERT | {"layer_types", "quantization_config", "rope_scaling"}, hub


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({*LLAMA, *MISTRAL, *QWEN2, "rope_parameters", "layer_types", "original_max_position_embeddings"})
ROPE_TABLES = st.dictionaries(
    st.sampled_from(["rope_type", "type", "rope_theta", *YARN, *LLAMA3, "beta_fast", "truncate", "mscale"]),
    st.sampled_from(["yarn", "linear", "dynamic", "llama3", 0, 1, 2.0, True, 64]) | JSON,
)


@given(
    base=st.sampled_from([LLAMA, MISTRAL, QWEN2, {}]),
    change=st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), JSON | ROPE_TABLES | st.integers(1, 64), max_size=4),
)
def test_any_json_is_a_config_or_one_sentence(base, change):
    with contextlib.suppress(SinkjaxError):
        assert isinstance(read({**base, **change}), Config)
