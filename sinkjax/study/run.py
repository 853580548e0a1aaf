"""A study from its config to its page: plan, then sweep or train."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from sinkjax.analysis import intervals
from sinkjax.checkpoints.architectures import with_tokenizer
from sinkjax.checkpoints.load import load as load_model
from sinkjax.checkpoints.load import open_checkpoint, untrained_like
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.settings import Settings
from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.checkpoints.tokenizer_files import END
from sinkjax.config_files import documents, programs
from sinkjax.config_files.files import user_location
from sinkjax.config_files.locations import Location, reached
from sinkjax.data.corpora import chosen_split, passages
from sinkjax.data.fit import fitted as fitted_to
from sinkjax.data.prompts import bos_ids, first_tokens, resolved_bos, trained_prefix
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import check_dtype
from sinkjax.report.section import Section
from sinkjax.runtime import extras, processes
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.progress import silent
from sinkjax.runtime.settings import fixed_settings
from sinkjax.study import trained
from sinkjax.study.folder import VALUES, RunValues, calculate, store_path
from sinkjax.study.numbers import TRAINED_WITH, bos_warning
from sinkjax.study.parts import Part, specs
from sinkjax.study.premises import CHAT
from sinkjax.study.registry import SIZES, Chosen, choose, claim, config_type
from sinkjax.study.results import build, section_of
from sinkjax.study.settings import UNTRAINED
from sinkjax.study.trained import train_all
from sinkjax.study.work import Batch, Calculation, Inputs, TrainingSpec
from sinkjax.sweeps.computation import Computation
from sinkjax.sweeps.plan import Plan, plan
from sinkjax.sweeps.programs import compile_programs
from sinkjax.sweeps.run import finished, prepared, sweep
from sinkjax.sweeps.schedule import Round, Schedule


@fixed_settings
def run(study: str, out: str | Path, model: str | Model | None = None, **fields: object) -> Section:
    """Run a study from Python, e.g. `sinkjax.run("kiya/mask", "results/mask", model=model, prompts=8)`.

    Args:
        study: Name of the study, or the path of a .py or .yaml file.
        out: The folder for stores, summary, figures and page, or its URL; the same call resumes an unfinished run in it.
        model: A model in memory, or its name; None: the study's own.
        fields: Settings that differ from the study's defaults.

    Returns:
        The study's section: claims, summary and figures.

    Raises:
        SinkjaxError: The study or a field is unknown; a value does not fit; the study trains its own models and accepts none;
            the folder has other content; the name belongs to a suite of studies (`suite.carry_out` runs those).
    """
    programs.typed(study)
    shipped = choose(study)
    if shipped.suite:
        raise SinkjaxError(f"{study} is a suite of studies; run one of them, or all with: sinkjax run {study}")
    values = documents.fields(shipped.config)
    if model is not None and "model" not in values:
        raise SinkjaxError(f"{study} trains its own models, so it takes none")
    given = model if isinstance(model, Model) else None
    if given is not None:
        fields = {"model": str(given.source["name"]), "dtype": given.source["dtype"]} | fields
    elif model is not None:
        fields["model"] = model
    config: Settings = documents.build(config_type(shipped.experiment), {**values, **fields}, study)
    if given is not None and config.dtype != given.source["dtype"]:
        raise SinkjaxError(f"dtype is {config.dtype}, and the model in memory is in {given.source['dtype']}")
    where = user_location(out)
    with reached(where):
        chosen = Chosen(shipped.experiment, config, own=shipped.own, unstated=SIZES - fields.keys())
        return carry_out(chosen, where, given=given)


@dataclass(frozen=True)
class Machine:
    """The devices and limits of a run; they change no number beyond rounding.

    memory: bytes of a device that a sweep may plan with, None: all of them. mesh: the devices of the model, None: all devices
    with a copy each. strict: whether stores that were begun on other hardware are refused. trim: whether a series removes the
    models that it fetched from the hub's cache. attention_impl: as for `sinkjax.sweep`.
    """

    memory: int | None = None
    mesh: Mesh | None = None
    strict: bool = False
    trim: bool = False
    attention_impl: str = "auto"

    def hardware(self) -> Hardware:
        """The hardware that its sweeps are planned for."""
        return Hardware.of(self.mesh, self.memory)


HERE = Machine()
FIRST_TOKENS = 4
TEXTS = ("text", "joined")
# Where a study compiles the programs of all its sweeps at once, by their planned shapes, of which some turn out otherwise. On two
# cores that took the same time and 14% more processor time, because XLA compiles for a CPU with all cores anyway.
AHEAD = ("gpu", "tpu")
Work = tuple[Part | Calculation | TrainingSpec, Config, Plan | None]  # a part of a study, its model, and its plan


def carry_out(
    chosen: Chosen,
    out: Location,
    machine: Machine = HERE,
    log: Callable[[str], None] = silent,
    load: Callable[..., Model] | None = None,
    given: Model | None = None,
) -> Section:
    """Run a study into the folder `out`, resuming unfinished work there, and write its summary, figures and page.

    log: called with a line of text before each step. load: loads the model of a study that takes one, by default `sinkjax.load`.
    given: a model in memory, which replaces the one that the config names.
    """
    require_extras(trains=chosen.study.trains)
    chosen = fitted(chosen, True, given, log)
    # Every edit is checked against the model before anything is loaded or written.
    planned = [*work(chosen, machine.hardware(), True, None if given is None else given.config, machine.attention_impl)]
    processes.by_first(functools.partial(claim, out, chosen))
    if chosen.study.trains:
        train_all(_trainings(chosen), chosen, out, log, functools.partial(build, chosen, out))
    else:
        _sweep(chosen, planned, out, machine, log, _from_memory(given) if given else load or load_model)
    log("summary, figures and page")
    return processes.by_first(functools.partial(build, chosen, out)) or section_of(chosen, out)


def _from_memory(model: Model) -> Callable[..., Model]:
    """Return a loader that returns this model, or its untrained twin."""

    def load(source: str, mesh: Mesh | None = None, **_: object) -> Model:
        return untrained_like(model, mesh) if source.startswith(UNTRAINED) else model

    return load


def require_extras(trains: bool) -> None:
    """Raise for a missing extra that a study needs at its end, for its page, or when its first model has trained."""
    extras.require("the page of a study", "report")
    if trains:
        extras.require("training", "train")


def _sweep(
    chosen: Chosen, planned: list[Work], out: Location, machine: Machine, log: Callable[[str], None], load: Callable[..., Model]
) -> None:
    """Carry out the planned parts of a study on one model."""
    config: Settings = chosen.config
    log(f"loading {config.model}")
    asked = {name: getattr(config, name) for name in ("dtype", "revision", "ignore_keys", "tokenizer")}
    ready = functools.partial(load, mesh=machine.mesh, **asked)
    model, twin = ready(config.model), functools.cache(functools.partial(ready, f"{UNTRAINED}{config.model}"))
    values = RunValues(out)

    @functools.cache
    def batch_of(inputs: Inputs, count: int) -> Batch:
        return dataclasses.replace(prompts(model, chosen, inputs, count), values=values, memory=machine.memory)

    every = [(spec, cost) for spec, _, cost in planned if not isinstance(spec, TrainingSpec)]
    if not isinstance(config.bos, int) and (warning := of_chat(model, (spec.inputs.bos for spec, _ in every))):
        log(f"warning: {warning}")
    if machine.hardware().kind in AHEAD:
        missing = [spec for spec, _ in every if isinstance(spec, Part) and not store_path(out, spec.name).exists()]
        compile_programs(_planned(part, model, batch_of(part.inputs, part.prompts), machine) for part in missing)
    latest: object = ""
    for spec, cost in every:
        batch = batch_of(spec.inputs, spec.prompts)
        if (batch.study["text"], batch.study["bos"]) != latest:
            latest = batch.study["text"], batch.study["bos"]
            log(f"text: {batch.study['text']}")
            log(announced(model, batch.study))
        edits = "" if cost is None else f"{counted(cost.edits, 'edit')} x "
        log(f"{spec.name}: {edits}{counted(spec.prompts, 'prompt')} of up to {batch.tokens.shape[1]} tokens")
        store_spec(spec, model, batch, store_path(out, spec.name), machine, twin if spec.twin else None)


def fitted(chosen: Chosen, weights: bool = False, given: Model | None = None, log: Callable[[str], None] = silent) -> Chosen:
    """Return a study with the number and length of its prompts fitted to a text of the user's, as far as they are unstated.

    A model's tokenizer counts; without one here (the short name of a hub id, for a plan), nothing is fitted. Arguments and errors
    as for `carry_out` and `data.fit.fitted`.
    """
    config = chosen.config
    if not chosen.unstated or not chosen.own_text:
        return chosen
    opened = given or open_checkpoint(config.model, config.revision, config.ignore_keys, weights=weights)
    tokenizer = opened.tokenizer
    if tokenizer is None and config.tokenizer is not None:
        tokenizer = open_checkpoint(config.tokenizer, weights=False).tokenizer
    if tokenizer is None or all(spec.inputs.kind != "text" for spec in specs(chosen.study.trace(config, opened.config))):
        return chosen
    config, how = fit(config, chosen.unstated, tokenizer)
    if how:
        log(f"text: {how}")
    return dataclasses.replace(chosen, config=config, unstated=frozenset())


def _planned(part: Part, model: Model, batch: Batch, machine: Machine) -> tuple[Computation, Schedule, list[Round]]:
    """Return a sweep as it is planned. Its twin's programs are the same, and so are those of edits with values of a model."""
    computation = prepared(model, batch.tokens, part.planned(), part.probe, batch.lengths, attention_impl=machine.attention_impl)
    schedule = computation.schedule(machine.memory, part.batch_size(machine.hardware().kind), part.role != "noop")
    return computation, schedule, computation.rounds(schedule)


