"""Every study refuses three wrong inputs and more, each in a sentence that names the field, and a model that lacks a BOS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.study.choice import choose
from sinkjax.study.registry import config_type, declared, documented
from sinkjax.study.run import work
from tests.study.tiny import study, write_both

WRONG = {
    "background/circuit": ({"prompts": 0}, {"controls": 0}, {"length": 1}),
    "background/compression": ({"position": -1}, {"controls": 0}, {"eps": 1.5}),
    "background/elsewhere": ({"place": -1}, {"controls": 0}, {"eps": 2.0}),
    "background/kinds": ({"key": -1}, {"controls": 0}, {"prompts": 0}),
    "background/massive": ({"position": -1}, {"layer_prompts": -1}, {"eps": 2.0}),
    "background/mechanism": ({"prompts": 0}, {"controls": 0}, {"length": 1}),
    "background/patch": ({"key": -1}, {"places": [-1]}, {"control_prompts": 0}),
    "background/quantise": ({"position": -1}, {"controls": 0}, {"length": 1}),
    "background/stages": ({"controls": 0}, {"eps": 1.5}, {"prompts": 0}),
    "background/streaming": ({"keep": -1}, {"controls": 0}, {"keeps": [-1]}),
    "background/windows": ({"beyond": -1}, {"controls": 0}, {"length": 1}),
    "emergence/causal": ({"steps": 0}, {"seeds": 0}, {"length": 2}),
    "gu/angles": ({"rank": -1}, {"prompts": 0}, {"twin": 2}),
    "gu/norms": ({"length": 1}, {"bos": "own"}, {"prompts": 0}),
    "gu/repeat-bound": ({"longest": -8}, {"prompts": 0}, {"seed": -1}),
    "gu/positions": ({"places": []}, {"places": [70]}, {"eps": 1.0}),
    "gu/sink-rate": ({"eps": 2.0}, {"prompts": 0}, {"length": 1}),
    "kiya/after-softmax": ({"position": 60}, {"key": -1}, {"ends": [-1]}),
    "kiya/baseline": ({"eps": 1.5}, {"control_prompts": 0}, {"map_layers": [-1]}),
    "kiya/bos-swap": ({"positions": [60]}, {"shown": 7}, {"positions": []}),
    "kiya/embedding": ({"special": 2}, {"prompts": 0}, {"seed": -1}),
    "kiya/mask": ({"key": 64}, {"key": 56}, {"head_shares": []}, {"eps": 0.0}),
    "kiya/figures": ({"position": 60}, {"map_layers": [-1]}, {"indices": -1}),
    "kiya/predictions": ({"positions": [60]}, {"tokens": -1}, {"place": 60}),
    "kiya/rope": ({"indices": -1}, {"controls": 0}, {"eps": 1.0}),
    "kiya/self": ({"positions": [60]}, {"shown": 9}, {"ends": [-1]}),
    "kiya/split": ({"places": [0, 8, 9, 10, 11]}, {"counts": [6]}, {"places": [60]}),
    "kiya/scan": ({"tokens": 0}, {"distance": 0}, {"eps": 1.5}),
    "li/amplify": ({"positions": [-1]}, {"controls": 0}, {"eps": 0.0}),
    "li/dominance": ({"controls": 0}, {"prompts": 0}, {"seed": -1}),
    "li/isolate": ({"position": -1}, {"keys": [-1]}, {"eps": 1.0}),
    "li/mediation": ({"position": -1}, {"neurons": -1}, {"places": [-1]}),
    "li/super-neurons": ({"neurons": -1}, {"controls": 0}, {"eps": 1.0}),
    "li/variance": ({"prompts": 0}, {"permutations": -1}, {"seed": -1}),
    "pretrain/mini": ({"steps": 0}, {"seeds": 0}, {"size": "huge"}),
    "trigger/assumptions": ({"sinks": 0.0}, {"seeds": 0}, {"width": 3}),
    "trigger/bound": ({"caps": []}, {"cap_steps": -1}, {"shifts": []}),
    "trigger/escapes": ({"penalty_steps": -1}, {"solved": 0.0}, {"seeds": 0}),
    "trigger/heads": ({"solved": 0.0}, {"sinks": 1.0}, {"rate": 0.0}),
    "trigger/one-layer": ({"moves": [7]}, {"trigger_position": 16}, {"tolerance": 0.0}),
    "trigger/sizes": ({"width": 3}, {"moves": [7]}, {"tolerance": 0.0}),
}


def test_every_study_has_its_wrong_inputs():
    tables = {*documented()} - {"pretrain/mini"}  # whose settings are those of one dataclass
    assert {choose(name).experiment for name in WRONG} == {*declared(), *documented()} - tables


@pytest.mark.parametrize(("name", "fields"), [(name, fields) for name, each in WRONG.items() for fields in each], ids=str)
def test_a_wrong_input_is_one_sentence_that_names_it(name, fields):
    ((field, value),) = fields.items()
    values = {**documents.fields(choose(name).config), field: value}
    with pytest.raises(SinkjaxError, match=field) as refused:
        documents.build(config_type(choose(name).experiment), values, name)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["kiya/embedding", "kiya/rope"])
def test_a_model_without_a_bos_is_refused_before_it_is_loaded(name, tmp_path: Path):
    files = write_both(tmp_path)
    (files / "model" / "tokenizer_config.json").write_text(json.dumps({"bos_token": None}))
    with pytest.raises(SinkjaxError, match=r"model name no BOS token; .*bos"):
        list(work(study(name, files)))
    assert list(work(study(name, files, bos=3, **({"positions": [1, 4]} if name == "kiya/rope" else {}))))
