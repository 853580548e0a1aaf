"""Batches of a token file: batch k depends only on (data seed, k). This module does not import JAX.

A batch is a dict of numpy arrays, T = context + 1:
    tokens     int32 [B, T]  inputs are tokens[:, :-1], targets tokens[:, 1:]
    loss_mask  bool [B, T]   whether a token counts as a target; never the first one of a row
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.data.config import Blocks
from sinkjax.data.tokens import Split, Tokens
from sinkjax.errors import one_of

Batch = dict[str, np.ndarray]
CYCLE = 1_000  # every this many rows, each domain has its share
SHORTEST = 64  # minimum tokens of a document at the start of a block: sinks are measured in this many (Gu et al. 2025)


class Batches:
    """The batches of one split of a corpus.

    "train" never ends: every block appears once per epoch, each epoch has its own order, and an epoch may end within a batch.
    "validation" has `count` batches of distinct blocks, the same for every seed; an incomplete batch is dropped, unless it is the
    only one. `unique`, `repeated_blocks` and `weights` affect only "train". If domains are weighted, each has its own epochs, and
    its share of every `CYCLE` rows matches its weight to the nearest row.

    blocks: number of different blocks. count: number of batches, None for "train".
    """

    def __init__(
        self, tokens: Tokens, config: Blocks, split: Split = "train", vocab_size: int | None = None, at_documents: bool = False
    ):
        """Open a split.

        vocab_size: the model's vocabulary size, for random tokens and for checks; None for the tokenizer's. at_documents: whether
        blocks start where documents of at least `SHORTEST` tokens do (or of a whole block, if that is shorter) and continue
        into the next document; otherwise blocks are contiguous. Errors: the split has no whole block; the tokenizer lacks the
        requested BOS; ids are outside the vocabulary.
        """
        self.tokens, self.config, self.split, self.at_documents = tokens, config, split, at_documents
        self.vocab_size = tokens.vocab_size if vocab_size is None else vocab_size
        size = self.vocab_size
        refuse(size < tokens.vocab_size, f"the tokenizer has {tokens.vocab_size} tokens, but the model's vocabulary {size}")
        fixed = config.fixed_token if config.fixed_positions else -1
        for name, largest in (("fixed_token", fixed), ("random_tokens", max(config.random_tokens, default=-1))):
            refuse(largest >= size, f"{name} must be below the vocabulary ({size}), not {largest}")
        self._bos = tokens.card["tokenizer"]["bos"]
        missing = config.bos == "first" and self._bos is None
        refuse(missing, f'bos is "first", but the tokenizer {tokens.card["corpus"]["tokenizer"]} names no BOS; choose "none"')
        self._seed = config.data_seed if split == "train" else 0
        self._starts = self._block_starts()
        self._repeated, self._fresh = self._choice()
        self._domains = self._by_domain()
        self.blocks = len(self._repeated) + sum(len(blocks) for blocks, _ in self._domains.values())
        self.rows = min(config.batch, len(self._fresh)) if split == "validation" else config.batch
        self.count = len(self._fresh) // self.rows if split == "validation" else None

    def at(self, k: int, rows: np.ndarray | None = None) -> Batch:
        """Return batch k, from 0. rows: the requested rows, None for all. Errors: the batch does not exist."""
        last = "" if self.count is None else f" and end with {self.count - 1}"
        outside = k < 0 or (self.count is not None and k >= self.count)
        refuse(outside, f"there is no batch {k} of the {self.split} split: batches begin with 0{last}")
        chosen, config = self._chosen(k), self.config
        blocks = chosen if rows is None else chosen[rows]
        starts = self._starts[blocks]
        if config.offsets == "random" and self.split == "train":  # a block is then known by its place in the reading
            blocks = k * self.rows + (np.arange(self.rows) if rows is None else rows)
            starts = self._random_starts(blocks)
        tokens = self.tokens.ids[starts[:, None] + np.arange(config.context + 1)].astype(np.int32)
        if config.bos == "first":
            begins = _uniform(self._seed, f"bos of {self.split}", blocks, 1 << 32) < config.bos_fraction * (1 << 32)
            tokens[begins, 1:] = tokens[begins, :-1]
            tokens[begins, 0] = self._bos
        tokens[:, list(config.fixed_positions)] = config.fixed_token
        if config.random_positions:
            where, among = np.array(config.random_positions), config.random_tokens
            count = len(among) or self.vocab_size
            drawn = _uniform(self._seed, f"random tokens of {self.split}", (blocks[:, None], where), count)
            tokens[:, where] = np.array(among)[drawn] if among else drawn
        mask = np.broadcast_to(np.arange(config.context + 1) >= max(1, config.prefix), tokens.shape)
        return {"tokens": tokens, "loss_mask": mask.copy()}

    def _block_starts(self) -> np.ndarray:
        """Return the first token of each block in the token file, int64, ascending: as many per span of the split as fit."""
        width, spans = self.config.context + 1, self.tokens.spans(self.split)
        what = f"the {self.split} split of {self.tokens.folder}"
        if self.at_documents:
            starts = np.concatenate([self._documents(start, stop) for start, stop in spans])
            none = f"no document of {what} begins a block of {width} tokens; evaluate on blocks"
            refuse(not len(starts), f"{none}, or choose a shorter context or more text")
            return starts
        starts = np.concatenate([start + width * np.arange((stop - start) // width) for start, stop in spans])
        count, longest = sum(b - a for a, b in spans), max(b - a for a, b in spans)
        none = f"{what} has no block of {width} tokens (context and one more): it has {count} tokens, at most {longest} in a row"
        refuse(not len(starts), f"{none}; choose a shorter context, more text or another validation share")
        return starts

    def _random_starts(self, places: np.ndarray) -> np.ndarray:
        """Return a start for each place of the reading, uniform over all at which a block lies in one span of the split."""
        starts, stops = np.array(self.tokens.spans(self.split)).T
        counts = np.maximum(0, stops - starts - self.config.context)
        drawn = _uniform(self._seed, "offsets", places, int(counts.sum()))
        span = np.searchsorted(np.cumsum(counts), drawn, side="right")
        return np.asarray(starts[span] + drawn - (np.cumsum(counts) - counts)[span])

    def _documents(self, start: int, stop: int) -> np.ndarray:
        """Return the starts of a span's blocks that start with a document."""
        separator, card = self.tokens.card["corpus"]["separator"], self.tokens.card["tokenizer"]
        width = self.config.context + 1
        separators = start + np.flatnonzero(self.tokens.ids[start:stop] == card[separator])
        after = separator == "eos" or self.config.bos == "first"  # a BOS between documents is the first token of a block
        ends = np.append(separators[1:], stop)
        long = ends - separators > min(SHORTEST, width - 1)
        begins = separators + after
        return begins[long & (begins + width <= stop)]

    def _choice(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of blocks that recur in every batch, and of the others. A smaller share is part of a larger one."""
        n = len(self._starts)
        if self.split == "validation":
            return np.arange(0), np.arange(n)
        order = _order(self._seed, "choice", 0, n)
        repeated, rest = order[: self.config.repeated_blocks], order[self.config.repeated_blocks :]
        few = not len(rest) and self.config.repeated_blocks > 0
        refuse(few, f"repeated_blocks must be below the {n} training blocks, not {self.config.repeated_blocks}")
        return repeated, rest[: max(1, round(self.config.unique * len(rest)))]

    def _by_domain(self) -> dict[str, tuple[np.ndarray, int]]:
        """Map the name of each domain's order to its blocks and its rows of a cycle; without weights, one has all blocks."""
        # Domain -> index of its first token (see `sources.documents`), ascending; none in a card of an earlier version.
        weights, domains = self.config.weights, self.tokens.card.get("domains", {})
        if self.split == "validation" or not weights:
            return {"order": (self._fresh, CYCLE)}
        refuse(not domains, f"{self.tokens.folder} was made before domains were kept; delete it to rebuild it")
        for name in weights:
            one_of("domain", name, domains)
        number = np.searchsorted(list(domains.values()), self._starts[self._fresh], side="right") - 1
        blocks = [self._fresh[number == list(domains).index(name)] for name in weights]
        for name, starts in zip(weights, blocks, strict=True):
            refuse(not len(starts), f"the domain {name!r} of {self.tokens.folder} begins no block of the training split")
        edges = np.rint(np.cumsum([0.0, *weights.values()]) / sum(weights.values()) * CYCLE).astype(int)
        names = [f"order of {name}" for name in weights] if len(weights) > 1 else ["order"]
        return {name: (starts, int(rows)) for name, starts, rows in zip(names, blocks, np.diff(edges), strict=True)}

    def _chosen(self, k: int) -> np.ndarray:
        """Return the indices of the blocks of batch k, repeated blocks first."""
        repeated = self.config.repeated_rows if self.split == "train" else 0
        rows = self.rows - repeated
        recurring = [self._in_order("repeated", self._repeated, np.arange(k * repeated, (k + 1) * repeated))]
        place = np.arange(k * rows, (k + 1) * rows)
        chosen = np.empty(rows, np.int64)
        for cycle in np.unique(place // CYCLE):
            here = place // CYCLE == cycle
            domain = np.repeat(np.arange(len(self._domains)), [share for _, share in self._domains.values()])
            domain = domain[_order(self._seed, "domains", int(cycle), CYCLE)]
            for number, (name, (blocks, share)) in enumerate(self._domains.items()):
                before = np.cumsum(domain == number) - 1 + cycle * share  # rows of this domain before each row of the cycle
                mine = here & (domain[place % CYCLE] == number)
                chosen[mine] = self._in_order(name, blocks, before[place[mine] % CYCLE])
        return np.concatenate([*recurring, chosen])

    def _in_order(self, name: str, blocks: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return the blocks at these places of an endless reading, int64 [place]: each once per epoch, reshuffled every epoch."""
        chosen = np.empty(len(place), np.int64)
        epoch = place // max(1, len(blocks))
        for number in np.unique(epoch):
            order = _order(self._seed, name, int(number), len(blocks))
            chosen[epoch == number] = blocks[order[place[epoch == number] % len(blocks)]]
        return chosen


@lru_cache(maxsize=8)
def _order(seed: int, name: str, epoch: int, count: int) -> np.ndarray:
    """Return an epoch's order of `count` blocks."""
    return np.argsort(_draw(seed, f"{name} of epoch {epoch}", np.arange(count)), kind="stable")


def _uniform(seed: int, name: str, index: np.ndarray | tuple[np.ndarray, ...], count: int) -> np.ndarray:
    """Draw an integer below `count` (at most 2^32), int64, for each index, as `_draw`."""
    bits = _draw(seed, name, *(index if isinstance(index, tuple) else (index,)))
    return ((bits >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def _draw(seed: int, name: str, *index: np.ndarray) -> np.ndarray:
    """Draw 64 random bits for each index, which depend only on (seed, name, index).

    The finaliser of SplitMix64 (Steele et al. 2014) after each word: vectorised, and the same in every version of NumPy.
    """
    bits = np.array([seed], np.uint64)
    for word in (np.array([zlib.crc32(name.encode())]), *index):
        bits = (bits ^ word.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    return bits
