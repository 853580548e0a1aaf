"""Conversion between text and token ids, without adding special tokens: `sinkjax.encode` chooses the BOS."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.signatures import READ, refuse_other
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import read_text
from sinkjax.errors import LONGEST, SinkjaxError

if TYPE_CHECKING:
    import tokenizers

MOST_BYTES = 32_000_000  # maximum bytes of a config.json, an index of shards or tokenizer settings
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A model's tokenizer.

    backend: a tokenizer of the `tokenizers` package. bos, eos: the ids that the model's files name, or None; `encode` adds
    neither. template: the program of the chat template, which nothing runs (data/chat.py), or None.
    """

    backend: tokenizers.Tokenizer = field(repr=False)
    bos: int | None = None
    eos: int | None = None
    template: str | None = field(default=None, repr=False)

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids. Special tokens written in it become tokens, unless its settings split them; none are added.

        Errors: half a character (a lone surrogate), which no UTF-8 file can contain.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise SinkjaxError(f"the text holds half a character, {half!r}, at position {error.start}") from None
        with refusing("the tokenizer cannot encode the text"):
            return self.backend.encode(text, add_special_tokens=False).ids

    @cached_property
    def prefix(self) -> list[int]:
        """Return the ids that the tokenizer itself puts before a text: its BOS, or nothing."""
        with refusing("the tokenizer cannot encode a text with its special tokens"):
            ids = self.backend.encode("a", add_special_tokens=True).ids
        plain = self.encode("a")
        return next((ids[:start] for start in range(len(ids)) if ids[start : start + len(plain)] == plain), [])

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, including special tokens."""
        with refusing("the tokenizer cannot decode the tokens"):
            return self.backend.decode([int(token) for token in ids], skip_special_tokens=False)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token, with its leading space; bytes of an incomplete character appear as U+FFFD."""
        start = len(self.decode(self._anchor))
        return [self.decode([*self._anchor, token])[start:] for token in ids]

    @cached_property
    def special(self) -> list[int]:
        """The ids of special tokens (BOS, padding, roles of a chat, ...), ascending."""
        added = self.backend.get_added_tokens_decoder()
        named = [token for token in (self.bos, self.eos) if token is not None]
        return sorted({token for token, entry in added.items() if entry.special} | set(named))

    @cached_property
    def _anchor(self) -> list[int]:
        """A word to put before a token, because decoders drop a space at the very start of a text."""
        return self.encode("a")


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Re-raise any failure in `tokenizers`, a Rust panic included, as an error that starts with `what`."""
    try:
        yield
    except (SinkjaxError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SinkjaxError(f"{what}: {reason[:LONGEST]}") from None


def copied(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copy a tokenizer so that it neither truncates nor pads."""
    own = type(backend).from_str(backend.to_str())
    own.encode_special_tokens = backend.encode_special_tokens  # the text does not say
    own.no_truncation()
    own.no_padding()
    return own


def write_folder_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write a tokenizer in the format of a Hugging Face folder, replacing any other. File system errors are raised unchanged."""
    names = {
        f"{name}_token": None if token is None else tokenizer.backend.id_to_token(token)
        for name, token in (("bos", tokenizer.bos), ("eos", tokenizer.eos))
    }
    if tokenizer.template is not None:
        names["chat_template"] = tokenizer.template
    (folder / TOKENIZER).write_text(tokenizer.backend.to_str(), encoding="utf-8")
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    if tokenizer.backend.encode_special_tokens:
        settings["split_special_tokens"] = True
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Errors: missing, unreadable, or not an object; a duplicate key."""
    text = read_text(path, MOST_BYTES)
    try:
        values = json.loads(text, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        refuse_other(text[:READ].encode(), path, "valid JSON")
        raise SinkjaxError(f"{path} is not valid JSON: {error}") from None
    refuse(not isinstance(values, dict), f"{path} must hold a JSON object, not a {type(values).__name__}")
    return values


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a mapping, for json's `object_pairs_hook`; raise ValueError for a duplicate key."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:LONGEST]!r} is written twice")
    return values
