"""background/streaming: a window of the last keys, with and without the first tokens (Xiao et al. 2024, StreamingLLM, Table 1).

In every layer a query sees a cache of keys: the first n and the last ones that fill it, itself included. Logits towards all
others are -inf. Positions stay those of the whole text, where StreamingLLM counts them inside its cache, so this is the ablation
of the keys and no streaming. Controls keep as many random early tokens instead of the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.edits.edit import Edit
from sinkjax.edits.site import Site
from sinkjax.edits.term import Select
from sinkjax.experiments import identity, illustrations, results, words
from sinkjax.experiments.background.config import Streaming
from sinkjax.experiments.base import Arm, Calculation, Claim, Drawing, Job, Section
from sinkjax.experiments.captions import origin
from sinkjax.experiments.illustrations import labelled
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Measured, Table, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.figures import layers
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

STORES = ("sweep", "controls")
EXTRAS = (
    illustrations.MAPS,
    illustrations.TEXTS,
    identity.STORE,
)
NONE, WINDOW, CONTROL = "all keys", "window", "control"
DAMAGE, RECOVERED = 0.5, 0.9  # nats per token that count as damage; the part of it that must be gone for a recovery
BIN = 8  # positions that share a point of the figure
CLAIM = (
    "Xiao et al. 2024: a window of the last keys alone fails as soon as the first token leaves it; with the first four tokens"
    " kept the model predicts as with all keys."
)


def jobs(config: Streaming, architecture: Config) -> tuple[Job | Calculation, ...]:
    """Every size and number of first tokens; random tokens in their place."""
    needs("background/streaming", architecture)
    few, small = min(config.control_prompts, config.prompts), min(config.caches)  # the smallest loses keys in what is shown
    shown = labelled(arms(config), NONE, label(small, 0), label(small, max(config.first)))
    same = sinkjax.edit(Site.LOGITS, "add", 0.0, distances=slice(config.cache, None))
    return (
        Job("sweep", arms(config), Probe(nll=True), config.prompts),
        Job("controls", controls(config), Probe(nll=True), few),
        illustrations.maps(config, architecture, shown),
        illustrations.texts(config, shown),
        identity.job(config, Probe(nll=True), {f"0 added to the logits beyond the last {config.cache} keys": same}),
    )


def keep(keys: Select, last: int) -> Edit:
    """Every query sees the `last` last keys and, of the earlier ones, all but `keys`."""
    return sinkjax.edit(Site.LOGITS, "set", -np.inf, keys=keys, distances=slice(last, None))


def arms(config: Streaming) -> tuple[Arm, ...]:
    """All keys, then each cache with each number of first tokens; a budget is that number, at the size that has controls."""
    found = [Arm(sinkjax.compose(label=NONE), NONE)]
    for cache in config.caches:
        for first in config.first:
            edit = keep(slice(first, None), cache - first).named(label(cache, first))
            found.append(Arm(edit, WINDOW, cache, first if first and cache == config.cache else None))
    return tuple(found)


def label(cache: int, first: int) -> str:
    """The name of an arm."""
    return f"cache {cache}: {first} first, {cache - first} last"


def controls(config: Streaming) -> tuple[Arm, ...]:
    """As many random tokens kept, of those that every scored query has passed, but the first ones."""
    rng, drawn = intervals.generator(config.seed, "background/streaming controls"), []
    early = np.arange(max(config.first), scored_from(config))
    for first in filter(None, config.first):
        for draw in range(config.controls):
            kept = sorted(rng.choice(early, first, replace=False).tolist())
            keys = np.setdiff1d(np.arange(config.length), kept).tolist()
            edit = keep(keys, config.cache - first).named(f"control {draw}: {', '.join(map(str, kept))} instead of {first} first")
            drawn.append(Arm(edit, CONTROL, config.cache, budget=first))
    return tuple(drawn)


def scored_from(config: Streaming) -> int:
    """The first query for which every cache is full and has lost a token."""
    return max(config.caches)


def late_loss(config: Streaming) -> Measure:
    """Mean loss of the queries that every cache has taken keys from."""
    first = scored_from(config)

    def mean(data: xarray.Dataset) -> NDArray:
        return data["nll"].isel(position=slice(first, None)).mean("position").values

    return Measure(f"loss from position {first} on (nats per token)", mean)


def section(config: Streaming, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Losses by cache, the part of the damage that the first tokens undo, and whether Xiao et al.'s statements hold."""
    data, random = (stores[name].load() for name in STORES)
    measure = late_loss(config)
    table = summarise(Measured(data, arms(config)), (measure,), config.seed, Measured(random, controls(config)))
    losses = dict(zip((str(name) for name in data["edit"].values), measure.of(data), strict=True))
    return Section(
        experiment="background/streaming",
        title="A window of keys, with and without the first tokens",
        claim=CLAIM,
        findings=_findings(config, table, measure.name, losses),
        rows=tuple(table.values()),
        featured=(NONE, *(label(config.cache, first) for first in config.first)),
        drawings=(by_position(config, data), by_first(config, data, table, measure.name)),
        notes=_notes(config, data.sizes["prompt"], random.sizes["prompt"]),
        provenance=results.provenance(data),
        claims=_claims(config, table, measure.name, losses),
    )


