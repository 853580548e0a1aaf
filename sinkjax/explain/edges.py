"""Edges from components to their readers, estimated for all pairs in one backward pass, and checked by path patching.

A reader adds to the stream that it reads what changes if a sender is replaced. The first-order estimate of this edge's effect is
the product of that change with the gradient of the metric by the reader's stream (edge attribution patching, Syed et al. 2023,
arXiv 2310.10348). A circuit keeps some edges and replaces all others, as the run under these replacements has them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit
from sinkjax.edits.term import Select
from sinkjax.errors import SinkjaxError, short
from sinkjax.explain.attribution import Metric, Prepared, as_sites, donated, each_of, is_count, largest_first, name_of, with_exact
from sinkjax.explain.paths import READERS, SENDERS, changes, reading, reads, refuse_without_stream, written
from sinkjax.model.config import Config
from sinkjax.model.site import SITES, Site
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.settings import fixed_settings

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

NAMES = {Site.ATTN_IN: "attention", Site.Q_IN: "q", Site.K_IN: "k", Site.V_IN: "v", Site.MLP_IN: "MLP", Site.RESID: "output"}
Inputs = dict[Site, jax.Array]  # reader -> change of its stream: [L or 1, B, T, (readers of a layer,) d]


Block = tuple[Site, int, Site]  # a sender, its layer, and a reader
Edge = tuple[Site, int, int, Site, int, int]  # a sender, its layer and head, a reader, its layer and head; -1: no head


@dataclass(frozen=True, eq=False)
class _Graph:
    """A model's senders with their new values, its readers, and which edges exist.

    blocks: bool [layers of the reader (1 for the last stream), senders of the layer, readers of a layer].
    """

    run: Prepared
    donors: Mapping[Site, Any]
    readers: list[Site]
    blocks: dict[Block, np.ndarray]

    def edges(self) -> list[Edge]:
        """Return the edges in the order of the blocks."""
        edges: list[Edge] = []
        for (sender, first, reader), exist in self.blocks.items():
            for last, number, head in np.argwhere(exist).tolist():
                source = sender, first, number if sender == Site.HEAD_OUT else -1
                target = reader, last if len(exist) > 1 else self.run.config.layers - 1, head if SITES[reader].heads else -1
                edges.append((*source, *target))
        return edges

    def inputs(self) -> Inputs:
        """Return zeros for each reader; the last stream has one."""
        config, (B, T) = self.run.config, self.run.tokens.shape[:2]
        shapes = {site: (1 if site == Site.RESID else config.layers, B, T, *_heads(site, config)) for site in self.readers}
        return {site: jnp.zeros((*shape, config.width), jnp.result_type(float)) for site, shape in shapes.items()}


@fixed_settings
def attribute_edges(
    model: Model,
    tokens: Any,
    metric: Metric,
    senders: str | Sequence[str] = ("attn_out", "mlp_out"),
    readers: str | Sequence[str] = ("q_in", "k_in", "v_in", "mlp_in", "resid"),
    positions: Select = None,
    replace: str | Any = "zero",
    exact: int | None = 20,
    circuits: Sequence[int] = (),
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    precision: str = "highest",
    progress: bool = True,
) -> xarray.Dataset:
    """Estimate the effect of each edge from one gradient, check the largest by path patching, and test circuits made of them.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d].
        metric: A function of the record of `probe`, as for `sinkjax.attribute`.
        senders: The components that write: "attn_out" or "head_out" (one sender per head), and "mlp_out".
        readers: The inputs that read: "attn_in", or "q_in" (one reader per head), "k_in" and "v_in" (one per key-value head);
            "mlp_in"; and "resid", the stream after the last block.
        positions: Where edges are replaced: an int, a sequence, a slice, `per_prompt`, or None for all positions; from 0.
        replace: The senders' replacement outputs: "zero", "mean" or tokens of other prompts, as for `sinkjax.attribute`.
        exact: Number of edges with the largest mean estimates that are also patched one by one; None: 0.
        circuits: Sizes of circuits, in edges: for each size, the largest edges are kept and all others replaced, which costs two
            forward passes per layer.
        probe: The statistics that the metric reads.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.
        progress: Whether to show the sweep's progress bar.

    Returns:
        By (edge, prompt): `estimate` and `exact` (NaN where not computed), the change of the metric, and `gap`, exact -
        estimate. `baseline` (prompt), the metric of the unedited run. The coordinates of an edge are its name, `sender`,
        `sender_layer`, `sender_head`, `reader`, `reader_layer` and `reader_head`. The attributes `spearman` and `pearson`
        compare the means over prompts of the edges that were checked. The option `circuits` adds `kept` (circuit, prompt), the
        metric of each circuit, and `faithfulness` (circuit), its mean on a scale from 0, no edge, to 1, all edges.

    Raises:
        SinkjaxError: Any error of `sinkjax.attribute`; a site is neither a sender nor a reader; "attn_out" and "head_out", or
            "attn_in" and its parts, are requested together; the model has norms after its sums, or no residual stream.
    """
    check_model(model)
    config = model.config
    refuse_without_stream(config)
    sources, targets = as_sites("sender", senders, SENDERS, config), as_sites("reader", readers, READERS, config)
    for whole, parts in ((Site.ATTN_OUT, {Site.HEAD_OUT}), (Site.ATTN_IN, {Site.Q_IN, Site.K_IN, Site.V_IN})):
        if whole in (*sources, *targets) and (both := parts & {*sources, *targets}):
            raise SinkjaxError(f"{whole} and {min(both)} name the same edges twice; choose one")
    refuse(not (exact is None or is_count(exact)), f"exact must be None or an int of at least 1, not {short(exact)}")
    run = Prepared.of(model, tokens, lengths, positions, probe, metric, precision)
    donors, same = donated(run, sources, replace)
    graph = _Graph(run, donors, targets, _blocks(sources, targets, config))
    edges = graph.edges()
    refuse(not edges, "no reader reads after one of these senders")
    for entry in _edits(graph.inputs(), run):
        run.resolve(entry)
    baseline = np.asarray(run.checked(), np.float64)
    record, pairs = written(run, sources), itertools.product(sources, range(config.layers))
    change = {(site, layer): changes(run, site, donors[site], record, layer) for site, layer in pairs}
    fields = ("sender", "sender_layer", "sender_head", "reader", "reader_layer", "reader_head")
    columns = ([str(end) if isinstance(end, Site) else end for end in column] for column in zip(*edges, strict=True))
    labels = {"edge": [_name(*edge) for edge in edges], **dict(zip(fields, columns, strict=True))}
    patched = lambda number: _patched(graph, change, edges[number])  # noqa: E731
    data = with_exact(run, model, labels, _estimates(graph, change), same, exact, patched, baseline, progress=progress)
    order = largest_first(data["estimate"].values)
    return data if not circuits else data.merge(_circuits(graph, order, circuits, baseline), combine_attrs="override")


def _heads(reader: Site, config: Config) -> tuple[int, ...]:
    """Return the number of readers in a layer, as an axis; () if there is one."""
    kind = SITES[reader].heads
    return () if kind is None else (config.heads if kind == "head" else config.kv_heads,)


def _blocks(senders: Sequence[Site], readers: Sequence[Site], config: Config) -> dict[Block, np.ndarray]:
    blocks = {}
    for sender, first, reader in itertools.product(senders, range(config.layers), readers):
        lasts = [config.layers - 1] if reader == Site.RESID else range(config.layers)
        exist = np.array([reads(reader, last, sender, first, config) for last in lasts])
        shape = len(lasts), each_of(sender, config), *(_heads(reader, config) or (1,))
        blocks[sender, first, reader] = np.broadcast_to(exist[:, None, None], shape)
    return blocks


def _name(sender: Site, first: int, number: int, reader: Site, last: int, head: int) -> str:
    source = name_of((sender, first, number))
    return f"{source} -> {NAMES[reader]}" + ("" if reader == Site.RESID else f" {last}" + (f".{head}" if head >= 0 else ""))


def _edits(inputs: Inputs, run: Prepared) -> list[Edit]:
    """Return the edits that add these inputs."""
    last = run.config.layers - 1
    return [reading(site, x, run.positions, last if site == Site.RESID else None) for site, x in inputs.items()]


@jax.jit
def _slopes(inputs: Inputs, run: Prepared) -> Inputs:
    """Return the gradient of the metric's sum at each reader."""
    slopes: Inputs = jax.grad(lambda inputs: jnp.asarray(run.metric(run.record(_edits(inputs, run), remat=True))).sum())(inputs)
    return slopes


