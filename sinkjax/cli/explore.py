"""`sinkjax explore`: a page to change a model with a mouse."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from sinkjax.cli.common import Options
from sinkjax.cli.options import read
from sinkjax.config_files.files import user_path
from sinkjax.runtime.backend import start_jax
from sinkjax.runtime.progress import say


@dataclass(frozen=True, kw_only=True)
class ExploreOptions(Options):
    """Change a model with a mouse, on a page that opens in a browser. Ctrl-C ends it, and so does closing the page."""

    model: tyro.conf.Positional[str] = "mini-sink"
    """preset, folder, hub id or .gguf file"""
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    ignore_keys: tuple[str, ...] = ()
    """keys of the model's config.json, of its metadata, and tensors to leave out, if no number depends on them"""
    tokenizer: str | None = None
    """folder, .gguf file or hub id whose tokenizer reads the prompt, if the model's files hold none"""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """precision of the parameters and activations"""
    prompt: str | None = None
    """the first prompt of the page"""
    out: Path = Path("results/explore")
    """folder for saved states"""
    port: int = 0
    """port of the page's address, which nobody else can reach; 0 for any free one"""
    browser: bool = True
    """whether to open the page, rather than print its address alone"""


def explore(arguments: Sequence[str]) -> None:
    """change a model with a mouse: attention, activations and predictions before and after"""
    options = read(ExploreOptions, arguments, "explore")
    from sinkjax.explorer.launch import packages

    packages()
    user_path(options.out)
    start_jax(options.platform, options.dtype)
    from sinkjax.checkpoints.load import load
    from sinkjax.explorer.launch import Served, answers_of

    say(f"loading {options.model}")
    named = {name: getattr(options, name) for name in ("dtype", "revision", "ignore_keys", "tokenizer")}
    explorer = Served(answers_of(load(options.model, **named), options.prompt, options.out), options.port)
    print(explorer.address, flush=True)
    say("Ctrl-C ends it, and so does closing the page")
    if options.browser:
        webbrowser.open(explorer.address)
    try:
        explorer.wait()
    finally:
        explorer.close()
