"""`generate`: continue a prompt with a model, with or without edits."""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.data.chat import chat_text, is_conversation
from sinkjax.data.prompts import ids_behind, is_integer
from sinkjax.edits.edit import Edit, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import as_tokens, check_batch, refuse_outside
from sinkjax.model.params import Params, check, check_seed
from sinkjax.model.quantisation import Quantisation
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.progress import bar, say
from sinkjax.runtime.settings import fixed_settings, random_key
from sinkjax.transformer.cached import Unstacked, go_on, refuse_policy, why_not
from sinkjax.transformer.eviction import CachePolicy
from sinkjax.transformer.forward import run
from sinkjax.transformer.past import Past, put_in_front
from sinkjax.transformer.rows import Rows
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

ROWS, ROOM = 16, 64  # lengths of a prompt, and of a prompt plus new tokens, are rounded up to multiples of these
LONG = 100  # new tokens, from which progress is shown

EditsByStep = Edit | Sequence[Edit] | Callable[[int], Edit | Sequence[Edit]]


@dataclass(frozen=True, eq=False, repr=False)
class Generated:
    """A text that a model wrote, with the measurements made meanwhile.

    Attributes:
        text: The new text, without a stop string; None without a tokenizer.
        tokens: The new token ids, including those of a stop string.
        prompt: The token ids of the prompt.
        record: The probe's statistics of all rows, of the prompt and of the new tokens, with the axes of `sinkjax.forward`.
        kept: With a cache policy, the positions of the keys in the cache when each row was computed, its own included: int
            [row, layer, kv_head, slot], ascending, -1 for an empty slot. Else None.
        logits: The logits of `Probe(logits_of=...)` that chose each new token, float [new, token]; None if not requested.
    """

    text: str | None
    tokens: list[int]
    prompt: list[int]
    record: Record
    kept: NDArray[np.int_] | None
    logits: NDArray[np.floating[Any]] | None

    def steps(self, name: str) -> NDArray[Any]:
        """Return a statistic of each new token's row.

        Args:
            name: A statistic or capture with an axis of positions or queries.

        Returns:
            Its values [new, ...], without the prompt axis.

        Raises:
            SinkjaxError: It was not measured, or has no such axis because it is a sum over all queries.
        """
        values = np.asarray(self.record[name])
        rows = [place for place, axis in enumerate(self.record.dims[name]) if axis in ("position", "query")]
        by_query = "a capture of WEIGHTS, with dims for the keys, has the attention of each query"
        refuse(not rows, f"{name} has no axis of positions or queries: {', '.join(self.record.dims[name])}; {by_query}")
        return np.moveaxis(values, rows[0], 0)[len(self.prompt) :, 0]

    @property
    def evicted(self) -> NDArray[np.int_]:
        """The position of the key that left the cache before each row, int [row, layer, kv_head], -1 if none did."""
        if self.kept is None:
            raise SinkjaxError("nothing is evicted without a cache policy: pass cache= to generate")
        before, now = (np.where(rows < 0, 0, rows).sum(axis=-1) for rows in (self.kept[:-1], self.kept[1:]))
        stay = (self.kept[1:] >= 0).sum(axis=-1) > (self.kept[:-1] >= 0).sum(axis=-1)  # one key more, so none has left
        left = np.where(stay, -1, before - now + np.arange(1, len(self.kept))[:, None, None])
        return np.concatenate([np.full_like(left[:1], -1), left])

    def __repr__(self) -> str:
        return f"Generated({len(self.prompt)} + {len(self.tokens)} tokens, text={short(self.text)}, record={self.record!r})"


