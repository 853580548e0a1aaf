"""A key that a config.json omits: transformers' class fills it with a default; ours is the same, or the file is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import transformers

from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.multimodal import WHOLES, text_part
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from tests.model import families as small

Values = dict[str, Any]
# transformers' names of GPT-NeoX's settings outside of a table.
FLAT = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}
# Families whose class alone describes no model here: one leaves an epsilon out, one has recurrent layers by default.
INCOMPLETE = ("granitemoehybrid", "mpt")
SCALED = {
    "linear": {"factor": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}


def read(values: Values) -> Config | None:
    """The config here, or None if it is refused."""
    try:
        text, omitted, _ = text_part(values, "config.json")
        return read_config(text, "config.json", (), omitted)[0]
    except SinkjaxError:
        return None


def filled(values: Values) -> Values | None:
    """The values as transformers' class completes them, or None if it refuses them."""
    try:
        made = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(copy.deepcopy(values))
    except Exception:
        return None
    return json.loads(made.to_json_string())


def flat(values: Values) -> Values:
    """The values with the rotary settings beside the others, as transformers 4 wrote them."""
    table = values.get("rope_parameters")
    if not table or "full_attention" in table:
        return values
    outside = {key: table[key] for key in ("rope_theta", "partial_rotary_factor") if table.get(key) is not None}
    names = FLAT.get(values["model_type"], {})
    scaling = {key: value for key, value in table.items() if key not in outside}
    found = {key: value for key, value in values.items() if key != "rope_parameters"}
    found |= {names.get(key, key): value for key, value in outside.items()}
    return found | ({} if scaling.get("rope_type", "default") == "default" else {"rope_scaling": scaling})


def gaps(values: Values) -> Iterator[tuple[str, Values]]:
    """Yield the values with one key fewer, or with one null, at any depth."""
    for key, value in values.items():
        if key != "model_type":
            yield key, {name: each for name, each in values.items() if name != key}
            yield f"{key}: null", values | {key: None}
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", values | {key: table}) for inner, table in gaps(value))


def silent(values: Values) -> list[str]:
    """The gaps that are read here as another model than in transformers."""
    found = []
    for name, gap in [("nothing", values), *gaps(values)]:
        ours, complete = read(gap), filled(gap)
        if ours is not None and complete is not None and ours != read(complete):
            found.append(name)
    return found


@pytest.mark.parametrize("family", sorted(families()))
def test_no_key_is_filled_with_another_value_than_in_transformers(family: str) -> None:
    made = [transformers.CONFIG_MAPPING[family](), *(small.DRAWS[family](small.Turn(seed)) for seed in range(2))]
    for values in (json.loads(config.to_json_string()) for config in made):
        assert read(values) is not None or family in INCOMPLETE
        assert silent(values) == []
        assert silent(flat(values)) == []
    table = values.get("rope_parameters") or {"full_attention": {}}
    for kind, scaling in {} if "full_attention" in table else SCALED.items():
        assert silent(flat(values | {"rope_parameters": {**table, "rope_type": kind, **scaling}})) == []


@pytest.mark.parametrize("whole", WHOLES)
def test_nor_in_the_text_part_of_a_larger_model(whole: str) -> None:
    """Tying is not compared: the tensors show it, and transformers, too, unties two that differ."""
    values = json.loads(transformers.CONFIG_MAPPING[whole]().to_json_string())
    assert [gap for gap in silent(values) if "tie_word_embeddings" not in gap] == []


@pytest.mark.parametrize("family", ["apertus", "gpt_oss", "ministral3"])
def test_a_scaling_of_the_class_is_never_taken_in_silence(family: str) -> None:
    values = flat(json.loads(transformers.CONFIG_MAPPING[family]().to_json_string()))
    values.pop("rope_scaling")
    with pytest.raises(SinkjaxError, match=r"does not state 'rope_scaling'.*assume=\{'rope_scaling'"):
        read_config(values, "config.json")
    if family != "ministral3":
        plain = read_config(values, "config.json", assume={"rope_scaling": {"rope_type": "default"}})[0]
        assert all(rope.scaling is None for rope in plain.ropes)


def test_an_original_context_that_transformers_does_not_read_is_refused() -> None:
    factors = {"short_factor": [1.0, 2.0], "long_factor": [2.0, 3.0], "original_max_position_embeddings": 16}
    made = transformers.Phi3Config(hidden_size=16, num_attention_heads=4, max_position_embeddings=64, pad_token_id=None)
    values = {
        key: value for key, value in made.to_dict().items() if key not in ("rope_parameters", "original_max_position_embeddings")
    }
    values["rope_scaling"] = {"type": "longrope", **factors}
    with pytest.raises(SinkjaxError, match=r"only within the table.*assume=\{'original_max_position_embeddings'"):
        read_config(values, "config.json")
    stated = values | {"original_max_position_embeddings": 16}
    assert read_config(stated, "c")[0] == read_config(values, "c", assume={"original_max_position_embeddings": 16})[0]


def test_a_rotation_of_gpt_neox_has_its_own_names() -> None:
    values = flat(json.loads(small.DRAWS["gpt_neox"](small.Turn(1)).to_json_string()))
    usual = {FLAT["gpt_neox"]["rope_theta"]: "rope_theta"}
    with pytest.raises(SinkjaxError, match=r"'rope_theta', which transformers does not read .*name it 'rotary_emb_base'"):
        read_config({usual.get(key, key): value for key, value in values.items()}, "config.json")
