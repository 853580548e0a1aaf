"""What a page shows of a few prompts: attention maps, activations, and continuations under a few conditions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.generation import blocks_apart, generate_all
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.figures import heatmaps
from sinkjax.report.section import Drawing, Sample
from sinkjax.study.numbers import Numbers
from sinkjax.study.work import TEXT, Calculation, Condition, Inputs, Selection
from sinkjax.transformer.cached import Unstacked
from sinkjax.transformer.cost import widened_bytes
from sinkjax.viewing import records
from sinkjax.viewing.maps import Maps, strongest

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.study.work import Batch

MAPS = "maps"
TOKENS = 32  # positions shown of a prompt, so that each has a legible tick
PROMPTS = 3
EDITS = 6
FEW_TOKENS = 24  # positions shown where the maps of many studies share one page
DRAWN_TOKENS = 14  # positions of a figure, so that its ticks are legible
TEXTS = "continuations"
START, WRITTEN = 16, 16  # tokens that are given and written


def map_name(sweep: object, number: int) -> str:
    """The name of the store with the maps of the sweep that is shown as number `number`."""
    return f"{MAPS}-{sweep}" if number else MAPS


def drawn_layers(asked: Sequence[int], L: int) -> tuple[int, ...]:
    """Return the layers of maps: the requested ones, or an early, a middle and a late one."""
    return tuple(asked) or tuple(sorted({0, L // 3, 2 * L // 3}))


def maps_probe(length: int, layers: Sequence[int]) -> Probe:
    """The weights of all heads of some layers, for the first TOKENS queries of prompts of this length, and the largest |h|."""
    queries = tuple(range(min(TOKENS, length)))
    return Probe(resid_max=True, capture=(Capture(Site.WEIGHTS, tuple(layers), queries, name="attention"),))


def map_data(data: xarray.Dataset) -> xarray.DataArray:
    """The attention of a maps' store with plain names of its axes: [edit, prompt, layer, head, query, key]."""
    renamed = {f"attention_{axis}": axis for axis in ("layer", "query") if f"attention_{axis}" in data["attention"].dims}
    maps = data["attention"].drop_vars("layer", errors="ignore") if "layer" in renamed.values() else data["attention"]
    return maps.rename(renamed)


def maps(name: str, data: xarray.Dataset, tokens: int = FEW_TOKENS, about: str = "") -> Maps:
    """Attention of each query to each key, and the largest |h| if it was measured, of the first EDITS edits and PROMPTS prompts.

    data: a store of `attention` as `maps_probe` or `Probe(attention=layers)` measures it. tokens: positions shown. about: the
    end of the caption.
    """
    edits = [*map(str, data["edit"].values[:EDITS])]
    prompts = slice(min(PROMPTS, data.sizes["prompt"]))
    texts, lengths = [row[:tokens] for row in data.attrs["study"]["token_texts"][prompts]], data["length"].values[prompts]
    weights = map_data(data).sel(edit=edits).isel(prompt=prompts, query=slice(tokens), key=slice(tokens))
    values = weights.transpose("edit", "prompt", "layer", "head", "query", "key").values.astype(np.float32)
    size = values.shape[-1]
    causal = np.tri(size, dtype=bool) & (np.arange(size)[:, None] < lengths[:, None, None])
    values = np.where(causal[None, :, None, None], values, np.nan)
    layers, numbers = weights["layer"].values.tolist(), {"prompt": [str(number) for number in range(len(texts))]}
    panels, depths = [records.attention(values, layers, numbers)], ""
    if "resid_max" in data:
        shown = data["resid_max"].sel(edit=edits).isel(prompt=prompts, position=slice(tokens))
        activations = shown.transpose("edit", "prompt", "depth", "position").values.astype(np.float32)
        panels.append(records.residual(activations, *records.LARGEST, numbers))
        depths = " Depth 0 is the embedding, depth l + 1 the residual stream after layer l."
    first = f"the first {len(texts)} prompts" if len(texts) > 1 else "the first prompt"
    in_turn = len(layers) > 3 and layers == [*range(layers[0], layers[-1] + 1)]
    listed = f"{layers[0]} to {layers[-1]}" if in_turn else ", ".join(map(str, layers))
    said = (
        f"Choose among {len(edits)} edits, {first}, layers {listed}, all heads and their mean; first {size} tokens. Grey:"
        f" keys that a query cannot see.{depths} Values are kept in 8 bits, to about 2%; the rest is in the store.{about}"
    )
    return Maps(edits, texts, panels, said, {"layer": strongest(values[0, 0])}, name)


