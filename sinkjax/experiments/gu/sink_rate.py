"""gu/sink-rate: how many heads sink on the first key of natural text, of random tokens and of one token repeated (Table 1).

Nothing is edited. The sink rate of the first key is ranked among those of other, random keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis import metrics
from sinkjax.experiments.base import Claim, Inputs, Job, Section, unedited
from sinkjax.experiments.gu.config import SinkRate
from sinkjax.experiments.gu.first_token import alone, control_positions, ranked, stretches
from sinkjax.experiments.gu.rates import KINDS, measure, rates, thresholds
from sinkjax.experiments.gu.sink_rate_figures import drawings
from sinkjax.experiments.illustrations import MAPS, maps
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Row, Table
from sinkjax.experiments.words import high, low, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.table import interval
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

JOBS = {"text": Inputs("text"), "random": Inputs("random"), "repeat": Inputs("repeat")}
STORES = tuple(JOBS)
EXTRAS = (MAPS, "maps-random", "maps-repeat")
LEAST, NOTHING = 10.0, 1.0  # per cent of heads: from here on a model has a sink; below this it has none
NORM = "largest ||h|| of position 0 over the others' mean"
CLAIM = (
    "Gu et al. 2025, Table 1: in trained language models most heads sink on the first token, of natural text and of random tokens"
    " alike; with one token repeated the sink vanishes in models without absolute positions."
)


def jobs(config: SinkRate, architecture: Config) -> tuple[Job, ...]:
    """An unedited run on each kind of input."""
    needs("gu/sink-rate", architecture)
    probe = Probe.of("attention_received", "resid_norm")
    measured = (Job(name, unedited(), probe, config.prompts, inputs) for name, inputs in JOBS.items())
    shown = zip(EXTRAS, JOBS.values(), strict=True)
    return *measured, *(maps(config, architecture, unedited(), inputs=inputs, name=name) for name, inputs in shown)


def section(config: SinkRate, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Rates with controls, by layer, by key and by threshold, beside those that papers give."""
    data = {KINDS[name]: stores[name].load().isel(edit=0) for name in STORES}
    positions = (0, *control_positions(config.length, config.controls, config.seed))
    rows: list[Row] = []
    for eps in thresholds(config):
        values = np.stack([rates(one, positions, eps) for one in data.values()])
        rows += ranked(tuple(data), "inputs", measure(eps), values, config.seed)
    ratios = np.stack([metrics.norm_ratio(one, 0).max(axis=-1) for one in data.values()])
    rows += alone(tuple(data), "inputs", NORM, ratios, config.seed)
    table = {(row.arm, row.measure): row for row in rows}
    return Section(
        experiment="gu/sink-rate",
        title="Heads that sink on the first key",
        claim=CLAIM,
        findings=_findings(config, data, table),
        rows=tuple(rows),
        featured=tuple(data),
        drawings=drawings(config, data, table),
        notes=_notes(config, len(positions) - 1),
        provenance=results.provenance(stores["text"]),
        claims=_claims(config, table),
    )


def has_sink(row: Row) -> bool:
    """The rule for a sink: enough heads, and more than on any control key."""
    return low(row.value) >= LEAST and row.percentile == 100


def _findings(config: SinkRate, data: Mapping[str, Any], table: Table) -> tuple[str, ...]:
    name = measure(config.eps)
    said = "; ".join(f"{interval(table[kind, name].value)} % on {kind}" for kind in data)
    others = "; ".join(
        f"at eps {eps:g} " + ", ".join(f"{interval(table[kind, measure(eps)].value)} % on {kind}" for kind in data)
        for eps in config.other_eps
    )
    norms = ", ".join(f"{interval(table[kind, NORM].value)} on {kind}" for kind in data)
    spread = []
    for kind, one in data.items():
        layers = metrics.sink_rate(one, 0, config.eps, per="layer").mean(axis=0)
        where = stretches(np.flatnonzero(layers > 0.5).tolist())
        spread.append(f"on {kind} in " + (f"layers {where}" if where else "no layer"))
    return (
        f"At eps {config.eps:g}, heads that sink on key 0: {said}.",
        *([f"At the other thresholds: {others}."] if others else []),
        f"More than half of a layer's heads sink on key 0 {'; '.join(spread)}.",
        f"The norm of the hidden state at position 0, over the mean of the other positions, is at its largest depth {norms}.",
    )


def _claims(config: SinkRate, table: Table) -> tuple[Claim, ...]:
    name = measure(config.eps)
    text, random, repeat = (table[kind, name] for kind in KINDS.values())
    sinks = has_sink(text)
    rule = f"rule: the lower bound is at least {LEAST:g} % and the rate above that of every control key"
    kept = has_sink(random) and (random.value.mean or 0) >= (text.value.mean or 0) / 2
    return (
        Claim(
            "Trained language models sink on the first token of natural text (Gu et al. 2025, Table 1).",
            verdict(sinks),
            f"{_said(text)} of heads; {rule}.",
            _published(config, "text"),
        ),
        Claim(
            "The sink stays when all tokens are drawn at random (Gu et al. 2025, Table 1).",
            verdict(kept, sinks),
            f"{_said(random)} of heads on random tokens, {_said(text)} on natural text; {rule}, and at least half of that on"
            " text; not applicable without a sink on text.",
            _published(config, "random"),
        ),
        Claim(
            "The sink vanishes when one token is repeated, without absolute positions (Gu et al. 2025, Table 1).",
            verdict(high(repeat.value) < NOTHING, sinks),
            f"{_said(repeat)} of heads with one token repeated; rule: the upper bound is below {NOTHING:g} %; not applicable"
            " without a sink on text.",
            _published(config, "repeat"),
        ),
    )


def _said(row: Row) -> str:
    rank = "" if row.percentile is None else f" (percentile {row.percentile:.0f} among {row.controls} other keys)"
    return f"{interval(row.value)} %{rank}"


def _published(config: SinkRate, inputs: str) -> str:
    """The papers' rates for a kind of input at the main threshold, in words."""
    entries = [entry for entry in config.published if entry["inputs"] == inputs and entry["eps"] == config.eps]
    return ", ".join(f"{entry['model']} {entry['rate']:.2f} %" for entry in entries)


def _notes(config: SinkRate, controls: int) -> tuple[str, ...]:
    return (
        f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above eps (Gu et al. 2025;"
        f" their eps is 0.3, with {config.length} tokens here and 64 there). The threshold is applied in each sequence and head"
        f" before anything is averaged. Means over {config.prompts} sequences of each kind, with bootstrap 95 % intervals.",
        f"Controls: the same rate of {controls} other keys, drawn at random from the first half of a prompt; a percentile says"
        " how many of them have a lower rate. Nothing is edited, so the identity edit is the run itself.",
        "Random tokens: each position a draw of its own from the vocabulary without special tokens. One token repeated: one draw"
        " a prompt. If a BOS is asked for, it stands before either, and the first key is the BOS.",
        "Published rates are those of their models and texts; secondary: taken from a summary of the paper, not from its text.",
    )
