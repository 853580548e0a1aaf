"""ours/off-subspace: which part of attention's output keeps a token from becoming a sink?

A token's attention output in the first layers loses its part in a subspace; everything else stays. The subspaces are found on
half of the texts and tested on the other half, both ways round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Site, compose, edit
from sinkjax.config_files.checks import positions
from sinkjax.papers._shared import after, hide_behind
from sinkjax.study import *
from sinkjax.study import later_attention_to, strongest_later_attention

LEADING, CENTRED, SHARED, SWITCH, DRAWN = (
    "leading",
    "leading about the mean",
    "leading, shared by layers",
    "ordinary - first",
    "random",
)
KINDS = (LEADING, CENTRED, SHARED, SWITCH, DRAWN)
NOTHING, TINY = "none", 1e-30
EXACT = "it removes exactly this part of the token's attention output"  # so the edit is its own check


@dataclass(frozen=True, kw_only=True)
class Settings(Judged, Sinks, Mapped):
    positions: tuple[int, ...] = (8, 16, 42)
    """tokens whose attention output loses a part"""
    dims: tuple[int, ...] = (1, 2, 4, 8, 16)
    """dimensions of the subspaces"""
    ends: tuple[int, ...] = (0, 1, 2, 5)
    """last layers of the sets of first layers in which the largest subspace is removed"""

    def check(self) -> None:
        positions(self, "positions")


def study(lab: Lab, s: Settings) -> None:
    """Which part of attention's output keeps a token from becoming a sink?"""
    lab.needs("softmax", "causal mask")
    here, first = own("position", partial(later_attention_to, layer=lab.half)), later_attention_to(0, lab.half)
    size, size_0 = own("position", largest_activation), largest_activation(0)
    columns, most = [here, first, size, size_0], max(s.dims)

    forms = lab.onset("forms", lambda layers: largest_activation(0, layers))
    early, late = upto(forms, "the one in which it forms"), after(forms, lab.layers, "the one in which it forms")
    found = partial(bases, most, forms, lab.rng("bases"))
    blank = np.broadcast_to(np.float32(0), (lab.layers, lab.prompts, most, lab.architecture.width))
    directions = lab.donor("directions", found, dict.fromkeys(KINDS, blank), of_edited=True)

    def without(kind: str, dims: int, position: int, where: Layers = early) -> Edit:
        """Remove a subspace from a token's attention output, with key 0 hidden from the queries behind it."""
        removed = [
            edit("attn_out", "remove", direction, queries=position, layers=where.layers, label=f"{dims} dims, {kind}")
            for direction in np.moveaxis(directions[kind][:, :, :dims], 2, 0)
        ]
        return compose(*removed, hide_behind(0, position))

    tried = [(kind, dims) for kind in KINDS for dims in ((1,) if kind == SWITCH else s.dims)]
    cases = {early.at(subspace=kind, dims=dims, position=p): without(kind, dims, p) for kind, dims in tried for p in s.positions}
    cases |= {early.at(subspace=NOTHING, dims=0, position=p): hide_behind(0, p) for p in s.positions}
    parts = lab.sweep("parts", cases, columns, title="a part of a token's attention output removed")
    places = (*prefixes(lab.layers, s.ends), late)
    by_depth = {where.at(position=p): without(LEADING, most, p, where) for where in places for p in s.positions}
    depth = lab.sweep("depth", by_depth, columns, title=f"the {most} leading dims removed in other layers")
    lab.noop(edit("attn_out", "remove", 0.0, queries=s.positions[0]))

    def gain(kind: str, dims: int, of: Measure = here, whole: Measure = first) -> Contrast:
        """The gain of a token over the same hiding with its whole output."""
        return difference(of, parts.at(subspace=kind, dims=dims), parts.at(subspace=NOTHING), whole)

    def over(kind: str) -> Contrast:
        """What removing the leading dims gives a token beyond removing as many others."""
        return difference(here, parts.at(subspace=LEADING, dims=most), parts.at(subspace=kind, dims=most), first)

    sinks = is_sink(first, parts, strongest_later_attention(0, lab.half))
    curve = [gain(LEADING, dims) for dims in s.dims if 1 < dims < most]
    lab.claim("one", "ours", gain(LEADING, 1), sinks, curve, took=EXACT)
    lab.claim(
        "most", "ours", gain(LEADING, most), sinks, [effect(size, parts.at(subspace=LEADING, dims=most), size_0)], took=EXACT
    )
    lab.claim("switch", "ours", gain(SWITCH, 1), sinks, took=EXACT)
    lab.claim("shared", "ours", gain(SHARED, most), sinks, [gain(SHARED, 1)], took=EXACT)
    lab.claim("centred", "ours", over(CENTRED), sinks, [gain(CENTRED, most)], took=EXACT)
    lab.claim("random", "ours", over(DRAWN), sinks, [gain(DRAWN, most)], took=EXACT)
    at = {where: difference(here, depth[where], parts.at(subspace=NOTHING), first) for where in places}
    lab.claim("late", "ours", at[late], sinks, [at[where] for where in places[:-1]], stays=True, took=EXACT)

    lab.maps(parts[early.at(subspace=LEADING, dims=most, position=s.positions[0])])
    lab.draw(lines_along, "dims", here, over=parts, by="subspace")
    lab.draw(lines_along, "position", here, over=depth)


