"""The tokenizer of a Hugging Face folder: its tokenizer.json, changed by the files beside it as transformers 5 changes it.

tokenizer_config.json and, in older folders, special_tokens_map.json and added_tokens.json name further tokens and settings. The
steps that tokenizer.json states are kept, also where a class of transformers would build its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.fields import let_pass
from sinkjax.checkpoints.signatures import READ, refuse_other
from sinkjax.checkpoints.tokenizer import MOST_BYTES, SETTINGS, TOKENIZER, Tokenizer, read_json, refusing
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import read_text, regular
from sinkjax.errors import short
from sinkjax.runtime import extras

if TYPE_CHECKING:
    import tokenizers

MOST_TOKENIZER = 100_000_000  # maximum bytes of a vocabulary; the largest published ones have 34 million
MOST_OBJECTS = 200_000  # in a tokenizer.json, where a vocabulary is one: the largest published ones have 7,000
MOST_GROWTH = 1000  # maximum growth of a text through a tokenizer's replacements, as a factor
ADDED, MAP = "added_tokens.json", "special_tokens_map.json"
# Vocabulary files that only `transformers` can convert to a tokenizer.
SLOW_FILES = ("tokenizer.model", "vocab.json")
CODE = "auto_map"
TEMPLATE = "chat_template.jinja"

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Class of transformers -> the special tokens that it has unless the files say otherwise. All other classes have none.
END = "<|endoftext|>"
CLASSES: dict[str, dict[str, str]] = {
    "GPT2Tokenizer": dict.fromkeys(NAMED[:3], END),
    "GPTNeoXTokenizer": {**dict.fromkeys(NAMED[:3], END), "pad_token": "<|padding|>"},
    "Qwen2Tokenizer": {"eos_token": END, "unk_token": END, "pad_token": END},
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "GemmaTokenizer": {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "unk", "pad", "mask")},
    "BertTokenizer": {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
}
BYTE_LEVEL = ("GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer")
# Model type -> the class that transformers takes where the files name none, or one that it knows to be wrong (FORCED).
BY_MODEL = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text"), "GemmaTokenizer"),
    **dict.fromkeys(("gpt2", "opt", "phi", "starcoder2"), "GPT2Tokenizer"),
    **dict.fromkeys(("gpt_neox", "mpt", "olmo", "olmoe"), "GPTNeoXTokenizer"),
    **dict.fromkeys(("internvl", "qwen2", "qwen2_5_vl", "qwen2_vl", "qwen3", "qwen3_moe", "qwen3_vl"), "Qwen2Tokenizer"),
    **dict.fromkeys(("ernie4_5", "flex_olmo", "glm", "glm4", "granite", "granitemoe", "granitemoehybrid"), ""),
    **dict.fromkeys(("llava", "ministral", "ministral3", "mistral", "mistral3"), ""),
    **dict.fromkeys(("mixtral", "nemotron", "olmo2", "olmo3", "phi3", "smolvlm", "stablelm"), ""),
}
FORCED = ("nemotron", "phi3", "qwen2")


def read_folder_tokenizer(folder: Path, config: Mapping[str, Any], ignore_keys: Collection[str] = ()) -> Tokenizer | None:
    """Read the tokenizer of a Hugging Face folder, or return None if it has none.

    config: the parsed config.json, for the BOS and EOS ids that no file beside the tokenizer names. A `"bos_token": null` in
    tokenizer_config.json means that the model has no BOS, regardless of config.json (Qwen2). ignore_keys: "auto_map" lets code
    of the tokenizer pass, which is not run. Errors: a damaged file; a vocabulary that cannot be converted; an added token that
    gets another id than the stated one.
    """
    backend = _backend(folder)
    if backend is None:
        return None
    with refusing(f"the tokenizer of {folder} cannot be used"):
        backend.no_truncation()
        backend.no_padding()
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    code = settings.get(CODE) if CODE not in ignore_keys else None
    named = f"{folder / SETTINGS} names Python code in {CODE!r} ({short(code)}), which sinkjax does not run"
    refuse(bool(code), f"{named}; if the tokenizer is the one in {TOKENIZER}, {let_pass([CODE])}")
    if (folder / TOKENIZER).exists():
        legacy = "added_tokens_decoder" not in settings
        if legacy and (folder / MAP).exists():
            settings |= read_json(folder / MAP)
        listed = read_json(folder / ADDED) if legacy and (folder / ADDED).exists() else {}
        with refusing(f"the files beside {folder / TOKENIZER} cannot be applied"):
            _apply(backend, settings, listed, _class_of(backend, settings, config), folder)
    bos, eos = (_special(backend, settings, config, name, folder) for name in ("bos", "eos"))
    template = read_text(folder / TEMPLATE, MOST_BYTES) if (folder / TEMPLATE).exists() else settings.get("chat_template")
    return Tokenizer(backend, bos, eos, template if isinstance(template, str) else None)


def _class_of(backend: tokenizers.Tokenizer, settings: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the class of transformers that would read the folder, "" for the one that changes no pipeline."""
    stated, model = settings.get("tokenizer_class") or config.get("tokenizer_class"), config.get("model_type", "")
    stated = str(stated or "").removesuffix("Fast")
    if stated == "LlamaTokenizer" and any(step["type"] == "ByteLevel" for step in _steps(_state(backend, "pre_tokenizer"))):
        return ""  # Llama 3's, which this class would spoil
    usual = BY_MODEL.get(model)
    if stated and usual is not None and stated != usual:
        stated = usual if model in FORCED or not usual else stated
    found = stated or usual or ""
    return found if found in CLASSES else ""


