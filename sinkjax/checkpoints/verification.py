"""Proof that a model computes the same here as in transformers: eight tokens through both, compared after every block.

Eight tokens do not show what begins later, such as a window of attention. PyTorch is never imported: the model brings it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.params import count
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import Statistic
from sinkjax.runtime import display, extras
from sinkjax.runtime.backend import host_memory
from sinkjax.transformer.forward import forward

TOKENS = 8
CLOSE, CLOSE_16 = 3e-4, 0.1  # largest relative differences by rounding: 6e-6 after 30 blocks in float32, 0.03 in 16 bits
STREAM = Statistic("stream", Site.RESID, lambda x, _: x, ("prompt", "depth", "position", "width"))


@dataclass(frozen=True)
class Verification:
    """The differences between transformers and sinkjax on eight tokens.

    Attributes:
        places: "embedding", "block 0", ..., "logits".
        largest: Largest absolute difference at each place.
        relative: The same relative to a position's vector: the largest of |difference| / |value| over the positions, as norms.
        dtype: The dtype in which transformers computed.
        tolerance: Largest relative difference that rounding explains.
    """

    places: tuple[str, ...]
    largest: tuple[float, ...]
    relative: tuple[float, ...]
    dtype: str
    tolerance: float

    @property
    def first(self) -> str | None:
        """The first place that differs by more than rounding, or None."""
        return next((place for place, one in zip(self.places, self.relative, strict=True) if not one <= self.tolerance), None)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return one row per place: its name and both differences."""
        return [(p, f"{a:.1e}", f"{r:.1e}") for p, a, r in zip(self.places, self.largest, self.relative, strict=True)]

    def _repr_html_(self) -> str:
        return display.table(f"{self.dtype}: {self.first or 'nothing'} differs", ("after", "largest", "relative"), self.rows())


def compare(live: Any, model: Model, exact: Callable[[], Model], attention_impl: str = "auto") -> Verification:
    """Compare a model of transformers in memory with its conversion.

    live: the model; its parameters are in float32 meanwhile if they have 16 bits and a copy fits. model: the conversion. exact:
    returns the conversion in float32. attention_impl: as for `forward`. Errors: the model of transformers does not run.
    """
    config, vocabulary = model.config, int(model.config.vocab_size or 0)
    ids = np.linspace(0.1 * vocabulary, 0.5 * vocabulary, min(TOKENS, config.context)).astype(np.int32)  # few special tokens
    narrow = any(_narrow(weight) for weight in live.parameters())
    narrow_here = model.source["dtype"] in ("bfloat16", "float16")
    fits = 4 * count(config) * (narrow + narrow_here) < host_memory()
    blocks, theirs = _blocks(live, config.layers), None
    if fits and narrow:
        try:
            with _widened(live):
                theirs = _theirs(live, blocks, ids)
        except SinkjaxError:  # kernels that take 16 bits only, or no memory
            fits = False
    if theirs is None:
        theirs = _theirs(live, blocks, ids)
    ours = exact() if fits and narrow_here else model
    out = forward(ours, ids[None], probe=Probe(extra=(STREAM,)), attention_impl=attention_impl)
    stream = [*np.asarray(out.record["stream"])[0]] if blocks else []
    places = [*(("embedding", *(f"block {layer}" for layer in range(config.layers))) if blocks else ()), "logits"]
    here = [*stream, np.asarray(out.logits)[0]]
    differences = [_difference(one, np.asarray(other, np.float64)) for one, other in zip(theirs, here, strict=True)]
    largest, relative = zip(*differences, strict=True)
    rounded = (narrow or narrow_here) and not fits
    tables = any(map(_narrow, live.buffers()))  # as .half() rounds the rotary frequencies
    dtype = str(next(live.parameters()).dtype).removeprefix("torch.") if rounded or not narrow else "float32"
    return Verification(tuple(places), largest, relative, dtype, CLOSE_16 if rounded or tables else CLOSE)


def refuse_different(verification: Verification, live: Any) -> None:
    """Raise if a verification found a difference, naming the first place.

    Also raise if rotary settings differ, which eight tokens may not show.
    """
    if verification.first is None:
        _refuse_stale_rotation(live)
        return
    largest = verification.largest
    block = largest[verification.places.index(verification.first)]
    where = f"first after {verification.first}, by {block:.2g}, and in the logits by {largest[-1]:.2g}"
    kind = f"this {type(live).__name__} computes something else in transformers than its config and weights do here"
    way = "hooks, patched modules and adapters are not converted: remove or merge them, or pass verify=False"
    raise SinkjaxError(f"{kind}: it differs {where} (eight tokens, {verification.dtype}); {way}")


