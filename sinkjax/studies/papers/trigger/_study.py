"""What the declarations of all trigger studies share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.results import Results
from sinkjax.studies.study import Study, TrainingSpec


def study(models: Callable[[Any], Sequence[lab.Model]], *, notes: Callable[[Any], Sequence[str]], **declared: Any) -> Study:
    """A study that trains and compares models.

    models: config -> its models. notes: config -> its own notes, after the shared ones. declared: further fields of `Study`.
    """

    def trainings(config: Any) -> list[TrainingSpec]:
        from sinkjax.studies.papers.trigger._measure import training_spec  # imports JAX

        return [training_spec(config, model) for model in models(config)]

    def labels(results: Results) -> dict[str, str]:
        return lab.labels_of(models(results.config))

    return Study(
        trainings=trainings,
        featured=lambda results: tuple(labels(results).values()),
        notes=lambda config, results: (*lab.shared_notes(config), *notes(config)),
        status=lambda results: lab.unfinished(results.trained, labels(results)),
        provenance=lambda results: lab.provenance(results.trained),
        subject="model",
        over="runs",
        **declared,
    )
