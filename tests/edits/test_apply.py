"""What each operation does to its array, told by captures and by a second way to the same numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import (
    Capture,
    Probe,
    Site,
    add_logit,
    attend_self,
    compose,
    drop_mlp,
    edit,
    mask_key,
    per_prompt,
    scale_head_output,
    set_positions,
    set_residual,
    set_weights,
    shift_positions,
    swap_embeddings,
)
from sinkjax.edits.apply import vectors
from sinkjax.model.site import SITES
from tests.edits.cases import DENSE
from tests.edits.conftest import LENGTHS

TIGHT = {"rtol": 1e-12, "atol": 1e-13}
ALL = slice(None)


def seen(*sites: Site) -> Probe:
    return Probe(capture=tuple(Capture(site) for site in sites))


def test_a_mask_before_the_softmax_is_zero_and_renormalise_after_it(run) -> None:
    where = {"keys": [1, 4], "layers": [0, 2], "heads": [0, 3]}
    before = run(mask_key([1, 4], layers=[0, 2], heads=[0, 3]))
    after = run(edit("weights", "scale", 0.0, **where, relation="others", renormalise=True))
    np.testing.assert_allclose(before.logits, after.logits, rtol=0, atol=1e-12)


def test_mask_key_leaves_no_weight_below_the_diagonal(run) -> None:
    weights = np.asarray(run(mask_key(2, layers=1, heads=[0, 5]), seen(Site.WEIGHTS)).record["weights"])
    assert not weights[0, 1, [0, 5], 3:, 2].any()
    assert (weights[0, 1, 1:5, 3:, 2] > 0).all()
    assert (weights[0, [0, 2], :, 2:, 2] > 0).all()
    assert (weights[0, 1, :, 2, 2] > 0).all()
    np.testing.assert_allclose(weights[0].sum(axis=-1), 1.0, rtol=1e-12)


def test_attend_self_makes_a_row_one_hot(run) -> None:
    weights = np.asarray(run(attend_self([3, 5], layers=2), seen(Site.WEIGHTS)).record["weights"])[0]
    np.testing.assert_array_equal(weights[2][:, [3, 5]], np.broadcast_to(np.eye(10)[[3, 5]], (6, 2, 10)))
    assert (weights[2][:, 4, :5] > 0).all()
    assert (weights[1][:, 3, :4] > 0).all()


def test_distances_select_the_pairs_outside_of_a_window(run) -> None:
    """A window of three keys that keeps the first two, against the rectangles of each query."""
    window = edit("logits", "set", -np.inf, keys=slice(2, None), distances=slice(3, None), layers=[0, 2])
    parts = ({"queries": row, "keys": slice(2, row - 2), "layers": [0, 2]} for row in range(5, 10))
    rows = compose(*(edit("logits", "set", -np.inf, **part) for part in parts))
    seen_window, seen_rows = (run(edits, seen(Site.WEIGHTS), np.array([10, 10])).record for edits in (window, rows))
    np.testing.assert_array_equal(seen_window["weights"], seen_rows["weights"])
    assert seen_window["cells_changed"].sum(-1).tolist() == seen_rows["cells_changed"].sum(-1).tolist()
    assert seen_window["cells_addressed"].sum(-1).tolist() == seen_rows["cells_addressed"].sum(-1).tolist()


def test_a_masked_key_stays_masked_whatever_is_added_or_set(run) -> None:
    masked = run(mask_key(1)).logits
    for op in ("add", "set"):
        further = edit("logits", op, 30.0, keys=1, relation="others")
        np.testing.assert_allclose(run(compose(mask_key(1), further)).logits, masked, **TIGHT)
        np.testing.assert_allclose(run(compose(further, mask_key(1))).logits, masked, **TIGHT)


def test_scores_are_final_and_an_added_logit_is_the_number_of_nats(run) -> None:
    plain, added = (run(edits, seen(Site.LOGITS, Site.WEIGHTS)).record for edits in ((), add_logit(2, 0.75, layers=0)))
    np.testing.assert_allclose(added["logits"][0, 0, :, 2:, 2], plain["logits"][0, 0, :, 2:, 2] + 0.75, **TIGHT)
    odds = np.asarray(added["weights"] / plain["weights"])[0, 0, :, 3:]
    np.testing.assert_allclose(odds[..., 2] / odds[..., 1], np.exp(0.75), rtol=1e-12)
    scores = np.asarray(plain["logits"])[0, 1]
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(plain["weights"][0, 1], powers / powers.sum(axis=-1, keepdims=True), **TIGHT)
    assert np.isneginf(scores[:, 0, 1:]).all()


def test_terms_of_a_site_apply_left_to_right(run) -> None:
    plain = np.asarray(run(probe=seen(Site.RESID)).record["resid"])[0, 0]
    add, scale = edit("resid", "add", 0.5, queries=4, layers=0), edit("resid", "scale", 3.0, queries=4, layers=0)
    first, second = (run(compose(*order), seen(Site.RESID)).record["resid"][0, 0] for order in ((add, scale), (scale, add)))
    np.testing.assert_allclose(first[4], (plain[4] + 0.5) * 3, **TIGHT)
    np.testing.assert_allclose(second[4], plain[4] * 3 + 0.5, **TIGHT)
    np.testing.assert_array_equal(first[:4], plain[:4])


def test_a_row_of_weights_over_the_keys_is_set_for_the_selected_queries(run) -> None:
    record = run(probe=seen(Site.WEIGHTS, Site.RESID)).record
    weights = np.nan_to_num(record["weights"])  # NaN at keys beyond a prompt
    rows = np.moveaxis(weights[..., 6, :], 1, 0)  # [L, B, H, T] of query 6
    put_back = run(edit("weights", "set", rows, queries=6), seen(Site.WEIGHTS, Site.RESID)).record
    np.testing.assert_allclose(put_back["resid"], record["resid"], **TIGHT)
    shuffled = np.random.default_rng(0).permuted(rows[..., :7], axis=-1)
    rows = np.concatenate([shuffled, np.full_like(rows[..., 7:], 0.3)], axis=-1)  # keys that the query does not see
    edited = np.nan_to_num(run(edit("weights", "set", rows, queries=6), seen(Site.WEIGHTS)).record["weights"])
    np.testing.assert_allclose(np.moveaxis(edited, 1, 0)[..., 6, :7], shuffled, **TIGHT)
    assert not edited[..., 6, 7:].any()
    np.testing.assert_array_equal(edited[:, 0, :, :6], weights[:, 0, :, :6])


def test_key_edits_take_key_value_heads_and_reach_their_group_of_query_heads(run) -> None:
    plain = np.asarray(run(probe=seen(Site.WEIGHTS)).record["weights"])[0, 0]
    scaled = edit("key", "scale", 2.0, keys=2, kv_heads=1, layers=0)
    changed = (np.asarray(run(scaled, seen(Site.WEIGHTS)).record["weights"])[0, 0] != plain).any(axis=(1, 2))
    np.testing.assert_array_equal(changed, [False, False, False, True, True, True])
    scaled = edit("query", "scale", 2.0, queries=5, heads=4, layers=0)
    changed = (np.asarray(run(scaled, seen(Site.WEIGHTS)).record["weights"])[0, 0] != plain).any(axis=-1)
    np.testing.assert_array_equal(np.argwhere(changed), [[4, 5]])


@pytest.mark.parametrize("centre", ["dims", "positions"])
def test_centred_scaling_multiplies_the_distance_from_the_mean(run, centre: str) -> None:
    plain = np.asarray(run(probe=seen(Site.HEAD_OUT)).record["head_out"])[0, 0]
    scaled = scale_head_output([2, 6], 1.5, centre=centre, layers=0, heads=3)
    edited = np.asarray(run(scaled, seen(Site.HEAD_OUT)).record["head_out"])[0, 0]
    want = plain.copy()
    for i in (2, 6):
        mean = plain[i, 3].mean() if centre == "dims" else plain[: i + 1, 3].mean(axis=0)
        want[i, 3] = mean + 1.5 * (plain[i, 3] - mean)
    np.testing.assert_allclose(edited, want, **TIGHT)


@pytest.mark.parametrize("centre", ["dims", "positions"])
def test_in_bfloat16_an_edit_rounds_its_result_once(tiny_config, rng, centre: str) -> None:
    x = jnp.asarray(5 + rng.standard_normal((1, 60, 6, 8)), jnp.bfloat16)
    (term,) = scale_head_output(ALL, 1.3, centre=centre).resolve(tiny_config, [60], 60)
    with jax.enable_x64(False):
        edited, _ = vectors(term, x, 0, jnp.asarray([60]))
    exact = np.asarray(x, np.float64)
    mean = exact.mean(-1, keepdims=True) if centre == "dims" else exact.cumsum(1) / np.arange(1, 61)[:, None, None]
    np.testing.assert_allclose(np.asarray(edited, np.float64), exact + 0.3 * (exact - mean), rtol=2**-8)


def test_swapped_embeddings_are_swapped_tokens_but_for_the_targets(run, params64, tiny_config, tokens) -> None:
    out = run(swap_embeddings(1, 5), Probe(nll=True))
    swapped = tokens.copy()
    swapped[:, [1, 5]] = tokens[:, [5, 1]]
    by_tokens = sinkjax.forward(params64, swapped, tiny_config, probe=Probe(nll=True), lengths=LENGTHS)
    np.testing.assert_array_equal(out.logits, by_tokens.logits)
    scores = jax.nn.log_softmax(by_tokens.logits[0, :-1])
    np.testing.assert_allclose(out.record["nll"][0, :-1], -scores[np.arange(9), tokens[0, 1:]], **TIGHT)
    each = run(swap_embeddings([1, 2], [5, 3])).logits
    np.testing.assert_array_equal(each[0], out.logits[0])
    np.testing.assert_array_equal(each[1], run(swap_embeddings(2, 3)).logits[1])


def test_positions_differ_per_prompt(run) -> None:
    together = run(compose(mask_key(per_prompt([0, 4]), layers=1), drop_mlp(per_prompt([[2, 3], 5]))))
    for b, (key, position) in enumerate([(0, [2, 3]), (4, 5)]):
        alone = run(compose(mask_key(key, layers=1), drop_mlp(position)))
        np.testing.assert_array_equal(together.logits[b], alone.logits[b])


def test_rotary_indices_of_queries_and_keys_are_separate(run) -> None:
    plain = run().logits
    index = np.arange(10)
    np.testing.assert_allclose(run(set_positions(query=index, key=index)).logits, plain, **TIGHT)
    np.testing.assert_allclose(run(shift_positions(query=7, key=7)).logits, plain, rtol=1e-9, atol=1e-11)
    further = run(shift_positions(query=7)).logits
    np.testing.assert_allclose(run(shift_positions(key=-7)).logits, further, rtol=1e-9, atol=1e-11)
    assert np.abs(np.asarray(further - plain))[0, 1:].max() > 1e-3
    one = edit("position", "set", 9, queries=3, layers=1)
    np.testing.assert_allclose(run(shift_positions(query=6 * (index == 3), layers=1)).logits, run(one).logits, **TIGHT)
    per_row = run(set_positions(query=np.stack([index, index + 7]))).logits
    np.testing.assert_allclose(per_row[0], plain[0], **TIGHT)
    np.testing.assert_allclose(per_row[1], further[1], rtol=1e-9, atol=1e-11)


def test_set_residual_sets_the_chosen_dims_in_the_order_they_are_named(run) -> None:
    plain = np.asarray(run(probe=seen(Site.RESID)).record["resid"])[0, 1]
    edits = set_residual([0, 2], [7.0, -3.0], dims=[30, 4], layers=1)
    edited = np.asarray(run(edits, seen(Site.RESID)).record["resid"])[0, 1]
    want = plain.copy()
    want[[0, 2], 4], want[[0, 2], 30] = -3.0, 7.0
    np.testing.assert_array_equal(edited, want)


@pytest.mark.parametrize("distribution", [np.full(5, 0.2), {2: 0.75, 0: 0.25}, [0, 0, 1, 0, 0]], ids=str)
def test_set_weights_gives_a_row_and_leaves_all_others(run, distribution) -> None:
    plain = np.array(run(probe=Probe(attention=True)).record["attention"])
    got = np.asarray(run(set_weights(4, distribution, layers=1, heads=[0, 3]), Probe(attention=True)).record["attention"])
    given = distribution if isinstance(distribution, dict) else dict(enumerate(distribution))
    want = np.array([given.get(key, 0.0) for key in range(5)])  # later keys are invisible
    np.testing.assert_array_equal(got[:, 1, [0, 3], 4, :5], np.broadcast_to(want, (len(got), 2, 5)))
    plain[:, 1, [0, 3], 4] = got[:, 1, [0, 3], 4]
    np.testing.assert_array_equal(got[:, :2], plain[:, :2])


def test_donors_from_another_run(run, tokens, params64, tiny_config) -> None:
    """Activation patching: [B, d], [L, B, d] and [L, B, H, D] values land where they were taken from."""
    probe = seen(Site.ATTN_OUT, Site.RESID, Site.HEAD_OUT)
    other = sinkjax.forward(params64, (tokens + 7) % 61, tiny_config, probe=probe, lengths=LENGTHS).record
    donor = other["attn_out"][:, 1, 3]
    got = run(edit("attn_out", "set", donor, queries=3, layers=1), probe).record
    np.testing.assert_array_equal(got["attn_out"][:, 1, 3], donor)
    donor = jnp.moveaxis(other["resid"][:, :, 4], 1, 0)
    got = run(edit("resid", "set", donor, queries=4), probe).record
    np.testing.assert_array_equal(got["resid"][:, :, 4], other["resid"][:, :, 4])
    donor = jnp.moveaxis(other["head_out"][:, :, 2], 1, 0)
    got = run(edit("head_out", "set", donor, queries=2, heads=[1, 5]), probe).record
    np.testing.assert_array_equal(got["head_out"][:, :, 2, [1, 5]], other["head_out"][:, :, 2, [1, 5]])
    assert (got["head_out"][:, :, 2, 0] != other["head_out"][:, :, 2, 0]).all()
    whole = run(edit("resid", "set", other["resid"][:, 2, -4], queries=6, layers=2)).logits
    want = sinkjax.forward(params64, (tokens + 7) % 61, tiny_config, lengths=LENGTHS).logits
    np.testing.assert_allclose(whole[:, 6], want[:, 6], **TIGHT)


@pytest.mark.parametrize(
    ("edits", "addressed", "changed"),
    [
        (mask_key(2), 3 * 6 * np.array([8, 5]), 3 * 6 * np.array([7, 4])),
        (attend_self(0), 3 * 6 * np.array([1, 1]), [0, 0]),
        (attend_self(3, layers=[1, 2], heads=0), 2 * np.array([4, 4]), 2 * np.array([3, 3])),
        (add_logit(0, 1.0, layers=0, heads=slice(0, 2)), 2 * LENGTHS, 2 * LENGTHS),
        (set_residual(slice(2, 9), 3.0, dims=[1, 2], layers=0), 2 * np.array([7, 5]), 2 * np.array([7, 5])),
        (swap_embeddings(0, 0), [32, 32], [0, 0]),
        (shift_positions(query=1, layers=1), LENGTHS, LENGTHS),
        (set_positions(key=0, layers=[0, 1]), 2 * LENGTHS, 2 * (LENGTHS - 1)),
    ],
    ids=lambda value: value.label if isinstance(value, sinkjax.Edit) else "",
)
def test_counts_of_cells(run, edits, addressed, changed) -> None:
    record = run(edits).record
    np.testing.assert_array_equal(record["cells_addressed"][:, 0], addressed)
    np.testing.assert_array_equal(record["cells_changed"][:, 0], changed)
    assert not np.asarray(record["empty_rows"]).any()


def test_counts_of_overlapping_edits(run) -> None:
    """Each term counts what it selects of what is still visible, and changes only what the terms before it have left."""
    record = run(compose(mask_key(0, layers=1), attend_self(4, layers=1), mask_key([0, 3]))).record
    causal = np.tril(np.ones((10, 10), bool))
    off = ~np.eye(10, dtype=bool)
    key0, row4, keys03 = np.zeros((3, 10, 10), bool)
    key0[:, 0], row4[4], keys03[:, [0, 3]] = True, True, True
    for b, length in enumerate(LENGTHS):
        real = np.arange(10)[:, None] < length
        visible = [causal & real for _ in range(3)]  # per layer
        for term, (cells, layers) in enumerate([(key0, [1]), (row4, [1]), (keys03, [0, 1, 2])]):
            addressed = sum((cells & visible[layer]).sum() for layer in layers) * 6
            changed = sum((cells & off & visible[layer]).sum() for layer in layers) * 6
            assert record["cells_addressed"][b, term] == addressed
            assert record["cells_changed"][b, term] == changed
            for layer in layers:
                visible[layer] = visible[layer] & ~(cells & off)


def test_a_traced_mask_that_empties_a_row_is_counted(run) -> None:
    """In traced code no value can be checked: the row's weights are 0, and the record says how many rows there are."""
    cut = edit("logits", "set", 0.0, queries=[2, 3], layers=1, heads=[0, 4])
    mask = lambda value: run(cut.replace(terms=(cut.terms[0].replace(value=value),)), seen(Site.WEIGHTS))  # noqa: E731
    out = jax.jit(mask)(-jnp.inf)
    np.testing.assert_array_equal(out.record["empty_rows"], [4, 4])
    assert not np.asarray(out.record["weights"])[0, 1, [0, 4], 2:4].any()
    assert np.isfinite(np.asarray(out.logits)).all()


