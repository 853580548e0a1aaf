"""`sweep_models`: the same edits and prompts on every checkpoint of a series, as one result with a leading `checkpoint` axis."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.series import check_same_architecture, coordinates, loaded, members_of
from sinkjax.config_files.places import place
from sinkjax.edits.edit import Edit
from sinkjax.probes.probe import Probe
from sinkjax.runtime.progress import bar
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

    The weights of the next checkpoint are read while one is measured. Parameters are arguments of the compiled programs, so each
    kind of edit compiles once for the whole series.

    Args:
        models: A folder with models below it, such as the folder of a training with `checkpoints:`; or several models as `load`
            takes them; or, with `revisions`, one hub id.
        tokens, edits, probe, lengths, memory, precision, attributes, attention_impl: As for `sweep`.
        revisions: Branches, tags or commits of the one model.
        out: A folder (or a URL, as for `sweep`) for one store per checkpoint, which the same call resumes; None keeps the result
            in memory.
        dtype: Type of all parameters, as for `load`.
        trim_cache: Whether to remove each checkpoint from the hub's local cache when it has been measured, unless it was there
            before. At most two are there at a time.
        progress: Whether to show a bar over checkpoints.

    Returns:
        A dataset with the dimensions `checkpoint` and `edit` before the others of `sweep`, in memory. Coordinates along
        `checkpoint`: its label (the path below the folder, the name of the model or the revision); and `step` and `run`, if all
        labels state them.

    Raises:
        SinkjaxError: As for `load` and `sweep`; no model in the folder; two checkpoints of different architectures, with the
            fields that differ, or with the same weights, by their names.
    """
    import xarray

    members = members_of(models, revisions)
    check_same_architecture(members)
    found = []
    same: dict[str, Any] = {"memory": memory, "precision": precision, "attributes": attributes, "attention_impl": attention_impl}
    reading = loaded(members, dtype, trim_cache)
    with bar("checkpoints", progress, len(members), 0) as advance, contextlib.closing(reading) as loading:
        for member, model in loading:
            store = None if out is None else place(out) / f"{OTHER.sub('-', member.label).strip('-.')}.zarr"
            data = sweep(model, tokens, edits, probe, lengths, out=store, progress=False, **same)
            found.append(data.load().assign_attrs(sources=[dict(model.source)]))
            advance(1, member.label)
    swept = [name for name, values in found[0].data_vars.items() if "edit" in values.dims]  # tokens are shared
    shared: dict[str, Any] = {"coords": "minimal", "compat": "override", "combine_attrs": "drop_conflicts"}
    result = xarray.concat(found, "checkpoint", data_vars=swept, **shared)
    sources = [source for data in found for source in data.attrs["sources"]]
    return result.assign_coords(coordinates(members)).assign_attrs(sources=sources)