def recovered(losses: Mapping[str, NDArray], config: Streaming, first: int, cache: int | None = None) -> intervals.Interval:
    """The part of the window's damage that `first` kept tokens undo, with its interval over prompts; none without damage.

    cache: its size, by default the one that the claims are about.
    """
    size = config.cache if cache is None else cache
    whole, alone, kept = (losses[name] for name in (NONE, label(size, 0), label(size, first)))

    def part(means: NDArray) -> NDArray:
        return (means[..., 1] - means[..., 2]) / (means[..., 1] - means[..., 0])

    if len(whole) < 2:
        return intervals.interval(part(np.stack([whole, alone, kept], axis=-1)))
    return intervals.interval(intervals.pseudo_values(np.stack([whole, alone, kept], axis=-1), part), seed=config.seed)


def _findings(config: Streaming, table: Table, measure: str, losses: Mapping[str, NDArray]) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    rows = {first: table[label(config.cache, first), measure] for first in config.first}
    listed = ", ".join(f"{words.value(row)} with {first}" for first, row in rows.items() if first)
    best = max(config.first)
    return (
        f"With all keys the loss from position {scored_from(config)} on is {words.value(table[NONE, measure])} nats; in a"
        f" cache of {config.cache} keys it is {words.value(rows[0])} without the first tokens, {listed} of them.",
        f"The first {best} tokens undo {interval(recovered(losses, config, best))} of the damage that the window does, the"
        f" first one alone {interval(recovered(losses, config, config.first[1]))} (1: all of it).",
        "Beside random early tokens kept in their place: "
        + "; ".join(f"{first} first, {words.effect(row, ' nats from all keys')}" for first, row in rows.items() if first)
        + ".",
        "By size of the cache, without the first tokens and with the first "
        + f"{best}: "
        + "; ".join(
            f"{cache} keys, {' and '.join(words.value(table[label(cache, first), measure]) for first in (0, best))} nats"
            for cache in config.caches
        )
        + ".",
    )


def _claims(config: Streaming, table: Table, measure: str, losses: Mapping[str, NDArray]) -> tuple[Claim, ...]:
    """Xiao et al.'s statements, each by its rule."""
    best = max(config.first)
    rows = {first: table[label(config.cache, first), measure] for first in config.first}
    damaged = words.above(rows[0].effect, DAMAGE)
    part = recovered(losses, config, best)
    more = intervals.interval(losses[label(config.cache, config.first[1])] - losses[label(config.cache, best)], seed=config.seed)
    rank = rows[best]
    others = "".join(
        f", {interval(recovered(losses, config, best, cache))} with {cache}" for cache in config.caches if cache != config.cache
    )
    return (
        Claim(
            "A window of the last keys alone fails (Xiao et al. 2024, Fig. 3 and Table 1).",
            words.verdict(damaged),
            f"Loss {words.effect(rows[0], ' nats')} from all keys. Rule: the interval lies above {DAMAGE} nats.",
            "Llama-2-13B: perplexity 5,158 with a window of 1,024",
        ),
        Claim(
            f"With the first {best} tokens kept it predicts as with all keys (Table 1).",
            words.verdict(words.above(part, RECOVERED), damaged),
            f"{interval(part)} of the damage is undone with {config.cache} keys{others}; what is left,"
            f" {words.effect(rank, ' nats')}, holds what the lost keys told. Rule: with {config.cache} keys the interval lies"
            f" above {RECOVERED}.",
            "Llama-2-13B: perplexity 5.40 with 4 + 1,020",
        ),
        Claim(
            "It is the first tokens that matter, not that some early ones stay (Xiao et al. 2024, section 3.1).",
            words.verdict(rank.percentile == 0, damaged),
            f"Loss {words.effect(rank, ' nats')}. Rule: lower than with any of the random tokens kept instead.",
        ),
        Claim(
            f"One first token is not enough; {best} are better (Table 2).",
            words.verdict(words.above(more, 0), damaged),
            f"Loss with {config.first[1]} kept minus that with {best}: {interval(more, signed=True)} nats. Rule: the interval"
            " lies above zero.",
            "Llama-2-7B: perplexity 11.88 with 1, 9.59 with 4; Pythia-160M: 18.49 and 18.05",
        ),
    )


