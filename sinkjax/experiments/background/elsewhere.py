"""background/elsewhere: sinks and massive activations on other tokens than the first, and which of the two comes first.

Sun et al. (2024) find massive activations on the first full stop or line break too, and Kiya et al. (2026) that the first token's
activation comes one layer before its sink. Here each delimiter, and frequent words beside them, are looked at where the text has
them, and are put at one position of every prompt by an edit of the embedding; controls put random tokens there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import identity, words
from sinkjax.experiments.background.config import Elsewhere
from sinkjax.experiments.background.elsewhere_figures import Results, drawings
from sinkjax.experiments.background.elsewhere_order import LAGS, correlations, said_gaps, said_lags, said_onsets
from sinkjax.experiments.background.elsewhere_tokens import (
    FREQUENT,
    NATURAL,
    PLACED,
    SINKS,
    SIZE,
    in_text,
    label,
    most_carried,
    sinks,
    sizes,
    there,
)
from sinkjax.experiments.background.massive_arms import RATIO, STATE_MEDIAN, THRESHOLD
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Job, Section
from sinkjax.experiments.illustrations import MAPS, TEXTS, maps, texts
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measure, Measured, Row, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("natural", "placed", "controls")
EXTRAS = (MAPS, TEXTS, identity.STORE)
NONE, CONTROL = "no edit", "control"
CLAIM = (
    "Sun et al. 2024: massive activations appear on the first token and on the first full stop or line break. Kiya et al."
    " 2026: the activation of the first token appears one layer before its sink."
)


def jobs(config: Elsewhere, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The text as it is; each token put at the place; random tokens put there."""
    needs("background/elsewhere", architecture)
    probe = Probe(attention_received=True, resid_max=True, resid_norm=True, extra=(STATE_MEDIAN,))
    blank = np.zeros(architecture.width)
    put = arms(config, [blank] * len(tokens_of(config)))
    shown = *put[:3], *put[1 + len(config.delimiters) :][:1]  # two delimiters and a word
    few, placed = (min(count, config.prompts) for count in (config.control_prompts, config.placed_prompts))
    own = unchanged(config, np.zeros((min(identity.PROMPTS, config.prompts), architecture.width)))
    return (
        Job("natural", (_none(),), probe, config.prompts),
        Job("placed", put, probe, placed, prepare=partial(prepared, config)),
        Job("controls", controls(config, [blank] * config.controls), probe, few, prepare=partial(prepared_controls, config)),
        maps(config, architecture, shown, prepare=partial(prepared, config)),
        texts(config, shown, start=config.place + 1, prepare=partial(prepared, config)),
        identity.job(config, probe, own, prepare=partial(prepared_unchanged, config)),
    )


def unchanged(config: Elsewhere, rows: NDArray) -> dict[str, sinkjax.Edit]:
    """Each prompt's own token put at the place. rows: their embeddings, [B, d]."""
    return {f"the text's own token put at position {config.place}": _put(config, rows, "its own token")}


def prepared_unchanged(config: Elsewhere, model: Model, batch: Batch) -> dict[str, sinkjax.Edit]:
    """The identity edit with this model's embeddings."""
    return unchanged(config, np.stack(_rows(model, batch.tokens[:, config.place])))


def tokens_of(config: Elsewhere) -> tuple[str, ...]:
    """The delimiters and the words."""
    return (*config.delimiters, *config.words)


def arms(config: Elsewhere, rows: Sequence[NDArray]) -> tuple[Arm, ...]:
    """No edit, and each token put at the place. rows: their embeddings."""
    return (
        _none(),
        *(Arm(_put(config, row, there(token)), PLACED, budget=1) for token, row in zip(tokens_of(config), rows, strict=True)),
    )


def controls(config: Elsewhere, rows: Sequence[NDArray]) -> tuple[Arm, ...]:
    """A random token put at the place. rows: their embeddings."""
    return tuple(Arm(_put(config, row, f"control {draw}: random token"), CONTROL, budget=1) for draw, row in enumerate(rows))


