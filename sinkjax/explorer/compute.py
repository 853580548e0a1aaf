"""Compute the page's numbers from a model and a state: one program per kind of edit and size."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.analysis import metrics
from sinkjax.checkpoints.model import Model, check_model
from sinkjax.config_files.checks import refuse
from sinkjax.data.prompts import bos_ids, encode
from sinkjax.edits.edit import resolve
from sinkjax.edits.term import Edits
from sinkjax.edits.weights import editable, shape_of
from sinkjax.errors import SinkjaxError
from sinkjax.explain.attribution import attribute
from sinkjax.explorer.state import KINDS, State, edits_of
from sinkjax.generation import generate
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.quantisation import MATRICES
from sinkjax.model.site import Site, lacks
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec

LONGEST = 512  # maximum tokens of a prompt
SIZES = (32, 64, 128, 256, LONGEST)  # prompts are padded to multiples of this, so that few lengths are compiled
WORDS = 10  # number of most likely next words
COMPONENTS = 10  # number of components shown, by the size of their effects
MOST_BYTES = 10**9  # maximum bytes of the attention maps of all layers and heads
REMEMBERED = 4  # number of results whose maps stay on the device

PROBE = Probe(attention=True, attention_received=True, resid_max=True, resid_argmax=True, nll=True)


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt as tokens, int32 [1, size], padded on the right. lengths: int32 [1], without padding; texts: one per token."""

    tokens: np.ndarray
    lengths: np.ndarray
    texts: tuple[str, ...]


@partial(jax.jit, static_argnames="config")
def measured(params: Params, tokens: jax.Array, lengths: jax.Array, edits: Edits, *, config: Config) -> tuple[Record, Any]:
    """Measure a prompt: the record with maps of all layers, and the probabilities and ids of the most likely next tokens."""
    spec = ForwardSpec(config=config, probe=PROBE, logits=True)
    out = run(params, tokens, lengths, edits, spec=spec)
    assert out.logits is not None
    return out.record, jax.lax.top_k(jax.nn.softmax(out.logits[0, lengths[0] - 1]), min(WORDS, out.logits.shape[-1]))


