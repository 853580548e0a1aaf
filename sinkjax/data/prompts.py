"""Encode texts as batches of token ids, with the requested BOS."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.checkpoints.architectures import with_tokenizer
from sinkjax.checkpoints.family import family_of
from sinkjax.checkpoints.model import Model, check_model
from sinkjax.checkpoints.presets import packaged
from sinkjax.checkpoints.untrained import PREFIX
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SPACING, SinkjaxError, refuse_control, unknown
from sinkjax.model.batch import as_tokens, lengths_of

if TYPE_CHECKING:
    from sinkjax.checkpoints.tokenizer import Tokenizer

PAD = 0  # any id works, because nothing reads positions at or beyond a prompt's length


def encode(
    model: Model, texts: Sequence[str] | Any, bos: str | int = "auto", length: int | None = None, attention_mask: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts as token ids, one row each, padded on the right.

    Args:
        model: The model, whose tokenizer, vocabulary and context are used.
        texts: One text per prompt; or, with `attention_mask`, the ids int [B, S] from another tokenizer.
        bos: The prefix of each text. "auto": the one that the model was trained with, if any (see `trained_prefix`); "model":
            the BOS token that the model's files name (`model.tokenizer.bos`), whether or not its own tokenizer would add it;
            "tokenizer": its own tokenizer's prefix, if any; "none": nothing; an int: that token id.
        length: Tokens per row, including the BOS; None: those of the longest text, up to the model's context. A longer text is
            cut to its first tokens, with a warning.
        attention_mask: [B, S], 1 for the ids in `texts` and 0 for their padding, which must be on the right.

    Returns:
        The tokens, int32 [B, length], with 0 after each prompt's end, and the lengths, int32 [B], each at least 1.

    Raises:
        SinkjaxError: There is no tokenizer; `bos` is "model" but the files name no BOS; a text already starts with the BOS
            (double BOS, as from chat templates); a text is empty, or contains control characters other than line breaks and tabs;
            the length exceeds the model's context; a token id is outside its vocabulary; the mask pads on the left or has a hole.
    """
    if attention_mask is None:
        prompts = prompt_ids(model, texts, bos)
    else:
        tokenizer, prefix, size = _tokenizer(model), bos_ids(model, bos), model.config.vocab_size or 0
        rows = _unpadded(texts, attention_mask)
        prompts = [_prompt(ids, tokenizer.decode(ids), prefix, size, f"texts[{index}]") for index, ids in enumerate(rows)]
    tokens, lengths = _rows(prompts, length, model.config.context)
    if cut := [len(prompt) - end for prompt, end in zip(prompts, lengths, strict=True) if len(prompt) > end]:
        limit = "the model's context" if length is None else "length"
        warnings.warn(
            f"{len(cut)} of {len(prompts)} texts are longer than {limit}, {tokens.shape[1]} tokens, and lose {sum(cut):,} tokens"
            " at their ends",
            stacklevel=2,
        )
    return tokens, lengths