def _apply(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], listed: Mapping[str, Any], kind: str, folder: Path
) -> None:
    """Change a tokenizer by the files beside it. listed: the tokens of added_tokens.json, with ids. kind: its class."""
    backend.encode_special_tokens = bool(settings.get("split_special_tokens", False))
    if kind in BYTE_LEVEL:
        _set(backend, "pre_tokenizer", "ByteLevel", add_prefix_space=bool(settings.get("add_prefix_space")))
    if kind == "LlamaTokenizer":
        _prepend(backend, settings)
    if kind == "BertTokenizer":
        lower, chinese = (settings.get(key, True) for key in ("do_lower_case", "tokenize_chinese_chars"))
        accents = settings.get("strip_accents")
        _set(backend, "normalizer", "BertNormalizer", lowercase=lower, handle_chinese_chars=chinese, strip_accents=accents)
    _add_tokens(backend, settings, listed, kind, folder)


def _add_tokens(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], listed: Mapping[str, Any], kind: str, folder: Path
) -> None:
    from tokenizers import AddedToken

    def added(token: Any) -> Any:
        fields = {key: value for key, value in token.items() if key != "__type"} if isinstance(token, dict) else None
        return token if fields is None else AddedToken(**fields)

    default = {key: token for key, token in CLASSES.get(kind, {}).items() if backend.token_to_id(token) is not None}
    named = default | {key: added(settings[key]) for key in settings if key.endswith("_token")}
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    named |= extra if isinstance(extra, dict) else {}
    special = {key: token for key, token in named.items() if isinstance(token, str | AddedToken)}
    others = [added(token) for token in extra] if isinstance(extra, list) else []
    texts = {str(token) for token in (*special.values(), *others)}
    numbered = {int(index): added(token) for index, token in (settings.get("added_tokens_decoder") or {}).items()}
    for text, index in listed.items():
        numbered[index] = AddedToken(text, normalized=text not in texts, special=text in texts)
    own = backend.get_added_tokens_decoder()
    present = {repr(token) for token in own.values()}
    if listed:
        numbered |= own  # what tokenizer.json says of a token comes before added_tokens.json
    by_text = {str(token): token for token in numbered.values()}
    new = [token for _, token in sorted(numbered.items()) if repr(token) not in present]
    known = {str(token) for token in (*own.values(), *new)}
    for key, token in [*special.items(), *(("", token) for token in others)]:
        if str(token) not in known:
            missing = key in ("bos_token", "eos_token") and backend.token_to_id(str(token)) is None
            refuse(missing, f"{folder / SETTINGS} names the {key} {str(token)!r}, which is not in the vocabulary")
            new.append(by_text.get(str(token), token))
            known.add(str(token))
    for token in new:
        token = AddedToken(token, special=True) if isinstance(token, str) else token
        token.special = token.special or str(token) in map(str, special.values())
        backend.add_tokens([token])
    for index, token in numbered.items():
        given = backend.token_to_id(str(token))
        stated = f"the files of {folder} give the added token {short(str(token))}"
        refuse(given != index, f"{stated} the id {index}, but it gets {given}")


