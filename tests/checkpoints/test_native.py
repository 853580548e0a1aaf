"""The project's own folders: any config comes back as it went, and whatever is wrong in a file is one sentence that names it."""

import dataclasses
import json
from pathlib import Path
from typing import get_type_hints

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints import native, presets, stream
from sinkjax.checkpoints.model import Model
from sinkjax.config_files import documents
from sinkjax.config_files.checksums import SUMS
from sinkjax.data.corpora import packaged_documents
from sinkjax.data.vocabulary import train_bpe
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.model.attention_bias import KeyBias
from sinkjax.model.config import Config
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import NAMED, ClippedSoftmax
from sinkjax.model.norms import AfterRotation, RMSNorm
from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, QueryGrowth, Rope, YarnScaling
from sinkjax.model.xielu import XIELU
from sinkjax.tasks.trigger.task import OneOf
from tests.checkpoints.files import LLAMA, random_weights, write_folder

MAX_PACKAGED = 3_000_000
SCALINGS = (LinearScaling(2.0), DynamicScaling(2.0, 32), Llama3Scaling(8.0, 1.0, 4.0, 32), YarnScaling(4.0, 32, mscale=0.7))


def drawn(config, shift=0.0, **more):
    """A model with every leaf different, also those that start as zeros and ones. shift: of each number."""
    noise = np.random.default_rng(0)
    tree = jax.tree.map(lambda leaf: leaf + noise.standard_normal(leaf.shape, np.float32) + shift, params.init(config, 0))
    return Model(config, tree, **{"tokenizer": None, "source": {}, **more})


def assert_same(one, other):
    assert one.config == other.config
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


def changed(folder, **values):
    """The folder with keys of its config.json replaced, or taken out (...), by its owner: without checksums."""
    (folder / SUMS).unlink(missing_ok=True)
    stated = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps({key: value for key, value in stated.items() if value is not ...}))
    return folder


def refused(folder, message, **options):
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load(folder, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture
def folder(tiny_config, tmp_path):
    return sinkjax.save(drawn(tiny_config), tmp_path / "model")


@pytest.mark.parametrize(
    "variant",
    [
        *({"normaliser": normaliser} for normaliser in NAMED.values()),
        *({"position": Rope(5000.0, scaling)} for scaling in SCALINGS),
        {"normaliser": ClippedSoftmax(1.25, -0.1), "gate": HeadGate(), "residual": False, "score_scale": 0.1},
        {"windows": (None, 3, 7), "qkv_bias": True, "out_bias": True, "mlp_bias": True, "tied": True},
        {"norm": None, "mlp_width": None},
        {"activation": XIELU(), "gated_mlp": False, "qk_norm": AfterRotation(RMSNorm(1e-5))},
        {"position": Rope(5000.0, growth=QueryGrowth(0.1, 4))},
    ],
    ids=lambda variant: ", ".join(map(str, variant.values())),
)
def test_a_model_of_any_config_comes_back_bit_for_bit(variant, tiny_config, tmp_path):
    model = drawn(dataclasses.replace(tiny_config, **variant))
    assert_same(sinkjax.load(sinkjax.save(model, tmp_path)), model)


def test_every_record_that_a_config_can_hold_comes_back(tiny_config, tmp_path):
    came_back = set()
    for field, hint in get_type_hints(Config).items():
        for name, cls in documents.records(hint).items():
            try:
                config = dataclasses.replace(tiny_config, **{field: cls()})
            except (TypeError, SinkjaxError):  # it has a field without a default, or needs another field to go with it
                continue
            model = drawn(config)
            assert_same(sinkjax.load(sinkjax.save(model, tmp_path)), model)
            came_back.add(name)
    gates = {"HeadGate", "ElementGate", "ValueGate", "SharedGate", "ConstantGate", "NonSparseGate"}
    assert came_back >= {"NoPosition", "HeadNorm", "Sigmoid", "SinkLogit", *gates}


def test_a_tokenizer_comes_back(tiny_config, tmp_path):
    tokenizer = train_bpe(packaged_documents(), 300)
    model = drawn(dataclasses.replace(tiny_config, vocab_size=300), tokenizer=tokenizer)
    found = sinkjax.load(sinkjax.save(model, tmp_path))
    text = "It was a truth\nuniversally acknowledged — <|bos|>"
    assert found.tokenizer.encode(text) == tokenizer.encode(text)
    assert (found.tokenizer.bos, found.tokenizer.eos) == (0, 1) == (found.source["bos"], found.source["eos"])
    without = dataclasses.replace(model, tokenizer=dataclasses.replace(tokenizer, bos=None))
    assert sinkjax.load(sinkjax.save(without, tmp_path)).tokenizer.bos is None
    assert sinkjax.load(sinkjax.save(dataclasses.replace(model, tokenizer=None), tmp_path)).tokenizer is None


def open_files() -> list[str]:
    """What this process holds open, deleted files included."""
    return [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


def test_a_model_that_is_replaced_while_it_is_loaded_is_not_mixed(tiny_config, tmp_path, monkeypatch):
    """Another one takes the folder between two leaves: the first one is loaded to its end, and its file is closed."""
    first, second = drawn(tiny_config), drawn(tiny_config, shift=1.0)
    folder = sinkjax.save(first, tmp_path / "model")
    fill, leaves = stream.fill, []

    def replaced(*arguments):
        leaves.append(fill(*arguments))
        if len(leaves) == 2:
            sinkjax.save(second, folder)

    monkeypatch.setattr(stream, "fill", replaced)
    loaded = sinkjax.load(folder)
    assert len(leaves) > 2
    assert_same(loaded, first)
    assert_same(sinkjax.load(folder), second)
    del loaded
    assert not [name for name in open_files() if str(tmp_path) in name]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"heds": 3}, "config.json: .*'heds' .*'heads'"),
        ({"heads": 5}, "config.json: 5 query heads cannot share 2"),
        ({"norm": {"type": "RMSNrm", "eps": 1e-5}}, "norm: .*'RMSNrm' .*'RMSNorm'"),
        ({"norm": {"type": "RMSNorm", "eps": -1.0}}, "norm: .*epsilon .*at least 0"),
        ({"norm": {"type": "RMSNorm", "eps": 1e-5, "gain": 1}}, "norm: unknown key 'gain'"),
        ({"normaliser": {"type": "RMSNorm", "eps": 1e-5}}, "normaliser: unknown type 'RMSNorm'.*Softmax"),
        ({"position": {"type": "Rope", "theta": 1e4, "scaling": {"type": "NoScaling"}}}, "scaling: unknown type 'NoScaling'"),
    ],
)
def test_a_config_that_is_not_right_is_refused_by_name(folder, values, message):
    refused(changed(folder, **values), message)