def counted(number: int, what: str) -> str:
    """Return "1 edit", "2 edits"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def work(
    chosen: Chosen,
    hardware: Hardware | None = None,
    weights: bool = False,
    architecture: Config | None = None,
    attention_impl: str = "auto",
) -> Iterator[Work]:
    """Yield every part or training of a study in its order, its model, and the plan of each sweep. No weights are read.

    Errors: edits that do not fit the model. hardware: None for this process's own. weights: whether they must be there.
    architecture: the config of a model in memory; None: the model that the study's config names. attention_impl: as for `sweep`.
    """
    config = chosen.config
    check_dtype(config.dtype)
    if chosen.study.trains:
        yield from ((training, training.architecture, None) for training in _trainings(chosen) if training.wanted)
        return
    if architecture is None:
        architecture = open_checkpoint(config.model, config.revision, config.ignore_keys, weights=weights).config
    check_inputs(config, architecture)
    here = hardware or Hardware.of(None)
    for spec in specs(chosen.study.trace(config, architecture)):
        cost = None
        if isinstance(spec, Part):
            what = spec.planned(), [config.length] * spec.prompts, config.length, spec.probe, config.dtype
            cost = plan(architecture, *what, here, attention_impl, spec.batch_size(here.kind), spec.role != "noop")
        yield spec, architecture, cost


def _trainings(chosen: Chosen) -> tuple[TrainingSpec, ...]:
    """Return the trainings of a study. Errors: the study's function refuses its settings."""
    return trained.specs(chosen.study.trace(chosen.config, None), chosen.config)


