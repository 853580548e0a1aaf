"""Checked attribution: gradient-based estimates of each component's effect on a metric, next to the effect of replacing it.

A node is replaced gradually: its output z becomes (1 - a) z + a r, with a strength a from 0 to 1. The exact effect is the change
of the metric when a goes from 0 to 1. The first-order estimate is the derivative at 0, of all nodes from one gradient. Integrated
gradients are the mean derivative along this node's path to 1, which approaches the exact effect with finer steps; the rest is the
completeness gap. A norm hides most of a large activation until little of it is left, so the points of the path lie denser near 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from flax import struct

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit, edit, resolve
from sinkjax.edits.resolve import selected
from sinkjax.edits.term import Select, as_along, as_positions
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.model.batch import as_array, check_batch
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import SITES, Site, axis_size, lacks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.settings import fixed_settings
from sinkjax.sweeps.run import sweep
from sinkjax.transformer.forward import forward

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

CALLED = {Site.ATTN_OUT: "attention", Site.MLP_OUT: "MLP", Site.HEAD_OUT: "head", Site.NEURON: "neuron"}
Metric = Callable[[Record], Any]
Strengths = dict[Site, jax.Array]
Node = tuple[Site, int, int]
INDEXED = (Site.HEAD_OUT, Site.NEURON)  # sites with several nodes in a layer


@fixed_settings
def attribute(
    model: Model,
    tokens: Any,
    metric: Metric,
    nodes: str | Sequence[str] = ("attn_out", "mlp_out"),
    positions: Select = None,
    layers: Select = None,
    replace: str | Any = "zero",
    method: str = "first-order",
    steps: int = 128,
    exact: str | int | None = "all",
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    out: str | Path | None = None,
    precision: str = "highest",
    progress: bool = True,
) -> xarray.Dataset:
    """Estimate each component's effect on a metric from gradients, and check it by replacing the component.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d].
        metric: A function of the record of `probe`, made of jax.numpy operations, that returns one number per prompt, float [B]:
            `lambda record: record["attention_received"][..., 0].mean((1, 2))`.
        nodes: The sites whose components are replaced, one by one: "attn_out" and "mlp_out" (one node per layer), "head_out" (one
            per layer and head), "neuron" (one per layer and hidden unit).
        positions: Positions where a node is replaced: an int, a sequence, a slice, `per_prompt`, or None for all positions; from
            0.
        layers: The layers whose nodes are replaced: an int, a sequence, a slice, or None for all; from 0.
        replace: "zero"; "mean", the mean of the node's output over all tokens of the batch; or tokens of other prompts, int [B,
            T], whose outputs at the same positions are used.
        method: "first-order": one gradient for all nodes. "integrated": `steps` derivatives for each node along its path; each
            costs two forwards, where the exact effect costs one.
        steps: Number of points of the integrated method.
        exact: "all" also replaces every node in a sweep; an int k replaces only the k nodes with the largest mean estimates; None
            replaces none.
        probe: The statistics that the metric reads.
        lengths: int [B], by default T for all.
        out: The store of the sweep, which makes it resumable, as for `sinkjax.sweep`.
        precision: Matrix product precision, as in `sinkjax.forward`.
        progress: Whether to show the sweep's progress bar.

    Returns:
        By (node, prompt): `estimate` and `exact` (NaN where not computed), the change of the metric, and `gap`, exact -
        estimate. `baseline` (prompt), the metric of the unedited run. The coordinates of a node are its name, `site`, `layer`
        and `index`. The attributes `spearman` and `pearson` compare the means over prompts of the nodes that were checked;
        `completeness_gap` (integrated) is the largest |change - estimate| of such means as a share of the largest |change|. A
        prompt that is replaced by itself has exactly 0.

    Raises:
        SinkjaxError: The metric does not return one number per prompt, or not a finite one; a node is unknown, or the model lacks
            it; `replace`, `method`, `steps` or `exact` has another value; positions are out of range.
    """
    check_model(model)
    config = model.config
    sites = as_sites("node", nodes, tuple(CALLED), config)
    one_of("method", method, ("first-order", "integrated"))
    refuse(not is_count(steps), f"steps must be an int of at least 1, not {short(steps)}")
    if not (exact is None or exact == "all" or is_count(exact)):
        raise SinkjaxError(f'exact must be "all", None or an int of at least 1, not {short(exact)}')
    run = Prepared.of(model, tokens, lengths, positions, probe, metric, precision)
    for site in sites:
        run.resolve(replacing(site, positions, 0.0, 0))
    donors, same = donated(run, sites, replace)
    baseline = np.asarray(run.checked())
    numbers = np.flatnonzero(selected("layer", as_along("layer", layers), config.layers)).tolist()
    every = nodes_of(sites, numbers, config)
    about: dict[str, Any] = {"method": method, "steps": 1}
    if method == "first-order":
        estimate = first_order(run, donors, every)
    else:
        estimate, gap = integrated(run, donors, every, steps)
        about |= {"steps": steps, "completeness_gap": gap}

    def replaced(number: int) -> Edit:
        site, layer, index = every[number]
        return replacing(site, positions, donors[site], layer, index).named(name_of(every[number]))

    rows = [(name_of(node), str(node[0]), *node[1:]) for node in every]
    labels = dict(zip(("node", "site", "layer", "index"), map(list, zip(*rows, strict=True)), strict=True))
    data = with_exact(run, model, labels, estimate, same, exact, replaced, baseline, out=out, progress=progress)
    return data.assign_attrs(about | data.attrs)


@struct.dataclass
class Prepared:
    """The model, the prompts and the measurement of an attribution: the argument of its programs, which equal ones share."""

    params: Params
    tokens: jax.Array
    lengths: jax.Array
    config: Config = struct.field(pytree_node=False)
    positions: Any = struct.field(pytree_node=False)
    probe: Probe = struct.field(pytree_node=False)
    metric: Metric = struct.field(pytree_node=False)
    precision: str = struct.field(pytree_node=False)

    @classmethod
    def of(
        cls, model: Model, tokens: Any, lengths: Any, positions: Select, probe: Probe, metric: Metric, precision: str
    ) -> Prepared:
        """Check the prompts and what is measured of them."""
        tokens, lengths, _ = check_batch(tokens, lengths, model.config, model.tokenizer)
        probe.check(model.config, tokens.shape[1])
        chosen = as_positions("query", positions)
        return cls(model.params, tokens, lengths, model.config, chosen, probe, metric, precision)

    def resolve(self, edit: Edit) -> None:
        """Raise unless an edit fits the prompts."""
        resolve(edit, self.config, np.asarray(self.lengths).tolist(), self.tokens.shape[1])

    def record(self, edits: Sequence[Edit] = (), tokens: Any = None, probe: Probe | None = None, remat: bool = False) -> Record:
        """The record of an edited run."""
        tokens, probe = self.tokens if tokens is None else tokens, probe or self.probe
        run = partial(forward, self.params, tokens, self.config, edits, probe, self.lengths)
        return run(logits=False, precision=self.precision, remat=remat).record

    def strengths(self, sites: Iterable[Site]) -> Strengths:
        """Strengths of 0: site -> [L, B, nodes of a layer]."""
        L, B = self.config.layers, len(self.lengths)
        return {site: jnp.zeros((L, B, each_of(site, self.config)), jnp.result_type(float)) for site in sites}

    def checked(self) -> jax.Array:
        """Return the unedited run's metric. Errors: it is not one finite number per prompt, or does not use JAX operations."""
        try:
            value = jax.jit(self.metric)(self.record())
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
            raise SinkjaxError(f"the metric must be made of jax.numpy operations: {str(error).splitlines()[0]}") from None
        B, shape = len(self.lengths), getattr(value, "shape", None)
        refuse(shape != (B,), f"the metric must return one number per prompt, float [{B}], not {shape or value!r}")
        refuse(not np.isfinite(value).all(), f"the metric is not finite for prompt {int(np.argmin(np.isfinite(value)))}")
        return jnp.asarray(value)


