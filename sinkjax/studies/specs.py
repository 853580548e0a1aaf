"""A study's runs on one architecture, from its declaration: sweeps with their controls, maps, continuations, no-op."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from sinkjax.analysis.estimates import Absent
from sinkjax.errors import SinkjaxError, short
from sinkjax.studies.study import TEXT, Batch, Calculation, Condition, Inputs, Shown, Study, Sweep, SweepSpec
from sinkjax.studies.values import VALUES

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.edits.edit import Edit
    from sinkjax.model.config import Config
    from sinkjax.studies.config import Settings


SWEEP, MAPS, TEXTS, NOOP = "sweep", "maps", "continuations", "identity"
NOOP_SERIES, NOOP_PROMPTS = "identity edit", 8
SHOWN_PROMPTS = 3  # whose maps and continuations a page shows
PATIENCE = 1_000
Drawn = TypeVar("Drawn")
ABSENT = "absent"  # attribute of the store of a sweep that did not run: why


def specs(study: Study, config: Settings, architecture: Config) -> tuple[SweepSpec | Calculation, ...]:
    """Everything that a study runs on a model, in order.

    Raises:
        SinkjaxError: the model lacks a part that the study needs, or the config does not fit it.
    """
    needs(study.name, architecture)
    study.check(config, architecture)
    parts: list[SweepSpec | Calculation] = []
    for part in study.sweeps(config, architecture):
        if isinstance(part, Calculation):
            parts.append(part)
        else:
            parts += _with_controls(study, part, config, architecture)
    if study.shown is not None:
        parts += _shown(study, config, architecture, study.shown(config, architecture))
    if study.noop is not None and (noop := study.noop(config, architecture)) is not None:
        parts.append(spec(study, noop, config, architecture))
    return tuple(parts)


def needs(study: str, architecture: Config, *parts: str) -> None:
    """Raise unless the model has a vocabulary, as every study on prompts needs, and these parts, the first that it lacks."""
    from sinkjax.model.attention_bias import ValueBias
    from sinkjax.model.normalisers import Softmax
    from sinkjax.model.norms import AfterRotation, OffsetRMSNorm, RMSNorm
    from sinkjax.model.positions import AddedPosition, ScorePosition

    RMS, plain = RMSNorm | OffsetRMSNorm, architecture.normaliser == Softmax()
    scales = architecture.score_scale if isinstance(architecture.score_scale, tuple) else (architecture.score_scale,)
    usual = architecture.head_dim**-0.5
    there = {
        "vocabulary": architecture.vocab_size is not None,
        "rotary positions": architecture.rope_of(0) is not None,
        "embedding without positions": not isinstance(architecture.position, AddedPosition),
        "plain embedding": not architecture.embed_norm and architecture.embed_width is None,
        "scores without positions": not isinstance(architecture.position, ScorePosition),
        "scores without a kernel": not architecture.normaliser.kernel,
        "scores without a soft cap": architecture.caps.scores is None,
        "position vectors": isinstance(architecture.position, AddedPosition),
        "query biases": architecture.qkv_bias,
        "keys without a LayerNorm": isinstance(getattr(architecture.qk_norm, "norm", architecture.qk_norm), RMS | None),
        "rotation after all norms": not isinstance(architecture.qk_norm, AfterRotation),
        "queries without growth": not any(rope.growth for rope in architecture.ropes),
        "causal mask": architecture.prefix is None,
        "norm": architecture.norm is not None,
        "RMSNorm": isinstance(architecture.norm, RMS),
        "pre-norm": architecture.layout.inputs and not architecture.layout.parallel,  # outputs may be normed too
        "norm before attention": architecture.layout.inputs,
        "MLP": architecture.mlp_width is not None,
        "gated MLP": architecture.gated_mlp,
        "MLP without experts": architecture.experts is None,
        "concatenated heads": not architecture.summed_heads,
        "softmax": plain and isinstance(architecture.kv_bias, ValueBias | None) and architecture.caps.scores is None,
        "sliding windows": any(window is not None for window in architecture.windows or ()),
        "usual scale": all(scale is None or scale == usual for scale in scales),
    }
    detail = {
        "embedding without positions": f" but {architecture.position}",
        "scores without positions": f" but {architecture.position}",
        "scores without a kernel": f" but {architecture.normaliser}",
        "rotation after all norms": f" but {architecture.qk_norm}",
        "queries without growth": f" but {', '.join(str(rope.growth) for rope in architecture.ropes)}",
        "causal mask": f" but a prefix of {architecture.prefix}",
        "pre-norm": f" but {architecture.norm_place}",
        "norm before attention": f" but its place is {architecture.norm_place}",
        "RMSNorm": f" but {architecture.norm}",
        "softmax": f" but {architecture.normaliser}"
        if not plain
        else f" over keys alone but {architecture.kv_bias}"
        if architecture.kv_bias
        else " without a soft cap on scores",
        "usual scale": f" of scores but {', '.join(f'{scale or usual:g}' for scale in scales)}",
    }
    for part in ("vocabulary", *parts):
        if not there[part]:
            raise SinkjaxError(f"{study} cannot run: this model has no {part}{detail.get(part, '')}")


def spec(study: Study, sweep: Sweep, config: Settings, architecture: Config) -> SweepSpec:
    probe = sweep.probe
    if probe is None:
        assert study.probe is not None, f"{study.name}: {sweep.name} has no probe"
        probe = study.probe(config)
    count = config.prompts if sweep.prompts is None else sweep.prompts
    placeholders, prepare = prepared(sweep, config, architecture, count)
    inputs = sweep.inputs(config) if sweep.inputs else TEXT
    declared, planned = sweep.values and sweep.values.declared, _planned(sweep, config, architecture, count)
    return SweepSpec(sweep.name, placeholders, probe, count, inputs, prepare, sweep.twin, declared, planned)


def _with_controls(study: Study, sweep: Sweep, config: Settings, architecture: Config) -> Iterator[SweepSpec | Calculation]:
    """A sweep and its controls, which run on the same inputs; if there are none, stores that say why."""
    for part in (sweep, *sweep.controls):
        try:
            yield spec(study, dataclasses.replace(part, inputs=part.inputs or sweep.inputs), config, architecture)
        except Absent as error:
            yield _reason(part.name, str(error))


def _reason(name: str, why: str) -> Calculation:
    """The store of a sweep that does not run, which says why."""

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        import xarray

        return xarray.Dataset(attrs={ABSENT: why})

    return Calculation(name, compute, (), 1, Inputs(bos="none"))


def conditions_of(sweep: Sweep, config: Settings, architecture: Config, values: object = None) -> tuple[Condition, ...]:
    """The conditions of a sweep; values: the arrays in its edits, if any."""
    found = sweep.conditions(config, architecture) if sweep.values is None else sweep.conditions(config, architecture, values)
    if not isinstance(found, Iterable):
        raise SinkjaxError(f"the conditions of the sweep {sweep.name!r} must be an iterable of Condition, not {short(found)}")
    conditions = tuple(found)
    for entry in conditions:
        if not isinstance(entry, Condition):
            raise SinkjaxError(f"the conditions of the sweep {sweep.name!r} must be Condition, not {short(entry)}")
    return conditions


def prepared(
    sweep: Sweep, config: Settings, architecture: Config, prompts: int = 1, labels: Container[str] | None = None
) -> tuple[tuple[Condition, ...], Callable[..., tuple[Condition, ...]] | None]:
    """The conditions of a sweep with placeholder values, and a function of model and batch that returns them with real ones.

    Labels, series, x and budgets match the sweep that ran. The function is None if the edits hold no values of the model.

    Args:
        sweep: The sweep.
        config: The study's settings.
        architecture: The model's architecture.
        prompts: Number of prompts.
        labels: Labels of the wanted conditions; None: all.
    """

    def build(found: object = None) -> tuple[Condition, ...]:
        every = conditions_of(sweep, config, architecture, found)
        return tuple(condition for condition in every if labels is None or condition.label in labels)

    if (values := sweep.values) is None:
        return build(), None
    return build(values.blank(config, architecture, prompts)), lambda *given: build(values.compute(config, *given))


def _planned(
    sweep: Sweep, config: Settings, architecture: Config, prompts: int, labels: Container[str] | None = None
) -> Callable[[Mapping[str, object]], tuple[Condition, ...]] | None:
    """A function of the values that a run keeps, which returns the conditions with placeholders for the rest, or None."""
    if (values := sweep.values) is None or not values.kept:
        return None

    def build(kept: Mapping[str, object]) -> tuple[Condition, ...]:
        every = conditions_of(sweep, config, architecture, values.blank(config, architecture, prompts, kept))
        return tuple(condition for condition in every if labels is None or condition.label in labels)

    return build


def store_names(study: Study, config: Settings, architecture: Config) -> Iterator[tuple[str, bool]]:
    """The stores of a finished run, in order, and whether a section can do without each of them."""
    for part in study.sweeps(config, architecture):
        if isinstance(part, Calculation):
            yield part.name, False
        else:
            yield from ((sweep.name, sweep.optional) for sweep in (part, *part.controls))
    shown = study.shown(config, architecture).sweeps if study.shown else ()
    yield from ((name, True) for name in (*map(map_name, shown, itertools.count()), TEXTS, NOOP))


def map_name(sweep: object, number: int) -> str:
    """The name of the store with the maps of the sweep that is shown as number `number`."""
    return f"{MAPS}-{sweep}" if number else MAPS


def architecture_of(data: xarray.Dataset | None) -> Config:
    """The plain fields of the architecture that a store was made with: `layers`, `heads`, `width`, ...; None: no fields.

    Its further field `values` has those that decided the run's edits.
    """
    values = data.attrs.get(VALUES, {}) if data is not None else {}
    return cast("Config", SimpleNamespace(**(data.attrs["sweep"]["config"] if data is not None else {}), values=values))


def content(edit: Edit) -> Hashable:
    """An edit without its label."""
    found = []
    for term in edit.terms:
        arrays = term.value if isinstance(term.value, tuple) else (term.value,)  # a low-rank change of weights has two factors
        found.append((dataclasses.replace(term, value=None), *(np.asarray(array).tobytes() for array in arrays)))
    return tuple(found)


def without_replacement(count: int, draw: Callable[[], Drawn], same: Callable[[Drawn], Hashable]) -> list[Drawn]:
    """Different draws of a control: `count` of them, or all that there are.

    Args:
        count: How many.
        draw: Returns one at random.
        same: A key that two draws share if they are the same control.

    Returns:
        The draws in their order; fewer than `count` once `PATIENCE` draws in a row were all known (one of a population of 62 is
        missed with a probability of 1e-6).
    """
    found: dict[Hashable, Drawn] = {}
    misses = 0
    while len(found) < count and misses < PATIENCE:
        one = draw()
        misses = misses + 1 if same(one) in found else 0
        found.setdefault(same(one), one)
    return list(found.values())


def _shown(study: Study, config: Settings, architecture: Config, shown: Shown) -> list[SweepSpec | Calculation]:
    """The sweeps of the attention maps, and the continuations of the last that has inputs."""
    from sinkjax.studies.continuations import continuations
    from sinkjax.studies.views import maps_probe

    parts: list[SweepSpec | Calculation] = []
    texts: list[Calculation] = []
    probe, few = maps_probe(config.length, shown.layers), min(SHOWN_PROMPTS, config.prompts)
    named = {part.name: part for part in study.sweeps(config, architecture) if isinstance(part, Sweep)}
    for number, name in enumerate(shown.sweeps):
        main = named[name]
        chosen, prepare = prepared(main, config, architecture, few, shown.labels)
        try:
            inputs = main.inputs(config) if main.inputs else TEXT
        except Absent:
            continue
        parts.append(
            SweepSpec(
                *(map_name(name, number), chosen, probe, few, inputs, prepare),
                declared=main.values and main.values.declared,
                planned=_planned(main, config, architecture, few, shown.labels),
            )
        )
        texts = [continuations(TEXTS, chosen, few, inputs=inputs, start=shown.start, prepare=prepare)]
    return [*parts, *texts]
