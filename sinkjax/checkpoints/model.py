"""A model in memory: what `load` returns and what everything else takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.model.config import Config
from sinkjax.model.params import Params


@dataclass(frozen=True, eq=False)
class Model:
    """A model in memory.

    Attributes:
        config: Its architecture.
        params: Arrays in the tree of `params.abstract(config)`, all of one dtype.
        tokenizer: None if its files have none.
        source: Where it comes from: kind ("preset", "packaged", "folder", "hub", "gguf" or "untrained"), name, revision (a hub
            commit, else None), sha256 (of the stored, or of the drawn weights in the order of the tree), dtype, model_type, bos
            and eos (token ids or None), and assumed (config keys that the files leave out, with the values taken).
    """

    config: Config
    params: Params = field(repr=False)
    tokenizer: Tokenizer | None = field(repr=False)
    source: Mapping[str, Any]
