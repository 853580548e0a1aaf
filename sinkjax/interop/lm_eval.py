"""Tasks of EleutherAI's lm-evaluation-harness (lm-eval) for models in use: edited, quantised, with a cache policy or a past.

`LM` is scored by `lm_eval.simple_evaluate` as its own `hf` backend is: the same tokens, truncated alike. `compared` pairs the
scores of two settings by question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import interval, pseudo_values
from sinkjax.checkpoints.load import load
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.data.prompts import bos_ids
from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.evaluation import SINKS, InUse
from sinkjax.generation import generate_all
from sinkjax.model.quantisation import Quantisation
from sinkjax.runtime.extras import require
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.eviction import CachePolicy
from sinkjax.transformer.past import Past

try:
    from lm_eval.api.model import TemplateLM as _Base
    from lm_eval.api.registry import register_model
except ImportError:  # LM() says how to install it

    class _Base: ...  # type: ignore[no-redef]

    def register_model(*names: str) -> Callable[[type], type]:
        return lambda made: made


TASKS = Path(__file__).with_name("tasks")
ROWS = 32  # prompts that are continued together
GREEDY = {"until", "do_sample", "temperature", "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens", "seed"}


@register_model("sinkjax")
class LM(_Base):
    """A model for `lm_eval.simple_evaluate(model=LM(...), tasks=...)`.

    Importing this module also registers it as "sinkjax" for `simple_evaluate(model="sinkjax", model_args={"model": ...})`.

    Args:
        model: The model, or what `sinkjax.load` takes.
        edits: Edits that apply to every prompt; positions count from its start, with the BOS and any few-shot examples.
        weights, activations, kv, scale, rotate, keep, cache, past, attention_impl: As for `sinkjax.evaluate`, where a piece is a
            prompt with its answer. Generated tokens are rounded one at a time.
        bos: As for `sinkjax.encode`; "tokenizer" is what the `hf` backend adds, also where a model was trained with another.
        batch_size: Most prompts per call; None for as many as fit into `sinkjax.evaluation.TOKENS`, and 32 for generation.
        max_length: Most tokens of a prompt and its answer, which are cut at their beginning; None for the model's context.
        dtype: Of parameters, if `model` is not loaded yet.

    Raises:
        SinkjaxError: lm-eval is not installed; an argument does not fit (see `sinkjax.evaluate`); a task samples with options
            other than a temperature, or has an answer without tokens.
    """

    def __init__(
        self,
        model: Model | str,
        edits: Edit | Sequence[Edit] = (),
        weights: int | str | None = None,
        activations: int | str | None = None,
        kv: int | str | None = None,
        scale: str = "tensor",
        rotate: bool = False,
        keep: Sequence[int] | str = (),
        cache: CachePolicy | None = None,
        past: Past | None = None,
        bos: str | int = "auto",
        batch_size: int | str | None = None,
        max_length: int | None = None,
        attention_impl: str = "auto",
        dtype: str = "float32",
        **others: Any,
    ) -> None:
        require("a task of lm-eval", "eval", "lm_eval")
        super().__init__()
        others = {name: value for name, value in others.items() if name not in ("device", "max_batch_size")}  # lm-eval adds them
        refuse(bool(others), f"LM does not know {', '.join(others)}")
        model = load(model, dtype=dtype) if isinstance(model, str) else model
        how = Quantisation(weights=weights, activations=activations, kv=kv, scale=scale, rotate=rotate)
        self.used = InUse(model, how, keep, cache, edits, attention_impl, past)
        refuse(model.tokenizer is None, "tasks are texts, but this model has no tokenizer: load it with tokenizer=...")
        self.tokenizer: Any = model.tokenizer
        size = None if batch_size is None or str(batch_size).startswith("auto") else int(batch_size)
        refuse(size is not None and size < 1, f"batch_size must be at least 1, not {batch_size}")
        self.batch_size = size
        most = model.config.context - (0 if past is None else past.positions)
        fits = max_length is None or 2 <= max_length <= most
        refuse(not fits, f"max_length must be None or from 2 to {most}, the model's context, not {max_length}")
        self.max_length = max_length or most
        self.prefix = bos_ids(model, bos)
        held = getattr(past, "tokens", ())
        if self.prefix and self.prefix[0] in held:
            refuse(bos != "auto", f'past already has the BOS token {self.prefix[0]}; choose bos="none"')
            self.prefix = []

    @property
    def eot_token_id(self) -> int:
        """The id of the end-of-text token; 0 if the model's files name none."""
        return int(self.tokenizer.eos or 0)

    @property
    def prefix_token_id(self) -> int:
        """The id that stands for an empty context: the BOS that the model's files name, or else the end-of-text token."""
        return self.eot_token_id if self.tokenizer.bos is None else int(self.tokenizer.bos)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return the ids of a text, with the BOS unless the text begins with one or `add_special_tokens` is False."""
        begun = add_special_tokens is None and string.startswith(self.tokenizer.decode([self.prefix_token_id]))
        ids: list[int] = self.tokenizer.encode(string)
        return ids if begun or add_special_tokens is False else [*self.prefix, *ids]

    @fixed_settings
    def _loglikelihood_tokens(self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any) -> list[tuple[float, bool]]:
        """Score encoded answers: log p in nats, and whether greedy decoding gives it. requests: (texts, context, answer) each."""
        empty = next((texts for texts, _, answer in requests if not answer), None)
        refuse(empty is not None, f"the answer {empty} has no tokens of its own")
        long = max((len(answer) for _, _, answer in requests), default=0)
        refuse(long > self.max_length, f"an answer has {long} tokens, more than the {self.max_length} that fit")
        rows = [[*context, *answer][-self.max_length - 1 :] for _, context, answer in requests]
        found = self.used.scores(rows, [len(answer) for _, _, answer in requests], self.batch_size) if rows else []
        for request, score in zip(requests, found, strict=True):
            if request[0] is not None:
                self.cache_hook.add_partial("loglikelihood", request[0], score)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Score whole texts in windows of `max_length`: log p in nats."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        fixed = self.prefix_token_id, self.max_length, 1
        parts = [[*get_rolling_token_windows(self.tok_encode(request.args[0]), *fixed)] for request in requests]
        owner = np.repeat(np.arange(len(parts)), [len(pairs) for pairs in parts])
        scores = self._loglikelihood_tokens([(None, *make_disjoint_window(pair)) for pairs in parts for pair in pairs])
        totals: list[float] = np.bincount(owner, [score for score, _ in scores], len(parts)).tolist()
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    @fixed_settings
    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continue prompts until a stop string, at most `max_gen_toks` tokens (256 by default); return the new texts."""
        from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text

        used, keep, texts = self.used, self.used.keep, [""] * len(requests)
        if isinstance(keep, str):
            raise SinkjaxError(f'keep="{SINKS}" is not known while text is generated; name positions')
        both = used.cache is not None and not used.how.off
        refuse(both, "text is generated with a cache policy or with rounded numbers, not with both")
        alone = used.how.activations is None and used.how.kv is None  # else tokens that are computed together share a scale
        eos = None if self.tokenizer.eos is None else self.tokenizer.decode([self.tokenizer.eos])
        starts: list[list[int]] = []
        groups: dict[Any, list[int]] = {}
        for number, request in enumerate(requests):
            options = dict[str, Any](normalize_gen_kwargs(request.args[1], 256))
            new = options["max_gen_toks"]
            refuse(new >= self.max_length, f"{new} new tokens leave no room for a prompt in {self.max_length}")
            unknown = [name for name in options if options["do_sample"] and name not in GREEDY]
            refuse(bool(unknown), f"sampling with {', '.join(unknown)} is not supported, only with a temperature")
            warm = float(options.get("temperature", 0.0)) if options["do_sample"] else 0.0
            until = tuple(handle_stop_sequences(options["until"], eos=eos))
            starts.append(self.tok_encode(request.args[0])[-(self.max_length - new) :])
            groups.setdefault((new, warm, until, 0 if alone else len(starts[-1])), []).append(number)
        for (new, warm, until, _), numbers in groups.items():
            numbers.sort(key=lambda number: len(starts[number]))
            size = self.batch_size or ROWS
            for part in (numbers[begin : begin + size] for begin in range(0, len(numbers), size)):
                begun = [starts[number] for number in part]
                options = {"past": used.past, "how": used.how, "keep": keep, "cache": used.cache, "stop": [*filter(None, until)]}
                found = generate_all(used.model, begun, used.edits, new, warm, **options)
                for number, ids in zip(part, found, strict=True):
                    text = self.tokenizer.backend.decode(ids, skip_special_tokens=True)
                    texts[number] = postprocess_generated_text(text, list(until), None)
                    self.cache_hook.add_partial("generate_until", requests[number].args, texts[number])
        return texts