def _refuse_stale_rotation(live: Any) -> None:
    """Raise if a rotary table was made from other settings than its config has now, such as a scaling of long prompts."""
    for name, module in live.named_modules():
        if not hasattr(module, "rope_type") or not hasattr(module, "config"):
            continue
        try:
            wanted = _settings(type(module)(module.config))
        except TypeError:  # a class with other arguments
            continue
        except Exception as error:
            raise SinkjaxError(f"{name} of this model cannot be made from its config as it is now: {_reason(error)}") from None
        made = _settings(module)
        for key in wanted:
            stale = f"{name} of this {type(live).__name__} was made with {key} {made.get(key)!r}, and its config now has"
            way = "load it with the changed config, restore the config, or pass verify=False for what it says"
            unread = f"{stale} {wanted[key]!r}, which a loaded model of transformers does not read: {way}"
            refuse(made.get(key) != wanted[key], unread)


def _settings(module: Any) -> dict[str, Any]:
    """Return a module's plain settings, without the ones that a forward pass changes."""
    values = {key: value for key, value in vars(module).items() if isinstance(value, int | float | str | dict)}
    return {key: value for key, value in values.items() if key[0] != "_" and key not in ("training", "max_seq_len_cached")}


def from_files(files: Sequence[Path], name: str, dtype: str) -> Any:
    """Load a folder or a GGUF with transformers, without its own code. Errors: transformers cannot load it."""
    extras.require("verify", "hub", "transformers")
    import transformers

    refuse(len(files) > 1, f"transformers cannot read the GGUF of {name} in {len(files)} pieces")
    where, options = files[0], dict[str, Any]()
    if where.is_file():
        where, options = where.parent, {"gguf_file": where.name}
    try:
        options |= {"dtype": dtype, "local_files_only": True, "trust_remote_code": False}
        with redirect_stderr(io.StringIO()):  # bars of progress
            live = transformers.AutoModelForCausalLM.from_pretrained(where, **options)
    except Exception as error:  # it fails in many ways
        raise SinkjaxError(f"transformers cannot load {name} to compare with: {_reason(error)}") from None
    return live.eval()


def _theirs(live: Any, blocks: Sequence[Any], ids: np.ndarray) -> list[np.ndarray | None]:
    """Return the input of the first block, the output of each (None if it did not run), and the logits, float64 [T, ...].

    Modules are set to evaluate. Our own hooks are first at the inputs and last at the outputs, so that the user's take effect.
    """
    outputs: list[Any] = [None] * (len(blocks) + 1 if blocks else 0)

    def keep(depth: int, value: Any) -> None:
        outputs[depth] = value[0] if isinstance(value, tuple) else value

    def inputs(_: Any, given: Any, named: Any) -> None:
        keep(0, given[0] if given else named["hidden_states"])

    weight = live.get_input_embeddings().weight
    tokens = weight.detach()[:0].double().new_tensor(ids[None]).long()
    training = [module for module in live.modules() if module.training]
    with ExitStack() as after:
        if blocks:
            after.callback(blocks[0].register_forward_pre_hook(inputs, with_kwargs=True, prepend=True).remove)
        for depth, block in enumerate(blocks, 1):
            hook = block.register_forward_hook(lambda _, __, output, depth=depth: keep(depth, output))
            after.callback(hook.remove)
        for module in training:
            module.training = False
            after.callback(setattr, module, "training", True)
        try:
            outputs.append(live(input_ids=tokens, use_cache=False).logits)
        except Exception as error:  # the model's own code
            stuck = f"this {type(live).__name__} does not run, so it cannot be compared ({_reason(error)})"
            raise SinkjaxError(f"{stuck}; pass verify=False to convert its weights") from None
    return [None if value is None else value.detach().double().cpu().numpy()[0] for value in outputs]


def _blocks(live: Any, layers: int) -> list[Any]:
    """Return the blocks of a model of transformers: its outermost list of as many modules, or nothing."""
    lists = (module for module in live.modules() if type(module).__name__ == "ModuleList")
    return next(([*modules] for modules in lists if len(modules) == layers), [])


def _difference(theirs: np.ndarray | None, ours: np.ndarray) -> tuple[float, float]:
    """Return the largest absolute, and the largest relative difference of a position; NaN equals NaN."""
    if theirs is None or theirs.shape != ours.shape:
        return float("inf"), float("inf")
    same = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))
    gap = np.where(same, 0, np.nan_to_num(np.abs(theirs - ours), nan=np.inf))
    size = np.linalg.norm(np.nan_to_num(theirs), axis=-1)
    return float(gap.max()), float((np.linalg.norm(gap, axis=-1) / np.maximum(size, 1e-30)).max())


@contextmanager
def _widened(live: Any) -> Iterator[None]:
    """Give a model float32 copies of its numbers of 16 bits, and its own back afterwards."""
    with ExitStack() as after:
        for weight in live.parameters():
            if _narrow(weight):
                after.callback(setattr, weight, "data", weight.data)
                weight.data = weight.data.float()
        for module in live.modules():
            for name, value in [*module._buffers.items()]:
                if value is not None and _narrow(value):
                    after.callback(module._buffers.__setitem__, name, value)
                    module._buffers[name] = value.float()
        yield


def _narrow(tensor: Any) -> bool:
    return bool(tensor.is_floating_point()) and tensor.element_size() < 4


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [short(error)])[0][:300]}"