def check_inputs(config: Settings, architecture: Config) -> None:
    """Raise for prompts that no text makes fit the model: longer than its context, or with a BOS outside of its vocabulary.

    config: a study's config, or a suite's, where a field that is None leaves each study its own.
    """
    if config.length is not None and config.length > architecture.context:
        raise SinkjaxError(f"length {config.length} is beyond the context of {config.model}, {architecture.context} tokens")
    if isinstance(config.bos, int) and config.bos not in range(architecture.vocab_size or 0):
        raise SinkjaxError(f"bos {config.bos} is not a token of {config.model}, whose vocabulary has {architecture.vocab_size}")


def store_spec(
    spec: Part | Calculation,
    model: Model,
    batch: Batch,
    store: Location,
    machine: Machine = HERE,
    twin: Callable[[], Model] | None = None,
) -> None:
    """Carry out one part, or its remaining calls, into its store. Errors: the store of other numbers, in one sentence.

    twin: loads the model that the sweep runs on, instead of the one that prepares its edits.
    """
    swept, how = model if twin is None else twin(), machine.attention_impl
    if isinstance(spec, Calculation):
        calculate(spec, swept, batch, store)
        return
    tokens, probe, lengths = batch.tokens, spec.probe, batch.lengths
    if spec.lab.needs_model and finished(
        store, swept, tokens, spec.planned(batch.values), probe, lengths, _attributes(spec, batch), how
    ):
        return
    edits = [condition.edit for condition in spec.of(spec.lab.on(model, batch, swept, probe))]
    options: dict[str, Any] = {"memory": machine.memory, "strict": machine.strict, "attention_impl": how}
    options |= {"attributes": _attributes(spec, batch), "batch_size": spec.batch_size(machine.hardware().kind)}
    options["share_rows"] = spec.role != "noop"  # else their rows before the edit would be the baseline's in any case
    sweep(swept, tokens, edits, probe=probe, lengths=lengths, out=store, **options)


def _attributes(spec: Part, batch: Batch) -> dict[str, object]:
    """Return what a sweep's store says of its prompts and of the values that decided its edits."""
    attributes: dict[str, object] = {"study": dict(batch.study)}
    if spec.lab.needs_model:
        attributes["declared"] = spec.lab.study.digest
        attributes |= {VALUES: dict(batch.values)} if batch.values else {}
    return attributes


# Prompts.


