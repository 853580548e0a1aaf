"""Folders of tokenizers with every kind of file beside tokenizer.json: the ids are those of transformers' AutoTokenizer."""

import json
from functools import cache

import pytest
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.multimodal import WHOLES
from sinkjax.checkpoints.tokenizer import write_folder_tokenizer
from sinkjax.checkpoints.tokenizer_files import BY_MODEL, CLASSES, FORCED, read_folder_tokenizer
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import TEXTS_OF

ENGLISH = "The quick brown fox jumps over the lazy dog, 1234 times. She said: don't!"
CORPUS = [ENGLISH, "Über Äpfel und naïve Cafés — 日本語 мир"] * 3
SPECIALS = ["<unk>", "<s>", "</s>", "<pad>"]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(prefix=False, specials=SPECIALS):
    found = Tokenizer(models.BPE())
    found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, special_tokens=specials, initial_alphabet=alphabet))
    return found


def neox():
    found = byte_level(specials=["<|endoftext|>", "<|padding|>"])
    found.normalizer = normalizers.NFC()
    return found


def qwen(specials=("<|endoftext|>",)):
    found = byte_level(specials=list(specials))
    split = pre_tokenizers.Split(Regex(QWEN), behavior="isolated")
    found.normalizer = normalizers.NFC()
    found.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return found


def sentencepiece(metaspace=False, gemma=False):
    tokens = ["<unk>", "<s>", "</s>", "<pad>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    tokens += sorted({character for line in CORPUS for character in line} - {" "})
    merges = [("▁", letter) for letter in "qbfjtolds"]
    merges += [("t", "h"), ("▁", "th"), ("▁t", "h"), ("h", "e"), ("▁th", "e"), ("o", "w")]
    tokens += dict.fromkeys(left + right for left, right in merges)
    if gemma:
        tokens[:4] = ["<pad>", "<eos>", "<bos>", "<unk>"]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    found = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma:
        found.normalizer = normalizers.Replace(" ", "▁")
        found.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif metaspace:
        found.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        found.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps.append(decoders.Strip(" ", 1, 0))
    found.decoder = decoders.Sequence(steps)
    found.add_special_tokens(tokens[:4])
    return found


def unigram():
    found = Tokenizer(models.Unigram())
    found.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    found.pre_tokenizer, found.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    found.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIALS, unk_token="<unk>"))
    return found


def wordpiece():
    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer, found.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    found.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    found.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=160, special_tokens=special))
    return found


BUILT = {
    "bytes": byte_level,
    "prefixed bytes": lambda: byte_level(prefix=True, specials=["<|endoftext|>", *SPECIALS]),
    "gpt2": lambda: byte_level(specials=["<|endoftext|>"]),
    "gpt_neox": neox,
    "qwen": qwen,
    "llama": sentencepiece,
    "llama metaspace": lambda: sentencepiece(metaspace=True),
    "gemma": lambda: sentencepiece(gemma=True),
    "unigram": unigram,
    "wordpiece": wordpiece,
}


@cache
def stored(name):
    return BUILT[name]().to_str()


FAST = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}
CHAT = ("<|im_start|>", "<|im_end|>", "[TOOL]")


def listed(first, before=(), **flags):
    """The key added_tokens_decoder with CHAT from an id on, the last of them not special. before: tokens from id 0 on."""
    entry = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, **flags}
    ids = dict(enumerate(before)) | {first + at: token for at, token in enumerate(CHAT)}
    tokens = {str(index): {"content": token, "special": token != "[TOOL]", **entry} for index, token in ids.items()}
    return {"added_tokens_decoder": tokens}


def end(name):
    return Tokenizer.from_str(stored(name)).get_vocab_size()


def case(base, model_type, settings=None, **files):
    """files: added, map."""
    return base, model_type, settings, files


