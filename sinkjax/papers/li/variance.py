"""li/variance: the first token's head outputs vary most, because they are not an average (Li et al. 2026, variance discrepancy).

On random tokens. With even attention, every score of the first block set to 0, position i averages i + 1 values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Rank, Row
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit
from sinkjax.papers._shared import recorded
from sinkjax.report.figures.lines import Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import Batch, Calculation, Inputs, Judged, Lab, Numbers, Parts, from_results

VARIABLES = ("after", "by_dim", "deviation", "row_norm", "squared_weights")
EXPONENT, TAU = "exponent of the decay with i + 1", "Kendall tau of a dim's deviation and its row of W_O"
SHARE_AT = "variance at position {} (share of position 0's)"
Output = Literal["deviation", "after"]  # of head outputs, and of the attention output, after W_O


@dataclass(frozen=True, kw_only=True)
class Settings(Judged):
    prompts: int = 256
    permutations: int = 200
    """random pairings of the dims with the rows of W_O, the controls of the rank correlation"""


def study(lab: Lab, s: Settings) -> None:
    """The variance of the first block's head outputs by position."""
    lab.needs("softmax", "causal mask", "concatenated heads")
    refuse(s.prompts < 3, f"a variance over prompts needs at least 3, not {s.prompts}")
    of = lab.calculate("variance", measure, VARIABLES, "first_outputs", s.prompts, Inputs("random", "none"))

    source = "Li et al. 2026, variance discrepancy"
    lab.claim("first", source, first_varies_most(of))
    lab.claim("decays", source, decay(of), beside=[decay(of, attention=1)])
    lab.claim("after", source, first_varies_most(of, "after"))
    lab.claim("structure", source, output_structure(of))
    lab.describe("numbers", source, lambda read: variances(read, of))
    lab.draw(variance_by_position, of)


def relative(data: xarray.Dataset, name: Output) -> NDArray[Any]:
    """Return deviations relative to the variance at position 0, where both attentions are equal: float[attention, prompt,
    position]."""
    values = data[name].mean("head").values if name == "deviation" else data[name].values
    return np.asarray(values / values[0, :, 0].mean())


def exponents(values: NDArray[Any]) -> NDArray[Any]:
    """Slope of the log variance over log (i + 1), of deviations float[prompt, position]: its pseudo-values, float[prompt].

    Position 0 is left out, because its excess alone would make a slope of positions that do not differ.
    """
    places = np.log(np.arange(2, values.shape[1] + 1))
    places -= places.mean()
    return intervals.pseudo_values(values[:, 1:], lambda means: np.log(means) @ places / np.square(places).sum())


@from_results
def first_varies_most(read: Numbers, of: Calculation, name: Output = "deviation") -> Parts:
    """The variance at position 0 over that at the other positions, in logarithms, mean over these."""
    values = relative(read.data(of.name), name)[0]
    found = intervals.pseudo_values(values, lambda means: np.log(means[..., 0]) - np.log(means[..., 1:]).mean(axis=-1))
    where = "head outputs" if name == "deviation" else "the attention output"
    label = f"variance of {where} at position 0 over that at other positions"
    return Parts(found, None, None, None, "log", label, uncontrolled="nothing is edited, and other positions are the comparison")


@from_results
def decay(read: Numbers, of: Calculation, attention: int = 0) -> Parts:
    """The variance's power of 1 / (i + 1): 1 for an average of independent values.

    attention: 0 for the model's attention, 1 for even attention.
    """
    data = read.data(of.name)
    label = f"power of 1 / (i + 1) with which the variance falls, {data['attention'].values[attention]}"
    found = -exponents(relative(data, "deviation")[attention])
    return Parts(found, None, None, None, "", label, uncontrolled="nothing is edited")