def prepared(config: Elsewhere, model: Model, batch: Batch) -> tuple[Arm, ...]:
    """The arms with this model's embeddings."""
    return arms(config, _rows(model, [token_id(_tokenizer(model), token) for token in tokens_of(config)]))


def prepared_controls(config: Elsewhere, model: Model, batch: Batch) -> tuple[Arm, ...]:
    """The controls with the embeddings of random tokens that are neither special nor among those under study."""
    tokenizer = _tokenizer(model)
    studied = [token_id(tokenizer, token) for token in tokens_of(config)]
    ordinary = np.setdiff1d(np.arange(model.config.vocab_size or 0), [*tokenizer.special, *studied])
    rng = intervals.generator(config.seed, "background/elsewhere controls")
    return controls(config, _rows(model, rng.choice(ordinary, config.controls, replace=False)))


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id that a token has behind a word. Errors: a text that is no single token there."""
    found = tokenizer.encode(f"a{token}")[-1]
    if tokenizer.tokens([found]) != [token]:
        raise SinkjaxError(f"{token!r} is not one token of this model's tokenizer; choose other delimiters and words")
    return found


def _tokenizer(model: Model) -> Tokenizer:
    if model.tokenizer is None:
        raise SinkjaxError(f"{model.source['name']} has no tokenizer, so its delimiters are unknown")
    return model.tokenizer


def _rows(model: Model, ids: Sequence[int] | NDArray) -> list[NDArray]:
    return list(np.asarray(model.params["embed"][np.asarray(ids)], np.float32))


def _none() -> Arm:
    return Arm(sinkjax.compose(label=NONE), NONE)


def _put(config: Elsewhere, row: NDArray, name: str) -> sinkjax.Edit:
    return sinkjax.edit(Site.EMBED, "set", row, queries=config.place, label=name)


def section(config: Elsewhere, stores: Mapping[str, xarray.Dataset]) -> Section:
    """What each token attracts, in the text and put there, and the order of the first token's onsets."""
    natural, placed, random = (stores[name].load() for name in STORES)
    text = natural.isel(edit=0)
    measures = (
        Measure(SINKS, lambda data: sinks(data, config.eps)[..., config.place]),
        Measure(SIZE, lambda data: sizes(data)[..., config.place]),
    )
    width = np.zeros(1)
    chosen = arms(config, [width] * len(tokens_of(config)))
    table = summarise(
        Measured(placed, chosen), measures, config.seed, Measured(random, controls(config, [width] * config.controls))
    )
    rows = [row for token in tokens_of(config) for row in in_text(config, text, token)]
    found = Results(config, text, placed, random, table, {(row.arm, row.measure): row for row in rows}, (SINKS, SIZE))
    return Section(
        experiment="background/elsewhere",
        title="Sinks and massive activations on other tokens than the first",
        claim=CLAIM,
        findings=_findings(found),
        rows=(*table.values(), *rows),
        featured=tuple(arm.edit.label for arm in chosen),
        drawings=drawings(found),
        notes=_notes(found),
        provenance=results.provenance(natural),
        claims=_claims(found),
    )


def _findings(found: Results) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    config, table, natural = found.config, found.table, found.natural

    def listed(tokens: Sequence[str], measure: str) -> str:
        parts = []
        for token in tokens:
            row, put = natural[f"{label(token)} {NATURAL}", measure], table[there(token), measure]
            found_there = "not in the text" if row.value.mean is None else f"{words.value(row)}{_rank(row)}"
            parts.append(f"{label(token)} {found_there}; put there {words.value(put)}{_rank(put)}")
        return "; ".join(parts)

    first = intervals.interval(sizes(found.text)[:, 0], seed=config.seed)
    carried = most_carried(found.text)
    return (
        f"Heads that sink on delimiters (%): {listed(config.delimiters, SINKS)}. On frequent words:"
        f" {listed(config.words, SINKS)}.",
        f"Largest |h| over that of the median position: {interval(first)} at position 0. Delimiters:"
        f" {listed(config.delimiters, SIZE)}. Frequent words: {listed(config.words, SIZE)}.",
        f"Of the tokens that the text has at least {FREQUENT} times, those with the largest such ratio are {carried}."
        if carried
        else "",
        said_lags(found.text, config),
        said_gaps(found.text, config),
        said_onsets(found.placed, config),
    )


