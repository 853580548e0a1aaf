"""The sink prefix: the keys and values of a sink token, computed once and put in front of every prompt.

A token that sees only itself equals that token alone, so its keys and values do not depend on the prompt. With them in front,
heads have their sink, and no token of the prompt needs to become one (PrefixQuant, Chen et al. 2024, arXiv 2410.05265;
CushionCache, Son et al. 2024, arXiv 2406.12016).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.checkpoints.family import dims_of_keys
from sinkjax.checkpoints.model import check_model
from sinkjax.checkpoints.safetensors import packed, read_metadata, read_safetensors
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path, write
from sinkjax.errors import SinkjaxError
from sinkjax.explain.scan import packaged, scan
from sinkjax.model.batch import as_indices, refuse_outside
from sinkjax.model.fingerprint import ModelIdentity, digest
from sinkjax.model.params import check
from sinkjax.probes.probe import Probe
from sinkjax.runtime import display
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.past import Past, computed, put_in_front, refuse_not_finite
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

CHECKSUM, NO_SUM = "checksum", b"0" * 16  # in the metadata: the digest of the file in which it is NO_SUM itself
SAMPLE = 2048  # tokens of a large vocabulary that are tried, besides its special ones


@struct.dataclass
class SinkPrefix(Past):
    """The keys and values of a few tokens that see only themselves and each other.

    It is a pytree, so `jax.grad` differentiates with respect to its arrays.

    Attributes:
        keys: float [L, P, K, D], as attention reads them: normed, and rotated at positions 0 to P - 1.
        values: float [L, P, K, D].
        tokens: The ids of these tokens, P ints.
        dims: The index in transformers' keys of each dim of a key, D ints; () if the order is the same.
    """

    tokens: tuple[int, ...] = struct.field(pytree_node=False, default=())
    dims: tuple[int, ...] = struct.field(pytree_node=False, default=())

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with the tensors of a transformers cache.

        `keys.N` and `values.N` of layer N are [1, K, P, D], as `DynamicCache.update` expects them; the metadata has the tokens,
        the model's identity and a checksum.

        Args:
            path: The file, which is replaced if it exists.

        Raises:
            SinkjaxError: The file cannot be written; a number is NaN or infinite; the prefix does not know its model, because it
                was computed inside a transformation of JAX.
        """
        write(user_path(path), self.packed())

    def packed(self) -> bytes:
        """Return the bytes of the file that `save` writes."""
        if self.model is None:
            raise SinkjaxError("a prefix made inside a transformation of JAX does not know its model: make it outside to save it")
        refuse_not_finite(self)
        keys = self.keys[..., np.argsort(self.dims)] if self.dims else self.keys
        arrays = {
            f"{name}.{layer}": np.asarray(array[layer]).swapaxes(0, 1)[None]
            for name, array in (("keys", keys), ("values", self.values))
            for layer in range(len(array))
        }
        about = {name: json.dumps(getattr(self, name)) for name in ("tokens", "dims")}
        about = {CHECKSUM: NO_SUM.decode(), **about, "model": json.dumps(self.model.to_json())}
        content = b"".join(packed(arrays, about))
        return content.replace(NO_SUM, _sum(content), 1)

    def _repr_html_(self) -> str:
        L, P, K, D = self.keys.shape
        rows = {"tokens": list(self.tokens), "positions": P, "layers": L, "key-value heads": K, "head width": D}
        return display.table("sink prefix", ("", ""), [*rows.items()])