VECTORS = [site for site in DENSE if SITES[site].dims]


@pytest.mark.parametrize("site", VECTORS)
def test_a_donor_with_all_positions_is_the_composition_of_its_positions(run, tokens, site: Site) -> None:
    """What another batch has there, put in at all positions at once and at each one by itself."""
    donor = np.random.default_rng(5).standard_normal(run(probe=seen(site)).record[Capture(site).name].shape)
    donor = donor[:, None] if site == Site.EMBED else donor
    donor = np.swapaxes(donor, 0, 1)  # [L, B, T, (H,) D]
    along, layers = ("keys" if SITES[site].positions == ("keys",) else "queries"), ({} if site == Site.EMBED else {"layers": 1})
    chosen = donor if site == Site.EMBED else donor[1:2]
    whole = edit(site, "set", chosen, **layers, **{along: [1, 2, 5]})
    parts = [edit(site, "set", chosen[:, :, position], **layers, **{along: position}) for position in (1, 2, 5)]
    once, each = run(whole, seen(site)), run(compose(*parts), seen(site))
    np.testing.assert_array_equal(once.logits, each.logits)
    found = np.swapaxes(np.asarray(once.record[Capture(site).name]).reshape(2, -1, *donor.shape[2:]), 0, 1)[int(len(donor) > 1)]
    np.testing.assert_array_equal(found[:, [1, 2, 5]], chosen[0][:, [1, 2, 5]])
    assert not (found[:, 3] == chosen[0][:, 3]).all()