def first_tokens(model: Model, texts: Sequence[str], bos: str | int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `length` tokens of each text, as `encode` without its warning, for texts that are chosen to be longer."""
    return _rows(prompt_ids(model, texts, bos), length, model.config.context)


def _rows(prompts: Sequence[Sequence[int]], length: int | None, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts as rows of equal length, and the number of tokens in each. Errors: the length is not in the context."""
    if length is None:
        length = min(max(map(len, prompts)), context)
    inside = is_integer(length) and 1 <= length <= context
    wanted = f"length {length!r} must be an integer from 1 to the model's context, {context} tokens"
    refuse(not inside, f"{wanted} (load(..., context=) raises that where positions are not learned)")
    tokens = np.full((len(prompts), length), PAD, np.int32)
    lengths = np.array([min(len(prompt), length) for prompt in prompts], np.int32)
    for row, prompt, end in zip(tokens, prompts, lengths, strict=True):
        row[:end] = prompt[:end]
    return tokens, lengths


def prompt_ids(model: Model, texts: Sequence[str], bos: str | int) -> list[list[int]]:
    """Return the token ids of whole texts, with their prefix. Errors: as for `encode`."""
    tokenizer = _tokenizer(model)
    encoded = f"texts must be a sequence of strings, not a {type(texts).__name__}: its ids need no encoding"
    refuse(isinstance(texts, Mapping), f'{encoded}, so pass its ["input_ids"] as tokens')
    ordered = hasattr(texts, "__len__") and hasattr(texts, "__getitem__") and not isinstance(texts, str | bytes)
    strings = ordered and all(isinstance(text, str) for text in texts)
    refuse(not strings, "texts must be a sequence of strings, one for each prompt")
    refuse(len(texts) == 0, "texts is empty: at least one prompt is needed")
    prefix, size = bos_ids(model, bos), model.config.vocab_size or 0
    for index, text in enumerate(texts):
        refuse_control(f"texts[{index}]", text, but=SPACING, hint=True)
    return [_prompt(tokenizer.encode(text), text, prefix, size, f"texts[{index}]") for index, text in enumerate(texts)]


def ids_behind(model: Model, texts: Sequence[str], bos: str | int, past: object) -> tuple[list[list[int]], list[int]]:
    """Return the ids of whole texts that a past precedes, and the prefix that each of them has.

    A past that has the BOS among its tokens (`SinkPrefix.tokens`) takes its place, so "auto" adds none.

    Errors: as for `encode`; a BOS that is asked for, or that begins a text, is in the past.
    """
    held, prefix = getattr(past, "tokens", ()), bos_ids(model, bos)
    if prefix and prefix[0] in held:
        second = f"past already has the BOS token {prefix[0]}, so bos={bos!r} would be a second one"
        refuse(bos != "auto", f'{second}; choose bos="none"')
        bos, prefix = "none", []
    prompts = prompt_ids(model, texts, bos)
    names = {_tokenizer(model).bos, *trained_prefix(model)[0][:1]}
    for index, ids in enumerate(prompts):
        double = not prefix and ids[0] in names.intersection(held)
        refuse(double, f"texts[{index}] begins with the BOS token {ids[0]}, which past already has")
    return prompts, prefix


def trained_prefix(model: Model) -> tuple[list[int], str]:
    """Return the ids that a model had before its texts in training, and how this is known; ([], "") if none is known.

    Its tokenizer, its family (`Family.separator`) and the models of this package say it.
    """
    tokenizer, source = _tokenizer(model), model.source
    if tokenizer.prefix:
        return tokenizer.prefix, "its tokenizer adds it"
    if tokenizer.bos is None:
        return [], ""
    if str(source.get("name")).removeprefix(PREFIX) in packaged():
        return [tokenizer.bos], "it was trained with it"
    family = family_of(str(source.get("model_type")))
    known = family.separator if family else None
    if known and known.in_front and tokenizer.backend.id_to_token(tokenizer.bos) in known.token.split(" or "):
        return [tokenizer.bos], f"{source['model_type']} models were trained with it"
    return [], ""


def resolved_bos(model: Model, bos: str | int) -> str | int:
    """Return the BOS to show and store: "model" or a token id for a prefix that the model or its tokenizer decides, or "none"."""
    if bos not in ("auto", "tokenizer"):
        return bos
    prefix = bos_ids(model, bos)
    return "model" if bos == "auto" and prefix == [_tokenizer(model).bos] else prefix[0] if prefix else "none"


def bos_ids(model: Model, bos: str | int) -> list[int]:
    """Return the ids that a BOS policy puts before each text. Errors: as for `encode`."""
    if bos == "none":
        return []
    tokenizer = _tokenizer(model)
    if bos == "auto":
        return trained_prefix(model)[0]
    if bos == "model":
        refuse(tokenizer.bos is None, 'the model\'s files name no BOS token; choose bos="none" or give a token id')
        return [int(tokenizer.bos or 0)]
    if bos == "tokenizer":
        return tokenizer.prefix
    if is_integer(bos):
        name, size = model.source["name"], model.config.vocab_size or 0
        refuse(not 0 <= int(bos) < size, f"bos {bos} is not a token of {name}, whose vocabulary has {size:,} tokens")
        return [int(bos)]
    raise unknown("bos", bos, ("auto", "model", "tokenizer", "none"), ", or a token id")


def _prompt(ids: list[int], text: str, prefix: list[int], size: int, what: str) -> list[int]:
    """Return one text's prompt: the prefix and its ids, checked against a vocabulary of `size` tokens."""
    refuse(not ids, f"{what} is empty: {text!r} has no tokens")
    double = bool(prefix) and ids[: len(prefix)] == prefix
    refuse(double, f'{what} already begins with the BOS token {ids[0]} ({text[:20]!r}...); encode it with bos="none"')
    outside = [token for token in (*prefix, *ids) if not 0 <= token < size]
    refuse(bool(outside), f"{what} has the token id {min(outside, default=0)}, but the model's vocabulary has {size} tokens")
    return [*prefix, *ids]


def _unpadded(ids: Any, attention_mask: Any) -> list[list[int]]:
    """Return the ids in each row that a mask keeps. Errors: see `encode`."""
    ids = np.asarray(as_tokens("texts with an attention_mask", ids, masked=True))
    right = ids.ndim == 2 and ids.dtype.kind in "iu" and ids.size > 0
    refuse(not right, f"texts with an attention_mask must be token ids int [B, S], not {ids.dtype} {list(ids.shape)}")
    return [row[:end].tolist() for row, end in zip(ids, lengths_of(attention_mask, ids.shape), strict=True)]


def _tokenizer(model: Model) -> Tokenizer:
    """Return a model's tokenizer. Errors: it has none."""
    check_model(model)
    if model.tokenizer is None:
        none = f"the files of {model.source['name']} hold no tokenizer, so give token ids, not texts"
        such = with_tokenizer(model.source.get("model_type"), model.config.vocab_size)
        raise SinkjaxError(f"{none}, or load it with tokenizer=...{such}")
    return model.tokenizer


def is_integer(value: object) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
