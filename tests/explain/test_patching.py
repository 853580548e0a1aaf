"""A patch is one forward with the clean run's activation; the measured logits are those of a forward."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe
from tests.explain.test_paths import LENGTHS, OTHER, TOKENS, model

RIGHT, WRONG = np.array([3, 20]), 7


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("block", "site", "cells"), [("parallel", "resid", (0, 6)), ("experts", "mlp_out", (2, 5)), ("post", "head_out", (1, 5))]
)
def test_each_patch_is_a_forward_of_its_own(block: str, site: str, cells: tuple[int, ...]) -> None:
    one = model(block)
    given = {} if site == "head_out" else {"positions": cells}
    found = sinkjax.patch(one, TOKENS, OTHER, RIGHT, WRONG, site, layers=(0, 2), lengths=LENGTHS, **given)
    donor = sinkjax.forward(one, TOKENS, probe=Probe(capture=(Capture(site),)), lengths=LENGTHS).record[site]
    for name, tokens in (("clean", TOKENS), ("corrupted", OTHER)):
        out = sinkjax.forward(one, tokens, lengths=LENGTHS)
        np.testing.assert_allclose(found[name], sinkjax.metrics.logit_difference(out, RIGHT, WRONG), atol=1e-12)
    for layer in (0, 2):
        for cell in cells:
            if site == "head_out":
                value = np.nan_to_num(donor[None, :, layer, :, cell : cell + 1])
                edit = sinkjax.edit(site, "set", value, layers=layer, heads=cell)
            else:
                edit = sinkjax.edit(site, "set", donor[:, layer, cell], layers=layer, queries=cell)
            last = sinkjax.forward(one, OTHER, edits=edit, lengths=LENGTHS).last_logits
            want = last[np.arange(2), RIGHT] - last[:, WRONG]
            got = found.logit_difference.sel({"layer": layer, found.logit_difference.dims[-1]: cell})
            np.testing.assert_allclose(got, want, atol=1e-12)
    assert float(np.abs(found.logit_difference - found.corrupted).max()) > 0.01


def test_the_whole_stream_before_the_answer_restores_all() -> None:
    found = sinkjax.patch(model("experts"), TOKENS[:1], OTHER[:1], 3, 7, lengths=LENGTHS[:1])
    np.testing.assert_allclose(found.restored.sel(layer=2, position=9), 1)
    np.testing.assert_allclose(found.restored.sel(layer=2, position=slice(0, 8)), 0, atol=1e-12)
    assert sinkjax.to_frame(found, "restored", over=None).shape == (30, 4)
    assert [axis.get_xlabel() for axis in sinkjax.draw_patch(found, list("abcdefghij")).axes][:1] == ["position"]
