"""gu/repeat-bound: why one token repeated has no sink under rotary positions, checked on a model's own queries and keys.

Propositions 1 to 4: without absolute positions all hidden states of a prompt of one token repeated are equal; without positions
all weights are then 1/t, and under rotary positions none exceeds e^{2 xi} / (e^{2 xi} + t - 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import identity
from sinkjax.experiments.base import Batch, Calculation, Claim, Inputs, Job, Section, unedited
from sinkjax.experiments.gu import repeated
from sinkjax.experiments.gu.config import RepeatBound
from sinkjax.experiments.gu.first_token import alone
from sinkjax.experiments.gu.repeat_bound_figures import drawings
from sinkjax.experiments.illustrations import MAPS, maps
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Row
from sinkjax.experiments.words import high, verdict
from sinkjax.model import rope
from sinkjax.model.config import Config, DynamicScaling
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("bound",)
EXTRAS = (MAPS, identity.STORE)
BLOCK = 2  # prompts whose attention maps of all layers are held at a time
STEP = 4  # from one length to the next
NORMS, PAIRS = "norms", "pairs"
SINKS, ATTENTION = "heads that sink on key 0 (%)", "attention to key 0, mean over heads"
EXACT = 1e-12  # rounding allowed to the closed form, in float64
NOTHING = 1.0  # per cent of heads: below this a model has no sink
CLAIM = (
    "Gu et al. 2025, Propositions 1 to 4: with one token repeated all hidden states are equal, so without positions every weight"
    " is 1/t, and under rotary positions at most e^{2 xi} / (e^{2 xi} + t - 1): no key can be a sink."
)


def jobs(config: RepeatBound, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The one calculation. Errors: layers that see fewer keys than a prompt has."""
    needs("gu/repeat-bound", architecture, "rotary positions", "softmax", "causal mask")
    if reach(config, architecture) < config.length:
        raise SinkjaxError(f"a layer sees {min(_windows(architecture))} keys, fewer than the {config.length} tokens of a prompt")
    inputs = Inputs("repeat", bos="none")
    bound = Calculation("bound", partial(compute, config), config.prompts, inputs)
    indices = np.arange(config.length)
    same = {"rotary indices set to what they are": sinkjax.set_positions(query=indices, key=indices)}
    probe = Probe(attention_received=True, capture=(Capture(Site.RESID),))
    return (
        bound,
        maps(config, architecture, unedited(), inputs=inputs),
        identity.job(config, probe, same, inputs=inputs),
    )


def reach(config: RepeatBound, architecture: Config) -> int:
    """The longest prompt for which the closed form holds: as long as all layers see all keys by the same rotary table."""
    limits = [config.longest, architecture.context, *_windows(architecture)]
    scaling = architecture.rope.scaling
    return min([*limits, scaling.original_context] if isinstance(scaling, DynamicScaling) else limits)


def _windows(architecture: Config) -> list[int]:
    return [window for window in architecture.windows or () if window is not None]


def lengths(shortest: int, longest: int) -> NDArray:
    """Lengths from the shortest on, each STEP times the one before, and the longest."""
    found = [shortest]
    while found[-1] * STEP <= longest:
        found.append(found[-1] * STEP)
    return np.array(found)


def compute(config: RepeatBound, model: Model, batch: Batch) -> xarray.Dataset:
    """The forward's hidden states and weights beside the closed form, and the bound beside both."""
    import xarray

    tokens = lengths(config.length, reach(config, model.config))
    blocks = [slice(start, start + BLOCK) for start in range(0, len(batch.tokens), BLOCK)]
    parts = [_block(model, batch.tokens[block], tokens) for block in blocks]
    heads = ("prompt", "layer", "head")
    axes = {"hidden": heads[:2], "closed": (*heads, "tokens"), "bound": (*heads, "xi_from", "tokens")}
    axes |= dict.fromkeys(("xi", "excess", "forward_excess"), (*heads, "xi_from"))
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    named = {name: (axes.get(name, heads), array) for name, array in values.items()}
    return xarray.Dataset(named, coords={"tokens": tokens, "xi_from": [NORMS, PAIRS]})


