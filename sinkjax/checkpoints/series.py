"""Series: checkpoints of one model, such as a training's, in the order of their steps.

A training writes model folders such as `series/run-000/step-000100`; any folder of model folders is also a series.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.checkpoints import hub
from sinkjax.checkpoints.load import hub_id, load, open_checkpoint
from sinkjax.checkpoints.model import Model
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.errors import short
from sinkjax.model.fingerprint import fingerprint

SERIES, CONFIG = "series", "config.json"
STEP, RUN = re.compile(r"step[-_]?(\d+)$"), re.compile(r"(?:^|/)run[-_]?(\d+)/")


@dataclass(frozen=True)
class Member:
    """A checkpoint of a series.

    label: the label of its entry in a result, unique in the series. source, revision: as for `load`.
    """

    label: str
    source: str
    revision: str | None = None

    @property
    def step(self) -> int | None:
        """The step in its label ("step-000100", "step1000"), if there is one."""
        return int(match[1]) if (match := STEP.search(self.label)) else None

    @property
    def run(self) -> int | None:
        """The run of its training in its label ("run-000/step-000100"), if there is one."""
        return int(match[1]) if (match := RUN.search(self.label)) else None


def to_fetch(member: Member) -> bool:
    """Return whether a checkpoint must be fetched from the Hub because the local cache lacks it."""
    repo = hub_id(member.source)
    return repo is not None and not hub.held(repo, member.revision)


def trim(member: Member) -> None:
    """Remove a checkpoint that was fetched from the Hub from the local cache."""
    hub.remove(str(hub_id(member.source)), member.revision)


def series_path(folder: Path, run: int, step: int) -> Path:
    """Return where a training in `folder` keeps a run's model after `step` steps."""
    return folder / SERIES / f"run-{run:03d}" / f"step-{step:06d}"


def in_folder(folder: str | Path) -> tuple[Member, ...]:
    """List the models below a folder, such as a training's or a run's, by the numbers in their paths.

    Errors: no model below it.
    """
    folder = user_path(folder)
    root = folder / SERIES if (folder / SERIES).is_dir() else folder
    below = {path.parent.relative_to(root): path.parent for path in root.rglob(CONFIG)}
    # A hidden folder is left over from a killed process.
    folders = {label.as_posix(): path for label, path in below.items() if not any(part.startswith(".") for part in label.parts)}
    wanted = f"{folder} is not a folder of checkpoints: it must contain folders that sinkjax.load reads"
    refuse(not folders or "." in folders, wanted)
    return tuple(Member(label, str(folders[label])) for label in sorted(folders, key=_natural))


def members_of(models: str | Path | Sequence[str | Path], revisions: Sequence[str] = ()) -> tuple[Member, ...]:
    """Return the series named by the arguments of `sweep_models`, in the order given. Errors: as for that function."""
    if isinstance(models, str | Path) and not revisions:
        return in_folder(models)
    if isinstance(models, str | Path):
        members = [Member(revision, str(models), revision) for revision in revisions]
    else:
        refuse(bool(revisions), "revisions are those of one hub id, not of several models")
        refuse(not isinstance(models, Sequence), f"models must be a folder or a sequence of models, not {short(models)}")
        members = [Member(Path(model).name if user_path(model).exists() else str(model), str(model)) for model in models]
    refuse(not members, "a series needs at least one checkpoint")
    label, times = Counter(member.label for member in members).most_common(1)[0]
    refuse(times > 1, f"the series names {label!r} twice")
    return tuple(members)


def coordinates(members: Sequence[Member]) -> dict[str, Any]:
    """Return a dataset's coordinates along `checkpoint`: labels, and step and run if all labels state them."""
    coords: dict[str, Any] = {"checkpoint": [member.label for member in members]}
    for name in ("step", "run"):
        numbers = [getattr(member, name) for member in members]
        coords |= {} if None in numbers else {name: ("checkpoint", np.array(numbers))}
    return coords


def check_same_architecture(members: Sequence[Member]) -> None:
    """Raise unless all checkpoints of a series have the same config, naming the differences, without reading weights."""
    first, *others = (open_checkpoint(member.source, member.revision, weights=False).config for member in members)
    for member, other in zip(members[1:], others, strict=True):
        fields = "; ".join(documents.differences(first, other)) if other != first else ""
        wrong = f"{member.label} has another architecture than {members[0].label} ({fields})"
        refuse(other != first, f"{wrong}: sweep them one by one, each into its own store")


def loaded(members: Sequence[Member], dtype: str, trim_cache: bool) -> Generator[tuple[Member, Model], None, None]:
    """Yield every checkpoint with its model, reading ahead while the previous one is in use. Errors: the same weights twice."""
    seen: dict[str, str] = {}
    fetched = [trim_cache and to_fetch(member) for member in members]
    with ThreadPoolExecutor(1) as reader:
        coming = [reader.submit(load, members[0].source, dtype, members[0].revision)]
        for number, member in enumerate(members):
            model = coming.pop().result()
            coming = [reader.submit(load, later.source, dtype, later.revision) for later in members[number + 1 : number + 2]]
            weights = fingerprint(model.params)
            twin = seen.setdefault(weights, member.label)
            refuse(twin != member.label, f"{member.label} has the same weights as {twin}: leave one of the two out")
            yield member, model
            if fetched[number]:
                trim(member)


def _natural(label: str) -> list[tuple[int, str]]:
    """Return a sorting key that puts step-90 before step-100."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", label)]
