"""Print lists of models and of their sites, without reading weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.family import families, origin, registered
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.checkpoints.presets import PRESETS, packaged, preset_files
from sinkjax.config_files.checks import MOST, refuse
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.model.config import Config
from sinkjax.model.site import BEFORE_BLOCKS, SITES, Site, lacks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.terminal import in_words, show
from sinkjax.runtime.folding import folded
from sinkjax.transformer.forward import forward

LENGTH = 64  # tokens of a prompt in a list of sites


def show_models(verbose: bool = False) -> None:
    """Print the presets and whether they are installed, the models in this package, the names of hub ids, and the families.

    verbose: whether to print, for each family, the token that separated documents in pretraining.
    """
    _list("presets", [(name, preset.title, _installed(name)) for name, preset in PRESETS.items()])
    own = [(name, f"{_count(name):,} parameters", _size(folder.iterdir())) for name, folder in packaged().items()]
    _list("trained by sinkjax, in this package", own)
    known = [(name, entry.hub, f"{_count(name):,} parameters") for name, entry in architectures().items()]
    _list("on the hub; a plan, or untrained:NAME, needs no download", known)
    if verbose:
        caption = "to our knowledge, from papers, model cards and maintainers; what stands in front of a prompt is up to `bos`"
        show("families: what stood between documents in pretraining", SEPARATORS, separators(), caption)
    every = ", ".join([*families(), *(f"{name} (of {origin(name)})" for name in registered())])
    print(folded(f"families: {every} (model_type of a Hugging Face folder or hub id, or a .gguf file of one)", hang="  "))


SEPARATORS = ("family", "token", "in front of documents", "remarks")


def separators() -> list[tuple[str, str, str, str]]:
    """Return one line per family, as named in SEPARATORS."""
    words = {True: "yes", False: "no", None: "not known"}
    known = [(name, family.separator) for name, family in families().items()]
    return [
        (name, one.token, words[one.in_front], one.note) if one else (name, "not known", "not known", "") for name, one in known
    ]


def show_model(source: str, ignore_keys: Collection[str] = ()) -> None:
    """Print the architecture of a model."""
    checkpoint = open_checkpoint(source, ignore_keys=ignore_keys, weights=False)
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    lines = [(field.name, getattr(config, field.name)) for field in dataclasses.fields(config)]
    lines.append(("parameters", f"{params.count(config):,}"))
    lines.append(("BOS", "no tokenizer" if tokenizer is None else "none" if tokenizer.bos is None else tokenizer.bos))
    lines.append(("stored as", checkpoint.source.get("stored") or "no weights"))
    if package := checkpoint.source.get("family_from"):
        lines.append(("family from", package))
    lines += [(f"assumed {name}", value) for name, value in checkpoint.source["assumed"].items()]
    show(source, ("", ""), lines)


def show_sites(source: str, prompts: int, length: int | None, dtype: str, ignore_keys: Collection[str] = ()) -> None:
    """Print each site's axes, shape, bytes and operations for a batch, from an abstract evaluation.

    length: tokens per prompt; None: `LENGTH`, or the context of a model that has a shorter one.
    """
    params.check_dtype(dtype)
    config = open_checkpoint(source, ignore_keys=ignore_keys, weights=False).config
    length = min(LENGTH, config.context) if length is None else length
    arrays = site_arrays(config, prompts, length, dtype)
    lines = []
    for site, spec in SITES.items():
        if lacks(config, site):
            continue
        axes, cost = list(spec.axes), ""
        if (array := arrays.get(site)) is not None:
            axes = [f"{axis} {size}" for axis, size in zip(spec.axes, array.shape, strict=True)]
            cost = in_words(math.prod(array.shape) * array.dtype.itemsize)
        lines.append((site.value, ", ".join(axes), cost, ", ".join(spec.ops), spec.what))
    caption = (
        f"{prompts} x {length} tokens in {dtype}; each site but embed exists in all {config.layers} layers, the bytes are of one"
    )
    show(f"sites of {source}", ("site", "shape", "bytes", "operations", "what it is"), lines, caption)


def site_arrays(config: Config, prompts: int, length: int, dtype: str) -> dict[Site, jax.ShapeDtypeStruct]:
    """Evaluate the array at each site of one layer abstractly, except POSITION, which contains indices."""
    most = MOST["prompts"]
    refuse(not 1 <= prompts <= most, f"--prompts must be 1 to {most:,}, not {prompts:,}")
    refuse(not 1 <= length <= config.context, f"--length must be 1 to {config.context:,}, the model's context, not {length:,}")
    weights = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), params.abstract(config))
    tokens = jax.ShapeDtypeStruct((prompts, length), jnp.int32)
    probe = Probe(
        capture=tuple(Capture(site, layers=(0,)) for site in SITES if site != Site.POSITION and not lacks(config, site))
    )

    def record(weights: params.Params, tokens: jax.Array) -> dict[str, jax.Array]:
        return dict(forward(weights, tokens, config, probe=probe, logits=False).record)

    captured = jax.eval_shape(record, weights, tokens)
    arrays = {entry.site: captured[entry.name] for entry in probe.captures}
    return {
        site: array if site in BEFORE_BLOCKS else jax.ShapeDtypeStruct((array.shape[0], *array.shape[2:]), array.dtype)
        for site, array in arrays.items()
    }


def _count(model: str) -> int:
    return params.count(open_checkpoint(model, weights=False).config)


def _list(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a line a model, as wide as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    print(title)
    for name, what, state in rows:
        print(f"  {name:{widths[0]}}  {what:{widths[1]}}  {state}")
    print()


def _installed(preset: str) -> str:
    try:
        return f"installed, {_size(preset_files(preset))} ({PRESETS[preset].requirement})"
    except SinkjaxError as missing:
        return f"not installed: {str(missing).partition('run: ')[2]}"


def _size(files: Iterable[Path]) -> str:
    return in_words(sum(file.stat().st_size for file in files))