def prompts(model: Model, chosen: Chosen, inputs: Inputs, count: int) -> Batch:
    """Return a study's first `count` prompts of one kind. Errors: the model has no tokenizer; as for `sinkjax.encode`."""
    config, tokenizer = chosen.config, model.tokenizer
    if tokenizer is None:
        raise SinkjaxError(
            f"{config.model} has no tokenizer, so it cannot read text: name a folder, .gguf file or hub id with one as tokenizer"
            f"{with_tokenizer(model.source.get('model_type'), model.config.vocab_size)}"
        )
    bos = resolved_bos(model, config.bos if inputs.bos is None else inputs.bos)
    facts: dict[str, object] = {"text_sha256": ""}
    if inputs.kind in TEXTS:
        cut, join = _of_text(config, tokenizer), inputs.kind == "joined"
        texts = passages(config.text, config.prompts, seed=config.seed, join=join, **cut)
        tokens, lengths = (values[:count] for values in first_tokens(model, texts.texts, bos, config.length))
        facts = {"text": texts.source, "text_sha256": texts.sha256, "split": chosen_split(config.text, config.split)}
        facts |= {"documents": list(texts.documents[:count]), "genres": list(texts.genres[:count])}
    else:
        size, prefix = model.config.vocab_size or 0, bos_ids(model, bos)
        tokens = drawn(inputs.kind, tokenizer, prefix, count, config.length, size, config.seed)
        lengths = np.full(count, config.length, np.int32)
        what = {"random": "random tokens", "repeat": "one random token, repeated"}[inputs.kind]
        facts["text"] = f"{what}, seed {config.seed}"
    if inputs.bos is None and bos == "none" and (trained := trained_prefix(model)[0]):
        facts[TRAINED_WITH] = tokenizer.tokens(trained)[0]
    rows = [tokenizer.tokens(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    study: dict[str, object] = {
        "experiment": chosen.experiment,
        "config": documents.plain(documents.fields(config)),
        **facts,
        "bos": bos,
        "first_tokens": list(zip(tokens[0, :FIRST_TOKENS].tolist(), rows[0], strict=False)),
        "token_texts": rows,
    }
    return Batch(tokens, lengths, study)


def _of_text(config: Any, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return how the passages of a study's text are cut."""
    split, cut = chosen_split(config.text, config.split), {"field": config.field, "division": config.documents}
    return {"split": split, "length": config.length, "size": lambda text: len(tokenizer.encode(text)), **cut}


def fit(config: Any, unstated: Collection[str], tokenizer: Tokenizer) -> tuple[Any, str]:
    """Fit a study's `prompts` and `length` to a text of the user's, as far as they are unstated.

    Returns:
        The config, and a sentence that says how, "" if nothing changed. Errors: as for `data.fit.fitted`.
    """
    number, length, how = fitted_to(config.text, config.prompts, given=SIZES - {*unstated}, **_of_text(config, tokenizer))
    return dataclasses.replace(config, prompts=number, length=length), how


def announced(model: Model, study: Mapping[str, Any]) -> str:
    """Describe the prefix of prompts in a line; a warning if the model was trained with one and they have none."""
    if TRAINED_WITH in study:
        return f"warning: {bos_warning(str(model.source['name']), study)}"
    if study["bos"] == "none":
        return "BOS: none"
    why, (token, text) = trained_prefix(model)[1], study["first_tokens"][0]
    return f"BOS: {text!r}, token {token}" + (f" ({why})" if why and study["bos"] == "model" else "")


def of_chat(model: Model, bos: Iterable[object]) -> str:
    """Say that one of these prefixes of prompts begins chat turns, so that no claim about a BOS is for it; "" if none does."""
    tokenizer = model.tokenizer
    texts = [tokenizer.tokens([token])[0] for token in bos if isinstance(token, int)] if tokenizer is not None else []
    for text in texts:
        if tokenizer is not None and text in CHAT:
            other = next((one for one in tokenizer.special if tokenizer.tokens([one])[0] == END), None)
            instead = "" if other is None else f"; --bos {other} takes {END!r}"
            return (
                f"the BOS {text!r} begins chat turns and did not separate documents in pretraining, so claims about a BOS are"
                f" not applicable{instead}"
            )
    return ""


def drawn(kind: str, tokenizer: Tokenizer, prefix: list[int], count: int, length: int, vocabulary: int, seed: int) -> np.ndarray:
    """Draw token ids int32 [count, length] uniformly from the vocabulary without special tokens, after a prefix.

    kind: "random" for one draw per position, or "repeat" for one draw per prompt.
    """
    rng = intervals.generator(seed, f"{kind} tokens")
    ordinary = np.setdiff1d(np.arange(vocabulary), tokenizer.special)
    size = (count, length - len(prefix)) if kind == "random" else (count, 1)
    ids = np.broadcast_to(rng.choice(ordinary, size), (count, length - len(prefix)))
    return np.concatenate([np.tile(np.array(prefix, np.int32), (count, 1)), ids], axis=1).astype(np.int32)