@partial(jax.jit, static_argnames="senders")
def _written(inputs: Inputs, run: Prepared, senders: tuple[Site, ...]) -> Record:
    return written(run, senders, _edits(inputs, run))


def _estimates(graph: _Graph, change: Mapping[tuple[Site, int], jax.Array]) -> np.ndarray:
    """Return the product of each sender's change with the gradient at each reader, [edge, B]."""

    slopes, estimates = _slopes(graph.inputs(), graph.run), []
    for (sender, first, reader), exist in graph.blocks.items():
        slope = slopes[reader] if SITES[reader].heads is not None else slopes[reader][:, :, :, None]
        products = jnp.einsum("SBTd,LBTRd->LSRB", change[sender, first], slope, precision="highest")
        estimates.append(np.asarray(products, np.float64)[exist])
    return np.concatenate(estimates)


def _patched(graph: _Graph, change: Mapping[tuple[Site, int], jax.Array], edge: Edge) -> Edit:
    """Make the edit that replaces one edge."""
    sender, first, index, reader, last, head = edge
    moved = np.asarray(change[sender, first][max(index, 0)][None])
    moved = moved if SITES[reader].heads is None else moved[:, :, :, None]
    return reading(reader, moved, graph.run.positions, last, head if head >= 0 else None, _name(*edge))