def _prepend(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Put the space in front of a text where Llama's class puts it, if the pipeline is one of SentencePiece's."""
    from tokenizers import pre_tokenizers

    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    steps = [step for step in _steps(_state(backend, "normalizer")) if step["type"] != "Sequence"]
    before = _state(backend, "pre_tokenizer")
    known = steps in ([], [space], [{"type": "Prepend", "prepend": "▁"}, space])
    if not known or (bool(steps) == bool(before)) or (before and before["type"] != "Metaspace"):
        return
    prefix = settings.get("add_prefix_space") is not False
    scheme = "never" if not prefix else "always" if settings.get("legacy") else "first"
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    backend.decoder = sentencepiece_decoder(prefix)


def sentencepiece_decoder(prefix: bool) -> Any:
    """Return the decoder of SentencePiece BPE. prefix: whether a space is put in front of a text, which it takes off."""
    from tokenizers import decoders

    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])


def _set(backend: tokenizers.Tokenizer, part: str, kind: str, **values: Any) -> None:
    """Set fields of every step of a kind in a part of the pipeline ("normalizer", "pre_tokenizer")."""
    state = _state(backend, part)
    for step in _steps(state):
        if step["type"] == kind:
            step |= values
    if state:
        setattr(backend, part, _built(part, state))


def _state(backend: tokenizers.Tokenizer, part: str) -> dict[str, Any]:
    """Return a part of the pipeline as tokenizer.json states it; {} if there is none."""
    found = getattr(backend, part)
    return {} if found is None else json.loads(found.__getstate__())


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the state of a part, and those of its steps."""
    if state:
        yield state
    for inner in (*state.get("normalizers", ()), *state.get("pretokenizers", ()), *state.get("decoders", ())):
        yield from _steps(inner)


def _built(part: str, state: dict[str, Any]) -> Any:
    import tokenizers

    empty = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}, part: state}
    return getattr(tokenizers.Tokenizer.from_str(json.dumps(empty)), part)


def _backend(folder: Path) -> tokenizers.Tokenizer | None:
    file = folder / TOKENIZER
    if file.exists():
        regular(file, MOST_TOKENIZER)
        content = file.read_bytes()
        count = content.count(b"{")  # the package takes a kilobyte for each
        refuse(count > MOST_OBJECTS, f"{file} has {count:,} parts, and a tokenizer has at most {MOST_OBJECTS:,}")
        import tokenizers

        refuse_other(content[:READ], file, "a tokenizer")
        with refusing(f"{file} is not a tokenizer"):
            backend = tokenizers.Tokenizer.from_str(content.decode())
        for part in ("normalizer", "pre_tokenizer", "decoder"):
            growth = math.prod(map(_growth, _steps(_state(backend, part))))
            longer = f"{file} replaces text by text up to {growth:.1e} times as long, more than {MOST_GROWTH} times"
            refuse(growth > MOST_GROWTH, longer)
        return backend
    name = next((name for name in SLOW_FILES if (folder / name).exists()), None)
    if name is None:
        return None
    regular(folder / name, MOST_TOKENIZER)
    missing = name == "tokenizer.model" and find_spec("sentencepiece") is None
    refuse(missing, f"{folder} has only a tokenizer.model, which needs one more package: pip install sentencepiece")
    extras.require(f"a tokenizer from {name}", "hub", "transformers")
    import transformers

    with refusing(f"transformers cannot build a tokenizer from {folder / name}"):
        slow = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return slow.backend_tokenizer


def _growth(step: Mapping[str, Any]) -> float:
    """Return the maximum growth of a text, as a factor, through a step that replaces or prepends text."""
    content = {"Replace": step.get("content"), "Prepend": step.get("prepend")}.get(step["type"])
    literal = (step.get("pattern") or {}).get("String")
    return 1.0 if not content else max(1.0, len(content) / len(literal) if literal else len(content) + 1)


def _special(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], config: Mapping[str, Any], name: str, folder: Path
) -> int | None:
    """Return the id of the "bos" or "eos" token: by the name in tokenizer_config.json, else by the id in config.json."""
    key = f"{name}_token"
    if key not in settings:
        token = config.get(f"{key}_id")
        token = token[0] if isinstance(token, list) and token else token
        return token if isinstance(token, int) and not isinstance(token, bool) else None
    token = settings[key]
    text = token.get("content") if isinstance(token, dict) else token
    index = backend.token_to_id(text) if isinstance(text, str) and text else None
    missing = bool(text) and index is None
    refuse(missing, f"{folder / SETTINGS} names the {key} {text!r}, which is not in the vocabulary")
    return index
