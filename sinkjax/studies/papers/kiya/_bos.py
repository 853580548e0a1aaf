"""What the studies of the first token share: which BOS a study means."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sinkjax.studies as st
from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model
    from sinkjax.checkpoints.tokenizer import Tokenizer


@dataclass(frozen=True)
class Bos:
    """A study's BOS: its token id and its text."""

    id: int
    text: str


def require(bos: str | int, model: Model) -> Bos:
    """The BOS of a study that cannot do without one: the token id given as `bos`, else the one that the model's files name.

    Raises:
        SinkjaxError: there is none, or it is not in the vocabulary.
    """
    tokenizer, size = model.tokenizer, model.config.vocab_size or 0
    token = bos if isinstance(bos, int) else tokenizer.bos if tokenizer else None
    if token is None:
        raise SinkjaxError(nameless(model.source["name"]))
    if not 0 <= token < size:
        raise SinkjaxError(f"bos is the token id {token}, but the model's vocabulary has {size} tokens")
    return Bos(token, tokenizer.decode([token]) if tokenizer else str(token))


def expect(config: st.StudyConfig) -> None:
    """Raise if the files of a study's model are here and name no BOS, and the study gives none; no weights are read."""
    if not isinstance(config.bos, int):
        tokenizer = tokenizer_of(config.model, config.revision)
        if tokenizer is not None and tokenizer.bos is None:
            raise SinkjaxError(nameless(config.model))


def nameless(model: str) -> str:
    """Why a study that needs a BOS cannot run."""
    return f"the files of {model} name no BOS token; give a token id as bos"


@functools.lru_cache(maxsize=1)
def tokenizer_of(model: str, revision: str | None) -> Tokenizer | None:
    """The tokenizer of a model whose weights are not read."""
    from sinkjax.checkpoints.load import open_checkpoint

    return open_checkpoint(model, revision).tokenizer
