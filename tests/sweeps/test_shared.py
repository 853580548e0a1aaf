"""Sharing the baseline changes no number, skips what it says, and stays differentiable."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax import Probe, Site, Statistic
from sinkjax.edits.edit import resolve
from sinkjax.edits.term import first_layer
from sinkjax.model.site import SITES
from sinkjax.sweeps.plan import plan
from sinkjax.sweeps.shared import baseline, edited
from sinkjax.transformer.spec import ForwardSpec
from tests.edits.cases import DENSE
from tests.sweeps.cases import (
    EMBEDDING_EDITS,
    EVERYTHING,
    FIRST_LAYERS,
    LAYERS,
    LENGTHS,
    assert_close,
    edits_at,
    model_of,
    prompts,
)


@pytest.fixture(autouse=True)
def _one_edit_per_call(monkeypatch):
    """So that each edit starts from its own first layer, and not from the first one of its neighbours."""
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})


def assert_as_naive(model, tokens, edits, probe, lengths, tolerance):
    """A sweep gives what one forward for each edit gives."""
    result = sinkjax.sweep(model, tokens, edits, probe=probe, lengths=lengths)
    for number, edit in enumerate(edits):
        record = sinkjax.forward(model.params, tokens, model.config, edit, probe, lengths, logits=False).record
        for name in probe.dims():
            assert result[name].dims == ("edit", *record.dims[name])
            assert_close(result[name][number], record[name], tolerance, f"{name} of {edit.label}")
        for name in ("cells_addressed", "cells_changed"):
            want = record[name].sum(axis=-1) if name in record else np.zeros(len(tokens))
            np.testing.assert_array_equal(result[name][number], want, err_msg=edit.label)


def test_every_site_and_first_layer_gives_the_naive_numbers(tiny_config, tiny_params):
    edits = [edit for layers in FIRST_LAYERS for edit in edits_at(*layers)] + EMBEDDING_EDITS + [sinkjax.compose()]
    assert {term.site for edit in edits for term in edit.terms} == set(DENSE)
    with jax.enable_x64(True):
        model = model_of(tiny_config, tiny_params, "float64")
        probe = Probe(attention_received=True, resid_norm=True, nll=True)
        assert_as_naive(model, prompts(tiny_config), edits, probe, LENGTHS, 1e-12)


@st.composite
def random_edits(draw: st.DrawFn) -> sinkjax.Edit:
    """One or two terms of any site and operation, at random layers, heads, positions and strengths."""
    sizes, first = {"head": 6, "kv_head": 2}, draw(st.integers(0, 3))

    def some(size: int, first: int = 0) -> st.SearchStrategy:
        chosen = st.lists(st.integers(first, size - 1), min_size=1, max_size=3).map(tuple)
        return chosen if first else st.one_of(st.none(), chosen)

    def term() -> sinkjax.Edit:
        site = draw(st.sampled_from([site for site in DENSE if site != Site.POSITION]))
        op = draw(st.sampled_from([op for op in SITES[site].ops if op != "swap"]))
        chosen = {} if site == Site.EMBED else {"layers": draw(some(LAYERS))}
        if SITES[site].heads:
            chosen[{"head": "heads", "kv_head": "kv_heads"}[SITES[site].heads]] = draw(some(sizes[SITES[site].heads]))
        chosen |= {axis: draw(some(int(LENGTHS.min()), first)) for axis in SITES[site].positions}
        return sinkjax.edit(site, op, draw(st.floats(-3, 3, width=16)), **chosen)

    return sinkjax.compose(*(term() for _ in range(draw(st.integers(1, 2)))))


def addresses_something(edit: sinkjax.Edit, config: sinkjax.Config) -> bool:
    """Whether no term has all of its keys behind its queries, which is refused."""
    try:
        return bool(resolve(edit, config, LENGTHS, int(LENGTHS.max())))
    except sinkjax.SinkjaxError:
        return False


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(edit=random_edits())
def test_random_edits_give_the_naive_numbers(tiny_config, tiny_params, edit, monkeypatch):
    monkeypatch.setattr("sinkjax.sweeps.sharing.WORTH", {"cpu": 1})  # so that rows before them are the baseline's
    assume(addresses_something(edit, tiny_config))
    probe = Probe(attention_received=True, resid_norm=True)
    with jax.enable_x64(True):
        model = model_of(tiny_config, tiny_params, "float64")
        assert_as_naive(model, prompts(tiny_config), [edit], probe, LENGTHS, 1e-12)


def test_only_the_blocks_from_the_first_edited_one_on_are_run(tiny_config, tiny_params):
    ran = []

    def count(x, view):
        jax.debug.callback(lambda _: ran.append(1), x[0, 0, 0])
        return x.mean(axis=-1)

    probe = Probe(extra=(Statistic("count", Site.MLP_OUT, count, ("prompt", "layer", "position")),))
    tokens, model = prompts(tiny_config), model_of(tiny_config, tiny_params)
    edits = [sinkjax.mask_key(0, layers=2), sinkjax.mask_key(1, layers=2), sinkjax.drop_mlp(1, layers=1), sinkjax.compose()]
    sinkjax.sweep(model, tokens, edits, probe=probe)
    jax.effects_barrier()
    assert len(ran) == 3 + 2 * 1 + 1 * 2  # the baseline; two edits of the last block; one of the last two
    assert len(ran) == plan(tiny_config, edits, [12] * 4, 12, probe).layer_passes
    ran.clear()
    first = replace(probe, until=1)
    sinkjax.sweep(model, tokens, edits[2:], probe=first)
    jax.effects_barrier()
    assert len(ran) == 2 + 1 == plan(tiny_config, edits[2:], [12] * 4, 12, first).layer_passes


def test_reverse_mode_gives_the_gradient_of_the_plain_forward(tiny_config, tiny_params):
    tokens, probe = jnp.asarray(prompts(tiny_config)), Probe(attention_received=True)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, "float64"), tiny_params)
        lengths, spec = jnp.asarray(LENGTHS), ForwardSpec(config=tiny_config, probe=probe, logits=False)
        base, _ = baseline(params, tokens, lengths, spec=spec)

        def received(record):
            return jnp.nanmean(record["attention_received"][..., 0])

        def naive(strength):
            edit = sinkjax.add_logit(0, strength, layers=(1, 2))
            return received(sinkjax.forward(params, tokens, tiny_config, edit, probe, LENGTHS).record)

        def shared(strength):
            edits = resolve(sinkjax.add_logit(0, strength, layers=(1, 2)), tiny_config, LENGTHS, 12)
            start = jnp.int32(first_layer(edits, tiny_config))
            one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], edits)
            return received(edited(params, tokens, lengths, one, start, base.counting(one), spec=spec))

        got, want = jax.jit(jax.grad(shared))(0.3), jax.grad(naive)(0.3)
        assert want > 0
        assert float(got) == pytest.approx(float(want), rel=1e-12)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(edits=st.lists(random_edits(), min_size=1, max_size=3), until=st.integers(0, LAYERS - 1))
def test_a_probe_of_the_first_layers_has_their_numbers_and_no_others(tiny_config, tiny_params, edits, until):
    fitting = (edit for edit in edits if addresses_something(edit, tiny_config))
    starts = ((edit, first_layer(resolve(edit, tiny_config, LENGTHS, 12), tiny_config)) for edit in fitting)
    edits = [edit for edit, start in starts if start <= until] + [sinkjax.mask_key(0)]
    whole = replace(EVERYTHING, nll=False, attention=(), capture=())
    with jax.enable_x64(True):
        model, tokens = model_of(tiny_config, tiny_params, "float64"), prompts(tiny_config)
        part = replace(whole, until=until)
        swept = sinkjax.sweep(model, tokens, edits, part, LENGTHS)
        for number, edit in enumerate(edits):
            for logits in (False, True):
                want, got = (sinkjax.forward(model, tokens, None, edit, probe, LENGTHS, logits).record for probe in (whole, part))
                for name, dims in whole.dims().items():
                    read = until + 1 + (dims[1] == "depth")
                    for found in (swept[name].values[number], got[name]):
                        assert_close(found[:, :read], want[name][:, :read], 1e-12, name)
                        left = np.asarray(found[:, read:])
                        assert (np.isnan(left) if left.dtype.kind == "f" else left == (name != "non_finite") * -1).all(), name