@overload
def generate(model: Model, prompt: str | list[dict[str, str]], *args: Any, probe: None = None, **options: Any) -> str: ...
@overload
def generate(model: Model, prompt: list[str] | list[list[int]], *args: Any, **options: Any) -> list[Any]: ...
@overload
def generate(model: Model, prompt: Sequence[int], *args: Any, probe: None = None, **options: Any) -> list[int]: ...
@overload
def generate(model: Model, prompt: Any, *args: Any, probe: Probe, **options: Any) -> Generated: ...
@fixed_settings  # type: ignore[misc]
def generate(
    model: Model,
    prompt: Any,
    edits: EditsByStep = (),
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    bos: str | int = "auto",
    *,
    past: Past | None = None,
    probe: Probe | None = None,
    cache: CachePolicy | None = None,
    stop: str | Sequence[str] = (),
    chat: bool = False,
    progress: bool = True,
) -> Any:
    """Continue a prompt, and return text for text or a list of token ids for token ids.

    A KV cache is used whenever it is exact, including under edits. Otherwise a line on stderr gives the reason, and every token
    needs a forward pass over all positions. The reasons are an edit at HEAD_OUT that is centred over positions and acts on
    generated tokens, a prompt within the model's prefix, and rotary frequencies that change with the length.

    Args:
        model: The model.
        prompt: A text; token ids, which are used unchanged; a conversation, which is a list of messages {"role": ...,
            "content": ...}; or a list of prompts of any lengths.
        edits: Edits that apply at every step, to the prompt and the generated tokens. Positions named by an edit must be in the
            prompt. Rotary indices given per position must cover the prompt and all new tokens. Or a function from the number of
            tokens generated so far to the edits of the rows that are computed then: all rows of the prompt for 0, else the row of
            the newest token. Such edits may name the positions of generated tokens so far; other rows stay as they were computed.
        max_new_tokens: Maximum number of new tokens. Generation stops early at the end-of-text token, which is not returned.
        temperature: 0 selects the most likely token; above 0, tokens are sampled from softmax(logits / temperature) with a key
            derived from (seed, step).
        seed: Seed for sampling.
        bos: The prefix of a text, as for `sinkjax.encode`; "auto" adds none if `past` has it. A chat has its template's.
        past: Keys and values in front of the prompt, as for `sinkjax.forward`.
        probe: Measurements to make while the model writes, which return a `Generated`. Prompts are then continued one by one.
        cache: None, or the policy that evicts keys (`sinkjax.Streaming`, `sinkjax.H2O`, `sinkjax.KeyNorm` or `sinkjax.SnapKV`),
            with positions counted in the cache as in `sinkjax.evaluate`. The text may then be longer than the context.
        stop: A string, or several, that end the text before they appear in it.
        chat: Whether a text is a user's message, to be put into the model's chat template, as conversations always are. Templates
            are recognised, never run: ChatML, Llama 3, Gemma, Llama 2 and Mistral.
        progress: Whether to show a progress bar for many tokens.

    Returns:
        The text or token ids after the prompt, without the prompt and a stop string; a `Generated` if there is a probe; a list of
        these for a list of prompts.

    Raises:
        SinkjaxError: There is no tokenizer for a text; logits are not finite; the prompt is empty, or exceeds the context
            together with `max_new_tokens`; the edits do not fit; the temperature or the seed is negative; the past does not fit;
            a statistic needs several rows at once; a probe or edits by step are used where no KV cache is exact; the cache
            policy does not support the model or an edit; the chat template is not known.
    """
    if probe is not None and not isinstance(probe, Probe):
        raise SinkjaxError(f"probe must be None or a Probe, not {short(probe)}; Probe.of(*names) makes one from names")
    check_model(model)
    several = isinstance(prompt, list | tuple) and len(prompt) > 0
    several = several and all(isinstance(each, str | list | tuple | np.ndarray) for each in prompt)
    prompts = list(prompt) if several else [prompt]
    stops = _stops(model, stop)
    if chat or any(is_conversation(each) for each in prompts):
        texts, end = zip(*(chat_text(model, each) for each in prompts), strict=True)
        prompts, bos, stops = list(texts), "none", (*stops, *end[:1])
    starts = [_ids(model, each, bos, past) for each in prompts]
    options: Any = {"edits": edits, "max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
    options |= {"past": past, "cache": cache, "stop": stops, "progress": progress}
    measured = [None if probe is None else Rows(probe, model.config, len(start), cache) for start in starts]
    if probe is None and not callable(edits):
        found = generate_all(model, starts, **options)
    else:
        pairs = zip(starts, measured, strict=True)
        found = [generate_all(model, [start], rows=rows, **options)[0] for start, rows in pairs]
    results: list[Any] = []
    for each, start, new, rows in zip(prompts, starts, found, measured, strict=True):
        text, within = _before_stop(model, start, new, stops) if isinstance(each, str) or stops or rows else (None, new)
        if rows is not None:
            record, logits = rows.record(len(start) + len(new)), np.array(rows.logits) if rows.logits_of else None
            results.append(Generated(text, new, start, record, rows.kept(), logits))
        else:
            results.append(text if isinstance(each, str) else within)
    return results if several else results[0]


def generate_all(
    model: Model,
    starts: Sequence[Sequence[int]],
    edits: EditsByStep = (),
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    apart: Callable[[], Unstacked] | None = None,
    past: Past | None = None,
    how: Quantisation | None = None,
    keep: Sequence[int] = (),
    cache: CachePolicy | None = None,
    stop: Sequence[str] = (),
    rows: Rows | None = None,
    progress: bool = False,
) -> list[list[int]]:
    """Continue several prompts under the same edits, as one batch; arguments as for `generate`.

    apart: returns the model's `blocks_apart`, for callers that continue prompts several times; None copies them here. It does not
    know a past. how: bits, with scales of tokens that are computed together: those of the shortest prompt, then one at a time.
    keep: positions that are not rounded. rows: collects measurements, of a single prompt. Edits by step need a single prompt
    too. Stop strings are returned.
    """
    if not is_integer(max_new_tokens) or max_new_tokens < 1:
        raise SinkjaxError(f"max_new_tokens must be an integer of at least 1, not {short(max_new_tokens)}")
    check_temperature(temperature)
    check_seed(seed)
    config, lengths = model.config, np.array([len(start) for start in starts])
    total = int(lengths.max()) + max_new_tokens
    if total > config.context and cache is None:
        raise SinkjaxError(
            f"{total - max_new_tokens} tokens plus {max_new_tokens} new tokens exceed the context of {config.context}"
        )
    tokens = np.zeros((len(starts), total), np.int32)
    for row, start in zip(tokens, starts, strict=True):
        row[: len(start)] = start
    check(model.params, config)
    check_batch(tokens if cache is None else tokens[:, :1], lengths if cache is None else None, config)
    params, P = put_in_front(model.params, past, config, total if cache is None else 1, model.source)
    room = _up_to(total, ROOM) if cache is not None else min(_up_to(total, ROOM), config.context - P)
    spec = ForwardSpec(config=config, probe=rows.probe if rows else Probe(), logits=True, past=P, cache_policy=cache, room=room)
    if how is not None and not how.off:
        kept = np.broadcast_to(np.isin(np.arange(total + ROOM), keep), (config.layers, 1, total + ROOM))
        params, spec = how.params(params), replace(spec, quantisation=how)
        params["layers"] = params["layers"] | {"kept": kept}

    def resolved(edits: Edit | Sequence[Edit], new: int) -> Edits:
        found = resolve(edits, config, (lengths + new).tolist(), total, model.source.get("dtype"))  # in the prompt, or written
        resolve(edits, config, (lengths + max_new_tokens).tolist(), total)  # and every generated token must keep a key
        if cache is not None:
            refuse_policy(cache, config, found, total, P)
        return found

    end = model.source.get("eos")
    generated: list[list[int]] = [[] for _ in starts]
    going = np.ones(len(starts), bool)
    shortest = int(lengths.min())
    by_step = (lambda step: resolved(edits(step), step)) if callable(edits) else resolved(edits, 0)
    blocks = apart or functools.partial(Unstacked.of, params, spec)
    next_logits = _following(params, by_step, shortest, total, blocks, spec, rows)
    with bar("generate", progress and total - shortest >= LONG, total - shortest, 0) as advance:
        begun = time.monotonic()
        for position in range(shortest, total):
            logits = np.asarray(next_logits(tokens, position))
            step = position - lengths  # prompts longer than this position keep their own token
            for place in map(int, np.flatnonzero(going & (step >= 0))):
                token = _choose(logits[place], temperature, seed, int(step[place]))
                going[place] = token != end
                if going[place]:
                    tokens[place, position] = token
                    generated[place].append(token)
                    if rows is not None:
                        rows.chose(logits[place], token)
                    going[place] = not stop or _before_stop(model, starts[place], generated[place], stop)[1] == generated[place]
            going &= step < max_new_tokens - 1
            done = position - shortest + 1
            advance(done, f"{done / max(1e-9, time.monotonic() - begun):.1f} tokens/s")
            if not going.any():
                break
        if rows is not None:
            next_logits(tokens, int(lengths[0]) + len(generated[0]))  # the last token's own row
    return generated


def check_temperature(temperature: Any) -> None:
    """Raise unless the temperature is 0 or logits can be divided by it."""
    if not isinstance(temperature, int | float | np.number) or not 0 <= temperature < np.inf:
        raise SinkjaxError(f"temperature must be a number of at least 0, not {short(temperature)}")


def blocks_apart(model: Model) -> Unstacked:
    """Copy the model's blocks into separate trees, as decoding with a KV cache requires."""
    return Unstacked.of(model.params, ForwardSpec(config=model.config, probe=Probe(), logits=True))


def _following(
    params: Params,
    edits: Edits | Callable[[int], Edits],
    start: int,
    total: int,
    apart: Callable[[], Unstacked],
    spec: ForwardSpec,
    rows: Rows | None,
) -> Callable[[np.ndarray, int], jax.Array]:
    """Make a function of tokens [B, total] and a position that returns the logits [B, V] for the token there.

    It must be called for each position from `start` in turn. Lengths are rounded up to multiples of ROWS and ROOM, so that
    prompts of most lengths share compiled programs. edits: of all steps, or by the number of new tokens.
    """

    def at(step: int) -> tuple[Edits, str | None]:
        found = edits(step) if callable(edits) else edits
        reason = why_not(spec.config, found, start, total + (rows is not None), spec.past)
        what = "edits by step need" if callable(edits) else "a probe needs"
        refuse(bool(reason) and (callable(edits) or rows is not None), f"{what} a KV cache that is exact, but {reason}")
        return tuple(term.padded(spec.room) for term in found), reason

    constant, reason = ((), None) if callable(edits) else at(0)
    if reason and not callable(edits):
        say(f"generate cannot use the KV cache and recomputes all positions for each token, because {reason}")

        def again(tokens: np.ndarray, position: int) -> jax.Array:
            lengths = jnp.full(len(tokens), position)
            logits: jax.Array = run(params, jnp.asarray(tokens), lengths, edits, spec=spec).logits
            return logits[:, position - 1]

        return again

    blocks, caches, logits, done = apart(), None, jnp.zeros(0), 0

    def further(tokens: np.ndarray, position: int) -> jax.Array:
        nonlocal caches, done, logits
        now = at(position - start)[0] if callable(edits) else constant
        while done < position:
            count = position - done
            size = count if done else min(_up_to(count, ROWS), spec.room)
            if spec.cache_policy is not None:  # evicts keys by rows, so none is padding
                size = count = ROWS if count >= ROWS and spec.cache_policy.block >= ROWS else 1
            new = np.pad(tokens, ((0, 0), (0, size + 1)))[:, done : done + size + 1]
            logits, caches, call = go_on(blocks, new[:, :-1], done, count, caches, now, new[:, 1:], spec=spec, total=spec.room)
            if rows is not None:
                rows.add(call)
            done += count
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


def _stops(model: Model, stop: Any) -> tuple[str, ...]:
    stops = tuple(stop) if isinstance(stop, list | tuple) else (stop,)
    wrong = [each for each in stops if not isinstance(each, str) or not each]
    refuse(bool(wrong), f"stop must be one or several strings that are not empty, not {short(stop)}")
    refuse(bool(stops) and model.tokenizer is None, "stop strings need a tokenizer, and the model has none")
    return stops


def _before_stop(model: Model, start: Sequence[int], new: list[int], stops: Sequence[str]) -> tuple[str | None, list[int]]:
    """Return the text that tokens add, up to the first stop string (None without a tokenizer), and the tokens within it."""
    text = None if model.tokenizer is None else _text(model, start, new)
    found = [text.index(stop) for stop in stops if text and stop in text]
    while found and new and len(_text(model, start, new)) > min(found):
        new = new[:-1]
    return text[: min(found)] if text and found else text, new


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


def _text(model: Model, start: Sequence[int], new: list[int]) -> str:
    """Return the text that tokens add to a prompt, including a leading space."""
    assert model.tokenizer is not None
    return model.tokenizer.decode([*start, *new])[len(model.tokenizer.decode(start)) :]