@fixed_settings
def sink_prefix(model: Model, token: int | Sequence[int] | None = None) -> SinkPrefix:
    """Compute the keys and values of a token that sees only itself, for `past=` of `forward`, `sweep`, `evaluate` and `generate`.

    Args:
        model: The model.
        token: A token id, or a few, each of which sees itself and those before it. None: among the special tokens and 2,048
            others (or all others, if there are fewer), the one whose key, run alone, has the largest mean score in the heads
            that sink on the first token of packaged passages (`sinkjax.scan`). The passages begin with the model's BOS or, if it
            has none or no head sinks on it, with their own first token.

    Returns:
        The prefix, in the model's dtype.

    Raises:
        SinkjaxError: The model has no vocabulary; a token is outside it; the tokens do not fit into the context, or their keys
            would depend on the prompt; `token` is None and no head sinks, or the model has no tokenizer.
    """
    check_model(model)
    config = model.config
    if config.vocab_size is None:
        raise SinkjaxError("this model has no vocabulary, so a sink prefix has no token")
    check(model.params, config)
    tokens = (best_token(model),) if token is None else as_indices("token", token)
    refuse_outside(np.array([tokens]), config.vocab_size)
    spec = ForwardSpec(config=config, probe=Probe(), logits=False)
    past = computed(model.params, np.array(tokens, np.int32), spec=spec)
    put_in_front(model.params, past, config, 1)
    dims = dims_of_keys(model.source.get("model_type"), config)
    return SinkPrefix(past.keys, past.values, tokens, dims, model=ModelIdentity.of(model.params, config, model.source))


def best_token(model: Model) -> int:
    """Return the token whose key alone the sinking heads score highest on average. Errors: as for `sink_prefix`."""
    V, tokenizer = model.config.vocab_size, model.tokenizer
    assert V is not None
    if tokenizer is None:
        raise SinkjaxError("a model without a tokenizer has no text to scan, so name the token of the sink prefix")
    drawn = np.random.default_rng(0).choice(V, SAMPLE, replace=False) if V > SAMPLE else np.arange(V)
    ids = np.unique([*drawn, *(token for token in tokenizer.special if token < V)])
    for bos in ("model", "none")[tokenizer.bos is None :]:
        text, lengths = packaged(model, bos)
        scanned = scan(model, ids, text, lengths)
        if scanned.sizes["sink"]:
            return int(ids[int(scanned["score"].mean("sink").values.argmax())])
    raise SinkjaxError("no head of this model sinks on the first token of the packaged passages; name a token all the same")


def load_prefix(path: str | Path) -> SinkPrefix:
    """Read a prefix that `SinkPrefix.save` wrote.

    Args:
        path: The file.

    Returns:
        The prefix, in the dtype of the file.

    Raises:
        SinkjaxError: The file is missing or corrupt, has changed since it was written, or is not a sink prefix; sinkjax 0.4 or
            earlier wrote it, without a checksum and its model. A prefix of another model is refused only when it is used.
    """
    path = user_path(path)
    tensors, about = read_safetensors(path), read_metadata(path)
    wanted = [[f"{name}.{layer}" for layer in range(len(tensors) // 2)] for name in ("keys", "values")]
    whole = {*wanted[0], *wanted[1]} == tensors.keys() and "tokens" in about
    refuse(not whole, f"{path} is not a sink prefix: it must have keys.N and values.N of each layer, and its tokens")
    if not {CHECKSUM, "model"} <= about.keys():
        raise SinkjaxError(
            f"{path} has no checksum and names no model (sinkjax 0.4 and other programs write such files): make it again by"
            f" sinkjax.sink_prefix(model, {about['tokens']}).save({str(path)!r})"
        )
    content, stated = path.read_bytes(), about[CHECKSUM].encode()
    refuse(_sum(content.replace(stated, NO_SUM, 1)) != stated, f"{path} has changed since it was written: make it again")
    tokens, dims = (tuple(json.loads(about[name])) for name in ("tokens", "dims"))
    keys, values = (jnp.stack([jnp.asarray(tensors[name].array())[0].swapaxes(0, 1) for name in names]) for names in wanted)
    kept = {tensor.stored for tensor in tensors.values()}
    refuse(kept != {str(keys.dtype)}, f"{path} has keys and values in {', '.join(sorted(kept))}; float64 needs jax_enable_x64")
    model = ModelIdentity.read(json.loads(about["model"]), path)
    prefix = SinkPrefix(keys[..., np.array(dims)] if dims else keys, values, tokens, dims, model=model)
    refuse_not_finite(prefix)
    return prefix


def _sum(content: bytes) -> bytes:
    return digest(np.frombuffer(content, np.uint8)).encode()
