"""Further training of a loaded model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

from sinkjax.checkpoints.load import load
from sinkjax.checkpoints.model import Model
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.probes.probe import Probe
from sinkjax.tasks.language_model.config import Finetune
from sinkjax.tasks.language_model.task import PretrainTask, edits_of
from sinkjax.tasks.language_model.text import Text, open_text
from sinkjax.transformer.implementations import check_implementation


@dataclasses.dataclass(frozen=True, eq=False)
class FinetuneText(Text):
    """The text of a training. Its card also names the model, because a training resumes only with the same one."""

    @cached_property
    def card(self) -> dict[str, Any]:
        config: Any = self.config
        return {**super().card, "init": loaded(config.init, config.dtype).source.get("sha256")}


@dataclasses.dataclass(frozen=True)
class FinetuneTask(PretrainTask):
    """A `PretrainTask` that starts from a loaded model's parameters, regardless of the seed."""

    name: ClassVar[str] = "finetune"
    config: Finetune  # type: ignore[assignment]

    @property
    def variants(self) -> tuple[str, ...]:
        return (self.config.init,)

    @property
    def architecture(self) -> Config:
        return loaded(self.config.init, self.config.dtype).config

    def init(self, seed: int) -> Params:
        return loaded(self.config.init, self.config.dtype).params

    def open(self, say: Callable[[str], None]) -> Text:
        own = self.config.tokenizer == "model"
        config = dataclasses.replace(self.config, tokenizer=self.config.init) if own else self.config
        text = open_text(config, say)
        return FinetuneText(text.config, text.tokens)


@functools.lru_cache(maxsize=1)
def loaded(name: str, dtype: str) -> Model:
    """Load the model to train, before anything is traced."""
    return load(name, dtype=dtype)


def task(config: Finetune) -> FinetuneTask:
    """Make the task of a config. Errors: as for `load`; a context beyond the model's; edits that do not fit."""
    model = loaded(config.init, config.dtype).config
    if model.vocab_size is None:
        raise SinkjaxError(f"{config.init} has no vocabulary, so it cannot learn from a text")
    if config.context > model.context:
        raise SinkjaxError(f"context must be at most {model.context}, the context of {config.init}, not {config.context}")
    check_implementation(config.attention_impl, model, (), Probe())
    edits_of(config, model)
    return FinetuneTask(config)
