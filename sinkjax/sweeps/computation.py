"""A sweep's computation: inputs, devices, and the facts that identify it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.locations import Location, reached
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, refuse_control
from sinkjax.model.batch import as_array
from sinkjax.model.fingerprint import digest, fingerprint
from sinkjax.model.params import Params, dtype_of
from sinkjax.probes.probe import Probe
from sinkjax.runtime import processes
from sinkjax.runtime.hardware import DATA, Hardware, data_axes, facts, is_joined
from sinkjax.sweeps.arrays import storable
from sinkjax.sweeps.functions import ADDRESS, own_functions
from sinkjax.sweeps.header import IDENTITY, Fixed, Header, Measured
from sinkjax.sweeps.plan import plan
from sinkjax.sweeps.schedule import Round, Schedule, deal
from sinkjax.sweeps.shared import baseline, each
from sinkjax.transformer.implementations import AUTO, chosen
from sinkjax.transformer.past import Past, put_in_front
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.version import __version__

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

CELLS = ("cells_addressed", "cells_changed")
UNNAMED = "sinkjax"  # the attention of stores that name none, such as those of earlier versions


@dataclass(frozen=True)
class Computation:
    """A sweep's computation: arrays in, records out.

    resolved: one resolved edit per entry of the `edit` dimension. spec: the static arguments of the jitted functions. labels: of
    dimensions. coordinates: further ones of the edits. past: keys and values in front of the prompts, which `spec` counts.
    """

    model: Model
    tokens: jax.Array
    lengths: jax.Array
    resolved: list[Edits]
    spec: ForwardSpec
    labels: Mapping[str, Sequence]
    coordinates: Mapping[str, np.ndarray]
    past: Past | None = None

    @functools.cached_property
    def mesh(self) -> Mesh | None:
        """The mesh that the model was placed on, else all devices of this process; None for a single device.

        Errors: the mesh has some but not all devices of the joined processes.
        """
        placed = jax.tree.leaves(self.model.params)[0].sharding
        if isinstance(placed, NamedSharding):  # an explicit mesh would require a sharding for every intermediate
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
        """Whether the model spans devices of several processes, which then all take part in each call."""
        return is_joined(self.mesh)

    @functools.cached_property
    def params(self) -> Params:
        """The parameters on the mesh, with the past on every device."""
        past = self.past
        if past is not None and self.mesh is not None:
            past = processes.place(past, NamedSharding(self.mesh, PartitionSpec()))
        return put_in_front(self.placed, past, self.model.config, self.tokens.shape[1], self.model.source)[0]

    @functools.cached_property
    def placed(self) -> Params:
        """The model's parameters on the mesh: as the model was placed, or one copy per device."""
        mesh = self.mesh
        if mesh is None or self.joined:
            return self.model.params

        def place(leaf: jax.Array) -> jax.Array:
            spec = leaf.sharding.spec if isinstance(leaf.sharding, NamedSharding) else PartitionSpec()
            return jax.device_put(leaf, NamedSharding(mesh, spec))

        return jax.tree.map(place, self.model.params)

    def place(self, tree: Any) -> Any:
        """Place arrays that have a leading device axis on the devices."""
        if self.mesh is None:
            return tree
        where = NamedSharding(self.mesh, PartitionSpec(data_axes(self.mesh) or None))
        return processes.place(tree, where) if self.joined else jax.device_put(tree, where)

    def attending(self, name: str, store: Location | None) -> Computation:
        """Return the computation with the attention that `name` means (`implementations.chosen`).

        store: where the sweep is stored, or None. "auto" keeps what a store has, and a store of all layers keeps them.
        """
        config, hardware, spec = self.model.config, self.hardware(), self.spec
        if store is not None:
            with contextlib.suppress(SinkjaxError), reached(store):  # whatever is wrong with a store, its opening says
                if (header := Header.read(store)) is not None:
                    identity, every = header.attributes[IDENTITY], dataclasses.replace(spec.probe, until=None)
                    name = identity.get("attention_impl", UNNAMED) if name == AUTO else name
                    spec = dataclasses.replace(spec, probe=every) if identity.get("probe") == _shown(every) else spec
        size = spec.probe, self.tokens.shape[1], str(dtype_of(self.model.params)), hardware
        how = chosen(name, config, self.resolved, *size, past=spec.past)
        spec = dataclasses.replace(spec, attention_impl=how, in_place=hardware.kind == "cpu")
        return dataclasses.replace(self, spec=spec)

    def each(self, function: Callable, *inputs: Any, **changes: Any) -> Any:
        """Run `shared.each` on these inputs, placed on the devices. changes: of the spec."""
        return each(self.params, *inputs, function=function, mesh=self.mesh, spec=dataclasses.replace(self.spec, **changes))

    def hardware(self, memory: int | None = None) -> Hardware:
        """Return the hardware to plan for on this machine."""
        hardware = Hardware.of(self.mesh, memory) if self.mesh else Hardware(memory)
        return hardware if self.joined else dataclasses.replace(hardware, processes=processes.rank()[1])

    def facts(self) -> dict[str, Any]:
        """Return the facts about the machine that are stored."""
        return facts(self.mesh or Mesh(np.array([*jax.tree.leaves(self.params)[0].devices()]), (DATA,)))

    def schedule(self, memory: int | None, batch_size: int | None = None, share_rows: bool = True) -> Schedule:
        """Plan the calls for this machine."""
        lengths, T, dtype = np.asarray(self.lengths), self.tokens.shape[1], str(dtype_of(self.model.params))
        where = self.spec.probe, dtype, self.hardware(memory), self.spec.attention_impl, batch_size, share_rows
        return plan(self.model.config, self.resolved, lengths, T, *where).schedule

    def rounds(self, schedule: Schedule) -> list[Round]:
        """Deal all calls of a schedule to the devices of this process."""
        return deal(schedule.calls(len(self.lengths)), self.hardware().devices, self.spec.depth)

    def identity(self) -> dict[str, Any]:
        """All that decides the numbers and their labels, as JSON; without empty entries, which earlier versions lack."""
        structure = [str(jax.tree.structure(edits)) for edits in self.resolved]
        later = {
            "functions": own_functions(self.spec.probe),
            "coordinates": {name: digest(*map(str, values.tolist())) for name, values in self.coordinates.items()},
            "attention_impl": self.spec.attention_impl if self.spec.attention_impl != UNNAMED else None,
            "past": {"positions": self.past.positions, "sha256": self.past.digest()} if self.past is not None else None,
        }
        return description(self.model, self.spec.precision, self.placed) | {
            "probe": _shown(self.spec.probe),
            "prompts": prompts_identity(self.tokens, self.lengths),
            "edits": {"count": len(self.resolved), "sha256": digest(*structure, *jax.tree.leaves(self.resolved))},
            "labels": {axis: {"count": len(values), "sha256": digest(*map(str, values))} for axis, values in self.labels.items()},
            **{name: value for name, value in later.items() if value},
        }

    @functools.cached_property
    def layout(self) -> tuple[Measured, Fixed]:
        """Return the layout of a store: the variables to write, and the arrays known before a sweep (coordinates, tokens,
        lengths).

        Errors: labels of a dimension that does not exist, or of the wrong length; a duplicate label; a statistic with the name of
        a dimension; as for `_as_labels`.
        """
        E, (B, T) = len(self.resolved), self.tokens.shape[:2]
        record = jax.eval_shape(lambda *args: baseline(*args, spec=self.spec)[1], self.params, self.tokens, self.lengths)
        variables: dict[str, tuple[tuple[str, ...], tuple[int, ...], np.dtype]] = {
            name: (("edit", *record.dims[name]), (E, *array.shape), storable(array.dtype)) for name, array in record.items()
        }
        variables |= dict.fromkeys(CELLS, (("edit", "prompt"), (E, B), np.dtype("float32")))
        sizes = {axis: size for axes, shape, _ in variables.values() for axis, size in zip(axes, shape, strict=True)}
        sizes["position"] = T
        coordinates = {axis: np.arange(size) for axis, size in sizes.items()} | self.spec.probe.labels()
        coordinates |= {axis: _as_labels(axis, values) for axis, values in self.labels.items()}
        for axis, values in coordinates.items():
            wanted = f"labels of {axis!r} have shape {values.shape}, but there are {sizes.get(axis, 'no')} entries"
            refuse(values.shape != (sizes.get(axis),), wanted)
            labels, counts = np.unique(values, return_counts=True)
            if counts.max(initial=0) > 1:
                how = "; rename one of the edits with edit.named(label)" * (axis == "edit")
                raise SinkjaxError(f"labels of {axis!r} name {labels[counts.argmax()].item()!r} twice{how}")
        fixed: dict[str, tuple[tuple[str, ...], np.ndarray]] = {axis: ((axis,), values) for axis, values in coordinates.items()}
        fixed |= {name: (("edit",), values) for name, values in self.coordinates.items()}
        for name in variables.keys() & {*fixed, "length", "tokens"}:
            raise SinkjaxError(f"a sweep has another array named {name!r}; give the statistic or capture another name")
        fixed["length"] = (("prompt",), np.asarray(self.lengths))
        if self.tokens.ndim == 2:
            fixed["tokens"] = (("prompt", "position"), np.asarray(self.tokens))
        return variables, fixed


