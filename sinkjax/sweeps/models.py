"""`sweep_models`: the same edits and prompts on every checkpoint of a series, as one result with a leading `checkpoint` axis."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sinkjax.checkpoints.load import load, open_checkpoint
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.series import Member, in_folder, of_models, of_revisions, to_fetch, trim
from sinkjax.config_files import documents
from sinkjax.config_files.places import Place, place
from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError
from sinkjax.probes.probe import Probe
from sinkjax.runtime.progress import bar
from sinkjax.sweeps.computation import digest, fingerprints
from sinkjax.sweeps.run import sweep

if TYPE_CHECKING:
    import xarray

OTHER = re.compile(r"[^\w.-]+")  # characters of a label that a file's name does not take


def sweep_models(
    models: str | Path | Sequence[str | Path],
    tokens: Any,
    edits: Sequence[Edit],
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    *,
    revisions: Sequence[str] = (),
    out: str | Path | None = None,
    dtype: str = "float32",
    trim_cache: bool = False,
    memory: int | None = None,
    precision: str = "highest",
    attributes: Mapping[str, Any] | None = None,
    progress: bool = True,
    attention_impl: str = "sinkjax",
) -> xarray.Dataset:
    """Measure every edit on every prompt, on every checkpoint of a series.

        result = sinkjax.sweep_models("results/pretrain/mini/softmax", tokens, [sinkjax.mask_key(0)])
        result = sinkjax.sweep_models("EleutherAI/pythia-70m", tokens, edits, revisions=["step1000", "step2000"])

    The weights of the next checkpoint are read while one is measured. As parameters are arguments of what is compiled, each kind
    of edit compiles once for the whole series.

    Args:
        models: A folder with models below it, such as that of a training with `checkpoints:`; or several models as `load` takes
            them; or, with `revisions`, one hub id.
        tokens, edits, probe, lengths, memory, precision, attributes, attention_impl: As for `sweep`.
        revisions: Branches, tags or commits of the one model.
        out: A folder (or a URL, as for `sweep`) for one store a checkpoint, each of which is resumed on its own by the same call;
            None keeps the result in memory.
        dtype: Of all parameters, as for `load`.
        trim_cache: Whether to remove each checkpoint from the hub's local cache when it has been measured, unless it was there
            before. At most two lie there at a time.
        progress: Whether to show a bar over checkpoints.

    Returns:
        A dataset with the dimensions `checkpoint` and `edit` before those of `sweep`, in memory. Coordinates along `checkpoint`:
        its label (the path below the folder, the name of the model or the revision); and, where all labels state them, `step`
        and `run`.

    Raises:
        SinkjaxError: As for `load` and `sweep`; no model in the folder; two checkpoints of different architectures, with the
            fields that differ, or with the same weights, by their names.
    """
    import xarray

    members = members_of(models, revisions)
    check_same_architecture(members)
    found = []
    with (
        bar("checkpoints", progress, len(members), 0) as advance,
        contextlib.closing(loaded(members, dtype, trim_cache)) as loading,
    ):
        for member, model in loading:
            data = sweep(
                model,
                tokens,
                edits,
                probe,
                lengths,
                out=None if out is None else store_path(place(out), member),
                memory=memory,
                precision=precision,
                attributes=attributes,
                progress=False,
                attention_impl=attention_impl,
            )
            found.append(data.load().assign_attrs(sources=[dict(model.source)]))
            advance(1, member.label)
    swept = [name for name, values in found[0].data_vars.items() if "edit" in values.dims]  # tokens are shared
    shared: dict[str, Any] = {"coords": "minimal", "compat": "override", "combine_attrs": "drop_conflicts"}
    result = xarray.concat(found, "checkpoint", data_vars=swept, **shared)
    labels: dict[str, Any] = {"checkpoint": [member.label for member in members]}
    for name in ("step", "run"):
        numbers = [getattr(member, name) for member in members]
        labels |= {} if None in numbers else {name: ("checkpoint", np.array(numbers))}
    return result.assign_coords(labels).assign_attrs(sources=[source for data in found for source in data.attrs["sources"]])


def members_of(models: str | Path | Sequence[str | Path], revisions: Sequence[str] = ()) -> tuple[Member, ...]:
    """The series that the arguments of `sweep_models` name. Errors: as there."""
    if isinstance(models, str | Path):
        return of_revisions(str(models), revisions) if revisions else in_folder(models)
    if revisions:
        raise SinkjaxError(f"revisions are those of one hub id, not of {len(models)} models")
    return of_models(models)


def store_path(folder: Place, member: Member) -> Place:
    """Where the store of a checkpoint lies in the folder of its series."""
    return folder / f"{OTHER.sub('-', member.label).strip('-.')}.zarr"


def check_same_architecture(members: Sequence[Member]) -> None:
    """Raise unless all checkpoints of a series have one config, naming the fields that differ. No weights are read."""
    first, *others = (open_checkpoint(member.source, member.revision, weights=False).config for member in members)
    for member, other in zip(members[1:], others, strict=True):
        if other != first:
            fields = "; ".join(documents.differences(first, other))
            raise SinkjaxError(
                f"{member.label} has another architecture than {members[0].label} ({fields}): sweep them one by one, each into"
                " a store of its own"
            )


def loaded(members: Sequence[Member], dtype: str, trim_cache: bool) -> Generator[tuple[Member, Model], None, None]:
    """Every checkpoint with its model, which is read while the one before is in use. Errors: the same weights twice."""
    seen: dict[str, str] = {}
    fetched = [trim_cache and to_fetch(member) for member in members]
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(_load, members[0], dtype)
        for number, member in enumerate(members):
            model = coming.result()
            if number + 1 < len(members):
                coming = reader.submit(_load, members[number + 1], dtype)
            weights = digest(*jax.tree.leaves(fingerprints(model.params)))
            if weights in seen:
                raise SinkjaxError(f"{member.label} has the same weights as {seen[weights]}: leave one of the two out")
            seen[weights] = member.label
            yield member, model
            if fetched[number]:
                trim(member)


def _load(member: Member, dtype: str) -> Model:
    return load(member.source, dtype=dtype, revision=member.revision)
