"""Every shipped study: its text and its claims belong together, on placeholders and on stores."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model.positions import Learned
from sinkjax.study.prose import filled
from sinkjax.study.registry import declared, find

PROGRAMS = [*declared()]
PARTS = {  # that it needs
    "background/windows": {"windows": (16,) * 30},
    "background/mechanism": {"position": Learned(), "qkv_bias": True},
}


def settings_of(found):
    """Its settings, with a BOS if it has one."""
    return found.settings(**{"bos": 0} if "bos" in found.settings.__dataclass_fields__ else {})


def suitable(name):
    """The architecture of SmolLM2, with what the study needs."""
    return dataclasses.replace(open_checkpoint("smollm2-135m", weights=False).config, **PARTS.get(name, {}))


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_claim_has_a_statement_and_each_statement_a_claim(name):
    found = find(name)
    settings, architecture = settings_of(found), None if found.trains else suitable(name)
    lab = found.trace(settings, architecture)
    assert {*lab.claims} == {*found.prose.claims}
    texts = [found.prose.title, found.prose.question, *found.prose.notes, *(one.text for one in found.prose.claims.values())]
    assert all(texts)
    assert "{" not in filled(" ".join(texts), vars(settings))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not find(name).trains])
def test_on_stores_a_study_has_the_conditions_of_its_plan(name):
    """The model is gone then, and only plain fields of its config are left."""
    found = find(name)
    settings, architecture = settings_of(found), suitable(name)
    fields = ("mlp_width", "windows", "layers", "heads", "kv_heads", "head_dim", "width", "position", "vocab_size")
    plain = SimpleNamespace(**{field: getattr(architecture, field) for field in fields})
    planned, stored = found.trace(settings, architecture), found.trace(settings, plain)
    for one in planned.sweeps.values():
        assert [point.label for point in one.conditions()] == [point.label for point in stored.sweeps[one.name].conditions()]
        assert [point.series for point in one.conditions()] == [point.series for point in stored.sweeps[one.name].conditions()]
    assert [*planned.claims] == [*stored.claims]
