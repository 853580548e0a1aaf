"""Prompts of a spec: the study's passages of text, or tokens that are not text."""

from __future__ import annotations

import numpy as np

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.config_files import documents
from sinkjax.data.corpora import joined, passages
from sinkjax.data.prompts import bos_ids
from sinkjax.errors import SinkjaxError
from sinkjax.lab.work import Batch, Inputs
from sinkjax.studies.registry import Chosen

FIRST_TOKENS = 4
TEXTS = {"text": passages, "joined": joined}


def prompts(model: Model, chosen: Chosen, inputs: Inputs, count: int) -> Batch:
    """Return a study's first `count` prompts of one kind. Errors: the model has no tokenizer; as for `sinkjax.encode`."""
    config, tokenizer = chosen.config, model.tokenizer
    if tokenizer is None:
        raise SinkjaxError(
            f"{config.model} has no tokenizer, so it cannot read text: name a folder, .gguf file or hub id with one as tokenizer"
        )
    bos = config.bos if inputs.bos is None else inputs.bos
    if bos == "tokenizer":  # store the resolved value
        bos = tokenizer.prefix[0] if tokenizer.prefix else "none"
    if inputs.kind in TEXTS:
        found = TEXTS[inputs.kind](
            config.text,
            config.prompts,
            split=config.split,
            length=config.length,
            size=lambda text: len(tokenizer.encode(text)),
            seed=config.seed,
            field=config.field,
            division=config.documents,
        )
        tokens, lengths = sinkjax.encode(model, found.texts, bos=bos, length=config.length)
        tokens, lengths, source, digest = tokens[:count], lengths[:count], found.source, found.sha256
        origin = {"split": config.split, "documents": list(found.documents[:count]), "genres": list(found.genres[:count])}
    else:
        tokens = drawn(inputs.kind, tokenizer, bos, count, config.length, model.config.vocab_size or 0, config.seed)
        lengths = np.full(count, config.length, np.int32)
        source = {"random": "random tokens", "repeat": "one random token, repeated"}[inputs.kind] + f", seed {config.seed}"
        digest, origin = "", {}
    texts = [tokenizer.tokens(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    study: dict[str, object] = {
        "experiment": chosen.experiment,
        "config": documents.plain(documents.fields(config)),
        "text": source,
        "text_sha256": digest,
        **origin,
        "bos": bos,
        "first_tokens": list(zip(tokens[0, :FIRST_TOKENS].tolist(), texts[0], strict=False)),
        "token_texts": texts,
    }
    return Batch(tokens, lengths, study)


def drawn(kind: str, tokenizer: Tokenizer, bos: str | int, count: int, length: int, vocabulary: int, seed: int) -> np.ndarray:
    """Draw token ids int32 [count, length] uniformly from the vocabulary without special tokens, after the requested BOS.

    kind: "random" for one draw per position, or "repeat" for one draw per prompt.
    """
    rng = intervals.generator(seed, f"{kind} tokens")
    ordinary = np.setdiff1d(np.arange(vocabulary), tokenizer.special)
    prefix = bos_ids(tokenizer, bos)
    size = (count, length - len(prefix)) if kind == "random" else (count, 1)
    ids = np.broadcast_to(rng.choice(ordinary, size), (count, length - len(prefix)))
    return np.concatenate([np.tile(np.array(prefix, np.int32), (count, 1)), ids], axis=1).astype(np.int32)
