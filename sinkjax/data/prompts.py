"""Encode texts as batches of token ids, with the requested BOS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.checkpoints.model import Model, check_model
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SPACING, SinkjaxError, refuse_control, unknown

if TYPE_CHECKING:
    from sinkjax.checkpoints.tokenizer import Tokenizer

PAD = 0  # any id works, because nothing reads positions at or beyond a prompt's length


def encode(model: Model, texts: Sequence[str], bos: str | int = "model", length: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts as token ids, one row each, padded on the right.

    Args:
        model: The model, for its tokenizer, vocabulary and context.
        texts: One text per prompt.
        bos: The prefix of each text. "model": the BOS token that the model's files name (`model.tokenizer.bos`), whether or
            not its own tokenizer would add it; "tokenizer": its own tokenizer's prefix, if any; "none": nothing; an int:
            that token id.
        length: Tokens per row, including the BOS; a longer text is cut to its first tokens.

    Returns:
        Tokens, int32 [B, length], with 0 after each prompt's end, and lengths, int32 [B], each at least 1.

    Raises:
        SinkjaxError: There is no tokenizer; `bos` is "model" but the files name no BOS; a text already starts with the BOS
            (double BOS, as from chat templates); a text is empty, or contains control characters other than line breaks and tabs;
            the length exceeds the model's context; a token id is outside its vocabulary.
    """
    _check_texts(model, texts)
    context = model.config.context
    if not is_integer(length) or not 1 <= length <= context:
        raise SinkjaxError(
            f"length {length!r} must be an integer from 1 to the model's context, {context} tokens"
            " (load(..., context=) raises that where positions are not learned)"
        )
    prompts = prompt_ids(model, texts, bos)
    tokens = np.full((len(prompts), length), PAD, np.int32)
    lengths = np.array([min(len(prompt), length) for prompt in prompts], np.int32)
    for row, prompt, end in zip(tokens, prompts, lengths, strict=True):
        row[:end] = prompt[:end]
    return tokens, lengths


def prompt_ids(model: Model, texts: Sequence[str], bos: str | int) -> list[list[int]]:
    """Return the token ids of whole texts, with their prefix. Errors: as for `encode`."""
    tokenizer = _check_texts(model, texts)
    prefix, size = bos_ids(tokenizer, bos), model.config.vocab_size or 0
    for index, text in enumerate(texts):
        refuse_control(f"texts[{index}]", text, but=SPACING)
    return [_prompt(tokenizer.encode(text), text, prefix, size, f"texts[{index}]") for index, text in enumerate(texts)]


def bos_ids(tokenizer: Tokenizer, bos: str | int) -> list[int]:
    """Return the ids that a BOS policy puts before each text. Errors: as for `encode`."""
    if bos == "none":
        return []
    if bos == "model":
        if tokenizer.bos is None:
            raise SinkjaxError('the model\'s files name no BOS token; choose bos="none" or give a token id')
        return [tokenizer.bos]
    if bos == "tokenizer":
        return tokenizer.prefix
    if is_integer(bos):
        return [int(bos)]
    raise unknown("bos", bos, ("model", "tokenizer", "none"), ", or a token id")


def _prompt(ids: list[int], text: str, prefix: list[int], size: int, what: str) -> list[int]:
    """Return one text's prompt: the prefix and its ids, checked against a vocabulary of `size` tokens."""
    refuse(not ids, f"{what} is empty: {text!r} has no tokens")
    if prefix and ids[: len(prefix)] == prefix:
        raise SinkjaxError(f'{what} already begins with the BOS token {ids[0]} ({text[:20]!r}...); encode it with bos="none"')
    outside = [token for token in (*prefix, *ids) if not 0 <= token < size]
    if outside:
        raise SinkjaxError(f"{what} has the token id {outside[0]}, but the model's vocabulary has {size} tokens")
    return [*prefix, *ids]


def _check_texts(model: Model, texts: Sequence[str]) -> Tokenizer:
    """Return a model's tokenizer for these texts. Errors: it has none; these are not texts."""
    check_model(model)
    if model.tokenizer is None:
        raise SinkjaxError(
            f"the files of {model.source['name']} hold no tokenizer, so give token ids, not texts, or load it with tokenizer=..."
        )
    refuse(not _are_texts(texts), "texts must be a sequence of strings, one for each prompt")
    refuse(len(texts) == 0, "texts is empty: at least one prompt is needed")
    return model.tokenizer


def _are_texts(value: object) -> bool:
    ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, str | bytes | Mapping)
    return ordered and all(isinstance(text, str) for text in value)  # type: ignore[attr-defined]


def is_integer(value: object) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
