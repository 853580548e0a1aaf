"""Measurements of one prompt's pass that is made in several calls (`cached.go_on`), joined into the record of a single pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.model.config import Config
from sinkjax.model.site import BEFORE_BLOCKS, SITES, Site
from sinkjax.probes.measure import finish
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.probes.statistics import NON_FINITE, cut_by_rows
from sinkjax.transformer.attention import KEPT
from sinkjax.transformer.cached import Call
from sinkjax.transformer.eviction import CachePolicy

ROW_AXES = ("position", "query", "key_position")


class Rows:
    """The measurements of the rows so far: `add` those of a call, then `record` joins them.

    probe: the measurements that each call makes, of all its rows.
    """

    def __init__(self, asked: Probe, config: Config, prompt: int, policy: CachePolicy | None) -> None:
        """Check a probe. prompt: number of tokens of the prompt. policy: evicts keys, or None.

        Errors: a captured position is not in the prompt; a statistic needs several rows at once, or scores that a policy lacks.
        """
        asked.check(config, prompt)
        for entry in asked.statistics:
            how = "measure it with sinkjax.forward on the finished tokens"
            refuse(not cut_by_rows(entry), f"{entry.name} compares rows with each other, so no step of a text has it; {how}")
        sites = [(entry.name, entry.site) for entry in asked.statistics] + [(entry.name, entry.site) for entry in asked.captures]
        of_scores = [name for name, site in sites if policy is not None and site == Site.LOGITS]
        refuse(bool(of_scores), f"{', '.join(of_scores)} needs the scores of all keys, but a cache policy keeps a few")
        every = tuple(dataclasses.replace(entry, positions=None) for entry in asked.capture)  # positions are chosen at the end
        self.asked, self.probe = asked, dataclasses.replace(asked, capture=every)
        self.layers, self.logits_of, self.policy = config.layers, list(asked.logits_of), policy
        self.axes = {entry.name: (entry.dims[1], "prompt", *entry.dims[2:]) for entry in asked.statistics}
        self.captures = {capture.name: capture for capture in asked.captures}
        for name, capture in self.captures.items():
            self.axes[name] = (*(() if capture.site in BEFORE_BLOCKS else ("layer",)), *SITES[capture.site].axes)
        self.read = {name: capture.layer_list(config) for name, capture in self.captures.items()}
        self.axes |= {KEPT: ("layer", "prompt", "query", "slot", "kv_head")} if policy else {}
        self.parts: dict[str, list[np.ndarray]] = {name: [] for name in self.axes}
        self.nll: list[np.ndarray] = []
        self.logits: list[np.ndarray] = []

    def add(self, call: Call) -> None:
        """Add a call's measurements: rows after those so far, and sums over rows to the sums so far."""
        for name, axes in self.axes.items():
            if axes[0] == "prompt":
                values = np.asarray(call.before[name])
            else:
                records = [call.layers[layer] for layer in self.read.get(name, range(self.layers))]
                records = [call.before, *records] if axes[0] == "depth" else records
                values = np.stack([np.asarray(record[name]) for record in records])
            rows = self._rows(name)
            if rows is None:
                self.parts[name] = [sum(self.parts[name], values)]
            else:
                self.parts[name].append(np.take(values, range(call.rows), axis=rows))
        if call.nll is not None:
            self.nll.append(np.array(call.nll[0, : call.rows]))

    def chose(self, logits: np.ndarray, token: int) -> None:
        """Add the token that was chosen by the logits [V] after the last row."""
        if self.logits_of:
            self.logits.append(logits[self.logits_of])
        if self.nll:
            self.nll[-1][-1] = np.logaddexp.reduce(logits.astype(float)) - logits[token]

    def record(self, T: int) -> Record:
        """Return the record of a pass over all T rows."""
        values: dict[str, Any] = {}
        for name in [name for name in self.axes if name != KEPT]:
            axes, rows, capture = self.axes[name], self._rows(name), self.captures.get(name)
            array = self.parts[name][0] if rows is None else np.concatenate(self.parts[name], axis=rows)
            if "key" in axes and (capture is None or capture.dims is None):
                array = np.take(array, range(T), axis=axes.index("key"))
            if capture is not None and capture.positions is not None:
                array = np.take(array, capture.positions, axis=rows)
            if axes[0] != "prompt":
                array = np.moveaxis(self._finished(name, array, T), 0, 1)
            values[name] = array
        if self.nll:
            values["nll"] = np.concatenate(self.nll)[None]
            values["nll"][:, T - 1 :] = np.nan
        return Record(values, {name: self.asked.dims()[name] for name in values})

    def kept(self) -> np.ndarray | None:
        """Return the positions of the keys in the cache of each row, int [T, L, K, size], ascending, -1 for empty slots; or None
        without a policy."""
        if self.policy is None:
            return None
        parts = [np.sort(part, axis=3)[:, 0, :, -self.policy.size :] for part in self.parts[KEPT]]
        return np.concatenate(parts, axis=1).transpose(1, 0, 3, 2)

    def _rows(self, name: str) -> int | None:
        """Return the axis of rows, or None for a sum over rows."""
        return next((place for place, axis in enumerate(self.axes[name]) if axis in ROW_AXES), None)

    def _finished(self, name: str, array: np.ndarray, T: int) -> np.ndarray:
        """Complete a statistic or a capture of all rows, [layers or depths, 1, ...], as a forward pass does."""
        done = np.array(jax.vmap(lambda x: finish(self.asked, {name: x}, jnp.full(1, T))[name])(jnp.asarray(array)))
        if name not in self.captures and self.asked.until is not None:  # later layers are not read
            after = self.asked.until + 1 + (self.axes[name][0] == "depth")
            done[after:] = 0 if name == NON_FINITE.name else np.nan if done.dtype.kind == "f" else -1
        return done