@from_results
def output_structure(read: Numbers, of: Calculation) -> Parts:
    """Kendall's tau of a dim's standard deviation and the norm of its row of W_O: in each sequence, mean over heads.

    Controls pair the dims with rows at random.
    """
    data = read.data(of.name)
    rows, random = rows_of_o(read, data)
    std = np.sqrt(data["by_dim"].values[0])  # [prompt, head, dim]
    return Parts(taus(std, rows[None])[0], taus(std, random), None, (-1.0, 1.0), "", f"{TAU}, mean over heads")


def rows_of_o(read: Numbers, data: xarray.Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Norms of the rows of W_O, float[head, dim], and the same with dims paired at random, float[permutation, head, dim].

    Heads that share a key-value head take one permutation: the same value dims make their outputs, and their rows are alike.
    """
    rows, groups = data["row_norm"].values, read.architecture.kv_heads
    rng = intervals.generator(read.settings.seed, "li/variance permutations")
    by_group = rows.reshape(groups, -1, rows.shape[1])
    dims = np.broadcast_to(np.arange(rows.shape[1]), (groups, rows.shape[1]))
    orders = [rng.permuted(dims, axis=1)[:, None] for _ in range(read.settings.permutations)]
    return rows, np.stack([np.take_along_axis(by_group, order, axis=2).reshape(rows.shape) for order in orders])


def taus(std: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Kendall's tau-b over dims of float[prompt, head, dim] and float[m, head, dim], mean over heads: float[m, prompt]."""
    first, second = np.triu_indices(std.shape[-1], 1)

    def of_head(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        one, other = (np.sign(values[:, first] - values[:, second]).astype(np.float32) for values in (x, y))
        untied = np.outer(np.square(one).sum(axis=1), np.square(other).sum(axis=1)).astype(np.float64)
        return np.asarray((one @ other.T) / np.sqrt(untied))

    return np.asarray(np.mean([of_head(rows[:, head], std[:, head]) for head in range(std.shape[1])], axis=0))


def variances(read: Numbers, of: Calculation) -> list[Row]:
    """Variances at some positions, the exponent, and Kendall's tau of all sequences together, for both attentions."""
    data, series = read.data(of.name), "attention of the first block"
    heads, after = relative(data, "deviation"), relative(data, "after")
    last = heads.shape[-1] - 1
    own, random = rows_of_o(read, data)
    pooled = np.sqrt(data["by_dim"].mean("prompt").values)  # [attention, head, dim]
    tau, drawn = taus(pooled, own[None])[0], taus(pooled, random)
    found = []
    for place, attention in enumerate(data["attention"].values.tolist()):
        numbers = {SHARE_AT.format(position): heads[place, :, position] for position in sorted({0, 1, 7, last})}
        numbers |= {f"after W_O: {SHARE_AT.format(last)}": after[place, :, last], EXPONENT: exponents(heads[place])}
        found += [Row(attention, series, name, read.interval(values)) for name, values in numbers.items()]
        found.append(Row(attention, series, TAU, constant(float(tau[place])), rank=Rank.among(tau[place], drawn[:, place])))
    return found


def variance_by_position(read: Numbers, of: Calculation) -> Drawing:
    """Variance against position before and after W_O, with the averaging law."""
    data = read.data(of.name)
    own = data["deviation"].mean("prompt").values[0, :, :1]
    places = np.arange(1, data.sizes["position"] + 1)
    law = {"averaging law 1 / (i + 1)": 1 / places[None]}
    squares = {"sum of squared weights": (data["squared_weights"].values[0] * own).sum(0, keepdims=True) / own.sum()}

    def panel(title: str, name: Output, expected: dict[str, NDArray[Any]]) -> Panel:
        curves = dict(zip(data["attention"].values.tolist(), relative(data, name), strict=True)) | expected
        lines = [read.curve(label, places.tolist(), values) for label, values in curves.items()]
        return Panel(title, "variance (share of position 0's)", lines, log=True)

    panels = [panel("head outputs", "deviation", law | squares), panel("attention output, after W_O", "after", law)]
    figure = lines([panels], "tokens that the query sees, i + 1", legend="above", log_x=True)
    caption = """Variance over prompts of the first block's head and attention outputs, mean over dims, in units of position
        0's. Even attention follows the averaging law; uneven attention averages less (see the sum of squared weights)."""
    return read.drawing("variance-by-position", figure, caption, of.name)


# Deviations of the first block's head outputs from their mean over prompts, under the model's own and under uniform attention.


MODEL, EVEN = "the model's attention", "even attention"  # names of the two attentions in the store
BLOCK = 32  # prompts per forward pass


def _squares(weights: jax.Array, view: object) -> jax.Array:
    return (weights * weights).sum(axis=-1)


SITES = (sinkjax.Site.HEAD_OUT, sinkjax.Site.ATTN_OUT)
SQUARES = sinkjax.Statistic("squared_weights", sinkjax.Site.WEIGHTS, _squares, ("prompt", "layer", "head", "query"))
PROBE = sinkjax.Probe(capture=tuple(sinkjax.Capture(site, layers=(0,)) for site in SITES), extra=(SQUARES,), until=0)


def measure(model: Model, batch: Batch) -> xarray.Dataset:
    """Measure the model's own attention and uniform attention, where every score is 0.

    Args:
        model: The model.
        batch: Prompts of equal length.

    Returns:
        deviation [attention, prompt, head, position]: squared deviation, mean over a head's dims, times N / (N - 1), so that its
        mean over prompts is the variance. after [attention, prompt, position]: the same of the attention output, after W_O.
        by_dim [attention, prompt, head, head_dim]: the same of each dim, mean over positions. squared_weights [attention, head,
        position]: mean sum of a query's squared weights. row_norm [head, head_dim]: L2 norm of the row of W_O that reads the dim.
    """
    first = without_output_norms(model)
    both = [_measure(first, batch, edits) for edits in ((), (sinkjax.edit("logits", "set", 0.0),))]
    stacked = {name: (("attention", *axes), np.stack([part[name][1] for part in both])) for name, (axes, _) in both[0].items()}
    rows = np.linalg.norm(np.asarray(model.params["layers"]["o"][0], np.float32), axis=-1)
    return xarray.Dataset(stacked | {"row_norm": (("head", "head_dim"), rows)}, {"attention": [MODEL, EVEN]})


def _measure(model: Model, batch: Batch, edits: tuple[Edit, ...]) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    record = recorded(model, batch, PROBE, BLOCK, edits)
    heads, out = (_squared_deviations(record[name][:, 0].astype(np.float32)) for name in ("head_out", "attn_out"))
    return {
        "deviation": (("prompt", "head", "position"), heads.mean(-1).swapaxes(1, 2)),
        "after": (("prompt", "position"), out.mean(-1)),
        "by_dim": (("prompt", "head", "head_dim"), heads.mean(axis=1)),
        "squared_weights": (("head", "position"), record["squared_weights"][:, 0].astype(np.float32).mean(0)),
    }


def without_output_norms(model: Model) -> Model:
    """Return a model without norms on the outputs of attention and the MLP.

    Such a norm would give all positions one size, so that nothing of W_O could be read after it.
    """
    config, norms = model.config, ("attn_out_norm", "mlp_out_norm")
    if not config.layout.outputs:
        return model
    kept = config.norm if config.layout.inputs else None
    layers = {name: leaf for name, leaf in model.params["layers"].items() if not name.startswith(norms)}
    params = {name: leaf for name, leaf in model.params.items() if kept is not None or not name.startswith("final_norm")}
    return replace(model, params=params | {"layers": layers}, config=replace(config, norm_place="pre", norm=kept))


def _squared_deviations(values: NDArray[Any]) -> NDArray[Any]:
    """Return (x - mean over prompts)^2 N / (N - 1), for float[prompt, ...]."""
    return np.asarray(np.square(values - values.mean(0)) * (len(values) / (len(values) - 1)))