# How lm-eval combines the values of questions: functions of their means.
COMBINED: tuple[Callable[[NDArray[Any]], NDArray[Any]], ...] = (
    lambda means: means[..., 0],
    lambda means: np.exp(-means[..., 0]),  # perplexity
    lambda means: np.exp(-means[..., 0] / means[..., -1]),  # of words, of bytes
    lambda means: -means[..., 0] / means[..., -1] / math.log(2),  # bits per byte
)


@cache
def _manager(*folders: str) -> Any:
    """Index the tasks of lm-eval and of folders, which takes seconds."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=[*folders])


def scored(lm: LM, tasks: Sequence[str], include_path: str | Path | None = None, limit: int | None = None) -> dict[str, Any]:
    """Return what `lm_eval.simple_evaluate` returns, with samples, on tasks of lm-eval, of this package or of a folder.

    Args:
        lm: The model.
        tasks: Names of tasks.
        include_path: A folder with further tasks.
        limit: Number of questions per task.

    Returns:
        The results, with "results" and "samples" by task.

    Raises:
        SinkjaxError: A name is unknown, or the data of a task cannot be read.
    """
    import lm_eval

    manager = _manager(*(str(folder) for folder in (TASKS, include_path) if folder is not None))
    for name in tasks:
        one_of("task", name, manager.all_tasks)
    try:
        found = lm_eval.simple_evaluate(model=lm, tasks=[*tasks], task_manager=manager, limit=limit, bootstrap_iters=0)
    except (OSError, ConnectionError, ValueError) as error:
        raise SinkjaxError(f"lm-eval cannot run {', '.join(tasks)}: {' '.join(str(error).split())}") from None
    return dict(found)


def compared(plain: Mapping[str, Any], other: Mapping[str, Any], level: float = 0.95) -> Iterator[dict[str, Any]]:
    """Compare two results of `lm_eval.simple_evaluate` on the same questions.

    Args:
        plain: The result without a change, with its samples (`log_samples=True`, the default).
        other: The result of another setting.
        level: Coverage of the intervals.

    Yields:
        For each task and metric: "task", "metric", "plain" and "score", the two scores, "difference", "low" and "high", its
        interval over questions (paired; NaN where lm-eval combines the questions in a way that is no mean), and "questions".

    Raises:
        SinkjaxError: The results have no samples, or not of the same questions.
    """
    for task, scores in plain["results"].items():
        if task not in plain["samples"]:  # a group
            continue
        for key, score in scores.items():
            metric, _, filtered = key.partition(",")
            if not filtered or metric.endswith("_stderr") or not isinstance(score, int | float):
                continue
            values = [_values(result["samples"][task], metric, filtered) for result in (plain, other)]
            refuse(values[0].keys() != values[1].keys(), f"the two results have other questions of {task}")
            pair = np.array([[values[0][number], values[1][number]] for number in values[0]], float)  # [question, 2, part]
            low, high = _ends(pair, score, level)
            now, name = other["results"][task][key], metric if filtered == "none" else f"{metric}, {filtered}"
            row = {"task": task, "metric": name, "plain": score, "score": now, "difference": now - score}
            yield row | {"low": low, "high": high, "questions": len(pair)}


def _ends(pair: NDArray[np.float64], score: float, level: float) -> tuple[float, float]:
    """Return the interval of the difference of two scores; NaN if `score` is no known function of the questions' means."""
    made = next((each for each in COMBINED if np.isclose(each(pair[:, 0].mean(0)), score, rtol=1e-9)), None)
    if made is None or len(pair) < 2:
        return math.nan, math.nan
    ends = interval(pseudo_values(pair, lambda means: made(means[..., 1, :]) - made(means[..., 0, :])), level=level)
    return (math.nan, math.nan) if ends.low is None or ends.high is None else (ends.low, ends.high)


def _values(samples: Sequence[Mapping[str, Any]], metric: str, filtered: str) -> dict[int, list[float]]:
    """Return the value of a metric, one number or a sum and its count, of each question."""
    chosen = [sample for sample in samples if sample.get("filter", filtered) == filtered and metric in sample]
    return {sample["doc_id"]: np.ravel(sample[metric]).tolist() for sample in chosen}
