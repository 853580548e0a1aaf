"""`load`: load a model by name, with its parameters on the device."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax.sharding import Mesh

from sinkjax.checkpoints import adapters, native
from sinkjax.checkpoints.architectures import architecture, architectures
from sinkjax.checkpoints.fields import let_pass
from sinkjax.checkpoints.folder import CONFIG, read_folder
from sinkjax.checkpoints.gguf import read_gguf_checkpoint
from sinkjax.checkpoints.hf_config import CODE
from sinkjax.checkpoints.hub import HUB_ID, find_snapshot
from sinkjax.checkpoints.model import Checkpoint, Model, hint
from sinkjax.checkpoints.presets import PRESETS, packaged, preset_files
from sinkjax.checkpoints.stream import load_params
from sinkjax.checkpoints.tokenizer_files import read_folder_tokenizer
from sinkjax.checkpoints.untrained import PREFIX, draw_params, untrained
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.errors import SinkjaxError, short, unknown
from sinkjax.model.params import check_dtype, count
from sinkjax.model.positions import Learned
from sinkjax.runtime.backend import host_memory
from sinkjax.runtime.settings import fixed_settings

if TYPE_CHECKING:
    from sinkjax.checkpoints.verification import Verification


@fixed_settings
def load(
    source: str | os.PathLike[str],
    dtype: str = "float32",
    revision: str | None = None,
    mesh: Mesh | None = None,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    check: bool = True,
    context: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    verify: bool = False,
) -> Model:
    """Load a model of any family (see sinkjax/checkpoints/families/), or one written by `save`; weights are cast, not changed.

    Args:
        source: A preset ("smollm2-135m"), the name of a model inside this package (`presets.packaged`), the short name of a
            model on the Hub (`architectures.architectures`), a folder from Hugging Face or `save`, a .gguf file, or a hub id
            "owner/name". These are tried in this order, the Hub after the local cache. With the prefix "untrained:", the model
            has the same architecture and tokenizer with random weights (`untrained.draw_params`), and no weights are read.
        dtype: Dtype of all parameters: "float32", "bfloat16", "float16", or "float64" if x64 is enabled.
        revision: Branch, tag or commit of a hub id.
        mesh: Devices over which to shard the parameters, by `params.RULES`, as an automatic mesh regardless of its axis types;
            None for the default device.
        ignore_keys: Config keys, metadata keys and tensor names (with * for any characters) to ignore deliberately if they are
            not understood.
        assume: Values for config.json keys that the files omit. rms_norm_eps, tie_word_embeddings,
            hidden_act, max_position_embeddings, every size and (except for the documented absences in the family's `defaults`)
            rope_theta, num_key_value_heads and head_dim must come from the files or from here.
        check: Whether NaN or infinite weights are an error; False lets you study a broken model.
        context: Maximum prompt length in tokens, replacing the files' value; it can be larger unless positions are learned. It
            is stored with every result, in the config, and noted in the model's source.
        tokenizer: A source, as above, whose tokenizer is used if the files have none; None for their own.
        verify: Whether to load the same files with transformers too, and raise an error if it computes different numbers on
            eight tokens.

    Returns:
        The model, with its parameters on the device.

    Raises:
        SinkjaxError: A file, key, tensor or dtype (which is named) is missing, unknown, damaged or contradictory; with `verify`,
            transformers computes different numbers.
    """
    check_dtype(dtype)
    refuse(not isinstance(source, str | os.PathLike), f"the model must be a name or a path, not {short(source)}{hint(source)}")
    ignore_keys = check_left_out(ignore_keys, assume)
    refuse(not isinstance(mesh, Mesh | None), f"mesh must be a jax.sharding.Mesh, not {short(mesh)}")
    refuse(not isinstance(tokenizer, str | os.PathLike | None), f"tokenizer must be a name or a path, not {short(tokenizer)}")
    checkpoint = open_checkpoint(os.fspath(source), revision, ignore_keys, assume)
    if ignore_keys:
        checkpoint = _renamed(checkpoint, ignore_keys=[*ignore_keys])
    if context is not None:
        checkpoint = with_context(checkpoint, context)
    if tokenizer is not None:
        checkpoint = with_tokenizer(checkpoint, os.fspath(tokenizer))
    model = load_checkpoint(checkpoint, dtype, mesh, check)
    if verify:
        verification, live = _compared(os.fspath(source), revision, checkpoint, model)
        from sinkjax.checkpoints.verification import refuse_different

        refuse_different(verification, live)
    return model


@fixed_settings
def verify(
    source: str | os.PathLike[str],
    revision: str | None = None,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    attention_impl: str = "auto",
) -> Verification:
    """Compare a model with transformers, which loads the same files, on eight tokens in float32 (16 bits if that does not fit).

    Args:
        source, revision, ignore_keys, assume: See `load`.
        attention_impl: See `sinkjax.forward`.

    Returns:
        The difference after each block; `.first` is the first place that differs by more than rounding, or None.

    Raises:
        SinkjaxError: Any error of `load`; transformers is not installed, or cannot load the files; the model does not fit the
            attention.
    """
    checkpoint = open_checkpoint(os.fspath(source), revision, check_left_out(ignore_keys, assume), assume)
    model = load_checkpoint(checkpoint, _exact_dtype(checkpoint))
    return _compared(os.fspath(source), revision, checkpoint, model, attention_impl)[0]


def _exact_dtype(checkpoint: Checkpoint) -> str:
    """Return the dtype to compare in: float32 if two such copies fit."""
    return "float32" if 8 * count(checkpoint.config) < host_memory() else "bfloat16"


def _compared(
    source: str, revision: str | None, checkpoint: Checkpoint, model: Model, attention_impl: str = "auto"
) -> tuple[Verification, Any]:
    """Compare a loaded model with the one that transformers loads from the same files, and return both."""
    kind, native_format = checkpoint.source["kind"], checkpoint.source.get("model_type") == native.MODEL_TYPE
    refuse(kind == "untrained", f"{source} has random weights, so transformers has nothing to compare it with")
    refuse(native_format, f"{source} is in sinkjax's own format, which transformers does not read, so it cannot be compared")
    hub, files = hub_id(source), preset_files(source) if kind == "preset" else [packaged().get(source) or user_path(source)]
    from sinkjax.checkpoints.verification import compare, from_files  # probes import flax, which loading does without

    live = from_files([find_snapshot(hub, revision)] if hub else files, source, _exact_dtype(checkpoint))
    return compare(live, model, lambda: load_checkpoint(checkpoint, "float32"), attention_impl), live


def check_left_out(ignore_keys: Any, assume: Any) -> tuple[str, ...]:
    """Validate `ignore_keys` and `assume`, and return `ignore_keys` as a tuple; a single string counts as one name."""
    mapping = isinstance(assume, Mapping | None)
    refuse(not mapping, f"assume must be a mapping from config.json keys to values, not {short(assume)}")
    refuse(not isinstance(ignore_keys, Collection), f"ignore_keys must be a list of names, not {short(ignore_keys)}")
    return (ignore_keys,) if isinstance(ignore_keys, str) else tuple(ignore_keys)


def load_checkpoint(checkpoint: Checkpoint, dtype: str, mesh: Mesh | None = None, check: bool = True) -> Model:
    """Load the model of a checkpoint; arguments and errors as for `load`."""
    auto = mesh and Mesh(mesh.devices, mesh.axis_names)  # an explicit mesh would require a sharding for every intermediate
    random = checkpoint.source["kind"] == "untrained"
    params, digest = draw_params(checkpoint, dtype, auto) if random else load_params(checkpoint, dtype, auto, check)
    tokenizer = checkpoint.tokenizer
    ids = {"bos": tokenizer.bos, "eos": tokenizer.eos} if tokenizer else {"bos": None, "eos": None}
    source = {"revision": None, **checkpoint.source, **ids, "sha256": digest, "dtype": dtype}
    return Model(checkpoint.config, params, tokenizer, source)


def untrained_like(model: Model, mesh: Mesh | None = None) -> Model:
    """Return the architecture and tokenizer of a model in memory with random weights, drawn as by `load("untrained:...")`.

    The standard deviation is 0.02, because a model in memory does not record its initial one.

    Args:
        model: The model.
        mesh: See `load`.

    Returns:
        The untrained twin, in the model's dtype.
    """
    name = str(model.source["name"])
    source = {"assumed": {}, **model.source}
    stated = Checkpoint(name, model.config, None, {}, (), model.tokenizer, source)
    return load_checkpoint(untrained(stated, f"{PREFIX}{name}"), str(model.source["dtype"]), mesh)


def hub_id(source: str) -> str | None:
    """Return the hub id that `load` uses for a source; None for a local source."""
    if source in architectures():
        return architectures()[source].hub
    path = user_path(source)
    here = source in PRESETS or source.startswith(PREFIX) or path.exists() or path.suffix == ".gguf"
    return source if not here and HUB_ID.fullmatch(source) else None


def open_checkpoint(
    source: str,
    revision: str | None = None,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    weights: bool = True,
) -> Checkpoint:
    """Open the checkpoint of a name without reading its weights; arguments and errors as for `load`.

    weights: whether the weights must exist. If not, a name in `architectures` needs no network, but has no tokenizer.
    """
    if source.startswith(PREFIX):
        trained = source.removeprefix(PREFIX)
        refuse(trained.startswith(PREFIX), f"{PREFIX!r} stands before a trained model, once, not as in {source!r}")
        return untrained(open_checkpoint(trained, revision, ignore_keys, assume, weights=False), source)
    if source in architectures():
        if not weights and revision is None:
            return architecture(source)
        return open_checkpoint(architectures()[source].hub, revision, ignore_keys, assume, weights)
    path, hub = user_path(source), hub_id(source) is not None
    refuse(revision is not None and not hub, f"revision={revision!r} is for hub ids, and {source!r} is not one here")
    if source in PRESETS:
        preset, read = PRESETS[source], read_gguf_checkpoint(preset_files(source), ignore_keys, assume)
        read = dataclasses.replace(read, initializer_range=preset.initializer_range)
        return _renamed(read, kind="preset", name=source, title=preset.title)
    if source in packaged():
        return _renamed(read_folder(packaged()[source], ignore_keys, assume, weights), kind="packaged", name=source)
    if path.is_dir():
        return _open_folder(path, str(path), ignore_keys, assume, weights)
    if path.suffix == ".gguf":
        return read_gguf_checkpoint(path, ignore_keys, assume)
    refuse(path.exists(), f"{path} is neither a folder nor a .gguf file; of a Hugging Face model, give the folder")
    refuse(source.startswith(("/", "./", "../", "~")), f"there is no folder or .gguf file {source}")
    if hub:
        snapshot = find_snapshot(source, revision, weights)
        if source in {known.hub for known in architectures().values()}:
            ignore_keys = (*ignore_keys, CODE)  # their code became their family in transformers
        read = _open_folder(snapshot, source, ignore_keys, assume, weights)
        return _renamed(read, kind="hub", name=source, revision=snapshot.name)
    hint = " (sinkjax models lists them); or an existing folder, a .gguf file, or a hub id owner/name"
    raise unknown("model", source, [*PRESETS, *packaged(), *architectures()], hint)


def _open_folder(
    folder: Path, source: str, ignore_keys: Collection[str], assume: Mapping[str, Any] | None, weights: bool
) -> Checkpoint:
    """Read a folder, merging its adapter if it has one. source: the folder's name for `load`."""
    adapter = None if adapters.SETTINGS in ignore_keys else adapters.read_adapter(folder)
    if adapter is None:
        return read_folder(folder, ignore_keys, assume, weights)
    base = user_path(adapter.base)
    if (folder / CONFIG).is_file():
        same = adapter.base == source or (base.is_dir() and base.samefile(folder))
        both = f"{folder} holds both a model and an adapter for another one, {short(adapter.base)}: to merge the adapter, move it"
        as_they_are = f"to use the model's weights as they are, {let_pass([adapters.SETTINGS])}"
        refuse(not same, f"{both} into its own folder; {as_they_are}")
        read = read_folder(folder, ignore_keys, assume, weights)
    else:
        no_model = base.is_dir() and not (base / CONFIG).is_file()
        refuse(no_model, f"the adapter in {folder} changes {base}, which is not a model: it has no {CONFIG}")
        read = open_checkpoint(adapter.base, adapter.revision, ignore_keys, assume, weights)
        read = dataclasses.replace(read, tokenizer=read_folder_tokenizer(folder, {}, ignore_keys) or read.tokenizer)
    return adapters.merge(read, adapter) if weights else read


def with_tokenizer(checkpoint: Checkpoint, source: str) -> Checkpoint:
    """Replace the checkpoint's tokenizer by another source's, which is noted in its own source. Errors: there is none."""
    try:
        tokenizer = open_checkpoint(source, weights=False).tokenizer
    except SinkjaxError as error:
        raise SinkjaxError(f"tokenizer: {error}") from None
    refuse(tokenizer is None, f"tokenizer: {source} has none either")
    return _renamed(dataclasses.replace(checkpoint, tokenizer=tokenizer), tokenizer=source)


def with_context(checkpoint: Checkpoint, context: int) -> Checkpoint:
    """Change the checkpoint's longest prompt. Errors: not an int of at least 1; learned positions, whose number is fixed."""
    config, learned = checkpoint.config, isinstance(checkpoint.config.position, Learned)
    refuse(learned, f"context={context} does not fit {checkpoint.where}: its {config.context} positions are learned")
    changed = dataclasses.replace(checkpoint, config=dataclasses.replace(config, context=context))
    return _renamed(changed, stated_context=config.context)


def _renamed(checkpoint: Checkpoint, **source: Any) -> Checkpoint:
    return dataclasses.replace(checkpoint, source={**checkpoint.source, **source})
