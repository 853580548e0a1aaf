"""The tokenizer that a GGUF's own vocabulary describes, built with the `tokenizers` package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.tokenizer import Tokenizer, refusing
from sinkjax.errors import SinkjaxError, one_of

if TYPE_CHECKING:
    import tokenizers

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
LONGEST_TOKEN = 512  # characters; every cut of a token may be a merge, so that longer ones would take quadratic time

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
    tokens = _column(metadata, "tokens", str, None, where)
    longest = max(map(len, tokens))
    if longest > LONGEST_TOKEN:
        raise SinkjaxError(f"tokenizer.ggml.tokens in {where} has a token of {longest} characters, more than {LONGEST_TOKEN}")
    kinds = _column(metadata, "token_type", int, len(tokens), where)
    bos, eos = (_token_id(metadata, f"{name}_token_id", tokens, where) for name in ("bos", "eos"))
    with refusing(f"the vocabulary in {where} does not make a tokenizer"):
        backend = _BUILDERS[kind](metadata, tokens, kinds, where)
        _add_whole_tokens(backend, tokens, kinds)
    return Tokenizer(backend, bos, eos)


def _column(metadata: Mapping[str, Any], name: str, kind: type, count: int | None, where: str) -> list[Any]:
    """A list of the vocabulary, one entry of `kind` per token (or any number of them, for count None)."""
    values = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list) or not values or not all(isinstance(value, kind) for value in values):
        raise SinkjaxError(f"tokenizer.ggml.{name} in {where} must be a list of {kind.__name__}")
    if count is not None and len(values) != count:
        raise SinkjaxError(f"tokenizer.ggml.{name} in {where} has {len(values)} entries for {count} tokens")
    return values


def _token_id(metadata: Mapping[str, Any], name: str, tokens: list[str], where: str) -> int | None:
    token = metadata.get(f"tokenizer.ggml.{name}")
    if token is not None and (type(token) is not int or token not in range(len(tokens))):
        raise SinkjaxError(f"tokenizer.ggml.{name} in {where} is {token!r}, but there are {len(tokens)} tokens")
    return token


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str) -> tokenizers.Tokenizer:
    """Byte-level BPE (`gpt2`), with the word splitting that its `pre` names."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pre = metadata.get("tokenizer.ggml.pre")
    one_of(f"tokenizer.ggml.pre in {where}:", pre, PRE_TOKENIZERS)
    merges = [tuple(merge.split(" ")) for merge in _column(metadata, "merges", str, None, where)]
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

    scores = _column(metadata, "scores", float, len(tokens), where)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = _token_id(metadata, "unknown_token_id", tokens, where)
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    normal = {token for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL}
    merges = _merges(normal, dict(zip(tokens, scores, strict=True)))
    unk_token = None if unknown is None else tokens[unknown]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=unk_token, fuse_unk=True, byte_fallback=True))
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
