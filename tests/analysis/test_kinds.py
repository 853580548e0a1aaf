"""Kinds of sinks: heads built by hand, one of each kind, and the definition computed with whole matrices."""

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.analysis import metrics


def record_of(sink_value, others, given, length=24, sink=0):
    """One prompt, layer and head that gives `given` to the sink's key and the rest to the diagonal."""
    weights = (1 - given) * np.eye(length)
    weights[:, sink] += given
    weights[:sink] = np.eye(length)[:sink]
    values = np.array(others, float)
    values[sink] = sink_value
    return {"attention": weights[None, None, None], "values": values[None, None, :, None]}


@pytest.mark.parametrize(
    ("size", "given", "kind"),
    [
        (0.1, 0.9, "no-op"),
        (0.1, 0.4, ""),
        (3.0, 0.9, "broadcast"),
        (0.3, 0.9, "neither"),  # between the bounds on the ratio
        (0.6, 0.5, "neither"),  # large enough, but the diagonal's updates have many directions
    ],
)
@pytest.mark.parametrize("sink", [0, 3])
def test_a_head_of_each_kind(size, given, kind, sink):
    others = np.eye(24)  # unit vectors, so the ratio is the sink's size
    found = metrics.sink_kind(record_of(size * np.eye(24)[sink], others, given, sink=sink), np.eye(24)[None, None])
    assert found.kind.item() == kind
    assert found.key.item() == (sink if kind else -1)
    np.testing.assert_allclose(found.ratio.item(), size if kind else np.nan, rtol=1e-12)


def test_equals_the_definition_with_whole_updates_on_grouped_heads_and_ragged_prompts():
    rng = np.random.default_rng(3)
    length, heads, kv_heads, dim, width = 20, 4, 2, 5, 16
    out = rng.standard_normal((1, heads, dim, width))
    values = rng.standard_normal((2, 1, length, kv_heads, dim))
    weights = np.tril(rng.random((2, 1, heads, length, length)))
    weights[..., 0] += 30
    weights /= weights.sum(-1, keepdims=True)
    values[1, :, 15:], weights[1, :, :, 15:], weights[1, ..., 15:] = np.nan, np.nan, np.nan
    found = metrics.sink_kind({"attention": weights, "values": values}, out)
    for prompt, size in enumerate((20, 15)):
        for head in range(heads):
            u = values[prompt, 0, :size, head // 2] @ out[0, head]
            update = (weights[prompt, 0, head, :size, :size] @ u)[1:]
            ratio = np.linalg.norm(u[0]) / np.linalg.norm(u[1:], axis=1).mean()
            np.testing.assert_allclose(found.ratio[prompt, 0, head], ratio, rtol=1e-10)
            rank = np.linalg.norm(update) ** 2 / np.linalg.norm(update, 2) ** 2
            np.testing.assert_allclose(found.rank[prompt, 0, head], rank, rtol=1e-10)
            assert found.key[prompt, 0, head] == 0


def test_reads_the_record_of_a_forward_whose_heads_write_what_it_weighs(tiny_config, tiny_params):
    tokens = jax.random.randint(jax.random.key(0), (2, 14), 0, tiny_config.vocab_size)
    capture = (sinkjax.Capture("value"), sinkjax.Capture("attn_out"))
    edit = sinkjax.add_logit(0, 12.0)  # heads of an untrained model have no sink of their own
    probe = sinkjax.Probe(attention=True, capture=capture)
    record = sinkjax.forward(tiny_params, tokens, tiny_config, edits=edit, probe=probe).record
    out = np.asarray(tiny_params["layers"]["o"])
    found = metrics.sink_kind(record, out)
    assert found.kind.shape == (2, tiny_config.layers, tiny_config.heads)
    assert (found.key == 0).mean() > 0.9
    values = np.repeat(np.asarray(record["values"]), tiny_config.heads // tiny_config.kv_heads, axis=3)
    u = np.einsum("bljhd,lhdw->blhjw", values, out)
    written = np.einsum("blhij,blhjw->bliw", np.asarray(record["attention"]), u)
    np.testing.assert_allclose(written, np.asarray(record["attn_out"]), atol=1e-5)
    norms = np.linalg.norm(u, axis=-1)
    judged = found.key == 0
    np.testing.assert_allclose(found.ratio[judged], (norms[..., 0] / norms[..., 1:].mean(-1))[judged], rtol=1e-5)
