"""What a run could not do is refused before it starts: equal rows, positions beyond the prompts, measures that fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from sinkjax.analysis.estimates import Absent
from sinkjax.config_files.checks import MIN_QUERIES, layers_below, long_enough
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.lab.conditions import Sweep
from sinkjax.lab.measures import Measure
from sinkjax.lab.numbers import read_measure
from sinkjax.lab.reads import drawn_on, measures_on, probe_of
from sinkjax.lab.trace import Lab
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record, to_dataset
from sinkjax.sweeps.plan import record_shapes

EDITS, PROMPTS = 2, 3  # the size of the dataset that a measure is tried on
WORDS = 300  # characters of an error in a measure's own code


def check(lab: Lab) -> None:
    """Refuse a study that could not run or be shown.

    Raises:
        SinkjaxError: A statement is about no claim; two sweeps have rows with one label; a measure reads a position that prompts
            do not have, or fails on results of the shape that its sweep makes.
    """
    if hasattr(lab.settings, "map_layers"):
        layers_below(lab.settings, "map_layers", lab.layers)
    for name in lab.program.prose.claims:
        if name not in lab.claims:
            raise SinkjaxError(f"{lab.name}: prose: {unknown('claim', name, lab.claims)}")
    rows: dict[tuple[str, str], str] = {}
    read: list[Measure] = []
    for sweep in lab.sweeps.values():
        for case in sweep.edits:
            label = sweep.label(case)
            if (other := rows.setdefault((sweep.title, label), sweep.name)) != sweep.name and sweep.measures:
                raise SinkjaxError(f"the sweeps {other!r} and {sweep.name!r} both have a row {label!r}: give one a title")
        measures = measures_on(lab, sweep)
        drawn = {*drawn_on(lab, sweep)} - {*sweep.measures}
        read += [one for measure in measures if measure not in drawn for one in _made(measure, sweep)]
    check_positions(read, lab.settings.length)
    for sweep in lab.sweeps.values():
        measures = measures_on(lab, sweep)
        probe = probe_of(measures, sweep.probe)
        for measure in measures:
            check_measure(next(_made(measure, sweep)), lab, probe)


def _made(measure: Measure, sweep: Sweep) -> Iterator[Measure]:
    """Yield a measure for each value of the axis that it is read along, if any."""
    if measure.make is None:
        yield measure
    else:
        yield from map(measure.make, dict.fromkeys(case[measure.axis] for case in sweep.edits))


def check_positions(measures: Iterable[Measure], length: int) -> None:
    """Refuse measures of positions that prompts do not have, or of keys that too few queries see, all at once."""
    needs = []
    for measure in measures:
        if (place := measure.position) is not None:
            seen = measure.seen and place < length
            needs.append((f"{measure.name}: {'key' if seen else 'position'} {place}", place, MIN_QUERIES if measure.seen else 1))
    long_enough(needs, length)


def check_measure(measure: Measure, lab: Lab, probe: Probe) -> None:
    """Raise if a measure cannot read the results of this probe: try it on a dataset of their shape that holds one number."""
    shapes = record_shapes(lab.architecture, lab.settings.length, probe, lab.settings.dtype)
    record = {}
    for name, array in shapes.items():  # strides of 0: a map takes no memory
        shape = (EDITS, PROMPTS, *array.shape[1:])
        record[name] = np.lib.stride_tricks.as_strided(np.full(1, 0.5, array.dtype), shape, (0,) * len(shape))
    try:
        read_measure(measure, to_dataset(Record(record, shapes.dims)))
    except Absent:  # which depends on the numbers
        return
    except SinkjaxError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:WORDS]
        raise SinkjaxError(f"the measure {measure.name!r} fails: {type(error).__name__}: {why}") from error
