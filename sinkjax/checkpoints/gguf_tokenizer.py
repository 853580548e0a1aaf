"""The tokenizer that a GGUF's own vocabulary describes, built with the `tokenizers` package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.errors import SinkjaxError, one_of

if TYPE_CHECKING:
    import tokenizers

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4

# How byte-level vocabularies cut text into words: contractions, words, up to `digits` digits, punctuation, space.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS = ("gpt-2", "smollm", "llama-bpe", "qwen2")


def read_tokenizer(metadata: Mapping[str, Any], where: str) -> Tokenizer | None:
    """The tokenizer of a GGUF, or None if the file holds no vocabulary.

    Its BOS and EOS are the ids that the metadata names; whether llama.cpp would add them by itself (`add_bos_token`) is no matter
    here. Errors: a kind of vocabulary or of pre-tokenizer that is not known by name.
    """
    kind = metadata.get("tokenizer.ggml.model", "none")
    if kind in ("none", "no_vocab"):
        return None
    one_of(f"tokenizer.ggml.model in {where}:", kind, _BUILDERS)
    tokens = metadata.get("tokenizer.ggml.tokens")
    kinds = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens or ())
    if not tokens or len(kinds) != len(tokens):
        raise SinkjaxError(f"{where} has {len(tokens or ())} tokens and {len(kinds)} token types")
    backend = _BUILDERS[kind](metadata, tokens, kinds, where)
    _add_whole_tokens(backend, tokens, kinds)
    return Tokenizer(backend, metadata.get("tokenizer.ggml.bos_token_id"), metadata.get("tokenizer.ggml.eos_token_id"))


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str) -> tokenizers.Tokenizer:
    """Byte-level BPE (`gpt2`), with the word splitting that its `pre` names."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pre = metadata.get("tokenizer.ggml.pre")
    one_of(f"tokenizer.ggml.pre in {where}:", pre, PRE_TOKENIZERS)
    merges = [tuple(merge.split(" ")) for merge in metadata.get("tokenizer.ggml.merges", ())]
    if not all(len(merge) == 2 for merge in merges):
        raise SinkjaxError(f"{where} has a merge that is not a pair of tokens")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe"))
    backend.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    if pre in ("llama-bpe", "qwen2"):
        words = Regex(WORDS.format(digits="{1,3}" if pre == "llama-bpe" else ""))
        splits = [
            pre_tokenizers.Split(words, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    else:
        splits = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
        splits += [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    return backend


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str) -> tokenizers.Tokenizer:
    """SentencePiece BPE (`llama`): spaces are U+2581, unknown characters fall back to byte tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = metadata.get("tokenizer.ggml.scores", ())
    if len(scores) != len(tokens):
        raise SinkjaxError(f"{where} has {len(tokens)} tokens and {len(scores)} scores")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    if not isinstance(unknown, int) or not 0 <= unknown < len(tokens):
        raise SinkjaxError(f"{where} names the unknown token {unknown!r} in a vocabulary of {len(tokens)}")
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    normal = {token for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL}
    merges = _merges(normal, dict(zip(tokens, scores, strict=True)))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def _merges(normal: set[str], scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """The merges that a scored vocabulary implies: every pair of tokens that makes a third, the best-scored product first."""
    pairs = []
    for token in sorted(normal, key=lambda token: (-scores[token], token)):
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs += [(left, right) for left, right in cuts if left in normal and right in normal]
    return pairs


def _add_whole_tokens(backend: tokenizers.Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Control and user-defined tokens are found whole in a text, never cut up."""
    from tokenizers import AddedToken

    for kind, add in ((CONTROL, backend.add_special_tokens), (USER_DEFINED, backend.add_tokens)):
        special = kind == CONTROL
        add([AddedToken(token, special=special, normalized=False) for token, k in zip(tokens, kinds, strict=True) if k == kind])


_BUILDERS: dict[str, Callable[..., tokenizers.Tokenizer]] = {"gpt2": _byte_level, "llama": _sentencepiece}
