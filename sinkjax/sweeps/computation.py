"""The computation of a sweep: its inputs, its devices, and the facts that identify it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.config_files.checks import refuse
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, refuse_control
from sinkjax.model.batch import as_array
from sinkjax.model.fingerprint import digest, fingerprint
from sinkjax.model.params import Params, dtype_of
from sinkjax.runtime import processes
from sinkjax.runtime.hardware import DATA, Hardware, data_axes, facts, is_joined
from sinkjax.sweeps.arrays import storable
from sinkjax.sweeps.header import Fixed, Measured
from sinkjax.sweeps.plan import plan_resolved
from sinkjax.sweeps.schedule import Schedule
from sinkjax.sweeps.shared import baseline, each
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

CELLS = ("cells_addressed", "cells_changed")


@dataclass(frozen=True)
class Computation:
    """The computation of a sweep: arrays in, records out.

    resolved: one resolved edit per entry of the `edit` dimension. spec: the static arguments of the jitted functions. labels: of
    dimensions. coordinates: further ones of the edits.
    """

    model: Model
    tokens: jax.Array
    lengths: jax.Array
    resolved: list[Edits]
    spec: ForwardSpec
    labels: Mapping[str, Sequence]
    coordinates: Mapping[str, np.ndarray]

    @functools.cached_property
    def mesh(self) -> Mesh | None:
        """The mesh on which the model was placed, else all devices of this process; None for a single one.

        Errors: a mesh with some of the devices of joined processes, but not all.
        """
        placed = jax.tree.leaves(self.model.params)[0].sharding
        if isinstance(placed, NamedSharding):  # an explicit mesh would want a sharding for every intermediate
            mesh = Mesh(placed.mesh.devices, placed.mesh.axis_names)
        else:
            mesh = Mesh(np.array(jax.local_devices()), (DATA,))
        if is_joined(mesh) and mesh.size < jax.device_count():
            raise SinkjaxError(
                f"the model is on {mesh.size} of the {jax.device_count()} devices of joined processes; place it on all of them,"
                " or on those of each process, so that the processes share the calls of one `out`"
            )
        return mesh if mesh.size > 1 else None

    @property
    def joined(self) -> bool:
        """Whether the model is on devices of several processes, which then all take part in each call."""
        return is_joined(self.mesh)

    @functools.cached_property
    def params(self) -> Params:
        """The parameters on the mesh: as the model was placed on it, or a copy on each device."""
        mesh = self.mesh
        if mesh is None or self.joined:
            return self.model.params

        def place(leaf: jax.Array) -> jax.Array:
            spec = leaf.sharding.spec if isinstance(leaf.sharding, NamedSharding) else PartitionSpec()
            return jax.device_put(leaf, NamedSharding(mesh, spec))

        return jax.tree.map(place, self.model.params)

    def place(self, tree: Any) -> Any:
        """Put arrays with a leading axis over devices on these."""
        if self.mesh is None:
            return tree
        where = NamedSharding(self.mesh, PartitionSpec(data_axes(self.mesh) or None))
        return processes.place(tree, where) if self.joined else jax.device_put(tree, where)

    def each(self, function: Callable, *inputs: Any) -> Any:
        """`shared.each` of these inputs, placed."""
        return each(self.params, *inputs, function=function, mesh=self.mesh, spec=self.spec)

    def hardware(self, memory: int | None = None) -> Hardware:
        """The hardware that a sweep is planned for here."""
        hardware = Hardware.of(self.mesh, memory) if self.mesh else Hardware(memory)
        return hardware if self.joined else dataclasses.replace(hardware, processes=processes.rank()[1])

    def facts(self) -> dict[str, Any]:
        """The facts about the machine that are kept."""
        return facts(self.mesh or Mesh(np.array([*jax.tree.leaves(self.params)[0].devices()]), (DATA,)))

    def schedule(self, memory: int | None) -> Schedule:
        """The calls, planned for this machine."""
        B, T = self.tokens.shape[:2]
        dtype, hardware = str(dtype_of(self.model.params)), self.hardware(memory)
        return plan_resolved(self.model.config, self.resolved, (B, T), self.spec.probe, dtype, hardware).schedule

    def identity(self) -> dict[str, Any]:
        """All that decides the numbers and their labels, as JSON."""
        structure = [str(jax.tree.structure(edits)) for edits in self.resolved]
        found = description(self.model, self.spec.precision, self.params) | {
            "probe": re.sub(r" at 0x[0-9a-f]+", "", repr(self.spec.probe)),  # where a function lies differs between processes
            "prompts": prompts_identity(self.tokens, self.lengths),
            "edits": {"count": len(self.resolved), "sha256": digest(*structure, *jax.tree.leaves(self.resolved))},
            "labels": {axis: {"count": len(values), "sha256": digest(*map(str, values))} for axis, values in self.labels.items()},
        }
        if self.coordinates:  # stores of earlier versions have none
            found["coordinates"] = {name: digest(*map(str, values.tolist())) for name, values in self.coordinates.items()}
        if self.spec.attention_impl != "sinkjax":  # stores of earlier versions do not name it
            found["attention_impl"] = self.spec.attention_impl
        return found

    @functools.cached_property
    def layout(self) -> tuple[Measured, Fixed]:
        """The content of a store: variables to be written, and coordinates, tokens and lengths, which are known before a sweep.

        Errors: labels of a dimension that does not exist, or of another length; a label that is given twice; as for `_as_labels`;
        a statistic that has the name of a dimension.
        """
        B, T = self.tokens.shape[:2]
        record = jax.eval_shape(lambda *args: baseline(*args, spec=self.spec)[1], self.params, self.tokens, self.lengths)
        variables = {
            name: (("edit", *record.dims[name]), (len(self.resolved), *array.shape), storable(array.dtype))
            for name, array in record.items()
        }
        variables |= {name: (("edit", "prompt"), (len(self.resolved), B), np.dtype("float32")) for name in CELLS}
        sizes = {axis: size for axes, shape, _ in variables.values() for axis, size in zip(axes, shape, strict=True)}
        sizes["position"] = T
        coordinates = {axis: np.arange(size) for axis, size in sizes.items()} | self.spec.probe.labels()
        coordinates |= {axis: _as_labels(axis, values) for axis, values in self.labels.items()}
        for axis, values in coordinates.items():
            if values.shape != (sizes.get(axis),):
                raise SinkjaxError(f"labels of {axis!r} have shape {values.shape}, but there are {sizes.get(axis, 'no')} entries")
            found, counts = np.unique(values, return_counts=True)
            if counts.max(initial=0) > 1:
                how = "; name one of the edits otherwise with edit.named(label)" * (axis == "edit")
                raise SinkjaxError(f"labels of {axis!r} name {found[counts.argmax()].item()!r} twice{how}")
        fixed: dict[str, tuple[tuple[str, ...], np.ndarray]] = {axis: ((axis,), values) for axis, values in coordinates.items()}
        fixed |= {name: (("edit",), values) for name, values in self.coordinates.items()}
        for name in variables.keys() & {*fixed, "length", "tokens"}:
            raise SinkjaxError(f"a sweep stores something else as {name!r}; give the statistic or capture another name")
        fixed["length"] = (("prompt",), np.asarray(self.lengths))
        if self.tokens.ndim == 2:
            fixed["tokens"] = (("prompt", "position"), np.asarray(self.tokens))
        return variables, fixed


def prompts_identity(tokens: Any, lengths: Any) -> dict[str, Any]:
    """The facts that identify prompts, as JSON."""
    return {"count": len(lengths), "positions": tokens.shape[1], "sha256": digest(tokens, lengths)}


def description(model: Model, precision: str, params: Params | None = None) -> dict[str, Any]:
    """Model and versions behind some numbers, as JSON. params: the model's own, where they were placed elsewhere."""
    from sinkjax import __version__

    return {
        "model": dict(model.source),
        "config": model.config.identity(),
        "parameters": fingerprint(model.params if params is None else params),
        "dtype": str(dtype_of(model.params)),
        "precision": precision,
        "versions": {"sinkjax": __version__},
    }


def _as_labels(axis: str, values: Any) -> np.ndarray:
    """Labels of a dimension as an array.

    Errors: neither numbers nor text; rows of different lengths, control characters, NaN or infinity.
    """
    array = np.asarray(as_array(f"labels of {axis!r}", values))
    if array.dtype.kind == "U":
        for label in values:  # an array has no NUL at a label's end
            refuse_control(f"the label {label!r} of {axis!r}", str(label))
    refuse(array.dtype.kind not in "biufU", f"labels of {axis!r} must be all numbers or all text, not {array.dtype}")
    refuse(array.dtype.kind == "f" and not np.isfinite(array).all(), f"labels of {axis!r} must be finite numbers")
    return array


def unchanged(dataset: xarray.Dataset) -> list[str]:
    """The labels of a sweep's edits that addressed cells and changed none in any prompt: neutral ones, or without effect."""
    addressed, changed = (dataset[name].sum("prompt").values for name in CELLS)
    return [str(label) for label in dataset["edit"].values[(addressed > 0) & (changed == 0)]]
