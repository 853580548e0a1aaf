"""From a study's declaration to what is run on one architecture: its sweeps with their controls, maps, continuations, no-op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sinkjax.analysis import intervals
from sinkjax.studies.requirements import needs
from sinkjax.studies.study import (
    CONTROL,
    Batch,
    Calculation,
    Condition,
    Shown,
    Study,
    Sweep,
    SweepSpec,
    Values,
    control_prompts,
    no_edit,
)

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.edits.edit import Edit
    from sinkjax.model.config import Config

SWEEP, CONTROLS, MAPS, TEXTS, NOOP = "sweep", "controls", "maps", "continuations", "identity"
NOOP_SERIES, NOOP_PROMPTS = "identity edit", 8


def specs(study: Study, config: Any, architecture: Config) -> tuple[SweepSpec | Calculation, ...]:
    """Everything that a study runs on a model, in order.

    Raises:
        SinkjaxError: the model lacks a part that the study needs, or the config does not fit it.
    """
    needs(study.name, architecture, *study.needs)
    study.check(config, architecture)
    parts: list[SweepSpec | Calculation] = []
    for part in declared(study, config, architecture):
        if isinstance(part, Calculation):
            parts.append(part)
        elif part.when(config, architecture):
            parts += [spec(study, sweep, config, architecture) for sweep in (part, *part.controls)]
    if study.shown is not None:
        parts += _shown(study, config, architecture, study.shown(config, architecture))
    if study.noop is not None:
        parts.append(spec(study, noop_sweep(study), config, architecture))
    return tuple(parts)


def declared(study: Study, config: Any, architecture: Any) -> Iterator[Sweep | Calculation]:
    """The sweeps and calculations of a study, the main sweep first."""
    if study.conditions is not None:
        yield main_sweep(study)
    yield from study.more(config, architecture)


def main_sweep(study: Study) -> Sweep:
    """The sweep that a study's own fields declare."""
    assert study.conditions is not None
    return Sweep(
        SWEEP,
        study.conditions,
        study.measures,
        study.probe,
        inputs=study.inputs,
        controls=study.controls,
        values=study.values,
    )


def noop_sweep(study: Study) -> Sweep:
    """No edit, and edits of the study's kind that must change nothing, on the first prompts."""
    edits = study.noop
    assert edits is not None

    def conditions(*arguments: Any) -> Iterator[Condition]:
        yield no_edit()
        for what, edit in edits(*arguments).items():
            yield Condition(edit.named(f"identity ({what})"), NOOP_SERIES)

    return Sweep(
        NOOP,
        conditions,
        probe=study.probe,
        prompts=lambda config: min(NOOP_PROMPTS, config.prompts),
        inputs=study.inputs,
        values=study.values,
        optional=True,
    )


def spec(study: Study, sweep: Sweep, config: Any, architecture: Config) -> SweepSpec:
    """One sweep on one architecture."""
    probe = sweep.probe or study.probe
    assert probe is not None, f"{study.name}: {sweep.name} has no probe"
    count, values = sweep.prompts(config), sweep.values
    build = partial(conditions_of, sweep, config, architecture)
    prepare: Callable[[Model, Batch], tuple[Condition, ...]] | None = None
    if values is not None:

        def prepare(model: Model, batch: Batch) -> tuple[Condition, ...]:
            return build(values.compute(config, model, batch))

    stand_ins = build(values.blank(config, architecture, count) if values else None)
    return SweepSpec(sweep.name, stand_ins, probe(config), count, sweep.inputs(config), prepare)


def conditions_of(sweep: Sweep, config: Any, architecture: Config, values: Any = None) -> tuple[Condition, ...]:
    """The conditions of a sweep; values: those that its edits hold, if they hold any."""
    return tuple(
        sweep.conditions(config, architecture) if sweep.values is None else sweep.conditions(config, architecture, values)
    )


def stand_ins(sweep: Sweep, config: Any, architecture: Any, prompts: int = 1) -> tuple[Condition, ...]:
    """The conditions with blank values: their labels, series, coordinates and budgets are those of the sweep that ran."""
    blank = sweep.values.blank(config, architecture, prompts) if sweep.values else None
    return conditions_of(sweep, config, architecture, blank)


def store_names(study: Study, config: Any, architecture: Any) -> Iterator[tuple[str, bool]]:
    """The stores of a finished run, in order, and whether a section can do without each of them."""
    for part in declared(study, config, architecture):
        if isinstance(part, Calculation):
            yield part.name, False
        elif part.when(config, architecture):
            yield from ((sweep.name, sweep.optional) for sweep in (part, *part.controls))
    yield from ((name, True) for name in (MAPS, TEXTS, NOOP))


def architecture_of(data: xarray.Dataset) -> Any:
    """The plain fields of the architecture that a store was made with: `layers`, `heads`, `width`, ..."""
    return SimpleNamespace(**data.attrs["sweep"]["config"])


def random_edits(
    stream: str,
    draw: Callable[..., Edit],
    budgets: Callable[[Any, Config], Iterable[Any]],
    *,
    name: str = CONTROLS,
    probe: Callable[[Any], Any] | None = None,
    prompts: Callable[[Any], int] = control_prompts,
    when: Callable[[Any, Any], bool] = lambda config, architecture: True,
    optional: bool = False,
    values: Values | None = None,
) -> Sweep:
    """The sweep of a study's controls: `config.controls` random edits for each budget, on the first `control_prompts` prompts.

    Args:
        stream: name of the random numbers, which depend on (seed, name) alone.
        draw: (random numbers, config, architecture, budget) -> one random edit of the budget, labelled with what it does; with
            `values`, these come last.
        budgets: (config, architecture) -> the budgets that have controls.
        name: of the store.
        probe, prompts, when, optional, values: as for `Sweep`.
    """

    def conditions(config: Any, architecture: Config, *given: Any) -> Iterator[Condition]:
        rng = intervals.generator(config.seed, stream)
        for budget in budgets(config, architecture):
            for number in range(config.controls):
                edit = draw(rng, config, architecture, budget, *given)
                yield Condition(edit.named(f"control {number}: {edit.label}"), CONTROL, budget=budget)

    return Sweep(name, conditions, probe=probe, prompts=prompts, when=when, optional=optional, values=values)


def _shown(study: Study, config: Any, architecture: Config, shown: Shown) -> list[SweepSpec | Calculation]:
    """The sweep of the attention maps, and the continuations."""
    from sinkjax.studies.continuations import continuations
    from sinkjax.studies.views import maps_probe

    few, inputs = min(shown.prompts, config.prompts), study.inputs(config)
    chosen, prepare = shown.conditions, None
    if study.conditions is not None:
        main = main_sweep(study)
        blank = main.values.blank(config, architecture, few) if main.values else None
        chosen = _labelled(conditions_of(main, config, architecture, blank), shown.labels)
        if main.values is not None:
            values = main.values

            def prepare(model: Model, batch: Batch) -> tuple[Condition, ...]:
                return _labelled(conditions_of(main, config, architecture, values.compute(config, model, batch)), shown.labels)

    maps = SweepSpec(MAPS, chosen, maps_probe(config.length, architecture.layers, shown.layers), few, inputs, prepare)
    return [maps, *[continuations(TEXTS, chosen, few, inputs=inputs, start=shown.start, prepare=prepare)] * shown.texts]


def _labelled(conditions: Iterable[Condition], labels: Iterable[str]) -> tuple[Condition, ...]:
    """The conditions with these labels, in their own order."""
    wanted: Mapping[str, None] = dict.fromkeys(labels)
    return tuple(condition for condition in conditions if condition.label in wanted)
