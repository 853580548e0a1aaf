"""What experiments of the trigger lab say in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.trigger.config import Trials
from sinkjax.experiments.trigger.summary import DONE


def small(value: Interval) -> str:
    """A mean and its interval, in powers of ten where it is small; without one, why."""
    if value.mean is None:
        return value.note
    bounds = "" if value.low is None or value.high is None or value.low == value.high else f" [{value.low:.2g}, {value.high:.2g}]"
    return f"{value.mean:.2g}{bounds}"


def count_of(data: Any) -> str:
    """How many runs are done, in words."""
    outcome = data["outcome"].values
    return f"{(outcome == DONE).sum()} of {len(outcome)} runs"


def notes(config: Trials) -> tuple[str, ...]:
    """What the numbers of every experiment mean."""
    return (
        f"The task: {config.length} tokens of {config.width} numbers, the first one BOS; at the trigger, the mean of all tokens"
        " after BOS up to and with the trigger; elsewhere nothing. Positions count from 0, but where the paper is quoted.",
        "A mass is a mean over held-out sequences and rows: the trigger's, or those of all tokens but BOS and the trigger. A"
        " weight is what was used; a share is its part of its row's absolute weight, as rows of unnormalised attention do not sum"
        " to 1. A row that is nearly 0 has shares too, so a share says nothing of how much is written.",
        f"A run is done once no output of a training batch (all of it new) is off by {config.tolerance:g} or more. Means and"
        " bootstrap 95 % intervals are over runs, also those that are not done; runs that diverged are left out and named.",
    )


def provenance(stores: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader has to know of how the stores were made."""
    made = next(iter(stores.values())).attrs["sweep"]
    runs = ", ".join(f"{name} {data.sizes['run']}" for name, data in stores.items())
    return {
        "runs": runs,
        "seeds": f"{int(min(data['run'].min() for data in stores.values()))} to"
        f" {int(max(data['run'].max() for data in stores.values()))}",
        "dtype": made["dtype"],
        "device": made["devices"],
        "versions": ", ".join(f"{name} {version}" for name, version in made["versions"].items()),
    }