def is_count(given: Any) -> bool:
    """Whether this is an int of at least 1."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def as_sites(what: str, given: str | Sequence[str], allowed: Sequence[Site], config: Config) -> list[Site]:
    """The named sites, in the order of `allowed`. Errors: one is unknown, named twice or lacking. what: "node", for messages."""
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        one_of(what, name, [str(site) for site in allowed])
        if missing := lacks(config, Site(name)):
            raise SinkjaxError(f"there is no {what} {name}: this model has {missing}")
    refuse(not names or len({*names}) < len(names), f"{what}s must name each site once, not {short(given)}")
    return [site for site in allowed if site in names]


def each_of(site: Site, config: Config) -> int:
    """The number of nodes in a layer."""
    return {Site.HEAD_OUT: config.heads, Site.NEURON: axis_size(config, "mlp_width")}.get(site, 1)


def nodes_of(sites: Sequence[Site], layers: Sequence[int], config: Config) -> list[Node]:
    """All nodes: the site, the layer and the index of a head or neuron, else -1; grouped by site, then by layer."""
    each = {site: range(each_of(site, config)) if site in INDEXED else [-1] for site in sites}
    return [(site, layer, index) for site, layer in itertools.product(sites, layers) for index in each[site]]


def name_of(node: Node) -> str:
    """The name of a node: "MLP 1", or "head 1.4"."""
    site, layer, index = node
    return f"{CALLED[site]} {layer}" + (f".{index}" if index >= 0 else "")


def replacing(site: Site, positions: Select, donor: Any, layer: int, index: int = 0) -> Edit:
    """Make the edit that replaces one node. donor: 0, or the new value of all nodes of the site, [L, 1, (H,) dims] or [L, B, T,
    (H,) dims]."""
    heads, dims = int(index) if site == Site.HEAD_OUT else None, int(index) if site == Site.NEURON else None
    if np.ndim(donor):
        donor = donor[int(layer)][None]
        donor = donor.take(np.array([index]), -2 if dims is None else -1) if site in INDEXED else donor
    return edit(site, "set", donor, layers=int(layer), queries=positions, heads=heads, dims=dims)


def donated(run: Prepared, sites: Sequence[Site], replace: Any) -> tuple[dict[Site, Any], np.ndarray]:
    """The new values of nodes, by site: 0, or float [L, 1, (H,) dims] or [L, B, T, (H,) dims]; and the unchanged prompts.

    Errors: a name that is neither "zero" nor "mean"; tokens of another shape.
    """
    none = np.zeros(len(run.lengths), bool)
    if isinstance(replace, str):
        one_of("replace", replace, ("zero", "mean"))
        if replace == "zero":
            return dict.fromkeys(sites, 0.0), none
    other = run.tokens if isinstance(replace, str) else as_array("replace", replace)
    if np.shape(other) != run.tokens.shape:
        raise SinkjaxError(f"replace takes tokens of the shape {run.tokens.shape} of the prompts, not {np.shape(other)}")
    other, _, _ = check_batch(other, np.asarray(run.lengths), run.config)
    record = run.record(tokens=other, probe=Probe(capture=tuple(Capture(site, name=str(site)) for site in sites)))
    values = {site: jnp.moveaxis(record[str(site)], 1, 0) for site in sites}  # [L, B, T, ...]
    if isinstance(replace, str):
        return {site: jnp.nanmean(x, axis=(1, 2))[:, None] for site, x in values.items()}, none
    same = (np.asarray(other) == np.asarray(run.tokens)).reshape(len(none), -1).all(axis=1)
    return {site: jnp.nan_to_num(x) for site, x in values.items()}, same


def first_order(run: Prepared, donors: dict[Site, Any], nodes: list[Node]) -> np.ndarray:
    """Return the derivative of the metric with respect to each node's strength at 0, [node, B]."""
    slopes = {site: np.asarray(slope) for site, slope in _slopes(run.strengths(donors), donors, run).items()}
    return np.stack([slopes[site][layer, :, max(index, 0)] for site, layer, index in nodes])


