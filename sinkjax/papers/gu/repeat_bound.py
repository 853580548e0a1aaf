"""gu/repeat-bound: why one token repeated has no sink unless positions are added to the embedding (Propositions 1 to 4).

The forward pass is compared with closed forms on the model's own queries and keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent, constant
from sinkjax.analysis.summary import Row, own_rows
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.model.config import Config, NoPosition
from sinkjax.model.params import Params
from sinkjax.papers._shared import in_blocks
from sinkjax.papers.gu import _closed_form as form
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import Batch, Calculation, Inputs, Lab, Numbers, Sinks, from_results, kind_of_positions

EXACT = 1e-12  # rounding of the closed form, in float64


@dataclass(frozen=True, kw_only=True)
class Settings(Sinks):
    prompts: int = 16
    longest: int = 4096
    """tokens of the longest prompt whose attention is computed in closed form"""
    tolerance: float = 1e-4
    """rounding of the float32 forward: of a hidden state over its largest entry, and of a weight"""


def study(lab: Lab, s: Settings) -> None:
    """The bounds on the attention of repeated tokens."""
    lab.needs("softmax", "causal mask", "usual scale", "rotation after all norms", "queries without growth")
    declared, inputs = {"repeated_tokens": s.longest}, Inputs("repeat", bos="none")
    bound = lab.calculate("bound", partial(repeated_tokens, s), BOUND_VARIABLES, declared, s.prompts, inputs)

    source, forward = "Gu et al. 2025, Propositions 1 to 4", s.tolerance
    same_states = ("rotary", "scores", "none")
    lab.identity("hidden", source, at_most(bound, {"hidden": forward}, same_states))
    lab.identity("nope", source, at_most(bound, {"without_positions": forward}, (*same_states, "added")))
    biases = {"first_excess": EXACT, "forward_first_excess": forward}
    lab.identity("biases", source, at_most(bound, biases, ("scores",), falling=True))
    lab.identity("bound", source, at_most(bound, {"excess": EXACT, "forward_excess": forward}, ("rotary", "none")))
    lab.describe("lengths", source, lambda read: by_length(read, bound, s.eps))

    lab.draw(with_bound, bound, "tokens")
    lab.draw(with_bound, bound, "layer")


# One token repeated: hidden states and attention of the forward pass against the closed form and its bounds, as words.


BLOCK = 2  # prompts whose attention maps of all layers are in memory at a time
HEADS = ("prompt", "layer", "head")
AXES: dict[str, tuple[str, ...]] = {
    "hidden": HEADS[:2],
    **dict.fromkeys(("without_positions", "error", "falls", "first_excess", "forward_first_excess"), HEADS),
    "closed": (*HEADS, "tokens"),
    "bound": (*HEADS, "xi_from", "tokens"),
    **dict.fromkeys(("excess", "forward_excess"), (*HEADS, "xi_from")),
}
NAMES = {
    "hidden": "difference of hidden states between positions, over their largest entry",
    "without_positions": "distance of a weight from 1/t without positions",
    "first_excess": "excess of the first key's weight over 1/t in closed form",
    "forward_first_excess": "excess of the first key's weight over 1/t in the forward pass",
    "excess": "excess of a weight over its bound in closed form",
    "forward_excess": "excess of a weight over its bound in the forward pass",
}
BOUND_VARIABLES = tuple(AXES)
BOUNDS = {"norms": "bound from norms", "pairs": "bound from rotary pairs"}  # source of xi -> label


def repeated_tokens(settings: Settings, model: Model, batch: Batch) -> xarray.Dataset:
    """Differences of the forward pass from the propositions, weights in closed form, and their bounds.

    Args:
        settings: The study's settings.
        model: The model.
        batch: Prompts of one token each.

    Raises:
        SinkjaxError: The closed form does not reach the length of a prompt.
    """
    length, longest, reach = settings.length, settings.longest, form.reach(model.config, settings.longest)
    limits = f"longest is {longest}, the context {model.config.context}, windows are {form.windows(model.config)}"
    refuse(reach < length, f"the closed form reaches {reach} tokens, fewer than the {length} of a prompt: {limits}")
    tokens = form.lengths(length, reach)
    with np.errstate(invalid="ignore"):  # NaN where there is no closed form
        arrays = in_blocks(batch, BLOCK, lambda prompts, lengths: _block(model, prompts, tokens))
    return xarray.Dataset({name: (AXES[name], array) for name, array in arrays.items()}, {"tokens": tokens, "xi_from": [*BOUNDS]})


def without_positions(model: Model) -> tuple[Params, Config]:
    """Return parameters and config for the same weights without positions."""
    layers = {name: values for name, values in model.params["layers"].items() if name != "relative_bias"}
    kept = {name: values for name, values in model.params.items() if name != "positions"}
    return kept | {"layers": layers}, dataclasses.replace(model.config, position=NoPosition())


def _block(model: Model, prompts: NDArray[Any], tokens: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Compute arrays [prompt, layer, (head, ...)] for a few prompts."""
    config, T = model.config, prompts.shape[1]
    sites = sinkjax.Site
    captured = (Capture(sites.QUERY, positions=(0,)), Capture(sites.KEY, positions=(0,)), Capture(sites.RESID))
    everywhere = tuple(range(config.layers))
    run = partial(sinkjax.forward, tokens=prompts, logits=False)
    record = run(model.params, config=config, probe=Probe(attention=everywhere, capture=captured)).record
    kept, alike = without_positions(model)
    still = run(kept, config=alike, probe=Probe(attention=everywhere)).record
    query = np.asarray(record["queries"], np.float64)[:, :, 0]
    key = np.repeat(np.asarray(record["keys"], np.float64)[:, :, 0], config.group, axis=2)
    scores, xi = form.by_distance(config, model.params, query, key, T, int(tokens[-1]))
    bounds = form.bound(xi, int(tokens[-1]))
    forward, hidden = (np.asarray(record[name], np.float64) for name in ("attention", "resid"))
    every = 1 / np.arange(1, int(tokens[-1]) + 1)  # the first query sees only one key, so its weight and bound are 1
    even = np.tril(np.ones((T, T))) * every[:T, None]
    to_first = form.to_first(scores)
    return {
        "hidden": np.abs(hidden - hidden[:, :, :1]).max(axis=(2, 3)) / np.abs(hidden[:, :, 0]).max(axis=-1),
        "without_positions": np.abs(np.asarray(still["attention"]) - even).max(axis=(3, 4)),
        "error": np.abs(forward - form.weights(scores, T)).max(axis=(3, 4)),
        "falls": (np.diff(scores) <= 0).all(axis=-1),
        "closed": form.running_mean(to_first, tokens),
        "first_excess": (to_first - every).max(axis=-1),
        "forward_first_excess": (forward[..., 0] - every[:T]).max(axis=-1),
        "bound": form.running_mean(bounds, tokens),
        "excess": (form.largest_weight(scores)[:, :, :, None] - bounds)[..., 1:].max(axis=-1),
        "forward_excess": (forward.max(axis=4)[:, :, :, None] - bounds[..., :T])[..., 1:].max(axis=-1),
    }


