"""Tokenizers: the ids that transformers gives, from a folder and from a GGUF's own vocabulary."""

import json

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, convert_gguf_tokenizer

import sinkjax
from sinkjax.checkpoints import presets, tokenizer_files
from sinkjax.checkpoints.gguf_tokenizer import PRE_TOKENIZERS, WHOLE_WORDS, read_tokenizer
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import LLAMA, TEXTS_OF, random_weights, write_folder
from tests.robustness import broken

TEXTS = TEXTS_OF["short"]


@pytest.fixture(scope="module")
def reference():
    path = presets.find_preset("smollm2-135m")
    return transformers.PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)


@pytest.mark.parametrize("text", [*TEXTS, "x12345y", "3.14159"])
def test_smollm2_gives_the_ids_of_transformers(smollm2_unread, reference, text):
    assert smollm2_unread.tokenizer.encode(text) == reference(text, add_special_tokens=False).input_ids


@settings(deadline=None)
@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cc", "Cs"]), max_size=40))
def test_smollm2_gives_every_text_back(smollm2_unread, text):
    ids = smollm2_unread.tokenizer.encode(text)
    assert smollm2_unread.tokenizer.decode(ids) == text
    assert len(smollm2_unread.tokenizer.tokens(ids)) == len(ids)


CORPUS = [
    "the cat sat on the mat, the hat and the bat",
    "a naïve café in 1984 1985 12345",
    "x = [1, 2, 3]  # it's\n\n  done",
] * 20


def byte_level(pre):
    """A byte-level tokenizer that the `tokenizers` package trains with the splitting of a family, as transformers writes it."""
    pattern = GGUF_PRE_TOKENIZER_SPLITS.get(pre)
    backend = tokenizers.Tokenizer(models.BPE())
    if pattern:
        split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.normalizer = normalizers.NFC() if pre == "qwen2" else None
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


@pytest.mark.parametrize("pre", ["gpt-2", *sorted(GGUF_PRE_TOKENIZER_SPLITS.keys() & PRE_TOKENIZERS.keys())])
def test_a_byte_level_vocabulary_becomes_the_tokenizer_it_came_from(pre):
    backend = byte_level(pre)
    parts = json.loads(backend.to_str())["model"]
    tokens = sorted(parts["vocab"], key=parts["vocab"].get)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token == "<s>" else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in parts["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
    }
    built = read_tokenizer(metadata, "m.gguf")
    assert (built.bos, built.eos) == (0, None)
    assert built.prefix == ([0] if pre in WHOLE_WORDS else [])
    for text in [*CORPUS[:3], *TEXTS, "<s>the cat", "I'LL 1234567"]:
        assert built.encode(text) == backend.encode(text, add_special_tokens=False).ids
        assert built.decode(built.encode(text)) == built.backend.decode(backend.encode(text).ids, skip_special_tokens=False)


WORDS = {
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",  # of its tokenizer.json
    "falcon": None,
    "starcoder": None,
    "stablelm2": GGUF_PRE_TOKENIZER_SPLITS["qwen2"],
}
CUTS = {
    "falcon": ["It", "'", "s", " ", "$", "123", "456", "7", ",", " ok", "!!", " "],
    "starcoder": ["It", "'s", " $", "1", "2", "3", "4", "5", "6", "7", ",", " ok", "!!", " "],
}