def _rank(row: Row) -> str:
    return "" if row.percentile is None else f" (percentile {row.percentile:.0f})"


def _claims(found: Results) -> tuple[Claim, ...]:
    """The papers' statements, each by its rule."""
    config, placed = found.config, found.placed
    position = config.place
    median = placed["state_median"].values
    at_place = placed["resid_max"].values[..., position]
    massive = ((at_place > THRESHOLD) & (at_place > RATIO * median)).any(axis=-1).mean(axis=-1)
    share = dict(zip((str(name) for name in placed["edit"].values), massive, strict=True))
    stops = [token for token in (".", "\n") if token in config.delimiters]
    ranks = {token: found.table[there(token), SIZE] for token in config.delimiters}
    listed = "; ".join(
        f"{label(token)} {words.value(ranks[token])} times the median position{_rank(ranks[token])}, rule obeyed in"
        f" {share[there(token)]:.0%} of prompts"
        for token in stops
    )
    sinking = [token for token in config.delimiters if _sinks_more(found, token)]
    named = ", ".join(map(label, sinking)) or "none"
    at = correlations(found.text, config.eps)
    lags = {lag: intervals.interval(at[0] - at[lag], seed=config.seed) for lag in LAGS if lag}
    first = all(words.above(gap, 0) for gap in lags.values())
    return (
        Claim(
            "Massive activations also appear on the first full stop or line break (Sun et al. 2024, section 2.2).",
            words.verdict(any(share[there(token)] > 0.5 for token in stops), bool(stops)),
            f"Put at position {position}: {listed}. Rule: one of them obeys Sun et al.'s definition in most prompts.",
            "Llama-2-7B: dims 1415 and 2533, there as large as on the first token",
        ),
        Claim(
            "Delimiters are sinks too (Sun et al. 2024, section 4).",
            words.verdict(bool(sinking)),
            f"Delimiters on which more than 1 % of heads sink, and more than with every random token put there: {named}. Rule:"
            " there is one.",
        ),
        Claim(
            "The massive activation of the first token appears before its sink, one layer earlier (Kiya et al. 2026, Fig. 2).",
            words.verdict(first, lags[1].mean is not None),
            f"{said_lags(found.text, config)} Rule: the correlation with the stream that enters the layer exceeds that with the"
            f" stream that the layer leaves, and those with earlier ones; differences {interval(lags[1], signed=True)}, and"
            f" {interval(lags[-1], signed=True)} and {interval(lags[-2], signed=True)} one and two layers earlier."
            f" {said_gaps(found.text, config)}",
            "Llama-3.2-3B: activation at layer 2, sink at layer 3 (layers counted from 1)",
        ),
    )


def _sinks_more(found: Results, token: str) -> bool:
    row = found.table[there(token), SINKS]
    return row.percentile == 100 and words.mean(row.value) > 1


def _notes(found: Results) -> tuple[str, ...]:
    """How the numbers were made."""
    config = found.config
    return (
        "Values are means over prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples):"
        f" {found.text.sizes['prompt']} prompts of text, {found.placed.sizes['prompt']} in which a token is put at position"
        f" {config.place}. A head sinks on a key if its mean attention to it is above {config.eps}.",
        "A token is put there by its embedding alone; the following tokens stay as they are. Sizes are the largest over depths"
        " of max |h| at a position over that of the prompt's median position, as in deep layers every position's largest |h|"
        " is high.",
        f"Controls: {config.controls} random tokens put there ({found.random.sizes['prompt']} prompts); for tokens in the text,"
        f" as many random other positions of the same prompts, {config.controls} draws. Keys seen by fewer than {MIN_QUERIES}"
        " queries are left out.",
        "The order is judged by correlations over layers since a first look at SmolLM2, whose activation comes in two steps, had"
        " shown that the onset depends on the thresholds; what the thresholds give is stated beside the verdict.",
    )