class Workbench:
    """A model for measuring states; recent measurements are cached, so that a change of view computes nothing."""

    def __init__(self, model: Model):
        check_model(model)
        if model.tokenizer is None or model.config.vocab_size is None:
            raise SinkjaxError(
                f"the explorer reads prompts, and {model.source['name']} has no tokenizer: name a source of one as tokenizer"
            )
        self.model, self.tokenizer = model, model.tokenizer
        self.prompt = functools.lru_cache(REMEMBERED)(self._prompt)
        self._measured = functools.lru_cache(REMEMBERED)(self._measure)

    def kinds(self) -> list[str]:
        """The kinds of edits available in this model."""
        without = {"drop_mlp"} if lacks(self.model.config, Site.MLP_OUT) else set()
        return [kind for kind in KINDS if kind not in without]

    def matrices(self) -> dict[str, Any]:
        """Rows and columns of the matrices whose entries can be scaled, by name."""
        config = self.model.config
        return {name: shape_of(name, config) for name in MATRICES if name in editable(config)}

    def named(self) -> dict[str, Any]:
        """Fields of a sweep's config that specify how to load the model."""
        source, names = self.model.source, ("revision", "ignore_keys", "tokenizer", "dtype")
        return {"model": str(source["name"])} | {name: source[name] for name in names if source.get(name)}

    def facts(self) -> dict[str, Any]:
        """Facts about the model for the page."""
        config, source = self.model.config, self.model.source
        return {
            "model": source["name"],
            "title": source.get("title") or source["name"],
            "layers": config.layers,
            "heads": config.heads,
            "width": config.width,
            "bos": self.tokenizer.bos is not None,
            "longest": min(LONGEST, config.context),
            "kinds": ["none", *self.kinds()],
            "matrices": self.matrices(),
        }

    def _prompt(self, text: str, bos: str) -> Prompt:
        tokenizer, config = self.tokenizer, self.model.config
        count, most = len(bos_ids(self.model, bos)) + len(tokenizer.encode(text)), min(LONGEST, config.context)
        refuse(count > most, f"the prompt has {count} tokens, and the explorer shows at most {most}")
        refuse(count < 2, "the prompt has one token, and at least two are needed")
        size = min(next(size for size in SIZES if size >= count), config.context)
        needed = 4 * config.layers * config.heads * size * size
        if needed > MOST_BYTES:
            raise SinkjaxError(
                f"the attention maps of {count} tokens take {needed / 1e9:.1f} GB in this model, more than"
                f" {MOST_BYTES / 1e9:.0f} GB: use a shorter prompt"
            )
        tokens, lengths = encode(self.model, [text], bos=bos, length=size)
        return Prompt(tokens, lengths, tuple(tokenizer.tokens(tokens[0, : lengths[0]].tolist())))

    @fixed_settings
    def _measure(self, edited: State) -> tuple[Record, Any]:
        prompt = self.prompt(edited.prompt, edited.bos)
        edits = edits_of(edited)
        resolve(edits, self.model.config, prompt.lengths, len(prompt.texts))  # so that errors do not count padding
        resolved = resolve(edits, self.model.config, prompt.lengths, prompt.tokens.shape[1])
        return measured(self.model.params, prompt.tokens, prompt.lengths, resolved, config=self.model.config)

    @fixed_settings
    def view(self, state: State) -> dict[str, Any]:
        """Return the page's numbers for a state, before and after the edit (None if there is no edit).

        Arrays cover the prompt's own positions: attention [query, key], received [layer, key], largest [depth, position] and its
        dim, sink [layer], loss [position] with NaN at the last. words and chances: the most likely next words.

        Args:
            state: The displayed state.

        Returns:
            The page's data, with arrays encoded by `packed`.

        Raises:
            SinkjaxError: The prompt is too long or cannot be encoded; the edit or the view does not fit the model.
        """
        config, prompt = self.model.config, self.prompt(state.prompt, state.bos)
        check_shown("layer", state.layer, config.layers)
        check_shown("head", state.head or 0, config.heads)
        check_shown("key", state.key, len(prompt.texts))
        before = self._measured(without_edit(state))
        after = None if state.kind == "none" else self._measured(looking_nowhere(state))
        cells = {} if after is None else {name: int(after[0][f"cells_{name}"].sum()) for name in ("addressed", "changed")}
        return {
            "tokens": prompt.texts,
            "before": self._shown(state, len(prompt.texts), *before),
            "after": None if after is None else self._shown(state, len(prompt.texts), *after),
            **cells,
        }

    def _shown(self, state: State, n: int, record: Record, likeliest: tuple[jax.Array, jax.Array]) -> dict[str, Any]:
        chances, ids = (np.asarray(array) for array in likeliest)
        received = np.asarray(record["attention_received"])
        return {
            "attention": packed(_map(record["attention"], state.layer, -1 if state.head is None else state.head)[:n, :n]),
            "received": packed(received[0, :, :, :n].mean(axis=1)),
            "largest": packed(np.asarray(record["resid_max"])[0, :, :n]),
            "dim": np.asarray(record["resid_argmax"])[0, :, :n].tolist(),
            "sink": packed(metrics.sink_rate({"attention_received": received}, key=state.key, per="layer")[0]),
            "loss": packed(np.asarray(record["nll"])[0, :n]),
            "words": self.tokenizer.tokens(ids.tolist()),
            "chances": packed(chances),
        }

    def continued(self, state: State) -> dict[str, str | None]:
        """Generate the WORDS most likely tokens after the prompt, as texts before and after the edit (None if there is no edit).

        Errors: as for `view`; the prompt plus these tokens exceeds the context.
        """
        write = partial(generate, self.model, state.prompt, max_new_tokens=WORDS, bos=state.bos)
        return {"before": write(), "after": None if state.kind == "none" else write(edits_of(state))}

    def explained(self, state: State) -> dict[str, Any]:
        """Find the components that cause a key's sink, in the unedited model.

        Args:
            state: The displayed state.

        Returns:
            The COMPONENTS whose outputs at the key, set to zero, change the mean attention to it most: their names, exact effects
            and first-order estimates. "checked": the number of replaced components. "spearman": the rank correlation of their
            estimates and effects, or None.

        Raises:
            SinkjaxError: As for `view`.
        """
        prompt = self.prompt(state.prompt, state.bos)
        check_shown("key", state.key, len(prompt.texts))
        nodes = [site for site in ("attn_out", "mlp_out") if not lacks(self.model.config, Site(site))]
        metric = lambda record: record["attention_received"][..., state.key].mean((1, 2))  # noqa: E731
        where: dict[str, Any] = {"positions": state.key, "lengths": prompt.lengths}
        found = attribute(self.model, prompt.tokens, metric, nodes, **where, progress=False)
        first = found.isel(node=np.argsort(-np.abs(found.exact.values[:, 0]), kind="stable")[:COMPONENTS])
        return {
            "components": first.node.values.tolist(),
            "exact": packed(first.exact.values[:, 0]),
            "estimate": packed(first.estimate.values[:, 0]),
            "checked": found.sizes["node"],
            "spearman": found.attrs.get("spearman"),
        }

    def warm(self, state: State) -> Iterator[str]:
        """Compile every kind of edit for a prompt's length; yields each compiled kind."""
        plain = replace(without_edit(state), matrix=[*self.matrices()][-1])
        for kind in ("none", *self.kinds()):
            jax.block_until_ready(self._measure(replace(plain, kind=kind)))
            yield kind


def check_shown(what: str, value: int, size: int) -> None:
    """Raise an error if the model or the prompt lacks this layer, head or key."""
    refuse(value >= size, f"{what} {value} cannot be shown: there are {size}, 0 to {size - 1}")


def without_edit(state: State) -> State:
    """Return only the prompt of a state, without its edit."""
    return State(prompt=state.prompt, bos=state.bos)


def looking_nowhere(state: State) -> State:
    """Reset the view-only fields of a state, so that states with the same results compare equal."""
    return replace(state, layer=0, head=None, key=0)


@jax.jit
def _map(maps: jax.Array, layer: jax.Array, head: jax.Array) -> jax.Array:
    """Select one map [T, T] from [1, L, H, T, T]; head -1 is the mean over heads."""
    of_layer = maps[0, layer]
    return jnp.where(head < 0, of_layer.mean(axis=0), of_layer[head])


def packed(array: np.ndarray) -> dict[str, Any]:
    """Encode an array for JSON: its shape, and its float32 values in base64, little-endian, including NaN."""
    array = np.asarray(array)
    return {"shape": array.shape, "data": base64.b64encode(array.astype("<f4").tobytes()).decode()}
