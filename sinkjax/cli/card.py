"""`sinkjax card`: the sinks of your model."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import tyro

import sinkjax
from sinkjax.cli.common import Options
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import CARD_FILE, user_path
from sinkjax.config_files.locations import url_protocol
from sinkjax.data.corpora import SOURCES, checked
from sinkjax.data.fit import LENGTH, PROMPTS, check_sizes
from sinkjax.data.reading import Division, kind_of
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Attention, Dtype
from sinkjax.report.terminal import show
from sinkjax.runtime import extras
from sinkjax.runtime.backend import start_jax, use_all_cores
from sinkjax.runtime.progress import duration, say

if TYPE_CHECKING:
    from sinkjax.model.config import Config

SEND = "open an issue with this file, or add it to docs/results/data/models in a pull request"
LONGEST_NAME = 200  # characters of a folder's name


@dataclass(frozen=True, kw_only=True)
class CardOptions(Options):
    """Describe the attention sinks of a model: their position, cause, maker, purpose and cost. Each statement is checked by an
    intervention in the model."""

    models: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODEL [MODEL ...]")]]
    """preset, folder, hub id or .gguf file; or cards to show side by side: folders, card.json files, models that have one"""
    text: str = "packaged"
    """"packaged" (synthetic documents), or a file or folder of your own: plain text with one passage per line, or records"""
    field: str = "text"
    """name of the field with the text in a file of records"""
    documents: Division = "auto"
    """documents of a plain text: file, line, article below a heading like = Title =, or auto"""
    prompts: int | None = None
    """number of passages; if none, 32, or all of your own text if it is shorter"""
    length: int | None = None
    """tokens of a prompt; if none, 64, or fewer if your own text has shorter passages"""
    cost: bool = False
    """also measure more remedies, 4 bits and small caches"""
    plan: bool = False
    """print memory, FLOPs and time without reading weights, and measure nothing"""
    seed: int = 0
    """seed of the choice of passages"""
    tokenizer: str | None = None
    """source of another tokenizer, if the model's files have none"""
    ignore_keys: tuple[str, ...] = ()
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    dtype: Dtype = "float32"
    """dtype of parameters and activations"""
    attention_impl: Attention = "auto"
    """implementation of attention; maps, caches and prefixes have their own"""
    share: bool = False
    """write the card of a model that has one as MODEL.card.json, without paths and passages, to send to others"""
    by: str = ""
    """with --share: your name, if the card should state it"""
    out: Path | None = None
    """folder for card.html, card.json, sink_tokens.json, clamp.json and prefix.safetensors; if none, results/card/MODEL"""

    @property
    def model(self) -> str:
        """The model."""
        return self.models[0]


def card(options: CardOptions) -> None:
    """describe a model's attention sinks: position, cause, maker, purpose and cost, each checked by an intervention"""
    refuse(not options.models, "name a model, such as smollm2-135m")
    if options.share or len(options.models) > 1 or is_card(options.model):
        of_cards(options)
        return
    text = options.text if options.text in SOURCES else str(user_path(Path(options.text)))
    out = default_folder(options.model) if options.out is None else user_path(options.out)
    check(options, text, out)
    use_all_cores()
    start_jax(options.platform, options.dtype)
    if options.plan:
        show_plan(options)
        return
    extras.require("the page of a card", "report")
    from sinkjax.cards.card import identity, measured
    from sinkjax.cards.files import claimed
    from sinkjax.cards.ground import ground
    from sinkjax.cards.page import save_page
    from sinkjax.checkpoints.architectures import with_tokenizer

    claimed(out)
    model = sinkjax.load(options.model, dtype=options.dtype, tokenizer=options.tokenizer, ignore_keys=options.ignore_keys)
    kind, size = model.source.get("model_type"), model.config.vocab_size
    refuse(
        model.tokenizer is None,
        f"{options.model} has no tokenizer: --tokenizer names a folder, .gguf file or hub id of one{with_tokenizer(kind, size)}",
    )
    base, whole = times(model.config, options, model.tokenizer is not None and model.tokenizer.bos is not None)
    say(f"about {base} of processor time, or {whole} with --cost, at the rate measured here, plus compilation")
    asked: dict[str, Any] = {name: getattr(options, name) for name in ("prompts", "length", "seed", "field", "documents")}
    say("prompts, with and without a BOS")
    about = ground(model, text, **asked, attention_impl=options.attention_impl)
    claimed(out, identity(about))  # before hours of work
    answer = measured(about, options.cost, say)
    number, length = answer.prompts["number"], answer.prompts["length"]
    caption = f"{number} prompts of {length} tokens; {answer.prompts['text']}"
    try:
        show(f"Sink card of {options.model}", ("", ""), answer.lines(), caption)
    finally:  # a pipe that nobody reads to its end must not lose the files
        path = save_page(answer, out)
    print(path)


