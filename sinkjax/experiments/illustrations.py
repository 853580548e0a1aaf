"""Maps to step through and texts that a model goes on to write: what a recipe shows of its edits beside its numbers.

They lie in stores of their own, which a recipe names in EXTRAS: no number of the section comes from them, so a folder that was
made without them has its section too, and the command that made it adds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sinkjax.experiments import views
from sinkjax.experiments.base import TEXT, Arm, Batch, Calculation, Inputs, Job, Sample, Section, View
from sinkjax.experiments.captions import origin
from sinkjax.experiments.continuations import continuations, samples
from sinkjax.model.config import Config
from sinkjax.studies.config import StudyConfig

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

    Prepare = Callable[[Model, Batch], tuple[Arm, ...]]

MAPS, TEXTS = "maps", "continuations"
TOKENS = 24  # positions shown of a prompt, so that the maps of all recipes fit one page


def maps(
    config: StudyConfig,
    architecture: Config,
    arms: Sequence[Arm],
    *,
    inputs: Inputs = TEXT,
    name: str = MAPS,
    prepare: Prepare | None = None,
    prompts: int = views.PROMPTS,
) -> Job:
    """Attention of an early, a middle and a late layer, and the largest |h|, under a few arms on the first prompts.

    prepare: as of `Job`; of the arms that it gives, those with the labels of `arms` are kept. prompts: how many are run, more
    than are shown where `prepare` looks at more.
    """
    L = architecture.layers
    probe = dataclasses.replace(views.probe(config.length, sorted({0, L // 3, 2 * L // 3})), resid_max=True)
    return Job(name, tuple(arms), probe, min(prompts, config.prompts), inputs, prepare and _only(prepare, arms))


def texts(
    config: StudyConfig,
    arms: Sequence[Arm],
    *,
    start: int = 0,
    inputs: Inputs = TEXT,
    prepare: Prepare | None = None,
    prompts: int = views.PROMPTS,
) -> Calculation:
    """How the first prompts go on under a few arms. start: tokens that a prompt must have at least; others as for `maps`."""
    few = min(prompts, config.prompts)
    return continuations(TEXTS, arms, few, inputs=inputs, start=start, prepare=prepare and _only(prepare, arms))


def labelled(arms: Sequence[Arm], *labels: str) -> tuple[Arm, ...]:
    """The arms with these labels, in their own order."""
    return tuple(arm for arm in arms if arm.edit.label in labels)


def illustrated(section: Section, stores: Mapping[str, xarray.Dataset]) -> Section:
    """A section with the maps and texts of its extra stores, by their names; a run that did not take place has none."""
    shown: list[View] = [*section.views]
    written: list[Sample] = [*section.samples]
    for store, data in stores.items():
        if "attention" in data:
            name, about = f"{section.experiment}-{store}".replace("/", "-"), f" {origin(data)}."
            shown.append(views.attention(f"{name}-attention", data.load(), tokens=TOKENS, about=about))
            if not section.views:
                shown.append(views.activation(f"{name}-activation", data, tokens=TOKENS, about=about))
        elif "text" in data:
            written += samples(data)
    return dataclasses.replace(section, views=tuple(shown), samples=tuple(written))


def _only(prepare: Prepare, arms: Sequence[Arm]) -> Prepare:
    """Of the arms that `prepare` gives, those with the labels of `arms`."""

    def kept(model: Model, batch: Batch) -> tuple[Arm, ...]:
        found = {arm.edit.label: arm for arm in prepare(model, batch)}
        return tuple(found[arm.edit.label] for arm in arms)

    return kept
