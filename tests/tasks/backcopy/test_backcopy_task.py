"""Bigram-Backcopy trains like any other language, with a loss of its own for copies."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from sinkjax.data.config import part
from sinkjax.errors import SinkjaxError
from sinkjax.tasks import train
from sinkjax.tasks.backcopy import task as backcopy
from sinkjax.tasks.backcopy.config import Backcopy, BackcopyTraining
from sinkjax.train import loop
from sinkjax.train.log import read
from tests.tasks.backcopy.optimum import optimum

SIZES = {"context": 24, "characters": 8, "triggers": 2, "layers": 1, "width": 16, "heads": 1, "mlp_width": 24}
SMALL = BackcopyTraining(**SIZES, batch=16, eval_batch=40, steps=90, eval_every=30, learning_rates=(2e-2,))


def test_the_chain_is_learned_and_the_losses_of_its_parts_add_up(tmp_path):
    done = train(SMALL, tmp_path / "out", progress=False)
    first, *_, last = read(done.folder)[1]
    least = optimum(part(SMALL, Backcopy))
    assert first["chain_loss"] > least.chain_loss + 0.3
    assert last["chain_loss"] == pytest.approx(least.chain_loss, abs=0.05)  # a sample of 960 tokens
    share = (first["loss"] - first["chain_loss"]) / (first["copied_loss"] - first["chain_loss"])
    assert share == pytest.approx(least.copied, abs=0.05)
    assert np.isfinite(last["norm_ratio"]).all()
    assert len(last["received"]) == 1


def test_a_text_that_changed_is_no_text_to_go_on_with(tmp_path, monkeypatch):
    text, call = tmp_path / "text.txt", loop.call
    text.write_text("abcdefgh" * 9)
    config, out = dataclasses.replace(SMALL, text=str(text), steps=2, eval_every=1, batch=2, eval_batch=2), tmp_path / "out"

    def until_saved(*arguments):
        if arguments[0].done.step == 1:
            raise KeyboardInterrupt
        return call(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call", until_saved)
        with pytest.raises(KeyboardInterrupt):
            train(config, out, save_every=0, progress=False)
    text.write_text("hgfedcba" * 9)
    backcopy.chain.cache_clear()  # as in another process
    with pytest.raises(SinkjaxError, match=r"changed .*\(chain\)"):
        train(config, out, progress=False)
    lines = (out / "log.jsonl").read_text().splitlines()
    older = [{name: value for name, value in json.loads(line).items() if name not in ("data", "crc32")} for line in lines]
    padded = [json.dumps(entry).ljust(len(line)) + "\n" for entry, line in zip(older, lines, strict=True)]
    (out / "log.jsonl").write_text("".join(padded))  # as before logs had checksums and a card of such data
    assert train(config, out, progress=False).runs[0].steps == 2
