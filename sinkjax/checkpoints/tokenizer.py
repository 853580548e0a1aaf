"""Conversion between text and token ids, without adding special tokens: `sinkjax.encode` chooses the BOS."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.signatures import READ, refuse_other
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import read_text, regular
from sinkjax.errors import LONGEST, SinkjaxError
from sinkjax.runtime import extras

if TYPE_CHECKING:
    import tokenizers

MOST_BYTES = 32_000_000  # maximum bytes of a config.json, an index of shards or tokenizer settings
MOST_TOKENIZER = 100_000_000  # maximum bytes of a vocabulary; the largest published ones have 34 million
MOST_OBJECTS = 200_000  # in a tokenizer.json, where a vocabulary is one: the largest published ones have 7,000
MOST_GROWTH = 1000  # maximum growth of a text through a tokenizer's replacements, as a factor
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
# Vocabulary files that only `transformers` can convert to a tokenizer.
SLOW_FILES = ("tokenizer.model", "vocab.json")


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A model's tokenizer.

    backend: a tokenizer of the `tokenizers` package. bos, eos: the ids that the model's files name, or None; `encode` adds
    neither.
    """

    backend: tokenizers.Tokenizer
    bos: int | None = None
    eos: int | None = None

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids. Special tokens written in it become tokens; none are added.

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
        raise SinkjaxError(f"{what}: {str(error)[:LONGEST]}") from None


def copied(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copy a tokenizer so that it neither truncates nor pads."""
    own = type(backend).from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def read_folder_tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer | None:
    """Read the tokenizer of a Hugging Face folder, or return None if it has none.

    config: the parsed config.json, for the BOS and EOS ids that no tokenizer_config.json names. A `"bos_token": null` there means
    that the model has no BOS, regardless of config.json (Qwen2). Errors: a damaged file; a vocabulary that cannot be
    converted.
    """
    backend = _backend(folder)
    if backend is None:
        return None
    with refusing(f"the tokenizer of {folder} cannot be used"):
        backend.no_truncation()
        backend.no_padding()
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    return Tokenizer(backend, *(_special(backend, settings, config, name, folder) for name in ("bos", "eos")))


def write_folder_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write a tokenizer in the format of a Hugging Face folder, replacing any other. File system errors are raised unchanged."""
    names = {
        f"{name}_token": None if token is None else tokenizer.backend.id_to_token(token)
        for name, token in (("bos", tokenizer.bos), ("eos", tokenizer.eos))
    }
    (folder / TOKENIZER).write_text(tokenizer.backend.to_str(), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
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


def _backend(folder: Path) -> tokenizers.Tokenizer | None:
    if (folder / TOKENIZER).exists():
        regular(folder / TOKENIZER, MOST_TOKENIZER)
        content = (folder / TOKENIZER).read_bytes()
        if (count := content.count(b"{")) > MOST_OBJECTS:  # the package takes a kilobyte for each
            raise SinkjaxError(f"{folder / TOKENIZER} has {count:,} parts, and a tokenizer has at most {MOST_OBJECTS:,}")
        import tokenizers

        refuse_other(content[:READ], folder / TOKENIZER, "a tokenizer")
        with refusing(f"{folder / TOKENIZER} is not a tokenizer"):
            backend = tokenizers.Tokenizer.from_str(content.decode())
        for part in (backend.normalizer, backend.pre_tokenizer, backend.decoder):
            if part is not None and (growth := _growth(json.loads(part.__getstate__()))) > MOST_GROWTH:
                raise SinkjaxError(
                    f"{folder / TOKENIZER} replaces text by text up to {growth:.1e} times as long, more than {MOST_GROWTH} times"
                )
        return backend
    found = [name for name in SLOW_FILES if (folder / name).exists()]
    if not found:
        return None
    regular(folder / found[0], MOST_TOKENIZER)
    if found[0] == "tokenizer.model" and find_spec("sentencepiece") is None:
        raise SinkjaxError(f"{folder} has only a tokenizer.model, which needs one more package: pip install sentencepiece")
    extras.require(f"a tokenizer from {found[0]}", "hub", "transformers")
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        ).backend_tokenizer
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SinkjaxError(f"transformers cannot build a tokenizer from {folder / found[0]}: {reason}") from None


def _growth(part: Any) -> float:
    """Return the maximum growth of a text, as a factor, through a tokenizer part's replacements and prefixes, applied in turn."""
    if isinstance(part, list):
        return math.prod(map(_growth, part))
    if not isinstance(part, dict):
        return 1.0
    inner = math.prod(_growth(value) for value in part.values() if isinstance(value, list | dict))
    content = part.get("prepend" if part.get("type") == "Prepend" else "content")
    if part.get("type") not in ("Replace", "Prepend") or not isinstance(content, str):
        return inner
    pattern = part.get("pattern")
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    return inner * max(1.0, len(content) / len(literal) if literal else len(content) + 1)


def _special(
    backend: tokenizers.Tokenizer, settings: dict[str, Any], config: dict[str, Any], name: str, folder: Path
) -> int | None:
    """Return the id of the "bos" or "eos" token: by the name in tokenizer_config.json, else by the id in config.json."""
    key = f"{name}_token"
    if key not in settings:
        token = config.get(f"{key}_id")
        token = token[0] if isinstance(token, list) and token else token
        return token if isinstance(token, int) and not isinstance(token, bool) else None
    token = settings[key]
    text = token.get("content") if isinstance(token, dict) else token
    if not text:
        return None
    found = backend.token_to_id(text) if isinstance(text, str) else None
    if found is None:
        raise SinkjaxError(f"{folder / SETTINGS} names the {key} {text!r}, which is not in the vocabulary")
    return found
