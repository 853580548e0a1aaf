"""`sinkjax explore`: an interactive page for editing a model."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import sinkjax
from sinkjax.cli.common import Options
from sinkjax.cli.options import DefaultModel
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.data.corpora import first_paragraph
from sinkjax.model.names import Attention
from sinkjax.runtime import extras
from sinkjax.runtime.backend import start_jax
from sinkjax.runtime.progress import say


@dataclass(frozen=True, kw_only=True)
class ExploreOptions(Options):
    """Edit a model interactively, on a page that opens in a browser. Press Ctrl-C or close the page to stop."""

    model: DefaultModel = "mini-softmax"
    """preset, folder, hub id or .gguf file"""
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    ignore_keys: tuple[str, ...] = ()
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    tokenizer: str | None = None
    """folder, .gguf file or hub id of a tokenizer, if the model's files have none"""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """precision of the parameters and activations"""
    attention_impl: Attention = "auto"
    """implementation of attention; one that returns no maps to show is an error"""
    prompt: str | None = None
    """the first prompt of the page"""
    text: Path | None = None
    """file or folder of plain text or records whose first paragraph is the prompt, instead of --prompt"""
    field: str = "text"
    """name of the field with the text in a file of records"""
    out: Path = Path("results/explore")
    """folder for saved states"""
    port: int = 0
    """port of the page, which only you can access; 0 for any free port"""
    browser: bool = True
    """open the page in a browser; otherwise only print its address"""


def explore(options: ExploreOptions) -> None:
    """edit a model interactively: attention, activations and predictions before and after"""
    extras.require("the explorer", "explore", "starlette", "uvicorn")
    from sinkjax.explorer.launch import Served, answers_of

    user_path(options.out)
    refuse(options.prompt is not None and options.text is not None, "--prompt and --text are two first prompts; choose one")
    prompt = options.prompt if options.text is None else first_paragraph(options.text, options.field)
    start_jax(options.platform, options.dtype)
    from sinkjax.explorer.compute import PROBE
    from sinkjax.transformer.implementations import AUTO, check_implementation

    say(f"loading {options.model}")
    named = {name: getattr(options, name) for name in ("dtype", "revision", "ignore_keys", "tokenizer")}
    model = sinkjax.load(options.model, **named)
    if options.attention_impl != AUTO:
        check_implementation(options.attention_impl, model.config, (), PROBE)
    explorer = Served(answers_of(model, prompt, options.out), options.port)
    print(explorer.address, flush=True)
    say("press Ctrl-C or close the page to stop")
    if options.browser:
        webbrowser.open(explorer.address)
    try:
        explorer.wait()
    finally:
        explorer.close()
