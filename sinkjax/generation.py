"""`generate`: continue a prompt with a model, with or without edits."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.checkpoints.model import check_model
from sinkjax.data.prompts import ids_behind, is_integer
from sinkjax.edits.edit import Edit, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import as_tokens, check_batch, refuse_outside
from sinkjax.model.params import Params, check, check_seed
from sinkjax.model.quantisation import Quantisation
from sinkjax.probes.probe import Probe
from sinkjax.runtime.progress import say
from sinkjax.runtime.settings import fixed_settings, random_key
from sinkjax.transformer.cached import Unstacked, go_on, why_not
from sinkjax.transformer.forward import run
from sinkjax.transformer.past import Past, put_in_front
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Cache

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

ROWS, ROOM = 16, 64  # lengths of a prompt, and of a prompt plus new tokens, are rounded up to multiples of these


@overload
def generate(
    model: Model,
    prompt: str,
    edits: Edit | Sequence[Edit] = (),
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    bos: str | int = "auto",
    *,
    past: Past | None = None,
) -> str: ...
@overload
def generate(
    model: Model,
    prompt: Sequence[int],
    edits: Edit | Sequence[Edit] = (),
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    bos: str | int = "auto",
    *,
    past: Past | None = None,
) -> list[int]: ...
@fixed_settings
def generate(
    model: Model,
    prompt: str | Sequence[int],
    edits: Edit | Sequence[Edit] = (),
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    bos: str | int = "auto",
    *,
    past: Past | None = None,
) -> str | list[int]:
    """Continue a prompt, and return text for text or a list of token ids for token ids.

    A KV cache is used whenever it is exact, including under edits. Otherwise a line on stderr gives the reason, and every token
    needs a forward pass over all positions. The reasons are an edit at HEAD_OUT that is centred over positions and acts on
    generated tokens, a prompt within the model's prefix, and rotary frequencies that change with the length.

    Args:
        model: The model.
        prompt: A text, or token ids, which are used unchanged.
        edits: Edits that apply at every step, to the prompt and the generated tokens. Positions named by an edit must be in the
            prompt. Rotary indices given per position must cover the prompt and all new tokens.
        max_new_tokens: Maximum number of new tokens. Generation stops early at the end-of-text token, which is not returned.
        temperature: 0 selects the most likely token; above 0, tokens are sampled from softmax(logits / temperature) with a key
            derived from (seed, step).
        seed: Seed for sampling.
        bos: The prefix of a text, as for `sinkjax.encode`; "auto" adds none if `past` has it.
        past: Keys and values in front of the prompt, as for `sinkjax.forward`.

    Returns:
        The text or token ids after the prompt, without the prompt.

    Raises:
        SinkjaxError: There is no tokenizer for a text; logits are not finite; the prompt is empty, or exceeds the context
            together with `max_new_tokens`; the edits do not fit; the temperature or the seed is negative; the past does not fit.
    """
    start = _ids(model, prompt, bos, past)
    (new,) = generate_all(model, [start], edits, max_new_tokens, temperature, seed, past=past)
    return _text(model, start, new) if isinstance(prompt, str) else new


def generate_all(
    model: Model,
    starts: Sequence[Sequence[int]],
    edits: Edit | Sequence[Edit] = (),
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    apart: Callable[[], Unstacked] | None = None,
    past: Past | None = None,
    how: Quantisation | None = None,
    keep: Sequence[int] = (),
) -> list[list[int]]:
    """Continue several prompts under the same edits, as one batch; arguments as for `generate`.

    apart: returns the model's `blocks_apart`, for callers that continue prompts several times; None copies them here. It does not
    know a past. how: bits, with scales of tokens that are computed together: those of the shortest prompt, then one at a time.
    keep: positions that are not rounded.
    """
    if not is_integer(max_new_tokens) or max_new_tokens < 1:
        raise SinkjaxError(f"max_new_tokens must be an integer of at least 1, not {short(max_new_tokens)}")
    check_temperature(temperature)
    check_seed(seed)
    lengths = np.array([len(start) for start in starts])
    total = int(lengths.max()) + max_new_tokens
    if total > model.config.context:
        raise SinkjaxError(
            f"{total - max_new_tokens} tokens plus {max_new_tokens} new tokens exceed the context of {model.config.context}"
        )
    rows = np.zeros((len(starts), total), np.int32)
    for row, start in zip(rows, starts, strict=True):
        row[: len(start)] = start
    check(model.params, model.config)
    check_batch(rows, lengths, model.config)
    params, P = put_in_front(model.params, past, model.config, total, model.source)
    spec = ForwardSpec(config=model.config, probe=Probe(), logits=True, past=P)
    if how is not None and not how.off:
        kept = np.broadcast_to(np.isin(np.arange(total + ROOM), keep), (model.config.layers, 1, total + ROOM))
        params, spec = how.params(params), replace(spec, quantisation=how)
        params["layers"] = params["layers"] | {"kept": kept}
    resolved = resolve(edits, model.config, lengths.tolist(), total, model.source.get("dtype"))  # positions must be in the prompt
    resolve(edits, model.config, (lengths + max_new_tokens).tolist(), total)  # and every generated token must keep a key
    end = model.source.get("eos")
    generated: list[list[int]] = [[] for _ in starts]
    going = np.ones(len(starts), bool)
    shortest = int(lengths.min())
    next_logits = _following(params, resolved, shortest, total, apart or functools.partial(Unstacked.of, params, spec), spec)
    for position in range(shortest, total):
        logits = np.asarray(next_logits(rows, position))
        step = position - lengths  # prompts longer than this position keep their own token
        for place in np.flatnonzero(going & (step >= 0)):
            token = _choose(logits[place], temperature, seed, int(step[place]))
            going[place] = token != end
            if going[place]:
                rows[place, position] = token
                generated[place].append(token)
        going &= step < max_new_tokens - 1
        if not going.any():
            break
    return generated


def check_temperature(temperature: Any) -> None:
    """Raise unless the temperature is 0 or logits can be divided by it."""
    if not isinstance(temperature, int | float | np.number) or not 0 <= temperature < np.inf:
        raise SinkjaxError(f"temperature must be a number of at least 0, not {short(temperature)}")


def blocks_apart(model: Model) -> Unstacked:
    """Copy the model's blocks into separate trees, as decoding with a KV cache requires."""
    return Unstacked.of(model.params, ForwardSpec(config=model.config, probe=Probe(), logits=True))


