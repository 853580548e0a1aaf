"""The pretraining task: the next token of a text that the host reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sinkjax.model.config import Config
from sinkjax.train.language import LanguageTask, build
from sinkjax.train.pretrain_config import Pretrain
from sinkjax.train.text import Text, open_text


@dataclass(frozen=True)
class PretrainTask(LanguageTask):
    """See `LanguageTask` and `sinkjax.train.task.Reads`."""

    config: Pretrain

    @property
    def architecture(self) -> Config:
        return model(self.config)

    def open(self, say: Callable[[str], None]) -> Text:
        return open_text(self.config, say)


def task(config: Pretrain) -> PretrainTask:
    """The task of a config. Errors: what the model refuses."""
    model(config)
    return PretrainTask(config)


def model(config: Pretrain) -> Config:
    """The architecture that is trained."""
    return build(config, config.model_vocabulary, config.context, config.prefix)
