"""Random lists of edits: composing is running them in order, later masks only take away, and nothing reaches back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax import Capture, Edit, Probe, Site, compose, edit, mask_key
from sinkjax.edits.edit import resolve
from tests.edits.cases import at

FEW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WEIGHTS = Probe(capture=(Capture(Site.WEIGHTS),))


@st.composite
def masks(draw: Any) -> Edit:
    """A mask of one key in one layer and some heads; one kind, so that all examples run one program."""
    return mask_key(draw(st.integers(0, 6)), layers=draw(st.integers(0, 2)), heads=draw(st.integers(0, 5)))


@pytest.fixture(scope="module")
def weights(run):
    return lambda *edits: np.asarray(run(compose(*edits), WEIGHTS).record["weights"])


@FEW
@given(pair=st.tuples(masks(), masks()))
def test_masks_commute_and_only_take_away(weights, pair: tuple[Edit, Edit]) -> None:
    first, second = pair
    both = weights(first, second)
    np.testing.assert_array_equal(both, weights(second, first))
    np.testing.assert_array_equal(both, weights(first, second, first))
    gone_first, gone_both = (np.nan_to_num(seen) == 0 for seen in (weights(first), both))
    assert (gone_both | ~gone_first).all()
    np.testing.assert_allclose(both[0].sum(axis=-1), 1.0, rtol=1e-12)


@FEW
@given(data=st.data())
def test_cells_that_are_not_selected_keep_their_bits(run, tiny_config, data: st.DataObject) -> None:
    """At the site itself, in the layer of the edit: an edit touches its selection and nothing beside it."""
    site = data.draw(st.sampled_from([Site.QUERY, Site.HEAD_OUT, Site.RESID]))
    layer, position = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 6))
    dims = data.draw(st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True))
    probe = Probe(capture=(Capture(site, name="seen"),))
    plain, edited = (
        np.asarray(run(edits, probe).record["seen"])[:, layer] for edits in ((), at(site, position, layer=layer, dims=dims))
    )
    changed = (plain != edited) & ~np.isnan(plain)
    selected = np.zeros(changed.shape, bool)
    selected[:, position, ..., dims] = True
    assert not (changed & ~selected).any()
    assert changed[selected].all()


@FEW
@given(data=st.data())
def test_an_empty_row_is_found_whatever_masks_make_it(tiny_config, data: st.DataObject) -> None:
    """The host's check against a brute-force table of what every query can still see."""
    terms = data.draw(
        st.lists(
            st.tuples(
                st.sets(st.integers(0, 6), min_size=1),
                st.sets(st.integers(0, 6), min_size=1),
                st.sampled_from(["any", "others", "self"]),
                st.none() | st.sets(st.integers(0, 6), min_size=1),
            ),
            min_size=1,
            max_size=3,
        )
    )
    visible = np.tril(np.ones((7, 7), bool))
    same = np.eye(7, dtype=bool)
    back = np.arange(7)[:, None] - np.arange(7)
    parts = []
    for queries, keys, relation, distances in terms:
        cells = np.zeros((7, 7), bool)
        cells[np.ix_(sorted(queries), sorted(keys))] = True
        cells &= np.isin(back, sorted(range(7) if distances is None else distances))
        if not (cells & np.tril(np.ones((7, 7), bool))).any():
            continue  # it would address nothing, which is an error of its own
        visible &= ~(cells & {"any": True, "self": same, "others": ~same}[relation])
        where = {"queries": sorted(queries), "keys": sorted(keys), "distances": distances and sorted(distances)}
        parts.append(edit("logits", "add", -np.inf, **where, relation=relation))
    empty = ~visible.any(axis=-1)
    if not empty.any():
        resolve(compose(*parts), tiny_config, [7], 7)
        return
    with pytest.raises(sinkjax.SinkjaxError, match=f"key of query {int(empty.argmax())} "):
        resolve(compose(*parts), tiny_config, [7], 7)