def by_position(config: Streaming, data: xarray.Dataset) -> Drawing:
    """What is lost to all keys along the text, in bins of positions."""
    count = (data.sizes["position"] - 1) // BIN
    nll = data["nll"].isel(position=slice(count * BIN))
    lost = (nll - nll.sel(edit=NONE)).values
    lost = lost.reshape(*lost.shape[:2], count, BIN).mean(axis=-1)
    places = (np.arange(count) * BIN + (BIN - 1) / 2).tolist()
    names = data["edit"].values.tolist()
    lines = [
        layers.Line(
            f"{first} first kept", places, intervals.intervals(lost[names.index(label(config.cache, first))], axis=0).tolist()
        )
        for first in config.first
    ]
    caption = (
        f"Loss above that with all keys, along the text, with a cache of {config.cache} keys, in bins of {BIN} positions."
        f" Bands: bootstrap 95 % intervals over {data.sizes['prompt']} prompts, paired. {origin(data)}."
    )
    panel = layers.Panel("", "loss above that\nwith all keys (nats)", lines, signed=True)
    return Drawing("loss-by-position", layers.lines([[panel]], "position of the query (0-based)"), caption)


def by_first(config: Streaming, data: xarray.Dataset, table: Table, measure: str) -> Drawing:
    """What is lost to all keys, by the number of first tokens kept."""
    lines = [
        layers.Line(f"cache of {cache}", config.first, [table[label(cache, first), measure].effect for first in config.first])
        for cache in config.caches
    ]
    caption = (
        "Loss above that with all keys, by the number of first tokens that stay in a cache of the same size. Bands: bootstrap"
        f" 95 % intervals over {data.sizes['prompt']} prompts, paired. {origin(data)}."
    )
    panel = layers.Panel("", "loss above that\nwith all keys (nats)", lines, signed=True)
    return Drawing("loss-by-first-tokens", layers.lines([[panel]], "first tokens kept"), caption)


def _notes(config: Streaming, N: int, control_prompts: int) -> tuple[str, ...]:
    """How the numbers were made."""
    return (
        f"Values are means over {N} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples); effects are mean"
        " differences from all keys, paired by prompt. The part of the damage undone is a ratio of means; its interval is that"
        " of its jackknife pseudo-values.",
        f"Scored are the queries from position {scored_from(config)} on, those from which every cache has taken a key.",
        "Positions stay those of the whole text. StreamingLLM counts them inside its cache; within the context that the model"
        " was trained on, the difference is one of distance to the first tokens.",
        f"Controls: {config.controls} random draws for each number of first tokens keep as many tokens of positions"
        f" {max(config.first)} to {scored_from(config) - 1} instead, in a cache of {config.cache}. A percentile says how many"
        f" of them have a smaller effect on the same {control_prompts} prompts: 0 means less loss than all of them.",
        "The claims were first to be judged with 16 keys. After a first look at SmolLM2 the largest cache took their place, as"
        " the nearest to the paper's, of 1,024 keys and more, in which the lost keys told little; what smaller ones give stands"
        " beside.",
    )