def _following(
    params: Params, edits: Edits, start: int, total: int, apart: Callable[[], Unstacked], spec: ForwardSpec
) -> Callable[[np.ndarray, int], jax.Array]:
    """Make a function of tokens [B, total] and a position that returns the logits [B, V] for the token there.

    It must be called for each position from `start` in turn. Lengths are rounded up to multiples of ROWS and ROOM, so that
    prompts of most lengths share compiled programs.
    """
    if reason := why_not(spec.config, edits, start, total, spec.past):
        say(f"generate cannot use the KV cache and recomputes all positions for each token, because {reason}")

        def again(rows: np.ndarray, position: int) -> jax.Array:
            lengths = jnp.full(len(rows), position)
            logits: jax.Array = run(params, jnp.asarray(rows), lengths, edits, spec=spec).logits
            return logits[:, position - 1]

        return again

    room = min(_up_to(total, ROOM), spec.config.context - spec.past)
    blocks, edits = apart(), tuple(term.padded(room) for term in edits)
    caches: list[Cache] | None = None
    done = 0

    def further(rows: np.ndarray, position: int) -> jax.Array:
        nonlocal caches, done
        count = position - done
        size = count if done else min(_up_to(count, ROWS), room)
        new = np.pad(rows[:, done : done + size], ((0, 0), (0, max(0, done + size - total))))
        logits, caches = go_on(blocks, new, done, count, caches, edits, spec=spec, total=room)
        done = position
        return logits

    return further


def _up_to(length: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-length // step) * step


def _choose(logits: np.ndarray, temperature: float, seed: int, step: int) -> int:
    if not np.isfinite(logits.max()):  # NaN too
        raise SinkjaxError(
            f"the logits for new token {step} are not finite, so none can be chosen: the model overflows, which a wider dtype"
            ' prevents (load(..., dtype="float32"))'
        )
    if temperature == 0:
        return int(logits.argmax())
    key = jax.random.fold_in(jax.random.fold_in(random_key(seed), zlib.crc32(b"generate")), step)
    return int(jax.random.categorical(key, jnp.asarray(logits) / temperature))


def _ids(model: Model, prompt: str | Sequence[int], bos: str | int, past: Past | None) -> list[int]:
    check_model(model)
    if model.config.vocab_size is None:
        raise SinkjaxError("this model has no vocabulary, so there are no tokens to generate")
    if isinstance(prompt, str):
        return ids_behind(model, [prompt], bos, past)[0][0]
    ids = np.asarray(as_tokens("the prompt", prompt))
    if ids.size == 0:
        raise SinkjaxError("the prompt is empty: at least one token is needed")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise SinkjaxError(f"the prompt must be a string or int [T], not {ids.dtype} {ids.shape}")
    refuse_outside(ids[None], model.config.vocab_size)
    return list(map(int, ids))


def _text(model: Model, start: list[int], new: list[int]) -> str:
    """Return the text that tokens add to a prompt, including a leading space."""
    assert model.tokenizer is not None
    return model.tokenizer.decode([*start, *new])[len(model.tokenizer.decode(start)) :]