def integrated(run: Prepared, donors: dict[Site, Any], nodes: list[Node], steps: int) -> tuple[np.ndarray, float]:
    """Return the mean derivative of the metric along each node's own path, [node, B], and the completeness gap (`attribute`)."""
    left = 1 - (np.arange(steps) + 0.5) / steps  # midpoints of t, with a = 1 - (1 - t)^3
    points, weights = 1 - left**3, left**2 / (left**2).sum()

    estimates, changes = [], []
    for site, layer, index in nodes:
        whole = run.strengths([site])[site].at[layer, :, max(index, 0)].set(1)
        given = {site: whole}, {site: donors[site]}, run
        values, slopes = zip(*(_value_and_slope(jnp.asarray(a), *given) for a in (*points, 0.0, 1.0)), strict=True)
        estimates.append(weights @ np.stack(slopes[:-2]).astype(np.float64))
        changes.append(np.asarray(values[-1], np.float64) - np.asarray(values[-2], np.float64))
    estimate, change = np.stack(estimates), np.stack(changes)
    largest = np.abs(change.mean(axis=1)).max()
    return estimate, float(np.abs((change - estimate).mean(axis=1)).max() / largest) if largest else 0.0


def replaced_in_part(strengths: Strengths, donors: dict[Site, Any], run: Prepared) -> jax.Array:
    """Return the metric, [B], with all nodes partly replaced: strengths [L, B, nodes of a layer] by site."""
    edits = []
    for site, strength in strengths.items():
        a = strength if SITES[site].heads is None else strength[..., None]  # [L, B, F], [L, B, 1] or [L, B, H, 1]
        edits.append(edit(site, "scale", 1 - a, queries=run.positions))
        donor = donors[site]
        if np.ndim(donor):
            a = a[:, :, None] if donor.ndim > a.ndim else a
            edits.append(edit(site, "add", a * donor, queries=run.positions))
    return jnp.asarray(run.metric(run.record(edits, remat=True)))


