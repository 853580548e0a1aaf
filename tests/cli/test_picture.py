"""`sinkjax picture` writes one figure whose title, strongest layer and largest activation are the model's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import sinkjax
from sinkjax import Probe
from sinkjax.cli.verbs import carry_out

TEXT = "They sent for Ness at half past two."


def test_it_draws_what_the_forward_measures(tmp_path: Path, capsys) -> None:
    carry_out(["picture", "mini-softmax", TEXT, "--out", str(tmp_path / "a.svg")])
    model = sinkjax.load("mini-softmax")
    tokens, lengths = sinkjax.encode(model, [TEXT])
    tokens = tokens[:, : lengths[0]]
    record = sinkjax.forward(model, tokens, probe=Probe(attention=True, resid_max=True)).record
    to_first = np.asarray(record["attention"])[0, :, :, 1:, 0].mean(axis=-1)
    drawn = (tmp_path / "a.svg").read_text()
    words = re.findall(r"<!-- (.*?) -->", drawn)
    assert f"{(to_first > 0.3).mean():.0%} of heads" in capsys.readouterr().out
    assert f"layer {to_first.mean(axis=1).argmax()}, mean over heads" in words
    assert f"{np.asarray(record['resid_max']).max():.2g}" in words
    assert {"ent", "ast", "head", "layer"} <= {*words}
