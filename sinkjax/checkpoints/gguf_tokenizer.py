"""The tokenizer that a GGUF's own vocabulary describes, built with the `tokenizers` package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from sinkjax.checkpoints.tokenizer import Tokenizer, refusing
from sinkjax.checkpoints.tokenizer_files import sentencepiece_decoder
from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6
LONGEST_TOKEN = 512  # characters; every cut of a token may be a merge, so that longer ones would take quadratic time

# How byte-level vocabularies cut text into words: each pattern cuts the pieces that the ones before it left.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3, QWEN2 = WORDS.format(digits="{1,3}"), WORDS.format(digits="")
CASED = (
    r"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{ends}"
    r"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{ends}"
    r"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN, GPT4O = CASED.format(ends="", digits=""), CASED.format(ends="(?i:'s|'t|'re|'ve|'m|'ll|'d)?", digits="{1,3}")
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")
BLOOM = (r" ?[^(\s|.,!?…。，、।۔،)]+",)
# `tokenizer.ggml.pre` -> its patterns.
PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo"), (GPT2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact"), (r"\p{N}", GPT2)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"), (LLAMA3,)),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen"), (QWEN2,)),
    **dict.fromkeys(("gpt-4o", "llama4"), (GPT4O,)),
    "tekken": (TEKKEN,),
    "falcon": FALCON,
    "bloom": BLOOM,
}
# A word that is a token is encoded as that token, regardless of the merges; texts begin with the BOS unless the file says no.
WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})


def read_tokenizer(metadata: Mapping[str, Any], where: str) -> Tokenizer | None:
    """Build the tokenizer of a GGUF, or return None if the file has no vocabulary.

    BOS and EOS are the ids that the metadata names. The tokenizer's prefix is the BOS where llama.cpp adds it: as `add_bos_token`
    says, and without that key for SentencePiece BPE and for the pre-tokenizers of Llama 3, Falcon 3 and Tekken.

    Args:
        metadata: The metadata of the file, with whole keys.
        where: The file, for messages.

    Returns:
        The tokenizer.

    Raises:
        SinkjaxError: A kind of vocabulary or a pre-tokenizer that is not known by name; columns that do not fit together.
    """
    kind = metadata.get("tokenizer.ggml.model", "none")
    if kind in ("none", "no_vocab"):
        return None
    one_of(f"tokenizer.ggml.model in {where}:", kind, _BUILDERS)
    tokens = _column(metadata, "tokens", str, None, where)
    longest = max(map(len, tokens))
    long = longest > LONGEST_TOKEN
    refuse(long, f"tokenizer.ggml.tokens in {where} has a token of {longest} characters, more than {LONGEST_TOKEN}")
    kinds = _column(metadata, "token_type", int, len(tokens), where)
    bos, eos = (_token_id(metadata, f"{name}_token_id", tokens, where) for name in ("bos", "eos"))
    added = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or metadata.get("tokenizer.ggml.pre") in WHOLE_WORDS)
    refuse(not isinstance(added, bool), f"tokenizer.ggml.add_bos_token in {where} must be true or false, not {added!r}")
    with refusing(f"the vocabulary in {where} does not make a tokenizer"):
        backend = _BUILDERS[kind](metadata, tokens, kinds, where)
        known = backend.get_vocab()
        for whole, add in ((CONTROL, backend.add_special_tokens), (USER_DEFINED, backend.add_tokens)):  # matched whole in a text
            matched = [token for token, its in zip(tokens, kinds, strict=True) if its == whole and token in known]
            add([AddedToken(token, special=whole == CONTROL, normalized=False) for token in matched])
        if bos is not None and added:  # before each text that is encoded with special tokens
            pair, first = ["<bos>", "$A", "<bos>", "$B"], {"id": "<bos>", "ids": [bos], "tokens": [tokens[bos]]}
            backend.post_processor = processors.TemplateProcessing(single=pair[:2], pair=pair, special_tokens=[first])
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(backend, bos, eos, template if isinstance(template, str) else None)


def _column(metadata: Mapping[str, Any], name: str, kind: type, count: int | None, where: str) -> list[Any]:
    """A list of the vocabulary, one entry of `kind` per token (or any number of them, for count None)."""
    values: Any = metadata.get(f"tokenizer.ggml.{name}")
    right = isinstance(values, list) and len(values) > 0 and all(isinstance(value, kind) for value in values)
    refuse(not right, f"tokenizer.ggml.{name} in {where} must be a list of {kind.__name__}")
    refuse(count not in (None, len(values)), f"tokenizer.ggml.{name} in {where} has {len(values)} entries for {count} tokens")
    return list(values)


def _token_id(metadata: Mapping[str, Any], name: str, tokens: list[str], where: str) -> int | None:
    token = metadata.get(f"tokenizer.ggml.{name}")
    right = token is None or (type(token) is int and token in range(len(tokens)))
    refuse(not right, f"tokenizer.ggml.{name} in {where} is {token!r}, but there are {len(tokens)} tokens")
    return token


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str) -> tokenizers.Tokenizer:
    """Byte-level BPE (`gpt2`), with the word splitting that its `pre` names."""
    pre = metadata.get("tokenizer.ggml.pre")
    one_of(f"tokenizer.ggml.pre in {where}:", pre, PRE_TOKENIZERS)
    merges = [tuple(merge.split(" ")) for merge in _column(metadata, "merges", str, None, where)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in WHOLE_WORDS))
    backend.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in PRE_TOKENIZERS[str(pre)]]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return backend


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str) -> tokenizers.Tokenizer:
    """SentencePiece BPE (`llama`): spaces are U+2581, unknown characters fall back to byte tokens.

    Gemma's tokens are in the order of its merges, and its runs of spaces, which the files write as such, are merged like words.
    """
    scores = _column(metadata, "scores", float, len(tokens), where)
    gemma = str(metadata.get("general.architecture")).startswith("gemma")
    if gemma:
        tokens = [token.replace(" ", "▁") if token.isspace() else token for token in tokens]
        scores = list(range(0, -len(tokens), -1))
        merged: Collection[str] = tokens
    else:
        merged = [token for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = _token_id(metadata, "unknown_token_id", tokens, where)
    unk_token = None if unknown is None else tokens[unknown]
    merges = _merges(merged, dict(zip(tokens, scores, strict=True)))
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token=unk_token, fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", not gemma)
    steps = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    backend.decoder = sentencepiece_decoder(bool(prefix))
    return backend


def _merges(merged: Collection[str], scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the merges that a scored vocabulary implies: every pair of tokens that makes a third.

    The product with the best score comes first; of two pairs with the same score, the one with the longer first part, as in
    transformers.
    """
    pairs = []
    known = set(merged)
    for token in merged:
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in known and right in known:
                pairs.append((scores[token], cut, len(right), left, right))
    pairs.sort(key=lambda pair: pair[:3], reverse=True)
    return [(left, right) for *_, left, right in pairs]


def _unigram(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str) -> tokenizers.Tokenizer:
    """SentencePiece Unigram (`t5`): the cut of a text with the largest sum of scores."""
    scores = _column(metadata, "scores", float, len(tokens), where)
    unknown = _token_id(metadata, "unknown_token_id", tokens, where)
    fallback = BYTE in kinds
    backend = tokenizers.Tokenizer(models.Unigram(list(zip(tokens, scores, strict=True)), unk_id=unknown, byte_fallback=fallback))
    steps: list[Any] = []
    if "tokenizer.ggml.precompiled_charsmap" in metadata:
        charsmap = _column(metadata, "precompiled_charsmap", int, None, where)
        steps.append(normalizers.Precompiled(bytes(byte % 256 for byte in charsmap)))
    if metadata.get("tokenizer.ggml.remove_extra_whitespaces", False):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if metadata.get("tokenizer.ggml.add_space_prefix", True) else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme, split=False)])
    return backend


_BUILDERS: dict[str, Callable[..., tokenizers.Tokenizer]] = {"gpt2": _byte_level, "llama": _sentencepiece, "t5": _unigram}
