"""Configs as released models state them, gaps and odd keys included: each loads as it is, and has the published size."""

import pytest

from sinkjax.checkpoints.hf_config import read_config
from sinkjax.model import params
from sinkjax.model.rotary import Llama3Scaling

SHARED = {"hidden_act": "silu", "initializer_range": 0.02, "use_cache": True, "torch_dtype": "float16", "bos_token_id": 1}
LLAMA_7B = SHARED | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "Llama 1 7B": LLAMA_7B
    | {"max_position_embeddings": 2048, "max_sequence_length": 2048, "rms_norm_eps": 1e-6, "pad_token_id": 0, "eos_token_id": 2},
    "Llama 2 7B": LLAMA_7B
    | {
        "_name_or_path": "meta-llama/Llama-2-7b-hf",
        "max_position_embeddings": 4096,
        "num_key_value_heads": 32,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "transformers_version": "4.31.0.dev0",
    },
    "Llama 3.2 1B": SHARED
    | {
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "eos_token_id": [128001, 128008, 128009],
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "vocab_size": 128256,
    },
    "TinyLlama 1.1B": SHARED
    | {
        "model_type": "llama",
        "attention_bias": False,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "max_position_embeddings": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "SmolLM2 135M": SHARED
    | {
        "model_type": "llama",
        "attention_bias": False,
        "hidden_size": 576,
        "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        "vocab_size": 49152,
    },
    "Mistral 7B v0.1": SHARED
    | {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "Qwen2.5 0.5B": SHARED
    | {
        "model_type": "qwen2",
        "attention_dropout": 0.0,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
}
PARAMETERS = {
    "Llama 1 7B": 6_738_415_616,
    "Llama 2 7B": 6_738_415_616,
    "Llama 3.2 1B": 1_235_814_400,
    "TinyLlama 1.1B": 1_100_048_384,
    "SmolLM2 135M": 134_515_008,
    "Mistral 7B v0.1": 7_241_732_096,
    "Qwen2.5 0.5B": 494_032_768,
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_released_config_loads_and_counts_as_published(name):
    assert params.count(read_config(CONFIGS[name], name)[0]) == PARAMETERS[name]


def test_what_the_released_configs_mean():
    configs = {name: read_config(values, name)[0] for name, values in CONFIGS.items()}
    assert configs["Llama 3.2 1B"].position.scaling == Llama3Scaling(32.0, 1.0, 4.0, 8192)
    assert configs["Llama 3.2 1B"].context == 131072
    assert configs["Mistral 7B v0.1"].windows == (4096,) * 32
    assert configs["Qwen2.5 0.5B"].windows is None
    assert configs["Llama 1 7B"].kv_heads == 32