def bases(count: int, last: int, rng: np.random.Generator, run: Unedited) -> dict[str, NDArray[Any]]:
    """Return orthonormal directions of attention outputs, for each prompt from the other half of the prompts.

    Args:
        count: Number of directions.
        last: The last of the layers that share directions.
        rng: For random directions.
        run: The model and the prompts.

    Returns:
        By kind, float32[layer, prompt, count (1 for `SWITCH`), width]. The leading directions hold most of the squares of the
        outputs of all tokens but the first, about the mean most of their variance.
    """
    outputs = run.captured(Capture(Site.ATTN_OUT, name="outputs"))["outputs"]
    halves = [found_on(outputs[:, half::2] if outputs.shape[1] > 1 else outputs, count, last, rng) for half in (1, 0)]
    here = np.arange(outputs.shape[1]) % 2
    return {kind: np.stack([halves[half][kind] for half in here], axis=1) for kind in KINDS}


def found_on(outputs: NDArray[Any], count: int, last: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return `bases` of float[layer, prompt, position, width], NaN beyond a prompt: float32[layer, count, width]."""
    layers, width = len(outputs), outputs.shape[-1]
    rows = [of[:, 1:].reshape(-1, width) for of in outputs]
    rows = [of[~np.isnan(of[:, 0])].astype(np.float64) for of in rows]
    means = np.stack([of.mean(axis=0) for of in rows])
    moments = np.stack([of.T @ of / len(of) for of in rows])
    shared = sum(moment / max(np.trace(moment), TINY) for moment in moments[: last + 1])
    away = means - outputs[:, :, 0].mean(axis=1)
    found = {
        LEADING: np.stack([leading(moment, count) for moment in moments]),
        CENTRED: np.stack([leading(moment - np.outer(mean, mean), count) for moment, mean in zip(moments, means, strict=True)]),
        SHARED: np.broadcast_to(leading(shared, count), (layers, count, width)),
        SWITCH: (away / np.linalg.norm(away, axis=-1, keepdims=True).clip(TINY))[:, None],
        DRAWN: np.stack([np.linalg.qr(rng.standard_normal((width, count)))[0].T for _ in range(layers)]),
    }
    return {kind: directions.astype(np.float32) for kind, directions in found.items()}


def leading(moment: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the eigenvectors of the largest eigenvalues, the largest first: float64[count, width]."""
    from scipy.linalg import eigh

    width = len(moment)
    return np.asarray(eigh(moment, subset_by_index=[width - count, width - 1])[1].T[::-1])