def _block(model: Model, prompts: NDArray, tokens: NDArray) -> dict[str, NDArray]:
    """What is measured on a few prompts: arrays [prompt, layer, (head, ...)]."""
    config, T = model.config, prompts.shape[1]
    captured = (Capture(Site.QUERY, positions=(0,)), Capture(Site.KEY, positions=(0,)), Capture(Site.RESID))
    everywhere = tuple(range(config.layers))
    run = partial(sinkjax.forward, model.params, prompts, config, logits=False)
    record = run(probe=Probe(attention_received=True, attention=everywhere, capture=captured)).record
    still = run(edits=sinkjax.set_positions(query=0, key=0), probe=Probe(attention=everywhere)).record
    query = np.asarray(record["queries"], np.float64)[:, :, 0]
    key = np.repeat(np.asarray(record["keys"], np.float64)[:, :, 0], config.group, axis=2)
    frequencies, factor = rope.frequencies(config.rope, config.head_dim, jnp.array([T]), jnp.dtype("float32"))
    by_distance = repeated.scores(query, key, np.asarray(frequencies[0]), factor, int(tokens[-1]))
    xi = np.stack([repeated.largest_score(query, key, factor, pairs) for pairs in (False, True)], axis=-1)
    bounds = repeated.bound(xi, int(tokens[-1]))
    forward = np.asarray(record["attention"], np.float64)
    hidden = np.asarray(record["resid"], np.float64)
    even = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    return {  # the first query, which sees one key, has the weight 1 and the bound 1
        "hidden": np.abs(hidden - hidden[:, :, :1]).max(axis=(2, 3)) / np.abs(hidden[:, :, 0]).max(axis=-1),
        "received": np.asarray(record["attention_received"])[..., 0],
        "error": np.abs(forward - repeated.weights(by_distance, T)).max(axis=(3, 4)),
        "without_positions": np.abs(np.asarray(still["attention"]) - even).max(axis=(3, 4)),
        "closed": repeated.running_mean(repeated.to_first(by_distance), tokens),
        "xi": xi,
        "bound": repeated.running_mean(bounds, tokens),
        "excess": (repeated.largest_weight(by_distance)[:, :, :, None] - bounds)[..., 1:].max(axis=-1),
        "forward_excess": (forward.max(axis=4)[:, :, :, None] - bounds[..., :T])[..., 1:].max(axis=-1),
    }


