"""Pretraining data: a corpus as tokens, and its batches. This module does not import JAX.

Positions count from 0, in tokens of a block, including its BOS. Gu et al. 2025 count them from 1.
The config of a training that reads text includes every field of `Corpus` and `Blocks`; `part` extracts either one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import tyro

from sinkjax.config_files.checks import above, at_least, is_number, only_for, refuse, without_repeats
from sinkjax.config_files.documents import LATER, typed
from sinkjax.errors import SinkjaxError

C = TypeVar("C")

BPE = "bpe"
BPE_SPECIAL = ("<|bos|>", "<|eos|>")  # ids 0 and 1 of a trained tokenizer
BPE_SMALLEST, BPE_LARGEST = 256 + len(BPE_SPECIAL), 1_000_000  # every byte has a token of its own


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A tokenised text: every setting that determines the content of the token file."""

    text: str = "packaged"
    """"packaged" (184 kB in 12 genres), "chats" (conversations), a file or a folder (.txt, .jsonl, .json, .csv, .tsv, .parquet,
    .arrow, also .gz of these), or the hub id of a data set"""
    subset: str | None = None
    """configuration of a data set on the hub"""
    split: str = "train"
    """split of a data set on the hub"""
    revision: str | None = None
    """branch, tag or commit of a data set on the hub"""
    column: Annotated[str, tyro.conf.arg(aliases=("--field",))] = "text"
    """name of the field with the text in a data set or a file of records; each record is a document"""
    documents: Literal["auto", "file", "line", "article"] = field(default="auto", metadata=LATER)
    """unit that counts as a document in plain text: the file (auto), a line, or an article below a heading like = Title ="""
    limit: int | None = None
    """maximum bytes of text, from the start"""
    tokenizer: str = BPE
    """"bpe" (byte-level, trained on all of this text), or the tokenizer of a preset, a folder, a .gguf file or a
    model on the hub"""
    vocabulary: int = 2048
    """vocabulary size of a trained tokenizer; 0 is its BOS, 1 its EOS"""
    separator: Literal["none", "bos", "eos"] = "none"
    """the tokenizer's BOS before each document, its EOS after each, or nothing"""
    validation: float = 0.05
    """share of the tokens held out from training: the last ones of each of eight sections of the file"""

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, 2**63 - 1, limit=1)
        if self.tokenizer == BPE:
            at_least(self, BPE_LARGEST, vocabulary=BPE_SMALLEST)
        refuse(not 0 <= self.validation < 1, f"validation must be at least 0 and below 1, not {self.validation}")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Reading of a token file: blocks of `context` inputs and the token after them, in batches.

    Every policy reads the same text in the same order: a BOS and fixed or random tokens replace positions of a block and never
    shift text into the next one.
    """

    context: int = 256
    """inputs per block"""
    batch: int = 16
    """blocks per batch"""
    bos: Literal["first", "none"] = "first"
    """whether the tokenizer's BOS comes first in every block (replacing the block's last token)"""
    bos_fraction: float = field(default=1.0, metadata=LATER)
    """share of the blocks that begin with the BOS, drawn once for each block; the others are left as they are"""
    offsets: Literal["grid", "random"] = field(default="grid", metadata=LATER)
    """start of training blocks: one after the other (grid), or each at a random token; held-out blocks are always a grid"""
    fixed_positions: tuple[int, ...] = ()
    """positions that hold the fixed token in every block (the paper's 1, 2, 3 are 0, 1, 2)"""
    fixed_token: int = 1
    """token at the fixed positions"""
    random_positions: tuple[int, ...] = ()
    """positions that hold a random token, uniform over the vocabulary, drawn once for each block"""
    random_tokens: tuple[int, ...] = field(default=(), metadata=LATER)
    """tokens to draw from at random_positions, such as two kinds of BOS; if none, the whole vocabulary"""
    prefix: int = 0
    """first positions that see each other in both directions (prefix language model) and are not predicted"""
    unique: float = 1.0
    """fraction of the training blocks to use, repeated as often as needed"""
    repeated_blocks: int = 0
    """additional blocks that recur in every batch"""
    repeated_rows: int = 0
    """rows of a batch for these blocks"""
    weights: tyro.conf.Suppress[Mapping[str, float]] = field(default_factory=dict, hash=False, metadata=LATER)
    """domain (a folder directly below a folder of texts, a genre of the packaged text) -> its share of the training blocks that
    are read, relative to the others; a domain that is not named is not read. None named: all blocks alike"""
    data_seed: int = 0
    """seed of the order, the choice of blocks and the random tokens"""

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, context=1, batch=1, prefix=0, fixed_token=0, repeated_blocks=0, repeated_rows=0)
        at_least(self, 2**32 - 1, data_seed=0)  # a run's seed is a hash
        above(self, unique=0, bos_fraction=0)
        for name in ("unique", "bos_fraction"):
            refuse(getattr(self, name) > 1, f"{name} must be at most 1, not {getattr(self, name)}")
        only_for(self, "bos_fraction", self.bos == "first", 'bos "first"')
        for name in ("unique", "repeated_blocks"):
            only_for(self, name, self.offsets == "grid", "blocks on a grid, not at random offsets")
        refuse(bool(self.weights) and self.offsets == "random", "weights are for blocks on a grid, not at random offsets")
        for domain, weight in self.weights.items():
            right = is_number(weight) and 0 < weight < float("inf")
            refuse(not right, f"the weight of the domain {domain!r} must be a number above 0, not {weight!r}")
        for name in ("fixed_positions", "random_positions"):
            for position in getattr(self, name):
                inside = 0 <= position <= self.context
                refuse(not inside, f"{name} has {position}, but a block has the positions 0 to {self.context}")
            without_repeats(name, getattr(self, name))
        only_for(self, "fixed_token", bool(self.fixed_positions), "fixed_positions, and there are none")
        only_for(self, "random_tokens", bool(self.random_positions), "random_positions, and there are none")
        without_repeats("random_tokens", self.random_tokens)
        refuse(min(self.random_tokens, default=0) < 0, f"random_tokens must be at least 0, not {list(self.random_tokens)}")
        for position in {*self.fixed_positions} & {*self.random_positions}:
            raise SinkjaxError(f"position {position} cannot hold a fixed and a random token at once")
        taken = self.bos == "first" and 0 in (*self.fixed_positions, *self.random_positions)
        refuse(taken, 'position 0 holds the BOS; choose bos "none" to put another token there')
        refuse(self.prefix > self.context, f"prefix must be at most context ({self.context}), not {self.prefix}")
        one_sided = (self.repeated_blocks == 0) != (self.repeated_rows == 0)
        refuse(one_sided, "repeated_blocks and repeated_rows must both be 0 or both be above 0")
        refuse(self.repeated_rows > self.batch, f"repeated_rows must be at most batch ({self.batch}), not {self.repeated_rows}")


def part(config: Any, cls: type[C]) -> C:
    """Extract a `cls` from a larger config with the same field names. Errors: as for `cls`."""
    return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]
