"""pretrain: a table of trainings, one thing changed at a time, and the paper's table beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.experiments.base import Section
from sinkjax.experiments.pretrain import figures, forms, summary
from sinkjax.experiments.pretrain.config import Ablation
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

lessons = forms.lessons
COMMON = 3  # notes that every study has, the last ones


def section(config: Ablation, stores: Mapping[str, xarray.Dataset]) -> Section:
    """What is there of the study: rows that are not run, or not finished, say so."""
    data = {name: store.load() for name, store in stores.items()}
    return Section(
        experiment=f"pretrain/{config.name}",
        title=config.title,
        claim=config.claim,
        findings=_findings(config, data),
        rows=tuple(summary.rows(config, data)),
        featured=tuple(form.title for form in config.forms),
        drawings=figures.drawings(config, data),
        notes=(*config.notes, *_notes(config)),
        provenance=_provenance(config, data),
        claims=summary.claims(config, data),
        subject="row",
        over="seeds",
    )


def _findings(config: Ablation, data: Mapping[str, Any]) -> tuple[str, ...]:
    counts = {form: summary.finished(data, form) for form in config.here}
    done = [form for form, (finished, of) in counts.items() if of and finished == of]
    missing = [form.title for form, (_, of) in counts.items() if not of]
    said = [f"{len(done)} of {len(config.here)} rows are finished, at size {config.size}."]
    if missing:
        said.append(f"Not run: {'; '.join(missing)}.")
    said += summary.unfinished(config, data)
    means = {form.title: found for form in done if (found := summary.mean(data, config, form, "sink")).mean is not None}
    if len(means) > 1:
        ends = [pick(means, key=lambda title: means[title].mean or 0.0) for pick in (min, max)]
        said.append(f"Sink_1 goes from {interval(means[ends[0]])} % ({ends[0]}) to {interval(means[ends[1]])} % ({ends[1]}).")
    said += [line for measure in ("sink", "loss") if (line := summary.rank_correlation(config, data, measure))]
    return tuple(said)


def _notes(config: Ablation) -> tuple[str, ...]:
    return (
        f"Size {config.size}. {config.scale.about}",
        "Sink_k is the share of heads and sequences in which token k, counted from 1 (key k - 1), receives more than 0.3 of the"
        " attention of the queries that see it, on the first 64 tokens of held-out blocks (Gu et al. 2025, section 3); Sink_* is"
        " that of a bias, sink token or sink logit, which stands on no key. By the weights themselves where rows sum to 1 (or to"
        " less, because a bias takes the rest); by each row's shares of absolute weight for all other normalisers, as the paper"
        " does. So 'no sink' of an unnormalised model is said of shares; the column of weights says how much it writes.",
        "The paper's numbers are of one run each, unless it says more; means and bootstrap 95 % intervals here are over seeds"
        " that made all steps. A difference (Δ) is from the first row, paired by seed.",
    )


def _provenance(config: Ablation, data: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader has to know of how the numbers were made."""
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
