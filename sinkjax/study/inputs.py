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
from sinkjax.study.numbers import TRAINED_WITH, bos_warning
from sinkjax.study.premises import CHAT
from sinkjax.study.registry import SIZES, Chosen
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
    facts: dict[str, object] = {"text_sha256": ""}
    if inputs.kind in TEXTS:
        cut, join = _of_text(config, tokenizer), inputs.kind == "joined"
        texts = passages(config.text, config.prompts, seed=config.seed, join=join, **cut)
        tokens, lengths = (values[:count] for values in first_tokens(model, texts.texts, bos, config.length))
        facts = {"text": texts.source, "text_sha256": texts.sha256, "split": chosen_split(config.text, config.split)}
        facts |= {"documents": list(texts.documents[:count]), "genres": list(texts.genres[:count])}
    else:
        size, prefix = model.config.vocab_size or 0, bos_ids(model, bos)
        tokens = drawn(inputs.kind, tokenizer, prefix, count, config.length, size, config.seed)
        lengths = np.full(count, config.length, np.int32)
        what = {"random": "random tokens", "repeat": "one random token, repeated"}[inputs.kind]
        facts["text"] = f"{what}, seed {config.seed}"
    if inputs.bos is None and bos == "none" and (trained := trained_prefix(model)[0]):
        facts[TRAINED_WITH] = tokenizer.tokens(trained)[0]
    rows = [tokenizer.tokens(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    study: dict[str, object] = {
        "experiment": chosen.experiment,
        "config": documents.plain(documents.fields(config)),
        **facts,
        "bos": bos,
        "first_tokens": list(zip(tokens[0, :FIRST_TOKENS].tolist(), rows[0], strict=False)),
        "token_texts": rows,
    }
    return Batch(tokens, lengths, study)


def _of_text(config: Any, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return how the passages of a study's text are cut."""
    split, cut = chosen_split(config.text, config.split), {"field": config.field, "division": config.documents}
    return {"split": split, "length": config.length, "size": lambda text: len(tokenizer.encode(text)), **cut}


def fit(config: Any, unstated: Collection[str], tokenizer: Tokenizer) -> tuple[Any, str]:
    """Fit a study's `prompts` and `length` to a text of the user's, as far as they are unstated.

    Returns:
        The config, and a sentence that says how, "" if nothing changed. Errors: as for `data.fit.fitted`.
    """
    number, length, how = fitted(config.text, config.prompts, given=SIZES - {*unstated}, **_of_text(config, tokenizer))
    return dataclasses.replace(config, prompts=number, length=length), how


def announced(model: Model, study: Mapping[str, Any]) -> str:
    """Describe the prefix of prompts in a line; a warning if the model was trained with one and they have none."""
    if TRAINED_WITH in study:
        return f"warning: {bos_warning(str(model.source['name']), study)}"
    if study["bos"] == "none":
        return "BOS: none"
    why, (token, text) = trained_prefix(model)[1], study["first_tokens"][0]
    return f"BOS: {text!r}, token {token}" + (f" ({why})" if why and study["bos"] == "model" else "")


def of_chat(model: Model, bos: Iterable[object]) -> str:
    """Say that one of these prefixes of prompts begins chat turns, so that no claim about a BOS is for it; "" if none does."""
    tokenizer = model.tokenizer
    texts = [tokenizer.tokens([token])[0] for token in bos if isinstance(token, int)] if tokenizer is not None else []
    for text in texts:
        if tokenizer is not None and text in CHAT:
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