def _circuits(graph: _Graph, order: np.ndarray, counts: Sequence[int], baseline: np.ndarray) -> xarray.Dataset:
    """Return the metric of circuits of the first `counts` edges in this order, and of none."""
    if wrong := [count for count in counts if not (is_count(count) and count <= len(order))]:
        raise SinkjaxError(f"circuits are numbers of edges from 1 to {len(order)}, not {short(wrong[0])}")

    values = np.stack([_circuit(graph, order[count:]) for count in (0, *counts)])
    none, whole = values[0].mean(), baseline.mean()
    faithful = (values.mean(axis=1) - none) / (whole - none) if whole != none else np.full(len(values), np.nan)
    return xarray.Dataset(
        {"kept": (("circuit", "prompt"), values), "faithfulness": ("circuit", faithful)}, {"circuit": [0, *counts]}
    )


def _circuit(graph: _Graph, dropped: np.ndarray) -> np.ndarray:
    """Return the metric without some edges, given by number, [B].

    Edges are replaced as their senders write, because these depend on earlier ones.
    """
    inputs, masks, end, senders = graph.inputs(), {}, 0, tuple(graph.donors)
    for block, exist in graph.blocks.items():
        masks[block] = np.zeros(exist.shape)  # 1 for each replaced edge
        begin, end = end, end + exist.sum()
        masks[block][exist] = np.isin(np.arange(begin, end), dropped)
    for layer, sender in itertools.product(range(graph.run.config.layers), senders):  # attention writes before the MLP
        moved = changes(graph.run, sender, graph.donors[sender], _written(inputs, graph.run, senders), layer)
        for reader in graph.readers:
            if (mask := masks[sender, layer, reader]).any():
                added = jnp.einsum("SBTd,LSR->LBTRd", moved, mask, precision="highest")
                inputs[reader] += added if SITES[reader].heads is not None else added[:, :, :, 0]
    return np.asarray(graph.run.metric(_written(inputs, graph.run, senders)), np.float64)