def still_maps(read: Numbers, *conditions: Selection) -> list[Drawing]:
    """Draw attention maps of one prompt, without an edit and under some conditions; on the page they are interactive."""
    found = []
    for number, sweep in enumerate(dict.fromkeys(one.sweep for one in conditions)):
        store = map_name(sweep.name, number)
        if store not in read:
            continue
        data = read[store]
        shown = map_data(data)
        asked = drawn_layers(read.settings.map_layers, int(read.architecture.layers))
        there = [layer for layer in asked if layer in shown["layer"].values]
        texts = data.attrs["study"]["token_texts"][0][: min(DRAWN_TOKENS, shown.sizes["query"])]
        ticks = [text if text.isprintable() else repr(text)[1:-1] for text in texts]
        values = shown.isel(prompt=0).sel(layer=there).mean("head").values
        labels = [str(label).replace(" in ", "\nin ") for label in data["edit"].values]
        figure = heatmaps.by_layer(values[0], there, ticks) if len(values) == 1 else heatmaps.maps(values, labels, there, ticks)
        caption = f"""Attention maps of one prompt, mean over heads, at most the first {DRAWN_TOKENS} tokens, on one colour scale;
            grey: keys that a query cannot see. A bright column is a key that gets much attention."""
        found.append(read.drawing(f"attention-{store}", figure, caption, store, bands=False))
    return found


def continuations(
    conditions: Callable[[Model, Batch], Sequence[Condition]],
    prompts: int = PROMPTS,
    inputs: Inputs = TEXT,
    start: int = START,
) -> Calculation:
    """Generate the WRITTEN most likely tokens after the first START of each prompt, under some conditions.

    Args:
        conditions: Returns the conditions, whose edits may hold values of the model on all `prompts`.
        prompts: Number of prompts; only the first PROMPTS are continued.
        inputs: Kind of prompts.
        start: Minimum number of given tokens, if an edit names positions beyond START.

    Returns:
        The calculation of `text` (edit, prompt) and `start`.
    """

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        """How the model continues the prompts under edits."""
        import xarray  # here, so that the help of a study does without it

        if model.tokenizer is None:
            raise SinkjaxError("the model has no tokenizer, so it cannot write text")
        decode = model.tokenizer.decode
        given = np.minimum(batch.lengths, max(START, start))
        starts = [row[:count].tolist() for row, count in zip(np.asarray(batch.tokens), given, strict=True)][:PROMPTS]
        shown = conditions(model, batch)
        apart = functools.cache(functools.partial(blocks_apart, model))  # one copy shared by all conditions
        tokens = min(WRITTEN, model.config.context - max(map(len, starts)))
        written = []
        for condition in shown:
            found = zip(starts, generate_all(model, starts, condition.edit, tokens, apart=apart), strict=True)
            written.append([decode([*ids, *more])[len(decode(ids)) :] for ids, more in found])
        return xarray.Dataset(
            {
                "text": (("edit", "prompt"), np.array(written)),
                "start": (("prompt",), np.array(list(map(decode, starts)))),
            },
            {"edit": [condition.label for condition in shown], "prompt": np.arange(len(starts))},
        )

    return Calculation(TEXTS, compute, ("text", "start"), prompts, inputs, beside=_while_writing, optional=True)


def _while_writing(config: Config, dtype: str) -> int:
    """Return the bytes that continuations need on a CPU beside the model."""
    return Unstacked.copied_bytes(config, dtype) + widened_bytes(config, dtype, "cpu")


def samples(data: xarray.Dataset) -> tuple[Sample, ...]:
    """Return the lines of a page from the store of `continuations`."""
    edits, starts = map(str, data["edit"].values), data["start"].values
    return tuple(
        Sample(str(start), edit, str(text))
        for edit, row in zip(edits, data["text"].values, strict=True)
        for start, text in zip(starts, row, strict=True)
    )