FOLDERS = {
    "no side file": case("bytes", "llama"),
    "names only": case("bytes", "llama", FAST),
    "added tokens": case("bytes", "llama", lambda n: FAST | listed(n)),
    "added tokens that strip": case("bytes", "llama", lambda n: FAST | listed(n, lstrip=True, rstrip=True)),
    "single words": case("bytes", "llama", lambda n: FAST | listed(n, single_word=True)),
    "normalized": case("unigram", "llama", lambda n: FAST | listed(n, normalized=True)),
    "added_tokens.json": case("bytes", "llama", FAST, added=lambda n: {token: n + at for at, token in enumerate(CHAT)}),
    "added_tokens.json and a map": case(
        "qwen",
        "qwen2",
        {"tokenizer_class": "Qwen2Tokenizer"},
        added=lambda n: {token: n + at for at, token in enumerate(CHAT)},
        map={"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"},
    ),
    "map of names": case("bytes", "llama", PLAIN, map={"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}),
    "map of tokens": case(
        "bytes", "llama", PLAIN, map={"bos_token": {"content": "<s>", "lstrip": True, "normalized": False}, "pad_token": "[PAD]"}
    ),
    "map that loses": case("bytes", "llama", lambda n: FAST | listed(n), map={"additional_special_tokens": ["fox"]}),
    "additional special tokens": case("bytes", "llama", FAST | {"additional_special_tokens": ["<|im_start|>", "fox"]}),
    "extra special tokens by name": case("bytes", "llama", FAST | {"extra_special_tokens": {"image_token": "<image>"}}),
    "a new pad token": case("bytes", "llama", FAST | {"pad_token": "[PAD]"}),
    "special tokens are split": case("bytes", "llama", FAST | {"split_special_tokens": True}),
    "gpt2": case("gpt2", "gpt2", {"tokenizer_class": "GPT2Tokenizer"}),
    "gpt2 with a space in front": case("gpt2", "gpt2", {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True}),
    "gpt2 without the space of its file": case("prefixed bytes", "gpt2", {"tokenizer_class": "GPT2Tokenizer"}),
    "fast with the space of its file": case("prefixed bytes", "llama", FAST | {"add_prefix_space": False}),
    "gpt_neox": case("gpt_neox", "gpt_neox", {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": True}),
    "qwen2": case("qwen", "qwen2", lambda n: {"tokenizer_class": "Qwen2Tokenizer"} | listed(n)),
    "llama": case("llama", "llama", {"tokenizer_class": "LlamaTokenizer", "legacy": False}),
    "legacy llama": case("llama", "llama", {"tokenizer_class": "LlamaTokenizerFast", "legacy": True}),
    "llama without a space": case("llama", "llama", {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}),
    "llama with a metaspace": case("llama metaspace", "llama", {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}),
    "llama with added tokens": case(
        "llama", "llama", lambda n: {"tokenizer_class": "LlamaTokenizer"} | listed(n, before=("<unk>", "<s>", "</s>", "<pad>"))
    ),
    "llama 3": case("bytes", "llama", FAST | {"tokenizer_class": "LlamaTokenizer"}),
    "mistral": case("llama", "mistral", FAST | {"tokenizer_class": "LlamaTokenizer"}),
    "phi3": case("llama", "phi3", FAST | {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": None}),
    "gemma": case("gemma", "gemma", {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>"}),
    "unigram": case("unigram", "llama", FAST),
    "bert": case("wordpiece", "bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
    "bert that keeps accents": case("wordpiece", "bert", {"tokenizer_class": "BertTokenizer", "strip_accents": False}),
}
TEXTS = TEXTS_OF["edges"]


def write(folder, name):
    base, model_type, settings, files = FOLDERS[name]
    made = {"settings": settings, **files}
    made = {kind: values(end(base)) if callable(values) else values for kind, values in made.items()}
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer.json").write_text(stored(base))
    names = {"settings": "tokenizer_config.json", "added": "added_tokens.json", "map": "special_tokens_map.json"}
    for kind, values in made.items():
        if values is not None:
            (folder / names[kind]).write_text(json.dumps(values))
    return {"model_type": model_type}


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_of_transformers(name, tmp_path):
    ours = read_folder_tokenizer(tmp_path, write(tmp_path, name))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids, text
    if theirs.bos_token is not None and "bos_token" in json.dumps([str(file.read_text()) for file in tmp_path.glob("*_*.json")]):
        assert ours.bos == theirs.bos_token_id


def test_classes_by_model_are_those_of_transformers():
    from transformers.models.auto.tokenization_auto import MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS, TOKENIZER_MAPPING_NAMES

    for model in (*families(), *WHOLES):
        theirs = TOKENIZER_MAPPING_NAMES.get(model)
        own = theirs and (theirs.removesuffix("Fast") if theirs.removesuffix("Fast") in CLASSES else "")
        assert BY_MODEL.get(model) == (own if theirs != "CohereTokenizer" else None), model
        assert model in FORCED or not own or model not in MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS, model


def test_the_map_s_bos_comes_before_config_json(tmp_path):
    config = write(tmp_path, "map of names") | {"bos_token_id": 7}
    assert read_folder_tokenizer(tmp_path, config).bos == Tokenizer.from_str(stored("bytes")).token_to_id("<s>")
    (tmp_path / "special_tokens_map.json").unlink()
    assert read_folder_tokenizer(tmp_path, config).bos == 7


def test_ids_that_contradict_are_refused(tmp_path):
    config = write(tmp_path, "added tokens")
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings |= listed(end("bytes") + 5)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(SinkjaxError, match=rf"<\|im_start\|>.* the id {end('bytes') + 5}, .* gets {end('bytes')}"):
        read_folder_tokenizer(tmp_path, config)


def test_code_of_a_tokenizer_is_refused_until_it_is_ignored(tmp_path):
    config = write(tmp_path, "names only")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(FAST | {"auto_map": {"AutoTokenizer": ["mine.Tokenizer", None]}}))
    with pytest.raises(SinkjaxError, match=r"'auto_map'.*mine\.Tokenizer.*ignore_keys=\('auto_map',\)"):
        read_folder_tokenizer(tmp_path, config)
    assert read_folder_tokenizer(tmp_path, config, ("auto_map",)) is not None


@pytest.mark.parametrize("name", ["special tokens are split", "added tokens that strip"])
def test_a_written_tokenizer_reads_back_equal(name, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = read_folder_tokenizer(tmp_path / "a", write(tmp_path / "a", name))
    write_folder_tokenizer(before, tmp_path / "b")
    after = read_folder_tokenizer(tmp_path / "b", {})
    assert [after.encode(text) for text in TEXTS] == [before.encode(text) for text in TEXTS]
    assert (after.bos, after.eos, after.special) == (before.bos, before.eos, before.special)


def test_an_added_token_of_another_type_is_one_sentence(tmp_path):
    config = write(tmp_path, "names only")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(FAST | {"added_tokens_decoder": {"300": 3}}))
    with pytest.raises(SinkjaxError, match=r"tokenizer\.json cannot be applied"):
        read_folder_tokenizer(tmp_path, config)