def section(config: RepeatBound, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Attention in closed form and its bounds for each length, and what the forward says of the propositions."""
    data = stores["bound"].load()
    rows = summary(config, data)
    return Section(
        experiment="gu/repeat-bound",
        title="One token repeated: attention and its bound",
        claim=CLAIM,
        findings=_findings(config, data, rows),
        rows=tuple(rows),
        featured=tuple(dict.fromkeys(row.arm for row in rows)),
        drawings=drawings(config, data),
        notes=_notes(config, data),
        provenance=results.provenance(stores["bound"]),
        claims=_claims(config, data, rows),
    )


def excluded(kind: str) -> str:
    """The name of a measure: heads in which the bound leaves no room for a sink."""
    return f"heads whose bound from {kind} excludes a sink (%)"


def bound_of(kind: str) -> str:
    """The name of a measure: the bound on attention to key 0."""
    return f"bound from {kind}, mean over heads"


def summary(config: RepeatBound, data: Any) -> list[Row]:
    """Rows of each length."""
    labels = [f"{tokens} tokens" for tokens in data["tokens"].values]
    per_head = {
        SINKS: 100 * (data["closed"] > config.eps),
        ATTENTION: data["closed"],
        **{bound_of(kind): data["bound"].sel(xi_from=kind) for kind in (NORMS, PAIRS)},
        **{excluded(kind): 100 * (data["bound"].sel(xi_from=kind) <= config.eps) for kind in (NORMS, PAIRS)},
    }
    rows = []
    for name, values in per_head.items():
        means = values.mean(("layer", "head")).transpose("tokens", "prompt").values
        rows += alone(labels, "lengths", name, means, config.seed)
    return rows


def _findings(config: RepeatBound, data: Any, rows: list[Row]) -> tuple[str, ...]:
    table = {(row.arm, row.measure): row.value for row in rows}
    arms = list(dict.fromkeys(row.arm for row in rows))
    xi = {kind: data["xi"].sel(xi_from=kind).values for kind in (NORMS, PAIRS)}
    said = [
        f"with {arm} {interval(table[arm, ATTENTION])}, bounds {interval(table[arm, bound_of(NORMS)])} (norms) and"
        f" {interval(table[arm, bound_of(PAIRS)])} (pairs)"
        for arm in (arms[0], arms[-1])
    ]
    return (
        f"Mean attention to key 0, in closed form: {'; '.join(said)}.",
        f"The bound from norms excludes a sink (eps {config.eps:g}) in {interval(table[arms[0], excluded(NORMS)])} % of heads"
        f" with {arms[0]} and in {interval(table[arms[-1], excluded(NORMS)])} % with {arms[-1]}; the one from rotary pairs in"
        f" {interval(table[arms[0], excluded(PAIRS)])} % and {interval(table[arms[-1], excluded(PAIRS)])} %.",
        f"xi is {number(float(xi[NORMS].mean()))} from norms and {number(float(xi[PAIRS].mean()))} from pairs, mean over prompts"
        f" and heads (largest {number(float(xi[NORMS].max()))} and {number(float(xi[PAIRS].max()))}).",
        f"The largest mean attention to key 0 in any head and prompt is {number(float(data['closed'][..., 0].max()))} with"
        f" {arms[0]}, where even attention gives {number(float((1 / np.arange(1, config.length + 1)).mean()))}.",
        f"The forward's weights differ from the closed form by at most {_small(data['error'])}.",
    )


def _small(values: Any) -> str:
    """The largest of some errors, in powers of ten."""
    return f"{float(values.max()):.1e}"


def _claims(config: RepeatBound, data: Any, rows: list[Row]) -> tuple[Claim, ...]:
    table = {(row.arm, row.measure): row.value for row in rows}
    first = f"{data['tokens'].values[0]} tokens"
    sinks = table[first, SINKS]
    forward = 100 * float((data["received"] > config.eps).mean())

    def within(statement: str, size: Any, limit: float, evidence: str, paper: str = "") -> Claim:
        holds = float(size.max()) <= limit
        return Claim(statement, verdict(holds), evidence, paper)

    exact, rounded = data["excess"].sel(xi_from=NORMS), data["forward_excess"].sel(xi_from=NORMS)
    bounded = float(exact.max()) <= EXACT and float(rounded.max()) <= config.tolerance
    return (
        within(
            "With one token repeated all hidden states are equal (Gu et al. 2025, Propositions 1 to 4).",
            data["hidden"],
            config.tolerance,
            f"Between positions, hidden states differ by at most {_small(data['hidden'])} of their largest entry, in any prompt"
            f" and layer; rule: at most {config.tolerance:g}, the rounding allowed to a forward in"
            f" {data.attrs['sweep']['dtype']}.",
        ),
        within(
            "Without positions (NoPE) every weight is then 1/t.",
            data["without_positions"],
            config.tolerance,
            f"With all rotary indices set to 0, weights differ from 1/t by at most {_small(data['without_positions'])}; rule: at"
            f" most {config.tolerance:g}.",
        ),
        Claim(
            "Under rotary positions no weight exceeds e^{2 xi} / (e^{2 xi} + t - 1).",
            verdict(bounded),
            f"Largest weight less its bound, over all prompts, heads and queries of at least 2 and up to"
            f" {data['tokens'].values[-1]} tokens: {float(exact.max()):.1e} in closed form (float64), {float(rounded.max()):.1e}"
            f" in the forward; rule: at most {EXACT:g} and {config.tolerance:g}.",
        ),
        Claim(
            "So no key is a sink.",
            verdict(high(sinks) < NOTHING and forward < NOTHING),
            f"{interval(sinks)} % of heads sink on key 0 with {first} in closed form, {number(forward)} % in the forward; rule:"
            f" both below {NOTHING:g} %. The bound alone proves it in {interval(table[first, excluded(NORMS)])} % of"
            " heads at this length.",
            "Mistral-7B, LLaMA2-7B, LLaMA3-8B: 0.00 % (secondary)",
        ),
        Claim(
            "The same holds with ALiBi and with relative position biases.",
            "not applicable",
            "The model has rotary positions.",
        ),
    )


def _notes(config: RepeatBound, data: Any) -> tuple[str, ...]:
    return (
        f"{data.sizes['prompt']} tokens, drawn at random, each repeated {config.length} times in a prompt of its own, without"
        " BOS. As queries and keys do not depend on the length, attention in longer prompts follows from those of the first"
        " position, in closed form, in float64. Intervals: bootstrap over tokens, 95 %.",
        "xi bounds the size of a score: |q| |k| / sqrt(D) from the norms (the paper's), or the sum over rotary pairs of the"
        " products of their norms, which is never larger. The bound on the mean attention to a key averages the bound"
        " of each query.",
        f"A head sinks on key 0 at mean attention above {config.eps:g}; a bound of at most that excludes it.",
        "A proposition has no controls; the same model with random weights is one, as it must hold there too.",
    )
