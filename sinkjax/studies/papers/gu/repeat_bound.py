"""gu/repeat-bound: why one token repeated has no sink under rotary positions, checked on a model's own queries and keys."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import at_least, refuse, share
from sinkjax.studies.papers.gu._first_token import NOTHING, largest_rate

BOUNDS = {"norms": "bound from norms", "pairs": "bound from rotary pairs"}  # where xi is from -> what it bounds
EXCLUDED = {kind: f"heads whose bound from {kind} excludes a sink (%)" for kind in BOUNDS}
SINKS = "heads that sink on key 0 (%)"
EXACT = 1e-12  # rounding allowed to the closed form, in float64


@dataclass(frozen=True, kw_only=True)
class RepeatBound(st.StudyConfig):
    """The bound on attention in a prompt of one token repeated, under rotary positions (Propositions 1 to 4)."""

    prompts: int = 16
    """tokens, each repeated in a prompt of its own"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    longest: int = 4096
    """tokens of the longest prompt for which attention is computed in closed form, at most the model's context"""
    tolerance: float = 1e-4
    """rounding allowed to the float32 forward: of a hidden state relative to its largest entry, and of an attention weight"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "eps")
        share(self, "tolerance")
        at_least(self, longest=1)
        refuse(self.longest < self.length, f"longest must be at least length ({self.length}), not {self.longest}")


def check(config: RepeatBound, architecture: Any) -> None:
    from sinkjax.studies.papers.gu._repeated import reach, windows

    short = reach(architecture, config.longest) < config.length
    refuse(short, f"a layer sees {min(windows(architecture) or [0])} keys, fewer than the {config.length} tokens of a prompt")


def compute(config: RepeatBound, model: Any, batch: st.Batch) -> Any:
    from sinkjax.studies.papers.gu import _repeated as repeated

    return repeated.measured(model, batch.tokens, repeated.lengths(config.length, repeated.reach(model.config, config.longest)))


def rows(results: st.Results) -> Iterator[st.Row]:
    """Attention in closed form and its bounds, for each length."""
    data, config = results["bound"], results.config
    per_head = {SINKS: 100 * (data["closed"] > config.eps), "attention to key 0, mean over heads": data["closed"]}
    per_head |= {f"bound from {kind}, mean over heads": data["bound"].sel(xi_from=kind) for kind in BOUNDS}
    per_head |= {EXCLUDED[kind]: 100 * (data["bound"].sel(xi_from=kind) <= config.eps) for kind in BOUNDS}
    labels = [f"{tokens} tokens" for tokens in data["tokens"].values]
    for name, values in per_head.items():
        means = values.mean(("layer", "head")).transpose("tokens", "prompt").values
        yield from st.own_rows(labels, "lengths", name, means, config.seed)


def largest(name: str, array: str, unit: str = "", factor: float = 1, **selected: Any) -> st.Quantity:
    """The largest entry of an array of the store, or of a part of it."""
    return st.number(name, lambda results: factor * float(results["bound"][array].sel(selected).max()), unit)


def error(name: str, array: str, unit: str = "millionths", **selected: Any) -> st.Quantity:
    return largest(name, array, unit, 1e6, **selected)


def at_most(quantity: st.Quantity, limit: float) -> st.Rule:
    """An error is at most a limit, whose criterion gives all its digits."""
    criterion = f"{quantity.name} is at most {np.format_float_positional(1e6 * limit, trim='-')} millionths"
    return st.at_most(quantity, 1e6 * limit).restated(criterion)


def claims(config: RepeatBound, architecture: Any) -> Iterator[st.Claim]:
    hidden = error("the largest difference of hidden states between positions", "hidden", "millionths of their largest entry")
    still = error("the largest distance of a weight from 1/t with all rotary indices 0", "without_positions")
    closed = error("the largest excess of a weight over its bound in closed form", "excess", xi_from="norms")
    forward = error("the largest excess of a weight over its bound in the forward pass", "forward_excess", xi_from="norms")
    first = f"{config.length} tokens"

    def sinks(where: str, array: str) -> st.Quantity:
        name = f"the largest share of heads that sink on one key {where}, in each prompt"
        return st.quantity(name, lambda results: largest_rate(results["bound"][array].values, config.eps), "%")

    claim = functools.partial(st.Claim, source="Gu et al. 2025, Propositions 1 to 4", kind="identity")
    yield claim("With one token repeated, all hidden states of a layer are equal.", at_most(hidden, config.tolerance))
    yield claim(
        "With one token repeated and no positions (NoPE), every weight of query t is 1/t.", at_most(still, config.tolerance)
    )
    yield claim(
        "With one token repeated, under rotary positions no weight of query t exceeds e^{2 xi} / (e^{2 xi} + t - 1).",
        st.all_of(at_most(closed, EXACT), at_most(forward, config.tolerance)),
    )
    yield claim(  # no identity: with few tokens the bound leaves room for a sink in many heads
        f"With one token repeated, less than {NOTHING:g} % of heads sink on any one key under rotary positions.",
        st.all_of(
            st.below(sinks(f"with {first} in closed form", "closed_received"), NOTHING),
            st.below(sinks("in the forward pass", "received"), NOTHING),
        ),
        also=(st.listed(first, EXCLUDED["norms"], f"the share of heads in which the bound excludes a sink with {first}", "%"),),
        paper="Mistral-7B, LLaMA2-7B, LLaMA3-8B: 0.00 % (secondary)",
        kind="empirical",
    )
    yield claim(
        f"With one token repeated, less than {NOTHING:g} % of heads sink on any one key with ALiBi or relative position biases.",
        st.never("the propositions hold with those positions"),
        given=st.never("the model has such positions; this one has rotary ones"),
    )


def findings(config: RepeatBound, architecture: Any) -> Iterator[st.Quantity]:
    for kind in BOUNDS:
        mean = functools.partial(lambda kind, results: results["bound"]["xi"].sel(xi_from=kind).values.mean(), kind)
        yield st.quantity(f"xi from {kind}, mean over prompts and heads", mean)
        yield largest(f"largest xi from {kind}", "xi", xi_from=kind)
    shortest = f"with {config.length} tokens"
    yield largest(f"largest attention to key 0 in any head and prompt, {shortest}", "closed", tokens=config.length)
    yield st.quantity(f"attention to key 0 if all scores were equal, {shortest}", lambda results: even(config.length))
    yield error("largest difference of a weight in the forward pass from the closed form", "error")


def even(tokens: int) -> float:
    """The mean attention to the first key when all scores are equal."""
    return float((1 / np.arange(1, tokens + 1)).mean())


def figures(config: RepeatBound, architecture: Any) -> Iterator[st.Figure]:
    def panel(results: st.Results, title: str, along: str, reduced: Callable[[Any], Any]) -> Any:
        """Attention to key 0 in closed form and its bounds. reduced: an array of the store to [prompt, along]."""
        data = results["bound"]
        arrays = {"closed form": data["closed"], **{name: data["bound"].sel(xi_from=kind) for kind, name in BOUNDS.items()}}
        curves: dict[str, Any] = {name: reduced(one).transpose("prompt", along).values for name, one in arrays.items()}
        x = data[along].values.tolist()
        if along == "tokens":
            curves["even attention"] = st.Line("even attention", x, [st.constant(even(size)) for size in x])
        return results.panel(title, "attention to key 0", curves, x, log=True)

    def by_length(results: st.Results) -> Any:
        mean = panel(results, "mean over heads", "tokens", lambda values: values.mean(("layer", "head")))
        return [[mean, panel(results, "largest of all heads", "tokens", lambda values: values.max(("layer", "head")))]]

    def by_layer(results: st.Results) -> Any:
        def at(size: int) -> Any:
            return panel(results, f"{size} tokens", "layer", lambda values: values.sel(tokens=size).mean("head"))

        return [[at(size) for size in dict.fromkeys(results["bound"]["tokens"].values[[0, -1]].tolist())]]

    yield st.curves(
        "bound-by-length",
        "tokens of the prompt",
        by_length,
        """Attention to the first key, mean over queries, with one token repeated, against the length of the prompt: in closed
        form, its upper bound from the paper, and a tighter one; even attention is that of equal scores.""",
        "bound",
        legend_above=True,
        log_x=True,
    )
    yield st.curves(
        "bound-by-layer",
        "layer (0-based)",
        by_layer,
        "Attention to the first key with one token repeated, and its bounds, by layer; means over heads.",
        "bound",
        legend_above=True,
    )


def noop(config: RepeatBound, architecture: Any) -> dict[str, sinkjax.Edit]:
    indices = np.arange(config.length)
    return {"rotary indices set to what they are": sinkjax.set_positions(query=indices, key=indices)}


REPEAT = st.Inputs("repeat", bos="none")
VARIABLES = (
    "bound", "closed", "closed_received", "error", "excess", "forward_excess", "hidden", "received", "without_positions",
    "xi",
)  # fmt: skip
STUDY = st.Study(
    name="gu/repeat-bound",
    config=RepeatBound,
    title="One token repeated: attention and its bound",
    question="""Gu et al. 2025, Propositions 1 to 4: with one token repeated all hidden states are equal, so without positions
        every weight is 1/t, and under rotary positions at most e^{{2 xi}} / (e^{{2 xi}} + t - 1): no key can be a sink.""",
    needs=("rotary positions", "softmax", "causal mask"),
    check=check,
    probe=lambda config: sinkjax.Probe(attention_received=True, capture=(sinkjax.Capture(sinkjax.Site.RESID),)),
    inputs=lambda config: REPEAT,
    more=lambda config, architecture: [
        st.Calculation("bound", functools.partial(compute, config), VARIABLES, config.prompts, REPEAT)
    ],
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: list(dict.fromkeys(row.condition for row in results.own.values())),
    figures=figures,
    noop=noop,
    shown=lambda config, architecture: st.Shown((st.NO_EDIT,), texts=False),
    notes=lambda config, results: (
        f"""{results.size("prompt", "bound")} tokens, drawn at random, each repeated {config.length} times in a prompt of its own,
        without BOS. As queries and keys do not depend on the length, attention in longer prompts is computed in closed form, in
        float64, from those of the first position. Intervals: bootstrap over tokens, 95 %.""",
        """xi bounds the size of a score: |q| |k| / sqrt(D) from the norms (the paper's), or the sum over rotary pairs of the
        products of their norms, over sqrt(D), which is never larger. The bound on the mean attention to a key is the mean of
        the bounds of all queries.""",
        f"""A head sinks on a key at mean attention above {config.eps:g}; a bound no larger than this rules out a sink on key 0.
        Each prompt is a sample: we test the key on which most heads sink, among keys 0 to the middle, which at least half of
        the queries see.""",
        f"""The propositions are judged up to rounding: {config.tolerance:g} of a hidden state's largest entry, and of a weight in
        the forward pass; {EXACT:g} of a weight in closed form. A proposition has no controls; it must also hold for the same
        model with random weights.""",
    ),
)
