"""background/patch: which values carry the sink, by activation patching from a run whose sink was moved.

In the donor run no query may attend to the first key, in any layer, so that the sink and a massive activation are at the second
position (Kiya et al. 2026, Fig. 4). The values at this position are put into the unedited run, in one layer or in all. Controls
put the donor run's values of another position there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkjax import Edit, compose, edit, mask_key
from sinkjax.config_files.checks import positions, refuse
from sinkjax.study import *
from sinkjax.study import heatmap

SITES = ("resid", "attn_out", "mlp_out", "key", "value")  # keys before the rotation, the stream after its layer


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    prompts: int = 16
    key: int = 0
    """the key that is masked in the donor run; values are patched at key + 1, where its sink is then"""
    places: tuple[int, ...] = (0, 1, 2, 3, 5, 9, 17, 33)
    """positions that are patched one at a time in all layers"""

    def check(self) -> None:
        positions(self, "key", plus=1)


def study(lab: Lab, s: Settings) -> None:
    """Activation patching from a run whose sink was moved."""
    lab.needs("MLP")
    after, mask = s.key + 1, mask_key(s.key)
    seen, sink, size = attention_to(after, lab.half), sink_rate(after, s.eps), largest_activation(after)
    columns = (sink, size, seen)

    forms = layer(lab.onset("forms", lambda layers: largest_activation(s.key, layers)), "the layer in which it forms")
    grows = layer(lab.steepest("grows", "resid_max", after, mask), "the layer in which it grows")
    donor, unmoved = lab.captured("donor", mask, SITES), lab.captured("own", compose(), SITES)

    def put(site: str, position: int, values: np.ndarray, label: str, layers: Sequence[int] | None = None) -> Edit:
        where: dict[str, Any] = {"keys" if site in ("key", "value") else "queries": position}
        return edit(site, "set", values, label=label, layers=layers, **where)

    def same(
        site: str, position: int = after, run: Mapping[str, np.ndarray] = donor, layers: Sequence[int] | None = None
    ) -> Edit:
        """Patch one site with the other run's values of the same position."""
        refuse(position >= s.length, f"position {position} of prompts of {s.length} tokens cannot be patched")
        return put(site, position, run[site][:, :, position], f"{site} of position {position}", layers)

    def other(rng: np.random.Generator, case: Layers) -> Edit:
        """Patch the same site with the donor run's values of a random later position, drawn for each prompt."""
        site, prompts = case["site"], np.arange(donor[case["site"]].shape[1])
        drawn = rng.integers(after + 1, s.length, len(prompts))
        return put(site, after, donor[site][:, prompts, drawn], f"{site} of positions {', '.join(map(str, drawn))}", case.layers)

    moved_sink = lab.sweep("donor", {ALL: mask}, columns, title="donor run")
    places = [forms, grows, ALL, *each(lab.layers)]
    edits = {place.at(site=site): same(site, layers=place.layers) for place in places for site in SITES}
    patched = lab.sweep("patched", edits, columns, other)
    at = {ALL.at(site=site, place=place): same(site, place) for site in SITES for place in s.places}
    single = lab.sweep("positions", at, columns, title="one position")
    lab.noop(*(same(site, run=unmoved) for site in SITES))

    def of(site: str, place: Layers) -> Selection:
        return patched[place.at(site=site)]

    def share(measure: Measure, where: Selection) -> Contrast:
        return part(measure, where, moved_sink.every)

    sinks = is_sink(attention_to(s.key, lab.half), patched, strongest_other_attention(s.key, lab.half))
    massive, gu = reaches(largest_activation(s.key), patched, MASSIVE_SIZE), "ours, on Gu et al. 2025, Table 4"
    stream, keys, values = of("resid", forms), of("key", ALL), of("value", ALL)
    ours, beside = "ours, on Kiya et al. 2026, Figs. 8, 9, conclusion", [share(sink, stream), share(size, stream)]
    lab.claim("stream", ours, share(seen, stream), all_of(sinks, massive), beside, took=WRITTEN)
    lab.claim("keys", gu, share(sink, keys), sinks, [share(size, keys)], took=WRITTEN)
    lab.claim("values", gu, share(sink, values), sinks, stays=True, took=WRITTEN)
    ours = "ours, on Queipo-de-Llano et al. 2026, section 4, and Li et al. 2026"
    mlp, attention = (share(size, of(site, grows)) for site in ("mlp_out", "attn_out"))
    lab.claim("mlp", ours, mlp, massive, [attention], took=WRITTEN)

    lab.draw(heatmap, sink, size, over=patched, axis="site")
    lab.draw(lines_along, "place", sink, over=single, by="site")
    lab.maps(moved_sink.every, of("resid", ALL), keys, values)