@from_results
def at_most(
    read: Numbers, of: Calculation, limits: Mapping[str, float], positions: tuple[str, ...], falling: bool = False
) -> tuple[bool, str]:
    """Return the identity that the largest entries of some variables are at most what rounding explains.

    Args:
        read: The results.
        of: The calculation.
        limits: Variable -> its limit.
        positions: The kinds of positions that a proposition is about. The test raises Absent for others.
        falling: Whether it holds only where scores fall with the distance, in every head; else the test raises Absent.
    """
    data, kind = read.data(of.name), kind_of_positions(read.architecture)
    if kind not in positions:
        raise Absent(f"positions are {kind}, and must be {' or '.join(positions)}")
    if falling and not data["falls"].values.all():
        raise Absent(f"the scores of {100 * float((data['falls'] == 0).mean()):.3g}% of heads do not fall with the distance")
    largest = {name: float(data.sel(xi_from="norms")[name].max()) for name in limits}
    said = "; ".join(f"largest {NAMES[name]}: {size:.2g} (at most {limits[name]:g})" for name, size in largest.items())
    return all(size <= limits[name] for name, size in largest.items()), said


def by_length(read: Numbers, of: Calculation, eps: float) -> list[Row]:
    """Attention to the first key in closed form and its bounds, for each length of a prompt.

    Args:
        read: The stores.
        of: The calculation.
        eps: The mean attention above which a head sinks on a key.

    Raises:
        Absent: The model adds positions to the embedding, so that hidden states differ.
    """
    data = read.data(of.name)
    if not np.isfinite(data["closed"].values).all():
        raise Absent(f"positions are {kind_of_positions(read.architecture)}, so states differ and there is no closed form")
    closed = data["closed"]
    per_head = {"heads that sink on key 0 (%)": 100.0 * (closed > eps), "attention to key 0, mean over heads": closed}
    if np.isfinite(data["bound"].values).all():
        bounds = {kind: data["bound"].sel(xi_from=kind) for kind in BOUNDS}
        per_head |= {f"bound from {kind}, mean over heads": values for kind, values in bounds.items()}
        per_head |= {f"heads whose bound from {kind} excludes a sink (%)": 100.0 * (bounds[kind] <= eps) for kind in BOUNDS}
    labels, found = [f"{tokens} tokens" for tokens in data["tokens"].values], []
    for name, values in per_head.items():
        means = values.mean(("layer", "head")).transpose("tokens", "prompt").values
        found += own_rows(labels, "lengths", name, means, read.settings.seed)
    return found


def with_bound(read: Numbers, of: Calculation, along: str) -> Drawing | None:
    """Attention to the first key in closed form and its bounds, means over heads, along "tokens" or "layer"."""
    data = read.data(of.name)
    shown = {"closed form": data["closed"]} | {name: data["bound"].sel(xi_from=kind) for kind, name in BOUNDS.items()}
    x, found = data["tokens"].values.tolist() if along == "tokens" else list(range(data.sizes["layer"])), []
    for name, values in shown.items():
        chosen = values if along == "tokens" else values.isel(tokens=0)
        means = chosen.mean(set(chosen.dims) - {"prompt", along}).transpose(along, "prompt").values
        if np.isfinite(means).all():
            found.append(Line(name, x, [*intervals.intervals(means, seed=read.settings.seed)]))
    if not found:
        return None
    if along == "tokens":
        found.append(Line("even attention", x, [constant(float((1 / np.arange(1, size + 1)).mean())) for size in x]))
    where = "tokens of a prompt" if along == "tokens" else f"layer (0-based), {data['tokens'].values[0]} tokens"
    figure = lines([[Panel("", "attention to key 0", found, True)]], where, log_x=along == "tokens", legend="above")
    caption = "Attention to the first key of one token repeated, in closed form, and its bounds; means over heads."
    return read.drawing(f"bound-by-{along}", figure, caption, of.name)
