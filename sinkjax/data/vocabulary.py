"""The tokenizer of a corpus: a small one trained on it, or an existing model's. Importing this module imports no JAX."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sinkjax.checkpoints.tokenizer import Tokenizer, read_folder_tokenizer, read_json
from sinkjax.config_files.files import user_path
from sinkjax.data.config import BPE_SPECIAL
from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    import tokenizers


def train_bpe(pieces: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer of exactly `vocabulary` tokens: BOS (id 0), EOS (id 1), 256 bytes, merges.

    Any text in UTF-8 has tokens, and decodes to itself. Errors: a text with too few pairs for as many merges.
    """
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(BPE_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(pieces, trainer)
    found = backend.get_vocab_size()
    if found != vocabulary:
        raise SinkjaxError(f"vocabulary must be at most {found} for this text, not {vocabulary}: it has no more pairs to merge")
    return Tokenizer(backend, bos=0, eos=1)


def existing(source: str) -> Tokenizer:
    """The tokenizer of a preset, a folder, a .gguf file, or a hub id; the model's architecture does not matter.

    Errors: nothing of that name; no tokenizer there.
    """
    from sinkjax.checkpoints.hub import HUB_ID, find_snapshot
    from sinkjax.checkpoints.load import open_checkpoint
    from sinkjax.checkpoints.presets import PRESETS

    folder = user_path(source)
    if source not in PRESETS and not folder.exists() and HUB_ID.fullmatch(source) and folder.suffix != ".gguf":
        folder = find_snapshot(source, weights=False)
    if source not in PRESETS and folder.is_dir():
        tokenizer = read_folder_tokenizer(folder, read_json(folder / "config.json") if (folder / "config.json").is_file() else {})
    else:
        tokenizer = open_checkpoint(source, weights=False).tokenizer
    if tokenizer is None:
        raise SinkjaxError(f"{source} has no tokenizer")
    return tokenizer


def sha256(tokenizer: Tokenizer) -> str:
    """The hash of a tokenizer's file."""
    return hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest()


def size(tokenizer: Tokenizer) -> int:
    """One more than the largest id: the least size of a model's vocabulary."""
    return max(tokenizer.backend.get_vocab(with_added_tokens=True).values()) + 1


def encoder(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """A backend that takes a special token written out in a text for plain text: no document can forge a BOS."""
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    return backend
