"""Cut documents into pieces to tokenise, and train or load the tokenizer. This module does not import JAX."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, tee
from typing import TYPE_CHECKING, Any, NamedTuple

from sinkjax.checkpoints.presets import PRESETS
from sinkjax.checkpoints.tokenizer import Tokenizer, copied, read_json
from sinkjax.checkpoints.tokenizer_files import read_folder_tokenizer
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.data.config import BPE_SPECIAL
from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    import tokenizers


PIECE = 1 << 16  # maximum characters of a piece
GROUP = 1 << 21  # approximate characters tokenised in parallel


class Piece(NamedTuple):
    """A piece of a document, and whether it is the first or the last."""

    text: str
    first: bool
    last: bool


def cut(documents: Iterable[str]) -> Iterator[Piece]:
    """Cut documents into pieces; each piece except a document's first starts with white space.

    Byte-level tokenizers split there anyway, so the tokens match the whole text's; text without white space is cut at the maximum
    length.
    """
    for text in documents:
        start = 0
        while len(text) - start > PIECE:
            space = re.search(r"\s+\S*$", text[start + 1 : start + PIECE])
            end = start + (1 + space.start() if space else PIECE)
            yield Piece(text[start:end], start == 0, last=False)
            start = end
        yield Piece(text[start:], start == 0, last=True)


def groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Group pieces in lists of about `GROUP` characters."""
    pieces, counted = tee(pieces)
    sizes = accumulate(len(piece.text) for piece in counted)
    for _, group in groupby(zip(pieces, sizes, strict=True), key=lambda pair: pair[1] // GROUP):
        yield [piece for piece, _ in group]


def beginning(documents: Iterable[tuple[str, str]], limit: int | None) -> Iterator[tuple[str, str]]:
    """Yield non-empty documents (domain, text), up to `limit` bytes of UTF-8; None for all."""
    left = limit
    for domain, text in documents:
        if left is not None:
            raw = text.encode()
            text, left = raw[:left].decode(errors="ignore"), left - len(raw)
        if text:
            yield domain, text
        if left is not None and left <= 0:
            return


def train_bpe(pieces: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer of exactly `vocabulary` tokens: BOS (id 0), EOS (id 1), 256 bytes, merges.

    Any UTF-8 text can be encoded and decodes to itself. Errors: the text has too few pairs for this many merges.
    """
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    options: dict[str, Any] = {
        "special_tokens": list(BPE_SPECIAL),
        "initial_alphabet": tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    }
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, **options)
    backend.train_from_iterator(pieces, trainer)
    size = backend.get_vocab_size()
    few = f"vocabulary must be at most {size} for this text, not {vocabulary}: it has no more pairs to merge"
    refuse(size != vocabulary, few)
    return Tokenizer(backend, bos=0, eos=1)


def existing(source: str) -> Tokenizer:
    """Load the tokenizer of a preset, a folder, a .gguf file, or a hub id, regardless of the model's architecture.

    Errors: nothing of that name; no tokenizer there.
    """
    from sinkjax.checkpoints.hub import HUB_ID, find_snapshot
    from sinkjax.checkpoints.load import open_checkpoint

    folder, config = user_path(source), "config.json"
    if source not in PRESETS and not folder.exists() and HUB_ID.fullmatch(source) and folder.suffix != ".gguf":
        folder = find_snapshot(source, weights=False)
    if source not in PRESETS and folder.is_dir():
        tokenizer = read_folder_tokenizer(folder, read_json(folder / config) if (folder / config).is_file() else {})
    else:
        tokenizer = open_checkpoint(source, weights=False).tokenizer
    if tokenizer is None:
        raise SinkjaxError(f"{source} has no tokenizer")
    return tokenizer


def sha256(tokenizer: Tokenizer) -> str:
    """The hash of a tokenizer's file."""
    return hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest()


def size(tokenizer: Tokenizer) -> int:
    """Return the largest id plus one: the minimum size of a model's vocabulary."""
    return max(tokenizer.backend.get_vocab(with_added_tokens=True).values()) + 1


def encoder(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Return a backend that treats special tokens in a text as plain text, so that no document can forge a BOS."""
    backend = copied(tokenizer.backend)
    backend.encode_special_tokens = True
    return backend
