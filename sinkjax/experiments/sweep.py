"""sweep: any list or grid of edits, written in YAML (`experiments/edit_list.py`), summarised and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import sinkjax
from sinkjax.experiments.base import Arm, Drawing, Job, Section
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Measured, summarise
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.figures import layers
from sinkjax.studies import folder as results
from sinkjax.studies import measures
from sinkjax.studies.config import Sweep
from sinkjax.studies.edit_list import read_edits
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    import xarray

STORES = ("sweep",)
DRAWN, POSITIONS = 9, 24  # arms and positions of a figure, so that its panels stay legible

# statistic -> the measures that a summary takes from it
MEASURES: dict[str, Callable[[Sweep], tuple[Measure, ...]]] = {
    "attention_received": lambda config: (measures.sink_rate(config.key, config.eps),),
    "resid_max": lambda config: (measures.largest_activation(config.key), measures.largest_elsewhere(config.key)),
    "nll": lambda config: (measures.loss(),),
}


def jobs(config: Sweep, architecture: Config) -> tuple[Job, ...]:
    """The one sweep."""
    needs("sweep", architecture)
    return (Job("sweep", arms(config), Probe.of(*config.probe), config.prompts),)


def arms(config: Sweep) -> tuple[Arm, ...]:
    """Every listed edit; the first is what the others are compared with."""
    return tuple(Arm(edit, "listed") for edit in read_edits(config.edits))


def section(config: Sweep, stores: Mapping[str, xarray.Dataset]) -> Section:
    """A summary of what was measured, and the largest activation by depth and position."""
    data = stores["sweep"].load()
    chosen = [Arm(sinkjax.compose(label=str(label)), "listed") for label in data["edit"].values]
    summarised = [measure for name, make in MEASURES.items() if name in data for measure in make(config)]
    table = summarise(Measured(data, chosen), summarised, config.seed)
    labels = tuple(arm.edit.label for arm in chosen)
    return Section(
        experiment="sweep",
        title=f"A sweep of {len(labels)} edit{'s' * (len(labels) != 1)}",
        claim=f"Effects are differences from the first edit listed ({labels[0]}), paired by prompt.",
        findings=(),
        rows=tuple(table.values()),
        featured=labels,
        drawings=tuple(_drawings(data)),
        notes=(
            f"Values are means over {data.sizes['prompt']} prompts with bootstrap 95 % intervals over prompts. There are no"
            " random controls but those that the list of edits holds.",
        ),
        provenance=results.provenance(data),
    )


def _drawings(data: xarray.Dataset) -> list[Drawing]:
    if "resid_max" not in data:
        return []
    shown = data["resid_max"].isel(edit=slice(DRAWN), position=slice(POSITIONS)).mean("prompt")
    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {shown.sizes['position']} positions) for"
        f" {shown.sizes['edit']} of {data.sizes['edit']} edits, mean over {data.sizes['prompt']} prompts, one colour scale."
    )
    figure = layers.activations(shown.values, [str(label) for label in shown["edit"].values])
    return [Drawing("largest-activation", figure, caption)]