@pytest.mark.parametrize(("site", "name"), [(Site.Q_IN, "q"), (Site.K_IN, "k"), (Site.V_IN, "v")])
def test_the_input_of_a_head_is_its_own(run, params64, site: Site, name: str) -> None:
    """One head reads another vector; the others, and everything else that is made of the normed stream, stay."""
    output = {"q": Site.QUERY, "k": Site.KEY, "v": Site.VALUE}[name]
    vector = np.random.default_rng(6).standard_normal(32)
    head = {"heads": 1} if name == "q" else {"kv_heads": 1}
    where = {"queries": 3} if name == "q" else {"keys": 3}
    probe = seen(site, output, Site.ATTN_IN)
    plain, edited = (run(edits, probe).record for edits in ((), edit(site, "set", vector, layers=1, **head, **where)))
    of = Capture(output).name
    want = np.asarray(plain[of])[:, 1].copy()
    want[:, 3, 1] = vector @ np.asarray(params64["layers"][name])[1, :, 1]
    np.testing.assert_allclose(np.asarray(edited[of])[:, 1], want, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(edited["attn_in"][:, 1], plain["attn_in"][:, 1])
    np.testing.assert_array_equal(np.asarray(plain[str(site)])[:, :, :, 0], plain["attn_in"])


@pytest.mark.parametrize(("site", "chosen"), [("attn_out", {}), ("head_out", {"heads": 2}), ("resid", {"dims": [3, 1, 8]})])
def test_what_is_removed_is_the_part_along_a_direction(run, site: str, chosen: dict) -> None:
    """Within the chosen dims; two orthogonal directions, composed, remove their plane, and a scalar removes the dims' mean."""
    probe, where = seen(Site(site)), {"layers": 1, "queries": 3, **chosen}
    plain = np.asarray(run((), probe).record[site])[:, 1, 3]
    plain = plain[:, 2] if site == "head_out" else plain
    dims = chosen.get("dims", [*range(plain.shape[-1])])
    plane = np.linalg.qr(np.random.default_rng(9).standard_normal((len(dims), 2)))[0].T
    first, second = (edit(site, "remove", 3.7 * direction, **where) for direction in plane)
    for edits, basis in ((first, plane[:1]), (compose(first, second), plane), (edit(site, "remove", 2.0, **where), None)):
        edited = np.asarray(run(edits, probe).record[site])[:, 1, 3]
        edited = edited[:, 2] if site == "head_out" else edited
        basis = np.full((1, len(dims)), len(dims) ** -0.5) if basis is None else basis
        want = plain.copy()
        want[:, dims] -= plain[:, dims] @ basis.T @ basis
        np.testing.assert_allclose(edited, want, rtol=1e-11, atol=1e-12)


def test_weight_that_is_taken_from_a_key_goes_to_the_query_itself(run) -> None:
    probe = Probe(attention=True)
    moved = edit("weights", "scale", 0.25, keys=1, queries=[4, 6], layers=1, heads=2, relation="others", renormalise="self")
    plain, edited = (np.asarray(run(edits, probe).record["attention"]) for edits in ((), moved))
    want = plain[:, 1, 2].copy()
    for query in (4, 6):
        want[:, query, query] += 0.75 * want[:, query, 1]
        want[:, query, 1] *= 0.25
    np.testing.assert_allclose(edited[:, 1, 2], want, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(np.delete(edited[:, 1], 2, 1), np.delete(plain[:, 1], 2, 1))


def test_the_value_of_a_head_is_its_own(run, tiny_config) -> None:
    """One query head mixes another value, its neighbours stay, and all heads of a group together are an edit of VALUE."""
    group = tiny_config.heads // tiny_config.kv_heads
    value = np.random.default_rng(8).standard_normal(tiny_config.head_dim)
    probe = Probe(attention=True, capture=(Capture(Site.HEAD_OUT), Capture(Site.VALUE), Capture(Site.HEAD_VALUE)))
    one = edit("head_value", "set", value, layers=1, heads=1, keys=3)
    plain, edited = (run(edits, probe).record for edits in ((), one))
    of = Capture(Site.HEAD_OUT).name
    at_key = np.asarray(plain["attention"])[:, 1, 1, :, 3]
    change = at_key[..., None] * (value - np.asarray(plain["values"])[:, 1, 3, 1 // group])[:, None]
    np.testing.assert_allclose(edited[of][:, 1, :, 1], np.asarray(plain[of])[:, 1, :, 1] + change, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(np.delete(edited[of], 1, 3)[:, 1], np.delete(plain[of], 1, 3)[:, 1])
    np.testing.assert_array_equal(plain["head_value"], np.repeat(plain["values"], group, axis=3))
    both = run(edit("head_value", "set", value, layers=1, heads=range(group), keys=3))
    np.testing.assert_allclose(both.logits, run(edit("value", "set", value, layers=1, kv_heads=0, keys=3)).logits, rtol=1e-12)


def test_what_is_injected_is_read_by_one_reader_alone(run, params64, tiny_config) -> None:
    """A key-value head's keys are made of norm(h + value); values, other heads and the stream itself are not."""
    value = np.random.default_rng(7).standard_normal(32)
    probe = seen(Site.RESID, Site.KEY, Site.VALUE, Site.QUERY, Site.ATTN_IN)
    injected = edit("k_in", "inject", value, layers=1, kv_heads=1, keys=[0, 3])
    plain, edited = (run(edits, probe).record for edits in ((), injected))
    w = {name: np.asarray(leaf)[1] for name, leaf in params64["layers"].items()}
    stream = np.asarray(plain["resid"])[:, 0, 3] + value
    normed = stream / np.sqrt((stream**2).mean(-1, keepdims=True) + tiny_config.norm.eps) * w["attn_norm"]
    want = np.asarray(plain["keys"])[:, 1].copy()
    want[:, 3, 1] = normed @ w["k"][:, 1]
    np.testing.assert_allclose(np.asarray(edited["keys"])[:, 1, 1:], want[:, 1:], rtol=1e-12, atol=1e-13)
    for name in ("values", "queries", "attn_in"):
        np.testing.assert_array_equal(edited[name][:, 1], plain[name][:, 1])
    both = run(compose(injected, injected), probe).record["keys"]
    twice = run(edit("k_in", "inject", 2 * value, layers=1, kv_heads=1, keys=[0, 3]), probe).record["keys"]
    np.testing.assert_allclose(both, twice, rtol=1e-12, atol=1e-13)


def test_the_stream_between_attention_and_the_mlp(run) -> None:
    probe = Probe(capture=tuple(Capture(site) for site in (Site.RESID, Site.RESID_MID, Site.ATTN_OUT, Site.MLP_OUT)))
    record = run(probe=probe).record
    np.testing.assert_allclose(record["resid_mid"][:, 1:], record["resid"][:, :-1] + record["attn_out"][:, 1:], **TIGHT)
    np.testing.assert_allclose(record["resid"], record["resid_mid"] + record["mlp_out"], **TIGHT)