def _shown(probe: Probe) -> str:
    return ADDRESS.sub("", repr(probe))


def prompts_identity(tokens: Any, lengths: Any) -> dict[str, Any]:
    """Return the facts that identify prompts, as JSON."""
    return {"count": len(lengths), "positions": tokens.shape[1], "sha256": digest(tokens, lengths)}


def description(model: Model, precision: str, params: Params | None = None) -> dict[str, Any]:
    """Describe the model and software versions, as JSON. params: the model's original parameters, if placed elsewhere."""
    return {
        "model": dict(model.source),
        "config": model.config.identity(),
        "parameters": fingerprint(model.params if params is None else params),
        "dtype": str(dtype_of(model.params)),
        "precision": precision,
        "versions": {"sinkjax": __version__},
    }


def _as_labels(axis: str, values: Any) -> np.ndarray:
    """Return the labels of a dimension as an array.

    Errors: labels are neither numbers nor text; rows have different lengths; control characters, NaN or infinity.
    """
    array = np.asarray(as_array(f"labels of {axis!r}", values))
    if array.dtype.kind == "U":
        for label in values:  # NumPy drops a trailing NUL from a label
            refuse_control(f"the label {label!r} of {axis!r}", str(label))
    refuse(array.dtype.kind not in "biufU", f"labels of {axis!r} must be all numbers or all text, not {array.dtype}")
    refuse(array.dtype.kind == "f" and not np.isfinite(array).all(), f"labels of {axis!r} must be finite numbers")
    return array


def unchanged(dataset: xarray.Dataset) -> list[str]:
    """List the labels of edits that addressed cells but changed none in any prompt: neutral or ineffective edits."""
    addressed, changed = (dataset[name].sum("prompt").values for name in CELLS)
    return [str(label) for label in dataset["edit"].values[(addressed > 0) & (changed == 0)]]