def is_card(name: str) -> bool:
    """Return whether a name is the path of a card; a folder that holds a model too is a model."""
    if url_protocol(name) is not None:
        return False
    path = user_path(name)
    return path.name == CARD_FILE or ((path / CARD_FILE).is_file() and not (path / "config.json").is_file())


def of_cards(options: CardOptions) -> None:
    """Show cards side by side, with a page of them, or write each for others."""
    from sinkjax.cards.compare import as_section, compare_cards, short_names
    from sinkjax.cards.shared import read_card, shared
    from sinkjax.config_files.files import write
    from sinkjax.report.page import page

    paths = [user_path(name) if is_card(name) else default_folder(name) for name in options.models]
    for name, path in zip(options.models, paths, strict=True):
        refuse(not is_card(str(path)), f"{name} has no card yet: make it with `sinkjax card {name}`")
    cards = [read_card(path) for path in paths]
    names = short_names(cards)
    if options.share:
        for name, each in zip(names, cards, strict=True):
            file = (options.out or Path()) / f"{name}.{CARD_FILE}"
            write(file, shared(each, options.by))
            print(f"{file}: {SEND}")
        return
    table = compare_cards(*cards)
    rows = [(quantity, *row) for quantity, row in zip(table.index, table.values.tolist(), strict=True)]
    show("Sink cards", ("", *names), rows, "losses are added nats per token, with 95% intervals")
    section = as_section(cards)
    file = (options.out or default_folder("-and-".join(names))) / "cards.html"
    write(file, page([section], section.title))
    print(file)


def default_folder(model: str) -> Path:
    """Return the folder of a model's card: its whole name, in which "+" stands for a slash."""
    name = str(Path(model)) if Path(model).name not in ("", "..") else str(Path(model).resolve())
    quoted = quote(name, safe="").replace("%2F", "+")
    if len(quoted) > LONGEST_NAME:
        quoted = f"{quoted[-LONGEST_NAME:]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return Path("results", "card", quoted)


def check(options: CardOptions, text: str, out: Path) -> None:
    """Raise for numbers, a text and a folder that no card can use, before a model is loaded; the error names the option."""
    check_sizes(options.prompts, options.length, options.seed, "--")
    there = next(path for path in (out, *out.parents) if path.exists())
    refuse(not there.is_dir(), f"--out {out}: {there} is a file, not a folder")
    refuse(not os.access(there, os.W_OK), f"--out {out}: no permission to write in {there}")
    refuse(not options.text, "--text must name a file or a folder, not ''")
    if text not in SOURCES:
        try:
            checked(text, 1, "all", 1, options.field, options.documents)
        except SinkjaxError as error:
            raise SinkjaxError(f"--text: {error}") from None
    records = text not in SOURCES and (Path(text).is_dir() or kind_of(Path(text)) != "plain")
    refuse(options.field != "text" and not records, f"--field {options.field}: --text {options.text} is not a file of records")


def show_plan(options: CardOptions) -> None:
    """Print the cost of a card, from the model's architecture."""
    from sinkjax.cards.plan import lines
    from sinkjax.checkpoints.load import open_checkpoint

    checkpoint = open_checkpoint(options.model, ignore_keys=options.ignore_keys, weights=False)
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    bos = tokenizer is None or tokenizer.bos is not None
    prompts, length = size(config, options)
    base, whole = times(config, options, bos)
    rows = [
        *lines(config, prompts, length, bos, options.dtype),
        ("processor time", f"about {base}, or {whole} with --cost, at the rate measured here"),
    ]
    show(f"Plan of the sink card of {options.model}", ("", ""), rows, "no weights were read; the time leaves out compilation")


def size(config: Config, options: CardOptions) -> tuple[int, int]:
    """Return the number and length of prompts, at most."""
    prompts = PROMPTS if options.prompts is None else options.prompts
    return prompts, min(LENGTH if options.length is None else options.length, config.context)


def times(config: Config, options: CardOptions, bos: bool) -> tuple[str, str]:
    """Return the time of a card without and with --cost, at the rate of a block that is timed here."""
    from sinkjax.cards.plan import flops
    from sinkjax.study.plan import block_rate

    prompts, length = size(config, options)
    rate = block_rate(config, length, sinkjax.Probe(attention_received=True), options.dtype)
    base, whole = (duration(flops(config, prompts, length, bos, more) / rate) for more in (False, True))
    return base, whole
