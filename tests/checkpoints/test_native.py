"""The project's own folders: any config comes back as it went, and whatever is wrong in a file is one sentence that names it."""

import dataclasses
import json
import time
from pathlib import Path
from typing import get_type_hints

import jax
import ml_dtypes
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints import folder as folder_module
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
from sinkjax.model.normalisers import NAMED, ClippedSoftmax, Normaliser
from sinkjax.model.norms import AfterRotation, RMSNorm
from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, QueryGrowth, Rope, YarnScaling
from sinkjax.model.xielu import XIELU
from sinkjax.tasks.trigger.task import OneOf
from tests.checkpoints.files import LLAMA, random_weights, write_folder
from tests.model.variants import bare

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


def test_a_model_of_vectors_comes_back(tmp_path):
    model = drawn(bare(normaliser=NAMED["sink-logit"], gate=HeadGate()))
    assert_same(sinkjax.load(sinkjax.save(model, tmp_path)), model)


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_can_be_stored_in_half_the_bytes(dtype, tiny_config, tmp_path):
    model = drawn(tiny_config)
    small, large = (sinkjax.save(model, tmp_path / name, dtype=kind) for name, kind in (("half", dtype), ("full", None)))
    narrow = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    assert (small / native.WEIGHTS).stat().st_size < 0.6 * (large / native.WEIGHTS).stat().st_size
    expected = jax.tree.map(lambda leaf: np.asarray(leaf).astype(narrow).astype(np.float32), model.params)
    jax.tree.map(np.testing.assert_array_equal, sinkjax.load(small).params, expected)
    assert sinkjax.load(small, dtype=dtype).params["embed"].dtype == dtype


def test_other_programs_read_the_weights(folder, tiny_config):
    from safetensors.numpy import load_file

    found = load_file(folder / native.WEIGHTS)
    np.testing.assert_array_equal(found["layers.down"], drawn(tiny_config).params["layers"]["down"])


@pytest.mark.mesh
def test_leaves_are_placed_on_a_mesh(folder, tiny_config):
    mesh = jax.make_mesh((2,), ("model",), devices=jax.devices()[:2])
    model = sinkjax.load(folder, mesh=mesh)
    assert_same(model, drawn(tiny_config))
    assert model.params["layers"]["q"].addressable_shards[0].data.shape == (3, 32, 3, 8)


def open_files() -> list[str]:
    """What this process holds open, deleted files included."""
    return [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


def test_a_model_that_is_replaced_while_it_is_loaded_is_not_mixed(tiny_config, tmp_path, monkeypatch):
    """Another one takes the folder between two leaves: the first one is loaded to its end, and its file is closed."""
    first, second = drawn(tiny_config), drawn(tiny_config, shift=1.0)
    folder = sinkjax.save(first, tmp_path / "model")
    whole, leaves = stream.whole, []

    def replaced(*arguments):
        leaves.append(whole(*arguments))
        if len(leaves) == 2:
            sinkjax.save(second, folder)
        return leaves[-1]

    monkeypatch.setattr(stream, "whole", replaced)
    loaded = sinkjax.load(folder)
    assert len(leaves) > 2
    assert_same(loaded, first)
    assert_same(sinkjax.load(folder), second)
    del loaded
    assert not [name for name in open_files() if str(tmp_path) in name]


def test_a_model_that_is_replaced_before_its_weights_are_opened_is_refused(folder, tiny_config, monkeypatch):
    other = dataclasses.replace(tiny_config, position=Rope(5000.0))
    read = folder_module.read_weights
    monkeypatch.setattr(folder_module, "read_weights", lambda path: read(sinkjax.save(drawn(other), path)))
    refused(folder, "model was replaced")


def test_random_weights_of_the_same_architecture(folder, tiny_config):
    twin = sinkjax.load(f"untrained:{folder}")
    assert twin.config == tiny_config
    assert not np.array_equal(twin.params["embed"], drawn(tiny_config).params["embed"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"heds": 3}, "config.json: .*'heds' .*'heads'"),
        ({"heads": ...}, "config.json lacks the key 'heads'"),
        ({"heads": 6.0}, "config.json: heads .*6.0"),
        ({"heads": 5}, "config.json: 5 query heads cannot share 2"),
        ({"norm": {"type": "RMSNrm", "eps": 1e-5}}, "norm: .*'RMSNrm' .*'RMSNorm'"),
        ({"norm": {"eps": 1e-5}}, "norm: .*None; .*DynamicTanh, .*RMSNorm"),
        ({"norm": {"type": "RMSNorm"}}, "norm lacks the key 'eps'"),
        ({"norm": {"type": "RMSNorm", "eps": "1e-5"}}, "norm: eps .*number, .*text"),
        ({"norm": {"type": "RMSNorm", "eps": -1.0}}, "norm: .*epsilon .*at least 0"),
        ({"norm": {"type": "RMSNorm", "eps": 1e-5, "gain": 1}}, "norm: unknown key 'gain'"),
        ({"norm": "RMSNorm"}, "norm must be .*type: RMSNorm, .*'RMSNorm'"),
        ({"normaliser": {"type": "RMSNorm", "eps": 1e-5}}, "normaliser: unknown type 'RMSNorm'.*Softmax"),
        ({"normaliser": {"type": "Normaliser"}}, "normaliser: unknown type 'Normaliser'"),
        ({"position": {"type": "Rope", "theta": 1e4, "scaling": {"type": "NoScaling"}}}, "scaling: unknown type 'NoScaling'"),
    ],
)
def test_a_config_that_is_not_right_is_refused_by_name(folder, values, message):
    refused(changed(folder, **values), message)


def test_a_field_that_came_after_the_file_has_its_default(folder, tiny_config):
    assert sinkjax.load(changed(folder, residual=..., gate=...)).config == tiny_config


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


def test_nothing_is_left_to_assume_or_ignore(folder):
    refused(folder, "ignore_keys and assume ", assume={"tied": True})
    refused(folder, "ignore_keys and assume ", ignore_keys=("gate",))


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


def test_the_card_says_where_a_model_comes_from(folder, tiny_config):
    model = sinkjax.load(folder)
    again = sinkjax.save(model, folder.parent / "again")
    assert str(folder) in (again / native.CARD).read_text()
    assert model.source["sha256"] in (again / native.CARD).read_text()
    assert (sinkjax.save(model, again, card="Mine.\n") / native.CARD).read_text() == "Mine.\n"


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


def test_models_in_the_package_are_small_and_load_at_once(folder):
    for model in [folder, *presets.packaged().values()]:
        assert sum(file.stat().st_size for file in model.iterdir()) <= MAX_PACKAGED
        begun = time.process_time()
        sinkjax.load(model)
        assert time.process_time() - begun < 10  # nothing is trained or downloaded


def test_normalisers_of_the_library_have_names_of_their_own():
    names = [cls.__name__ for cls in Normaliser.__subclasses__()]
    assert len(names) == len(set(names))
