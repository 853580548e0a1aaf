"""pretrain: a table of trainings, one thing changed at a time, and the paper's table beside it.

A study of pretraining is a YAML file (`configs/pretrain/`): its rows, what the paper says of them, and its sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sinkjax.studies as st
from sinkjax.studies.papers._pretrain import rows
from sinkjax.studies.papers._pretrain.config import Ablation
from sinkjax.studies.study import TrainingSpec

COMMON = 3  # notes that every study has, the last ones


def trainings(config: Ablation) -> tuple[TrainingSpec, ...]:
    from sinkjax.studies.papers._pretrain.trainings import trainings

    return trainings(config)


def findings(config: Ablation, architecture: Any) -> Iterator[st.Quantity]:
    what = f"rows that are finished, of {len(config.here)} at size {config.size}"
    yield st.quantity(what, lambda results: finished(config, results))
    for measure in ("sink", "loss"):
        if sum(isinstance(spec.paper.get(measure), int | float) for spec in config.here) >= 4:
            yield rows.rank_correlation(config, measure)


def finished(config: Ablation, results: st.Results) -> float:
    counts = [rows.finished(results.trained, spec) for spec in config.here]
    return float(sum(of > 0 and done == of for done, of in counts))


def figures(config: Ablation, architecture: Any) -> Iterator[st.Figure]:
    from sinkjax.studies.papers._pretrain.figures import learning, losses, sinks

    yield from (learning, sinks, losses)


def notes(config: Ablation, results: st.Results) -> tuple[str, ...]:
    missing = [spec.title for spec in config.here if spec.name not in results]
    return (
        *config.notes,
        *rows.unfinished(config, results.trained),
        *([f"Not run: {'; '.join(missing)}."] if missing else []),
        f"Size {config.size}. {config.scale.about}",
        "Sink_k is the share of heads and sequences in which token k, counted from 1 (key k - 1), receives more than 0.3 of the"
        " attention of the queries that see it, on the first 64 tokens of held-out blocks (Gu et al. 2025, section 3); Sink_* is"
        " that of a bias, sink token or sink logit, which stands on no key. By the weights themselves where rows sum to 1 (or to"
        " less, because a bias takes the rest); by each row's shares of absolute weight for all other normalisers, as the paper"
        " does. So 'no sink' of an unnormalised model is said of shares; the column of weights says how much it writes.",
        "The paper's numbers are of one run each, unless it says more; means and bootstrap 95 % intervals here are over seeds"
        " that made all steps. A difference (Δ) is from the first row, paired by seed.",
    )


def provenance(results: st.Results) -> dict[str, Any]:
    """How the numbers were made."""
    config, data = results.config, results.trained
    if not data:
        return {}
    about = next(iter(data.values())).attrs["training"]
    text = about.get("data") or {}
    cost = [store.attrs["training"]["milliseconds"] for store in data.values()]
    known = [entry for entry in cost if entry is not None]
    facts = {
        "size": config.size,
        "steps": about["config"]["steps"],
        "parameters": f"{about['parameters']:,}",
        "text": Path(about["config"].get("text") or "").name,  # of a folder, not where it lies
        "tokens' sha256": str(text.get("corpus", ""))[:12],
        "tokens": f"{text['tokens']:,}" if "tokens" in text else None,
        "dtype": about["config"]["dtype"],
        "device": about["devices"],
        "time of a step of one run": f"{min(known):.3g} to {max(known):.3g} ms" if known else None,
        "intervals over": about["intervals_over"],
        "versions": ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


STUDY = st.Study(
    name="pretrain",
    config=Ablation,
    heading="pretrain/{name}",
    title="{title}",
    question="{claim}",
    trainings=trainings,
    rows=lambda results: rows.rows(results.config, results.trained),
    claims=lambda config, architecture: rows.claims(config),
    findings=findings,
    featured=lambda results: tuple(spec.title for spec in results.config.row_specs),
    figures=figures,
    notes=notes,
    provenance=provenance,
    subject="row",
    over="seeds",
)