@pytest.mark.parametrize("pre", WORDS)
def test_words_of_pre_tokenizers_that_transformers_does_not_know(pre):
    """By the model's own tokenizer.json, or, where it has several steps, by what these give for one text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    metadata = {f"tokenizer.ggml.{name}": value for name, value in (("model", "gpt2"), ("pre", pre), ("tokens", alphabet))}
    metadata |= {"tokenizer.ggml.token_type": [1] * len(alphabet), "tokenizer.ggml.merges": ["a b"]}
    with pytest.raises(SinkjaxError, match="does not make a tokenizer"):
        read_tokenizer(metadata, "m.gguf")  # its only merge gives no token
    tokens = [*alphabet, "ab"]
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * len(tokens)}
    backend = read_tokenizer(metadata, "m.gguf").backend

    def words(text):
        return [text[start:stop] for _, (start, stop) in backend.pre_tokenizer.pre_tokenize_str(text)]

    if pre in CUTS:
        assert words("It's $1234567, ok!! ") == CUTS[pre]
    else:
        split = pre_tokenizers.Split(tokenizers.Regex(WORDS[pre]), "isolated")
        for text in TEXTS:
            assert words(text) == [word for word, _ in split.pre_tokenize_str(text)]


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["▁", "t", "h", "e", "c", "a", "▁t", "he", "▁the", "at", "▁c", "▁cat", "th"]
SPM = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *BYTES, *PIECES],
    "tokenizer.ggml.scores": [*[0.0] * 259, *[-float(rank) for rank in (90, 91, 92, 93, 94, 95, 1, 2, 3, 4, 5, 6, 7)]],
    "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(PIECES)],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def test_a_sentencepiece_vocabulary_merges_by_score_and_falls_back_to_bytes():
    built = read_tokenizer(SPM, "m.gguf")

    def pieces(text):
        return [SPM["tokenizer.ggml.tokens"][token] for token in built.encode(text)]

    assert pieces("the cat") == ["▁the", "▁cat"]
    assert pieces("teth") == ["▁t", "e", "th"]
    assert pieces("é\n") == ["▁", "<0xC3>", "<0xA9>", "<0x0A>"]
    assert pieces("<s>a")[0] == "<s>"
    assert built.tokens(built.encode("the cat")) == [" the", " cat"]
    for text in ["the cat", " the", "é\n 漢", "a  b"]:
        assert built.decode(built.encode(text)) == text


@pytest.mark.parametrize(
    ("stated", "prefix"),
    [
        ({}, [1]),
        ({"tokenizer.ggml.add_bos_token": False}, []),
        ({"tokenizer.ggml.add_bos_token": True}, [1]),
        ({"tokenizer.ggml.bos_token_id": None}, []),
    ],
)
def test_the_prefix_is_the_bos_where_llama_cpp_adds_it(stated, prefix):
    built = read_tokenizer(SPM | stated, "m.gguf")
    assert built.prefix == prefix
    assert built.encode("the cat") == read_tokenizer(SPM, "m.gguf").encode("the cat")
    again = tokenizers.Tokenizer.from_str(built.backend.to_str())  # as a saved model has it
    assert again.encode("the cat").ids == [*prefix, *built.encode("the cat")]


GGUF_NAMES = {"tokenizer.ggml.model": "tokenizer_type", "tokenizer.ggml.unknown_token_id": "unk_token_id"}


def test_a_vocabulary_of_gemma_is_the_one_that_transformers_builds():
    """Merges in the order of the tokens, whatever their scores, and runs of spaces that the file writes as such."""
    pieces = ["▁", "  ", "   ", "t", "h", "e", "th", "▁t", "he", "▁th", "▁the", "the", "\n", "\n\n", "<b>"]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *BYTES, *pieces]
    kinds = {"  ": 4, "   ": 4, "\n": 4, "\n\n": 4, "<b>": 4}
    metadata = SPM | {
        "general.architecture": "gemma3",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(rank % 7) for rank in range(len(tokens))],
        "tokenizer.ggml.token_type": [3, 3, 3, 3, *[6] * 256, *[kinds.get(piece, 1) for piece in pieces]],
        "tokenizer.ggml.unknown_token_id": 3,
    }
    built = read_tokenizer(metadata, "m.gguf")
    theirs, _ = convert_gguf_tokenizer(
        "gemma3", {GGUF_NAMES.get(key, key.rpartition(".")[2]): value for key, value in metadata.items()}
    )
    for text in ["the  the", " the", "   th\n\n\nhe", "t     h", "<b>the<bos>é", "▁▁the", "      "]:
        assert built.encode(text) == theirs.encode(text, add_special_tokens=False).ids
        assert built.decode(built.encode(text)) == theirs.decode(built.encode(text), skip_special_tokens=False)


@pytest.mark.parametrize("prefix", [True, False])
def test_a_unigram_vocabulary_becomes_the_tokenizer_it_came_from(prefix):
    scheme = "always" if prefix else "never"
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme, split=False)
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=80, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    tokens, scores = zip(*json.loads(backend.to_str())["model"]["vocab"], strict=True)
    metadata = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.scores": list(scores),
        "tokenizer.ggml.token_type": [2, 3, *[1] * (len(tokens) - 2)],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
        "tokenizer.ggml.remove_extra_whitespaces": True,
    }
    built = read_tokenizer(metadata, "m.gguf")
    for text in [*CORPUS[:3], *TEXTS, "  the   cat ", "the cat</s>"]:
        assert built.encode(text) == backend.encode(text, add_special_tokens=False).ids
        assert built.decode(built.encode(text)) == backend.decode(built.encode(text), skip_special_tokens=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "plamo2"}, "tokenizer.ggml.model .*'plamo2'.*gpt2, llama, t5"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "viking"}, "unknown tokenizer.ggml.pre in m.gguf: 'viking'"),
        ({"tokenizer.ggml.scores": [0.0]}, "has 1 entries for 272 tokens"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": ["x y z"]},
            "does not make a tokenizer",
        ),
    ],
)
def test_a_vocabulary_that_is_not_understood_is_refused(change, message):
    with pytest.raises(SinkjaxError, match=message):
        read_tokenizer(SPM | change, "m.gguf")


@pytest.fixture
def folder(tmp_path):
    """A folder whose tokenizer.json would cut and pad, and prepend a BOS, if it were left to it."""
    folder = write_folder(tmp_path, LLAMA | {"bos_token_id": 5, "eos_token_id": [6, 7]}, random_weights(LLAMA))
    backend = byte_level("gpt-2")
    backend.enable_truncation(3)
    backend.enable_padding(length=3)
    backend.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_a_folder_adds_nothing_by_itself(folder):
    own = sinkjax.load(folder).tokenizer
    ids = own.encode("the cat sat on the mat")
    assert len(ids) > 3
    assert own.decode(ids) == "the cat sat on the mat"
    assert own.encode("") == []


@pytest.mark.parametrize(
    ("settings", "bos"),
    [
        (None, 5),  # only config.json names one
        ({"eos_token": None}, 5),
        ({"bos_token": "<s>"}, 0),
        ({"bos_token": {"content": "<s>", "lstrip": False}}, 0),
        ({"bos_token": None}, None),  # Qwen2: none, whatever config.json holds
    ],
)
def test_the_bos_is_the_one_that_the_files_name(folder, settings, bos):
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = sinkjax.load(folder)
    assert model.tokenizer.bos == model.source["bos"] == bos


def test_a_folder_with_only_the_older_vocabulary_files(folder):
    """vocab.json and merges.txt: the one case in which transformers is asked."""
    backend = byte_level("gpt-2")
    backend.model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>"}')
    built = sinkjax.load(folder).tokenizer
    assert built.bos == 0
    assert built.encode("the cat") == backend.encode("the cat").ids


def test_the_tokenizer_of_another_source_is_taken_and_named(folder, tmp_path):
    import shutil

    bare = shutil.copytree(folder, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    model, own = sinkjax.load(bare, tokenizer=folder), sinkjax.load(folder)
    assert model.tokenizer.encode("the cat") == own.tokenizer.encode("the cat")
    assert model.source["bos"] == own.source["bos"]
    assert model.source["tokenizer"] == str(folder)
    with pytest.raises(SinkjaxError, match=f"tokenizer: {bare} has none either"):
        sinkjax.load(bare, tokenizer=bare)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "is not a tokenizer: Precompiled"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "encode the text: chunk size"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 9, "stop": 9}}, "decode the tokens"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "b"}}, "cannot encode the text: WordLevel"),
    ],
    ids=["file", "text", "tokens", "word"],
)
def test_a_panic_of_the_tokenizers_package_is_one_sentence(part, sentence, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({**broken.words(), **part}))

    def use() -> str:
        read = tokenizer_files.read_folder_tokenizer(tmp_path, {})
        return read.decode(read.encode("a b"))

    with pytest.raises(SinkjaxError, match=sentence) as refused:
        use()
    assert "\n" not in str(refused.value)