@jax.jit
def _slopes(strengths: Strengths, donors: dict[Site, Any], run: Prepared) -> Strengths:
    """The derivatives of the metric's sum, by site as `strengths`."""
    slopes: Strengths = jax.grad(lambda strengths: replaced_in_part(strengths, donors, run).sum())(strengths)
    return slopes


@jax.jit
def _value_and_slope(a: jax.Array, whole: Strengths, donors: dict[Site, Any], run: Prepared) -> tuple[jax.Array, jax.Array]:
    """The metric, [B], and its derivative, where the nodes of `whole` are replaced with strength a."""
    return jax.jvp(lambda a: replaced_in_part(jax.tree.map(lambda x: a * x, whole), donors, run), (a,), (jnp.ones_like(a),))


@partial(jax.jit, static_argnums=0)
def _each(metric: Metric, records: Record) -> Any:
    """The metric of records that are stacked along their first axis."""
    return jax.lax.map(metric, records)


def largest_first(estimate: np.ndarray) -> np.ndarray:
    """Return the order of estimates [n, B] by the absolute value of their means over prompts."""
    return np.argsort(-np.abs(estimate.mean(axis=1)), kind="stable")


def with_exact(
    run: Prepared,
    model: Model,
    labels: Mapping[str, list[Any]],
    estimate: np.ndarray,
    same: np.ndarray,
    exact: Any,
    edit_of: Callable[[int], Edit],
    baseline: np.ndarray,
    **options: Any,
) -> xarray.Dataset:
    """Compare estimates [n, B] with the exact effects of `edit_of` some or all of them, computed in a sweep with these options.

    labels: coordinates of the estimates; the first one is their axis. same: bool [B], prompts without an effect. exact: "all", or
    how many of the largest. The attributes `spearman` and `pearson` are missing for fewer than two, or if one side is constant.
    """
    estimate = np.where(same, 0.0, estimate)
    chosen = np.arange(len(estimate)) if exact == "all" else largest_first(estimate)[: exact or 0]
    effects, about = np.full(estimate.shape, np.nan), {}
    if chosen.size:
        edits = [Edit((), "no edit"), *map(edit_of, chosen.tolist())]
        swept = sweep(model, run.tokens, edits, run.probe, run.lengths, precision=run.precision, **options)
        dims = run.probe.dims()
        records = Record({name: jnp.asarray(swept[name].values) for name in dims}, dims)
        values = np.asarray(_each(run.metric, records))  # [edit, B]
        effects[chosen] = np.where(same, 0.0, values[1:] - values[0])
    means = estimate[chosen].mean(axis=1), effects[chosen].mean(axis=1)
    if len(chosen) > 1 and np.ptp(means[0]) and np.ptp(means[1]):
        from scipy.stats import pearsonr, spearmanr

        about = {"spearman": float(spearmanr(*means)[0]), "pearson": float(pearsonr(*means)[0])}
    axis = next(iter(labels))
    columns = {"estimate": estimate, "exact": effects, "gap": effects - estimate}
    variables: dict[str, Any] = {name: ((axis, "prompt"), column) for name, column in columns.items()}
    coordinates = {"prompt": np.arange(estimate.shape[1]), **{name: (axis, label) for name, label in labels.items()}}
    return xarray.Dataset(variables | {"baseline": ("prompt", baseline)}, coordinates, about)
