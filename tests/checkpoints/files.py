"""Checkpoint files for tests: tiny, with every weight different, some written by transformers, some broken on purpose."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

# config.json as it is on the hub: for every model of `architectures` (HUB), and further uploads of its families. From the models'
# cards and repositories, transformers' documentation, and libraries that quote the files; all keys are kept.
HUB, FURTHER = json.loads(Path(__file__).with_name("hub_configs.json").read_text(encoding="utf-8")).values()

# Texts that tokenizers cut differently.
TEXTS_OF = json.loads(Path(__file__).with_name("texts.json").read_text(encoding="utf-8"))

SIZES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}

# What a Llama checkpoint of the hub states, in the spelling of transformers 4.
LLAMA: dict[str, Any] = {"model_type": "llama", **SIZES, "head_dim": 4, "hidden_act": "silu", "rope_theta": 10000.0}
LLAMA |= {"rope_scaling": None, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False}
MISTRAL = {key: value for key, value in LLAMA.items() if not key.endswith("_bias")}
MISTRAL |= {"model_type": "mistral", "sliding_window": 8}
QWEN2 = MISTRAL | {"model_type": "qwen2", "use_sliding_window": False, "max_window_layers": 1}


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def random_weights(values: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors of an untied Llama without biases, under their Hugging Face names, float32 [outputs, inputs]."""
    rng = np.random.default_rng(seed)
    d, F, V, D = values["hidden_size"], values["intermediate_size"], values["vocab_size"], values["head_dim"]
    H, K = values["num_attention_heads"], values["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (V, d),
        "model.norm.weight": (d,),
        "lm_head.weight": (V, d),
    }
    for layer in range(values["num_hidden_layers"]):
        block = {"input_layernorm": (d,), "post_attention_layernorm": (d,), "self_attn.q_proj": (H * D, d)}
        block |= {"self_attn.k_proj": (K * D, d), "self_attn.v_proj": (K * D, d), "self_attn.o_proj": (d, H * D)}
        block |= {"mlp.gate_proj": (F, d), "mlp.up_proj": (F, d), "mlp.down_proj": (d, F)}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def write_folder(folder: Path, values: dict[str, Any], weights: dict[str, np.ndarray], shards: int = 1) -> Path:
    """A Hugging Face folder: config.json, and one safetensors file or `shards` of them with an index."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    where = {name: f"model-{index % shards + 1:05}-of-{shards:05}.safetensors" for index, name in enumerate(sorted(weights))}
    for file in set(where.values()):
        save_file({name: weights[name] for name in weights if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def write_raw_safetensors(path: Path, header: dict[str, Any], data: bytes) -> Path:
    """A safetensors file with any header, also a wrong one."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a projection in the order that llama.cpp's converter gives them: pairs (i, i + D / 2) become neighbours."""
    width = rows.shape[0] // heads
    order = np.arange(width).reshape(2, width // 2).T.ravel()
    return np.concatenate([head[order] for head in np.split(rows, heads)])


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    weights: dict[str, np.ndarray],
    architecture: str = "llama",
    raw: dict[str, Any] | None = None,
) -> Path:
    """A GGUF with the given metadata (keys below the architecture, or full ones with "tokenizer." or "general." before).

    raw: tensor name -> (bytes [rows, row bytes], type of the `gguf` package).
    """
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    adders: dict[type, Any] = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    adders |= {str: writer.add_string, list: writer.add_array}
    for key, value in metadata.items():
        full = key if key.startswith(("tokenizer.", "general.", "split.")) else f"{architecture}.{key}"
        adders[type(value)](full, value)
    for name, array in weights.items():
        writer.add_tensor(name, array)
    for name, (data, kind) in (raw or {}).items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


GGUF_METADATA: dict[str, Any] = {"block_count": 2, "context_length": 64, "embedding_length": 16, "feed_forward_length": 24}
GGUF_METADATA |= {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5}
GGUF_METADATA |= {"rope.freq_base": 10000.0, "rope.dimension_count": 4, "vocab_size": 32}

GGUF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers": "blk"}
GGUF_NAMES |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output"}
GGUF_NAMES |= {f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"}
GGUF_NAMES |= {f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")}


def gguf_weights(weights: dict[str, np.ndarray], heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    """Hugging Face tensors as a llama GGUF holds them; 0 heads: without the rotary reordering, as for other architectures."""
    found = {}
    for name, array in weights.items():
        short = name
        for old, new in GGUF_NAMES.items():
            short = short.replace(old, new)
        count = {"q": heads, "k": kv_heads}.get(short.split(".")[-2].removeprefix("attn_"))
        found[short] = interleaved(array, count) if count else array
    return found
