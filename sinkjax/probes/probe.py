"""Frozen, static description of the measurements. `Probe()` requests none, and a probe never changes a number.

Any request also returns `non_finite`, int32 by prompt and depth: the number of positions with an infinite or NaN activation in
the residual stream.

Statistics are reduced inside the layer loop, at the site of their array, so nothing large leaves the loop. Each is a small
function: `probes/statistics.py` has the built-in ones, `extra=` accepts others, and `probes/measure.py` applies them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.documents import LATER, stated
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.model.batch import as_indices
from sinkjax.model.config import Config
from sinkjax.model.site import BEFORE_BLOCKS, SITES, Site, as_site, axis_size, lacks
from sinkjax.probes.statistics import BUILT_IN, NON_FINITE, Statistic
from sinkjax.runtime import display

DEFAULT_NAMES = {Site.QUERY: "queries", Site.KEY: "keys", Site.VALUE: "values"}  # "query" and "key" are names of axes


@dataclass(frozen=True)
class Capture:
    """Raw values at a site, after its edits, in the dtype of the run.

    Attributes:
        site: Any site except POSITION.
        layers: Tuple of ints, or None for all.
        positions: Tuple of ints, the same for all prompts, or None for all; at LOGITS and WEIGHTS they choose queries.
        dims: Indices along the last axis, tuple of ints, or None for all.
        name: Name in the record; by default the site's in lower case, or "queries", "keys" and "values".

    Raises:
        SinkjaxError: The site is POSITION or unknown; an index is negative, not an int, or named twice.
    """

    site: Site
    layers: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    dims: tuple[int, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", as_site(self.site))
        refuse(self.site == Site.POSITION, "POSITION contains indices, not activations, so it cannot be captured")
        object.__setattr__(self, "name", self.name or DEFAULT_NAMES.get(self.site, str(self.site)))
        for what in ("layers", "positions", "dims"):
            chosen = getattr(self, what)
            if chosen is not None:
                object.__setattr__(self, what, _each_once(f"{what.removesuffix('s')} of {self.name}", chosen))

    def layer_list(self, config: Config) -> tuple[int, ...]:
        """List the captured layers; EMBED and POSITION_VECTOR have one."""
        if self.site in BEFORE_BLOCKS:
            return (0,)
        return tuple(range(config.layers)) if self.layers is None else self.layers

    @property
    def axes(self) -> dict[str, tuple[int, ...] | None]:
        """Map each axis in the record to its chosen entries; None for all.

        A subset gets its own axis name, so that it never clashes with the full axis.
        """
        prompt, *others = SITES[self.site].axes
        chosen = {"layer": self.layers, "position": self.positions, "query": self.positions, "key_position": self.positions}
        chosen[others[-1]] = self.dims
        selected = {}
        for axis in (prompt, *([] if self.site in BEFORE_BLOCKS else ["layer"]), *others):
            name = "position" if axis == "key_position" else axis
            selected[name if chosen.get(axis) is None else f"{self.name}_{name}"] = chosen.get(axis)
        return selected


@dataclass(frozen=True, repr=False)
class Probe:
    """The statistics that a forward pass returns, as float32 or wider; NaN beyond a prompt's length (-1 for integers).

    A record also includes `non_finite`, int [B, depth]: the number of positions with an infinite or NaN activation.

    Attributes:
        attention_received: Attention to each key, averaged over its own and all later queries, including those whose window no
            longer has the key: [B, L, H, S]. Key 0 therefore has at least 1 / T, even if it is masked for all other queries.
        attention_share: Like `attention_received`, with each row's absolute weights divided by their sum; for rows that do not
            sum to 1.
        row_entropy: Entropy of each query's weights in nats. For this and all later entries, `record.dims` lists the axes.
        attention_self: Weight of each query on its own key.
        query_key_cosine: Cosine between each key and the rotated queries that come after it.
        resid_max: Max |h| over the dims of the residual stream, [B, depth, T]; depth 0 is the embedding.
        resid_norm: L2 norm of h, by depth and position.
        resid_median: Median |h|, by depth and position.
        resid_argmax: The dim of max |h|, int, by depth and position.
        resid_kurtosis: Excess kurtosis of h over the dims, by depth and position.
        resid_first_cosine: Cosine of h with the first token's h, by depth and position.
        query_norm: L2 norm of each head's query.
        key_norm: L2 norm of each key.
        value_norm: L2 norm of each value.
        nll: Negative log-likelihood of each next token in nats, [B, T]; inf where it overflowed, NaN where there is no token.
        attention_received_bias: Mean over queries of the attention that goes to no key (to a sink logit, a 1 in the denominator,
            or an attention bias).
        attention_share_bias: Like `attention_received_bias`, for the share of each row's absolute weight that goes to no key.
        attention_received_past: Mean over queries of the total attention to the keys of a past (`sinkjax.sink_prefix`).
        attention: Layers whose full attention maps are returned; True for all.
        capture: Requests for raw values, a tuple of `Capture`.
        extra: Further statistics to compute.
        logits_of: Token ids; their logits at each prompt's last token, [B, token].
        until: Last layer that is read; None for the model's last one. Entries of later layers are NaN (-1 for integers, 0 in
            `non_finite`), and later blocks are not computed unless logits or losses need them.

    Raises:
        SinkjaxError: A field is unknown; `capture` or `extra` has an entry of the wrong type; two statistics share a name.
    """

    attention_received: bool = False
    attention_share: bool = False
    row_entropy: bool = False
    query_key_cosine: bool = False
    resid_max: bool = False
    resid_norm: bool = False
    resid_median: bool = False
    resid_argmax: bool = False
    query_norm: bool = False
    key_norm: bool = False
    value_norm: bool = False
    nll: bool = False
    resid_kurtosis: bool = field(default=False, metadata=LATER)
    resid_first_cosine: bool = field(default=False, metadata=LATER)
    attention_received_bias: bool = field(default=False, metadata=LATER)
    attention_share_bias: bool = field(default=False, metadata=LATER)
    attention_received_past: bool = field(default=False, metadata=LATER)
    attention_self: bool = field(default=False, metadata=LATER)
    attention: tuple[int, ...] | bool = ()
    capture: tuple[Capture, ...] = ()
    extra: tuple[Statistic, ...] = ()
    until: int | None = field(default=None, metadata=LATER)
    logits_of: tuple[int, ...] = field(default=(), metadata=LATER)

    def __new__(cls, *args: Any, **asked: Any) -> Probe:
        for name in asked:
            one_of("field of a probe", name, [entry.name for entry in fields(cls)])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for entry in fields(self):
            if entry.type == "bool" and not isinstance(getattr(self, entry.name), bool | np.bool_):
                raise SinkjaxError(f"{entry.name} of a probe must be True or False, not {short(getattr(self, entry.name))}")
        for name, kind in (("capture", Capture), ("extra", Statistic)):
            entries = getattr(self, name)
            if not isinstance(entries, Sequence) or not all(isinstance(entry, kind) for entry in entries):
                raise SinkjaxError(f"{name} takes a sequence of {kind.__name__}, not {short(entries)}")
            object.__setattr__(self, name, tuple(entries))
        if self.attention is False:
            object.__setattr__(self, "attention", ())
        elif self.attention is not True and self.attention != ():
            object.__setattr__(self, "attention", _each_once("layer of attention", self.attention))
        if self.until is not None:
            object.__setattr__(self, "until", _each_once("last layer (until)", [self.until])[0])
        if self.logits_of != ():
            object.__setattr__(self, "logits_of", _each_once("token of logits_of", self.logits_of))
        names = ["nll", "logits_of", "cells_addressed", "cells_changed", "empty_rows"]  # names of other entries of a record
        names += [entry.name for entry in self.statistics] + [entry.name for entry in self.captures]
        twice = {name for name in names if names.count(name) > 1}
        refuse(bool(twice), f"two statistics of one probe are both named {', '.join(sorted(twice))}")

    def __repr__(self) -> str:
        """Return the text that identifies a probe in stored results."""
        return f"Probe({', '.join(f'{name}={value!r}' for name, value in stated(self).items())})"

    def _repr_html_(self) -> str:
        return display.table("Probe", ("", ""), display.chosen(self).items())

    @classmethod
    def of(cls, *names: str) -> Probe:
        """Make a probe that requests built-in statistics by name.

        Args:
            *names: Boolean fields of `Probe`, such as "nll".

        Returns:
            The probe.

        Raises:
            SinkjaxError: A name is unknown.
        """
        allowed = [field.name for field in fields(cls) if field.type == "bool"]
        for name in names:
            one_of("statistic", name, allowed)
        asked: dict[str, Any] = dict.fromkeys(names, True)
        return cls(**asked)

    @functools.cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The requested reductions, built-in and extra, plus the count of non-finite values if anything is requested."""
        asked = tuple(entry for name, entry in BUILT_IN.items() if getattr(self, name)) + self.extra
        return (*asked, NON_FINITE) if asked or self.captures or self.nll or self.logits_of else ()

    @functools.cached_property
    def captures(self) -> tuple[Capture, ...]:
        """The requested captures; full attention maps are captures of WEIGHTS."""
        if not self.attention:
            return self.capture
        layers = None if isinstance(self.attention, bool) else self.attention
        return (Capture(Site.WEIGHTS, layers=layers, name="attention"), *self.capture)

    def check(self, config: Config, T: int) -> None:
        """Raise if the probe does not fit a model or a batch.

        Args:
            config: The architecture of the model.
            T: The padded length of the prompts.

        Raises:
            SinkjaxError: A captured layer, position or dim is out of range; a statistic or a capture is at a site that the model
                lacks; the loss is requested but the model has no vocabulary.
        """
        refuse(self.nll and config.vocab_size is None, "nll is the loss of the next token, but this model has no vocabulary")
        if (largest := max(self.logits_of, default=-1)) >= (config.vocab_size or 0):
            raise SinkjaxError(f"logits_of has token {largest}, but the vocabulary has {config.vocab_size or 0}")
        layers = config.layers if self.until is None else self.until + 1
        refuse(layers > config.layers, f"until is layer {self.until}, but the model has {config.layers} layers")
        for name, site in [(entry.name, entry.site) for entry in self.statistics] + [(e.name, e.site) for e in self.captures]:
            if missing := lacks(config, site):
                raise SinkjaxError(f"{name} is measured at {site.name}, and this model has {missing}")
        for entry in self.captures:
            last = SITES[entry.site].dims
            limits = {"layer": (entry.layers, layers), "position": (entry.positions, T)}
            limits["dim"] = (entry.dims, axis_size(config, last) if last else T)
            for what, (chosen, size) in limits.items():
                for index in chosen or ():
                    if not 0 <= index < size:
                        raise SinkjaxError(f"{entry.name}: {what} {index} is out of range: there are {size}, 0 to {size - 1}")

    def labels(self) -> dict[str, np.ndarray]:
        """The chosen layers, positions and dims along the axes that belong to a single capture."""
        every = {axis: chosen for entry in self.captures for axis, chosen in entry.axes.items()}
        every |= {"token": self.logits_of or None}
        return {axis: np.asarray(chosen) for axis, chosen in every.items() if chosen is not None}

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of every array this probe returns."""
        named = {entry.name: entry.dims for entry in self.statistics}
        named |= {entry.name: tuple(entry.axes) for entry in self.captures}
        named |= {"nll": ("prompt", "position")} if self.nll else {}
        return named | ({"logits_of": ("prompt", "token")} if self.logits_of else {})


def _each_once(what: str, chosen: Any) -> tuple[int, ...]:
    """Return indices as a tuple; raise if one is named twice."""
    indices = as_indices(what, chosen)
    refuse(len(set(indices)) < len(indices), f"a {what} is named twice: {', '.join(map(str, indices))}")
    return indices
