"""What a constructor refuses, without a model, and how it labels what it makes."""

from __future__ import annotations

import numpy as np

from sinkjax import add_logit, compose, mask_key, per_prompt, set_residual
from sinkjax.edits import named


def test_labels_say_what_is_done() -> None:
    assert mask_key(0).label == "mask_key(key=0)"
    assert mask_key([1, 2], layers=slice(0, 3), heads=4).label == "mask_key(key=[1,2], layers=0:3, heads=4)"
    assert add_logit(0, -0.25).label == "add_logit(key=0, value=-0.25)"
    assert "per prompt" in mask_key(per_prompt([0, 1])).label
    assert compose(mask_key(0), add_logit(1, 2.0)).label == "mask_key(key=0) + add_logit(key=1, value=2)"
    assert mask_key(0).named("no sink").label == "no sink"
    assert len(set_residual(0, np.zeros(500)).label) < 60


def test_every_named_edit_is_listed() -> None:
    made = [name for name, make in vars(named).items() if getattr(make, "__module__", "") == named.__name__ and name[0] != "_"]
    assert sorted(made) == sorted(named.__all__)


def test_composition_is_associative() -> None:
    a, b, c = mask_key(0), add_logit(1, 2.0), mask_key(2, layers=1)
    assert compose(compose(a, b), c).terms == compose(a, compose(b, c)).terms == a.terms + b.terms + c.terms
