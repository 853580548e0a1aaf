"""Callbacks that log sinks while PyTorch trains: for the Trainer of transformers and for Lightning.

At each measurement the weights are copied into a sinkjax model (`from_transformers`), which makes one forward pass on given rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sinkjax.checkpoints.in_memory import from_transformers
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.explain.attribution import is_count
from sinkjax.interop.watch import sink_log


def watch(trainer: Any, tokens: Any, lengths: Any = None, *, every: int = 100) -> Any:
    """Log the numbers of `sink_log` every so many steps, to each logger that the trainer has.

        trainer = transformers.Trainer(model, args, train_dataset=data)
        sinkjax.interop.torch.watch(trainer, tokens, every=100)
        trainer.train()

    The first measurement compares the converted model with transformers' own on eight tokens. Only the first process measures.
    Its parameters must be whole, so trainings that shard them (FSDP, ZeRO-3) are not supported.

    Args:
        trainer: A `transformers.Trainer`, or a `lightning.Trainer`; its module contains a causal language model of transformers.
        tokens: int [B, T], rows of token ids, padded on the right.
        lengths: int [B], by default T for all.
        every: Number of optimiser steps between measurements.

    Returns:
        The callback, which has been added to the trainer.

    Raises:
        SinkjaxError: The trainer is of another type; `every` is below 1; when training, any error of `from_transformers`.
    """
    refuse(not is_count(every), f"every must be a number of steps from 1 on, not {short(every)}")
    if hasattr(trainer, "add_callback"):
        trainer.add_callback(callback := _of_transformers(trainer, tokens, lengths, every))
        return callback
    if not hasattr(trainer, "callbacks") or not hasattr(trainer, "loggers"):
        raise SinkjaxError(f"watch takes a transformers.Trainer or a lightning.Trainer, not {short(trainer)}")
    trainer.callbacks.append(callback := _of_lightning(type(trainer).__module__.partition(".")[0], tokens, lengths, every))
    return callback


class _Measured:
    """Measures a module that contains a model of transformers. verified: whether it has been compared with transformers'."""

    def __init__(self, tokens: Any, lengths: Any):
        self.tokens, self.lengths, self.verified = tokens, lengths, False

    def of(self, module: Any) -> dict[str, float]:
        import transformers

        parts = (part for part in module.modules() if isinstance(part, transformers.PreTrainedModel))
        model = next((part for part in parts if part.get_output_embeddings() is not None), None)
        if model is None:
            raise SinkjaxError(f"this {type(module).__name__} contains no causal language model of transformers")
        with _evaluating(model):
            found = from_transformers(model, check=False, verify=not self.verified)
        self.verified = True
        return sink_log(found, self.tokens, self.lengths)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch a module's dropout off."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _of_transformers(trainer: Any, tokens: Any, lengths: Any, every: int) -> Any:
    import transformers

    measured = _Measured(tokens, lengths)

    class Sinks(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step % every == 0 and state.is_world_process_zero:
                trainer.log(measured.of(model))

    return Sinks()


def _of_lightning(package: str, tokens: Any, lengths: Any, every: int) -> Any:
    import importlib

    base = importlib.import_module("lightning.pytorch" if package == "lightning" else package).Callback  # or pytorch_lightning
    measured = _Measured(tokens, lengths)

    class Sinks(base):  # type: ignore[misc, valid-type]
        seen = 0

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            step = trainer.global_step
            if step % every or step == self.seen or not trainer.is_global_zero:  # batches may accumulate to one step
                return
            self.seen = step
            values = measured.of(module)
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)

    return Sinks()
