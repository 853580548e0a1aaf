"""`sweep_models`: the same edits and prompts on every checkpoint of a series, as one result with a leading `checkpoint` axis."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray

from sinkjax.checkpoints.series import check_same_architecture, coordinates, loaded, members_of
from sinkjax.config_files.files import user_location
from sinkjax.edits.edit import Edit
from sinkjax.probes.probe import Probe
from sinkjax.runtime.progress import bar
from sinkjax.sweeps.run import sweep
from sinkjax.transformer.implementations import AUTO

OWN = ("sources", "unchanged", "overflowed")  # attributes of each checkpoint
OTHER = re.compile(r"[^\w.-]+")  # characters of a label that a file name cannot contain


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
    attention_impl: str = AUTO,
    attention_mask: Any = None,
) -> xarray.Dataset:
    """Measure every edit on every prompt, for every checkpoint of a series.

        result = sinkjax.sweep_models("results/pretrain/mini/softmax", tokens, [sinkjax.mask_key(0)])
        result = sinkjax.sweep_models("EleutherAI/pythia-70m", tokens, edits, revisions=["step1000", "step2000"])

    The next checkpoint's weights are read while the current checkpoint is measured. Parameters are arguments of the compiled
    programs, so each kind of edit compiles once for the whole series.

    Args:
        models: A folder that contains models, such as a training with `checkpoints:`; several models, each as for `load`; or,
            with `revisions`, a single hub id.
        tokens, edits, probe, lengths, memory, precision, attributes, attention_impl, attention_mask: As for `sweep`.
        revisions: Branches, tags or commits of a single hub id.
        out: A folder (or a URL, as for `sweep`) for one store per checkpoint, which repeating the call resumes; None keeps the
            result in memory.
        dtype: Dtype of all parameters, as for `load`.
        trim_cache: Whether to remove each checkpoint from the local Hub cache after measuring it, unless it was there before. The
            cache then has at most two at a time.
        progress: Whether to show a bar over checkpoints.

    Returns:
        A dataset in memory, with the dimensions `checkpoint` and `edit` before the other dimensions of `sweep`. Coordinates
        along `checkpoint`: its label (the path below the folder, the model's name or the revision), and `step` and `run` if all
        labels state them. The attributes `sources`, `unchanged` and `overflowed` have one entry per checkpoint.

    Raises:
        SinkjaxError: Any error of `load` or `sweep`; the folder contains no model; two checkpoints have different architectures
            (the differing fields are listed) or identical weights (their names are listed).
    """
    members = members_of(models, revisions)
    check_same_architecture(members)
    found = []
    same: dict[str, Any] = {"memory": memory, "precision": precision, "attributes": attributes}
    same |= {"attention_impl": attention_impl, "attention_mask": attention_mask}
    reading = loaded(members, dtype, trim_cache)
    with bar("checkpoints", progress, len(members), 0) as advance, contextlib.closing(reading) as loading:
        for member, model in loading:
            store = None if out is None else user_location(out) / f"{OTHER.sub('-', member.label).strip('-.')}.zarr"
            data = sweep(model, tokens, edits, probe, lengths, out=store, progress=False, **same)
            found.append(data.load().assign_attrs(sources=dict(model.source)))
            advance(len(found), member.label)
    swept = [name for name, values in found[0].data_vars.items() if "edit" in values.dims]  # all checkpoints get the same tokens
    shared: dict[str, Any] = {"coords": "minimal", "compat": "override", "combine_attrs": "drop_conflicts"}
    result = xarray.concat(found, "checkpoint", data_vars=swept, **shared)
    return result.assign_coords(coordinates(members)).assign_attrs({name: [data.attrs[name] for data in found] for name in OWN})
