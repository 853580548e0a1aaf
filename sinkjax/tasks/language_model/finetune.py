"""Further training of a loaded model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

from sinkjax.checkpoints.load import load
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.tasks.language_model.config import Finetune
from sinkjax.tasks.language_model.model import with_attention
from sinkjax.tasks.language_model.task import PretrainTask, edits_of
from sinkjax.tasks.language_model.text import Text


@dataclasses.dataclass(frozen=True)
class FinetuneTask(PretrainTask):
    """A `PretrainTask` that starts from a loaded model's parameters, regardless of the seed. start: its config."""

    name: ClassVar[str] = "finetune"
    config: Finetune  # type: ignore[assignment]
    start: Config
    loaded: Model = dataclasses.field(compare=False, repr=False)

    @property
    def variants(self) -> tuple[str, ...]:
        return (self.config.init,)

    @property
    def architecture(self) -> Config:
        return self.start

    def init(self, seed: int) -> Params:
        return self.loaded.params

    def open(self, say: Callable[[str], None]) -> Text:
        tokenizer = self.config.init if self.config.tokenizer == "model" else self.config.tokenizer
        return Text(dataclasses.replace(self.config, tokenizer=tokenizer), say, {"init": self.loaded.source.get("sha256")})


@functools.lru_cache(maxsize=1)
def _load(name: str, dtype: str, files: tuple[tuple[str, int, int], ...]) -> Model:
    """Load a model; the last one stays in memory until its local files, by name, size and time, change."""
    return load(name, dtype=dtype)


def task(config: Finetune) -> FinetuneTask:
    """Make the task of a config. Errors: as for `load`; a context beyond the model's; edits that do not fit."""
    root = user_path(config.init)
    files = sorted((path.name, path.stat()) for path in (root, *root.glob("*")) if path.is_file())
    loaded = _load(config.init, config.dtype, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in files))
    model = loaded.config
    refuse(model.vocab_size is None, f"{config.init} has no vocabulary, so it cannot learn from a text")
    if config.context > model.context:
        raise SinkjaxError(f"context must be at most {model.context}, the context of {config.init}, not {config.context}")
    return FinetuneTask(with_attention(config, model, edits_of(config, model)), model, loaded)
