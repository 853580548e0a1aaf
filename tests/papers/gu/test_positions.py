"""gu/positions: the exchanges of rotary indices and of learned vectors, and Table 7 on a tiny GPT-2 made to sink."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

import sinkjax
from sinkjax.config_files.locations import location
from sinkjax.study import run as runs
from sinkjax.study.lab import Unedited
from sinkjax.study.registry import find
from tests.study.tiny import study, write_both

T, PLACES = 13, (2, 5)
STUDY = find("gu/positions")
CONFIG = STUDY.settings(length=T, places=PLACES, text_places=PLACES)


def points(architecture: object, unedited: Unedited | None, sweep: str) -> dict[str, sinkjax.Edit]:
    lab = STUDY.trace(CONFIG, architecture, unedited=unedited)
    return {point.label: point.edit for point in lab.sweeps[sweep].conditions()}


def test_rotary_indices_are_exchanged_for_queries_and_keys(tiny_config):
    for grid, wanted in (("taken", [5, 1, 2, 3, 4, 5, *range(6, T)]), ("swapped", [5, 1, 2, 3, 4, 0, *range(6, T)])):
        found = points(tiny_config, None, grid)
        assert list(found) == ["no edit", "position 2", "position 5"]
        query, key = found["position 5"].terms
        assert np.asarray(query.value).tolist() == np.asarray(key.value).tolist() == wanted


def write_gpt2(folder: Path) -> Path:
    """A GPT-2 of two layers whose queries all point to the first position's vector, with the tokenizer of the tiny Llama."""
    import torch
    import transformers

    write_both(folder)
    config = transformers.GPT2Config(
        vocab_size=257, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.wpe.weight[:] = torch.tensor([0.0, 5, -5] + [0] * 13)
        model.transformer.wpe.weight[0] = torch.tensor([20.0] + [0] * 15)
        for block in model.transformer.h:
            block.attn.c_attn.weight[:] = 0
            block.attn.c_attn.bias[:] = 0
            for head in range(2):
                block.attn.c_attn.bias[8 * head] = 10.0  # every query
                block.attn.c_attn.weight[0, 16 + 8 * head] = 1.0  # the keys of tokens with that vector
    model.save_pretrained(folder / "gpt2")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "model" / name, folder / "gpt2" / name)
    assert json.loads((folder / "gpt2" / "config.json").read_text())["model_type"] == "gpt2"
    return folder


def test_table_7_is_found_in_a_model_whose_first_position_makes_the_sink(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(runs, "build", runs.section_of)  # nothing is rendered
    folder = write_gpt2(tmp_path)
    small = {"controls": 2, "control_prompts": 16, "length": 25, "prompts": 2, "repeat_prompts": 16}
    small |= {"places": list(range(1, 17)), "text_places": [3]}
    chosen = study("gu/positions", folder, model=str(folder / "gpt2"), **small)
    section = runs.carry_out(chosen, location(tmp_path / "out"))
    *judged, identity = section.verdicts
    assert identity.judgement.word == "not applicable"  # positions are not rotary
    assert [verdict.name for verdict in judged] == ["replaced", "leaves", "moves"]
    for verdict in judged:
        found = verdict.judgement
        assert found.S.low > 0.5
        assert (found.rank.below, found.rank.of) == (2, 2)
        assert "fewer than 20" in found.reason  # two controls show nothing
        assert verdict.twin.D.mean == 0  # its attention is even, and no head sinks on any key
    rows = {(row.condition, row.measure): row.value.mean for row in section.rows}
    assert rows["one token repeated, 0 swapped with: position 6", "heads that sink on the position (%)"] == 100
    assert rows["one token repeated, 0 swapped with: position 6", "heads that sink on key 0 (%)"] == 0
