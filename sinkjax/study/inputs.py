"""Prompts of a spec: the study's passages of text, or tokens that are not text."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.checkpoints.architectures import with_tokenizer
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.checkpoints.tokenizer_files import END
from sinkjax.config_files import documents
from sinkjax.data.corpora import chosen_split, passages
from sinkjax.data.fit import fitted
from sinkjax.data.prompts import bos_ids, first_tokens, resolved_bos, trained_prefix
from sinkjax.errors import SinkjaxError
from sinkjax.study.choice import SIZES, Chosen
from sinkjax.study.facts import TRAINED_WITH, bos_warning
from sinkjax.study.premises import CHAT
from sinkjax.study.work import Batch, Inputs

FIRST_TOKENS = 4
TEXTS = ("text", "joined")


def prompts(model: Model, chosen: Chosen, inputs: Inputs, count: int) -> Batch:
    """Return a study's first `count` prompts of one kind. Errors: the model has no tokenizer; as for `sinkjax.encode`."""
    config, tokenizer = chosen.config, model.tokenizer
    if tokenizer is None:
        raise SinkjaxError(
            f"{config.model} has no tokenizer, so it cannot read text: name a folder, .gguf file or hub id with one as tokenizer"
            f"{with_tokenizer(model.source.get('model_type'), model.config.vocab_size)}"
        )
    bos = resolved_bos(model, config.bos if inputs.bos is None else inputs.bos)
    trained = trained_prefix(model)[0]
    missing: dict[str, str] = {}
    if inputs.bos is None and bos == "none" and trained:
        missing = {TRAINED_WITH: tokenizer.tokens(trained)[0]}
    if inputs.kind in TEXTS:
        split = chosen_split(config.text, config.split)
        found = passages(
            config.text,
            config.prompts,
            split=split,
            length=config.length,
            size=lambda text: len(tokenizer.encode(text)),
            seed=config.seed,
            field=config.field,
            division=config.documents,
            join=inputs.kind == "joined",
        )
        tokens, lengths = first_tokens(model, found.texts, bos, config.length)
        tokens, lengths, source, digest = tokens[:count], lengths[:count], found.source, found.sha256
        origin = {"split": split, "documents": list(found.documents[:count]), "genres": list(found.genres[:count])}
    else:
        size, prefix = model.config.vocab_size or 0, bos_ids(model, bos)
        tokens = drawn(inputs.kind, tokenizer, prefix, count, config.length, size, config.seed)
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
        **missing,
        "first_tokens": list(zip(tokens[0, :FIRST_TOKENS].tolist(), texts[0], strict=False)),
        "token_texts": texts,
    }
    return Batch(tokens, lengths, study)


def fit(config: Any, unstated: Collection[str], tokenizer: Tokenizer) -> tuple[Any, str]:
    """Fit a study's `prompts` and `length` to a text of the user's, as far as they are unstated, and say how.

    Returns:
        The config, and a sentence, "" if nothing changed. Errors: as for `data.fit.fitted`.
    """
    number, length, said = fitted(
        config.text,
        config.prompts,
        config.length,
        given=SIZES - {*unstated},
        split=chosen_split(config.text, config.split),
        size=lambda text: len(tokenizer.encode(text)),
        field=config.field,
        division=config.documents,
    )
    return dataclasses.replace(config, prompts=number, length=length), said


def announced(model: Model, study: Mapping[str, object]) -> str:
    """Describe the prefix of prompts in a line; a warning if the model was trained with one and they have none."""
    if TRAINED_WITH in study:
        return f"warning: {bos_warning(str(model.source['name']), study)}"
    why, (token, text) = trained_prefix(model)[1], study["first_tokens"][0]  # type: ignore[index]
    how = f" ({why})" if why and study["bos"] == "model" else ""
    return "BOS: none" if study["bos"] == "none" else f"BOS: {text!r}, token {token}{how}"


def of_chat(model: Model, bos: Iterable[object]) -> str:
    """Say that one of these prefixes of prompts begins chat turns, so that no claim about a BOS is for it; "" if none does."""
    tokenizer = model.tokenizer
    for token in bos:
        if tokenizer is not None and isinstance(token, int) and (text := tokenizer.tokens([token])[0]) in CHAT:
            other = next((one for one in tokenizer.special if tokenizer.tokens([one])[0] == END), None)
            instead = "" if other is None else f"; --bos {other} takes {END!r}"
            return (
                f"the BOS {text!r} begins chat turns and did not separate documents in pretraining, so claims about a BOS are"
                f" not applicable{instead}"
            )
    return ""


def drawn(kind: str, tokenizer: Tokenizer, prefix: list[int], count: int, length: int, vocabulary: int, seed: int) -> np.ndarray:
    """Draw token ids int32 [count, length] uniformly from the vocabulary without special tokens, after a prefix.

    kind: "random" for one draw per position, or "repeat" for one draw per prompt.
    """
    rng = intervals.generator(seed, f"{kind} tokens")
    ordinary = np.setdiff1d(np.arange(vocabulary), tokenizer.special)
    size = (count, length - len(prefix)) if kind == "random" else (count, 1)
    ids = np.broadcast_to(rng.choice(ordinary, size), (count, length - len(prefix)))
    return np.concatenate([np.tile(np.array(prefix, np.int32), (count, 1)), ids], axis=1).astype(np.int32)
