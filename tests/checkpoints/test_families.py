"""Folders of every family: what is stored in another way loads the same, and what is not understood is refused by its name."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import sinkjax
from sinkjax.checkpoints import names
from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.export import under_names
from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from tests.model import families as small

EACH = sorted(families())
ONE_OF_EACH = {values.values["model_type"]: name for name, values in sorted(architectures().items())}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each family, as transformers saves it."""
    made = {}
    for family in EACH:
        made[family] = tmp_path_factory.mktemp(family)
        small.write_model(family, 1, made[family])
    return made


def test_every_family_has_a_released_model() -> None:
    """But for a few: Ministral 8B calls itself a mistral, and of the others we do not know all that their files state."""
    without = ["arcee", "exaone", "flex_olmo", "granitemoe", "granitemoehybrid", "ministral", "vaultgemma"]
    assert sorted([*ONE_OF_EACH, *without]) == EACH


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ONE_OF_EACH.values() else [pytest.mark.long]) for name in architectures()]
)
def test_a_released_model_has_as_many_parameters_as_in_transformers(name: str) -> None:
    values = dict(architectures()[name].values)
    config = transformers.AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert params.count(open_checkpoint(name, weights=False).config) == model.num_parameters()


def buffer(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tensor is a buffer, which no parameter is read from."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


@pytest.mark.parametrize("family", EACH)
def test_the_table_of_tensors_is_read_in_both_directions(family: str, folders: dict[str, Path]) -> None:
    with jax.enable_x64(True):
        model = sinkjax.load(folders[family], dtype="float64")
    host = {names.leaf_name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(model.params)}
    of_family = families()[family]
    stored = load_file(folders[family] / "model.safetensors")
    written = under_names(host, model.config, of_family.names(model.config))
    shown = {of_family.aliases.get(name, name): array for name, array in stored.items() if not buffer(name, of_family.buffers)}
    assert written.keys() == shown.keys()
    for name, array in written.items():
        np.testing.assert_array_equal(array, shown[name], err_msg=name)


@pytest.mark.parametrize("family", EACH)
def test_an_unknown_key_and_an_unknown_tensor_are_refused_by_name(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    values = small.stated(folders[family])
    with pytest.raises(SinkjaxError, match="unknown config key 'attention_typo'"):
        read_config(values | {"attention_typo": 1}, "config.json")
    (tmp_path / "config.json").write_text(json.dumps(values))
    save_file(load_file(folders[family] / "model.safetensors") | {"more.weight": np.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(SinkjaxError, match=r"unknown tensor in .*'more.weight'"), jax.enable_x64(True):
        sinkjax.load(tmp_path, dtype="float64")


@pytest.mark.parametrize("family", EACH)
def test_a_file_saved_without_the_head_loads_the_same(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """Its names lack the prefix; buffers that old files carry mean nothing."""
    buffers = families()[family].buffers
    stored = load_file(folders[family] / "model.safetensors")
    prefix = next(name for name in stored if "layers.0." in name or ".h.0." in name or ".blocks.0." in name).split(".")[0] + "."
    bare = {name.removeprefix(prefix): array for name, array in stored.items()}
    masks = [buffer.replace("*", "h.0") for buffer in buffers if buffer.endswith((".attn.bias", ".attention.bias"))]
    bare |= dict.fromkeys(masks, np.tri(4).reshape(1, 1, 4, 4))
    save_file(bare, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(small.stated(folders[family])))
    with jax.enable_x64(True):
        whole, same = (sinkjax.load(folder, dtype="float64") for folder in (folders[family], tmp_path))
    assert same.source["sha256"] == whole.source["sha256"]
    jax.tree.map(np.testing.assert_array_equal, same.params, whole.params)


def test_a_context_beyond_the_stated_one_is_given_on_purpose(folders: dict[str, Path]) -> None:
    tokens = np.zeros((1, small.CONTEXT + 3), int)
    model = sinkjax.load(folders["mpt"])
    with pytest.raises(SinkjaxError, match=r"35 positions .*context of 32"):
        sinkjax.forward(model.params, tokens, model.config)
    longer = sinkjax.load(folders["mpt"], context=40)
    out = sinkjax.forward(longer.params, tokens, longer.config, probe=sinkjax.Probe(nll=True), logits=False)
    assert np.isfinite(np.asarray(out.record["nll"])[0, :-1]).all()
    assert (longer.config.identity()["context"], longer.source["stated_context"]) == (40, 32)
    assert "stated_context" not in model.source
    with pytest.raises(SinkjaxError, match="its 32 positions are learned"):
        sinkjax.load(folders["gpt2"], context=40)
    with pytest.raises(SinkjaxError, match=r"context .*at least 1"):
        sinkjax.load(folders["mpt"], context=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["attention", "mamba"]}, "layers of kind 'mamba', which have no attention weights"),
        ({"layer_types": ["attention"]}, "'layer_types' .*kind"),
        ({"layer_types": None}, "does not state 'layer_types'"),
        ({"num_local_experts": 8}, "routed experts"),
        ({"num_local_experts": None}, "does not state 'num_local_experts'"),
        ({"position_embedding_type": "alibi"}, "rope or nope"),
        ({"mlp_bias": True}, "mlp_bias"),
    ],
)
def test_a_granite_4_that_is_more_than_attention_and_an_mlp_is_refused(
    change: dict[str, object], message: str, folders: dict[str, Path]
) -> None:
    values = small.stated(folders["granitemoehybrid"])
    with pytest.raises(SinkjaxError, match=message):
        read_config(values | change, "config.json")
    assert read_config(values | {"layer_types": ["attention"] * 2}, "config.json") == read_config(values, "config.json")