def test_a_field_under_its_former_name_is_read_and_results_keep_that_name(tiny_config):
    config = dataclasses.replace(tiny_config, kv_bias=KeyBias(shared=True))
    values = documents.plain(documents.fields(config))
    assert native.read_config({"attention_bias": values.pop("kv_bias"), **values}, "a file") == config
    assert config.identity()["attention_bias"] == "KeyBias(shared=True, dims=None, value='zero', value_scale=1.0)"


def test_weights_that_do_not_fit_the_config_are_refused_by_name(folder):
    refused(changed(folder, mlp_width=47), r"layers.down .*\(3, 48, 32\).*\(3, 47, 32\)")
    refused(changed(folder, mlp_width=48, tied=True), "unknown tensor in .*: 'unembed'")
    refused(changed(folder, tied=False, qkv_bias=True), "'layers.k_bias' and 2 more")
    (folder / native.WEIGHTS).unlink()
    refused(folder, "has neither model.safetensors nor")


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, None), (np.inf, None), (1e6, "float16")])
def test_what_would_not_load_is_not_saved(value, dtype, tiny_config, tmp_path):
    model = drawn(tiny_config)
    model.params["final_norm"] = model.params["final_norm"].at[3].set(value)
    with pytest.raises(SinkjaxError, match=r"final_norm .*NaN"):
        sinkjax.save(model, tmp_path / "out", dtype=dtype)
    with pytest.raises(SinkjaxError, match="unknown type 'OneOf'"):
        sinkjax.save(dataclasses.replace(model, config=dataclasses.replace(tiny_config, normaliser=OneOf())), tmp_path / "out")
    with pytest.raises(SinkjaxError, match="parameters do not fit"):
        sinkjax.save(dataclasses.replace(model, config=dataclasses.replace(tiny_config, tied=True)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_of_another_format_is_left_alone_and_an_earlier_one_is_replaced(folder, tiny_config, tmp_path):
    foreign = write_folder(tmp_path / "llama", LLAMA, random_weights(LLAMA))
    with pytest.raises(SinkjaxError, match="type 'llama'"):
        sinkjax.save(drawn(tiny_config), foreign)
    assert sinkjax.load(foreign).config.layers == 2
    other = drawn(dataclasses.replace(tiny_config, layers=1))
    assert_same(sinkjax.load(sinkjax.save(other, folder)), other)


def test_a_packaged_model_is_loaded_by_its_name(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(presets, "MODELS", tmp_path)
    sinkjax.save(drawn(tiny_config), tmp_path / "small-one")
    model = sinkjax.load("small-one")
    assert_same(model, drawn(tiny_config))
    assert (model.source["kind"], model.source["name"], model.source["model_type"]) == ("packaged", "small-one", "sinkjax")
    with pytest.raises(SinkjaxError, match=r"did you mean 'small-one'\?"):
        sinkjax.load("smal-one")
    with pytest.raises(SinkjaxError, match="revision='main' is for hub ids"):
        sinkjax.load("small-one", revision="main")
