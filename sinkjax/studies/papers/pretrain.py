"""pretrain: a table of trainings, one thing changed at a time, beside the paper's table.

Each study of pretraining is a YAML file in `configs/pretrain/` with its rows, the paper's numbers and claims, and its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sinkjax.studies as st
from sinkjax.studies.papers._pretrain import rows
from sinkjax.studies.papers._pretrain.config import Ablation
from sinkjax.studies.study import TrainingSpec

COMMON = 3  # the number of notes that every study has, after its own


def trainings(config: Ablation) -> tuple[TrainingSpec, ...]:
    from sinkjax.studies.papers._pretrain.trainings import trainings  # imports JAX

    return trainings(config)


def findings(config: Ablation, architecture: Any) -> Iterator[st.Quantity]:
    for measure in rows.COMPARED:
        if sum(isinstance(spec.paper.get(measure), int | float) for spec in config.here) >= 4:
            yield rows.rank_correlation(config, measure)


def figures(config: Ablation, architecture: Any) -> Iterator[st.Figure]:
    from sinkjax.studies.papers._pretrain.figures import learning, losses, sinks

    yield from (learning, sinks, losses)


def status(results: st.Results) -> Iterator[str]:
    """How many rows are finished, which were not run, and which runs are not finished."""
    config = results.config
    counts = [rows.finished(results, spec) for spec in config.here]
    done = sum(of > 0 and finished == of for finished, of in counts)
    yield f"{done} of {len(config.here)} rows are finished, at size {config.size}."
    if missing := [spec.title for spec, (_, of) in zip(config.here, counts, strict=True) if not of]:
        yield f"Not run: {'; '.join(missing)}."
    yield from rows.unfinished(results)


def notes(config: Ablation, results: st.Results) -> tuple[str, ...]:
    return (
        *config.notes,
        f"Size {config.size}. {config.scale.about}",
        """Sink_k is the share of heads and sequences in which token k, counted from 1 (key k - 1), receives more than 0.3 of the
        attention of the queries that see it, on the first 64 tokens of held-out blocks (Gu et al. 2025, section 3); Sink_* is
        that of a bias, sink token or sink logit, which has no key. Sinks are computed from the weights themselves where rows sum
        to 1 (or to less, because a bias takes the rest), and from each row's shares of absolute weight for all other normalisers,
        as in the paper. Whether an unnormalised model has a sink is therefore a statement about shares, and its weights depend on
        a scale that its values can undo; the norm of what token 1 writes over that of the head's output does not.""",
        """The paper's numbers are of one run each, unless stated otherwise. Means and 95 % intervals here are over the
        seeds that made all steps. A difference (Δ) is from the first row, paired by seed. Claims need 8 seeds; rows with fewer
        are described and not judged.""",
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
    tokens = text.get("tokens")
    facts = {
        "size": config.size,
        "steps": about["config"]["steps"],
        "parameters": f"{about['parameters']:,}",
        "text": Path(about["config"].get("text") or "").name,  # of a folder, not where it lies
        "tokens' sha256": str(text.get("corpus", ""))[:12],
        "tokens": tokens and f"{tokens:,}",
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
    rows=rows.rows,
    claims=lambda config, architecture: rows.claims(config),
    findings=findings,
    featured=lambda results: tuple(spec.title for spec in results.config.row_specs),
    figures=figures,
    notes=notes,
    provenance=provenance,
    status=status,
    subject="row",
    over="seeds",
)
