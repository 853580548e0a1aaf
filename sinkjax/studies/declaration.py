"""A study as a value: grids, measures, claims and figures in words that are printed as YAML and read back equal.

A paper's study is declared in Python (`sinkjax/papers/<paper>/<study>.py`); its prose (title, question, statements, the paper's
numbers, notes) is in its config file. A user's study may be written in the same way, or as one YAML file.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import tyro
import yaml

from sinkjax.config_files import documents
from sinkjax.config_files.checks import MIN_QUERIES, at_least, share
from sinkjax.errors import SinkjaxError, short, unknown
from sinkjax.studies.config import StudyConfig
from sinkjax.studies.grids import At, Draws, Grid
from sinkjax.studies.scope import Contrast, FigureWord, Known, Measure
from sinkjax.studies.words import Field, Number, Table, Word, frozen, plain, read, words_in

if TYPE_CHECKING:
    from sinkjax.studies.config import Settings

NAMED = re.compile(r"\{(\w+)\}")  # a setting in a text
STUDY = "study"  # the key of a document that holds a whole study


class Premise(Word, noun="premise", supplied=1):
    """What must be so in a model for a paper's claim to be about it, by the paper's own definition."""


class Identity(Word, noun="identity", supplied=1):
    """What must hold whatever the model, as the edit or a theorem forces it: a check of the code."""


class Described(Word, noun="described number", supplied=1):
    """Exact numbers, such as those of weights alone: rows of the summary, without a test."""


class Computation(Word, noun="computation", supplied=3):
    """Numbers that no edit or statistic gives: a named function of the model and a batch."""


class Training(Word, noun="training", supplied=2):
    """Models that are trained: a named function of the settings and the training's name that gives a `TrainingSpec`.

    Its fact `config` is the dataclass of the settings that every study with such trainings has.
    """


@dataclass(frozen=True)
class Setting:
    """A setting of a study: its default, from which its type follows, and a line of help."""

    value: object
    help: str = ""


def setting(value: object, help: str = "") -> Setting:
    """A setting with a line of help.

    Args:
        value: The default: a number, a text, a truth value, or a tuple of these.
        help: For the command line.

    Returns:
        The setting.
    """
    return Setting(frozen(value), help)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One figure, table or theorem of a paper, and the contrast in which the paper shows it.

    Attributes:
        contrast: The contrast that is judged; or an identity, which holds or fails; or exact numbers, which are described.
        source: Paper and figure, table or section.
        sign: 1 if the paper says that the contrast is above 0, -1 if below.
        stays: Whether the paper says that nothing changes.
        given: The paper's own premise, or None.
        beside: Further readouts, printed without a word.
        statement: In one sentence.
        paper: The paper's own number.
    """

    contrast: Contrast | Identity | Described
    source: str = ""
    sign: int = 1
    stays: bool = False
    given: Premise | None = None
    beside: tuple[Contrast, ...] = ()
    statement: str = ""
    paper: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.contrast, Contrast | Identity | Described):
            raise SinkjaxError(f"a claim takes a contrast, an identity or described numbers, not {self.contrast!r}")
        if not isinstance(self.given, Premise | None):
            raise SinkjaxError(f"the premise of a claim is a premise, not {self.given!r}")
        for entry in self.beside:
            if not isinstance(entry, Contrast):
                raise SinkjaxError(f"beside a claim stand contrasts, not {entry!r}")
        if self.sign not in (-1, 1):
            raise SinkjaxError(f"the sign of a claim is 1 or -1, not {self.sign!r}")

    @property
    def words(self) -> tuple[Word, ...]:
        """Everything that it reads."""
        return (self.contrast, *((self.given,) if self.given is not None else ()), *self.beside)


KINDS: dict[str, type[Word]] = {"contrast": Contrast, "identity": Identity, "described": Described}
PARTS: dict[str, type[Word]] = {
    "known": Known,
    "grids": Grid,
    "controls": Draws,
    "computations": Computation,
    "trainings": Training,
    "measures": Measure,
    "figures": FigureWord,
}
ALIKE = 0.75  # likeness from which an unused setting is taken for a misspelt one
TABLES = ("settings", "known", "grids", "controls", "computations", "trainings", "claims")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
        name: "paper/study".
        title, question: Of its section; they may name settings in braces.
        notes: How to read the numbers.
        settings: Name -> setting, beside those that all studies have; a plain value changes the default of one of these.
        needs: Parts that a model must have (`studies/requirements.py`).
        known: Name -> what is measured on the unedited model before the sweeps.
        grids: Name -> conditions; one named "identity" holds edits that must change nothing.
        controls: Grid -> its random controls, which run for the conditions that claims are about.
        computations: Name -> what no edit gives.
        trainings: Name -> models that the study trains, in place of grids and computations on a given model.
        measures: What the summary shows of every condition, or of the models of every training.
        claims: Name -> claim.
        figures: What is drawn.
    """

    name: str
    title: str = ""
    question: str = ""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, object] = Table()
    needs: tuple[str, ...] = ()
    known: Mapping[str, Known] = Table()
    grids: Mapping[str, Grid] = Table()
    controls: Mapping[str, Draws] = Table()
    computations: Mapping[str, Computation] = Table()
    trainings: Mapping[str, Training] = Table()
    measures: tuple[Measure, ...] = ()
    claims: Mapping[str, Claim] = Table()
    figures: tuple[FigureWord, ...] = ()

    def __post_init__(self) -> None:
        for part in TABLES:
            object.__setattr__(self, part, frozen(dict(getattr(self, part))))
        stated = {name: entry if isinstance(entry, Setting) else Setting(entry) for name, entry in self.settings.items()}
        object.__setattr__(self, "settings", frozen(stated))
        for part, kind in PARTS.items():
            entries = getattr(self, part)
            for entry in entries.values() if part in TABLES else entries:
                if not isinstance(entry, kind):
                    raise SinkjaxError(f"{self.name}: {part} takes {kind.noun}s, not {entry!r}")
        for name in ("name", "title", "question"):
            if not isinstance(getattr(self, name), str):
                raise SinkjaxError(f"{self.name}: the {name} of a study is a text, not {short(getattr(self, name))}")
        judged: dict[tuple[object, ...], str] = {}
        for name, claim in self.claims.items():
            if not isinstance(claim, Claim):
                raise SinkjaxError(f"{self.name}: claims takes claims, not {claim!r}")
            first = judged.setdefault((claim.contrast, claim.given, claim.sign, claim.stays), name)
            if first != name:
                raise SinkjaxError(
                    f"{self.name}: the claims {first!r} and {name!r} judge the same numbers: leave one of the two out"
                )
            if claim.stays and not _has_whole(claim.contrast):
                raise SinkjaxError(
                    f"{self.name}: claim {name}: what stays is a share of a whole, and {claim.contrast.word} here has none"
                )
        if bool(self.trainings) == bool(self.grids or self.computations):
            raise SinkjaxError(f"{self.name}: a study needs a grid or a computation, or else trainings")
        grids = [*self.grids]
        for name in self.controls:
            if name not in grids:
                raise SinkjaxError(f"{self.name}: {unknown('grid of controls', name, grids)}")
        for word in self.words:
            for argument, names in (("grid", grids), ("over", grids), ("computation", [*self.computations])):
                named = word.given.get(argument) if isinstance(word, Word) else None
                if isinstance(named, str) and not isinstance(word, Grid) and named not in names:
                    raise SinkjaxError(f"{self.name}: {unknown(argument if argument != 'over' else 'grid', named, names)}")
            if isinstance(word, Word):
                for argument in word.meaning.facts.get("trainings", ()):
                    named = word.given[argument]
                    if isinstance(named, str) and named and named not in self.trainings:
                        raise SinkjaxError(f"{self.name}: {unknown('training', named, self.trainings)}")
        for word in self.words:
            if isinstance(word, At):
                along = self.grids[word.given["grid"]].given["over"] or {}
                for axis in word.given["fixed"] or {}:
                    if axis not in along:
                        raise SinkjaxError(f"{self.name}: {unknown('axis of ' + word.given['grid'], axis, along)}")
            if isinstance(word, FigureWord) and not isinstance(word.given.get("over", ""), str):
                raise SinkjaxError(f"{self.name}: {word.word}: over takes the name of a grid: {', '.join(grids)}")
            if isinstance(word, Word):
                self._check_axes(word)
        allowed = {*self.settings, *self.known, *SHARED, *axes(self), *_common(self)}
        for one in self.words:
            if isinstance(one, Field) and one.name not in allowed and one.name in Number.vocabulary:
                raise SinkjaxError(f"{self.name}: {one.name} is a word, not a field: write it without $")
            if isinstance(one, Field) and one.name not in allowed:
                raise SinkjaxError(f"{self.name}: {unknown('field', one.name, sorted(allowed))}")
        shared = {*SHARED, *_common(self)}
        used = shared | {one.name for one in self.words if isinstance(one, Field)}
        for name, entry in stated.items():
            if not entry.help and name not in used and difflib.get_close_matches(name, shared, n=1, cutoff=ALIKE):
                raise SinkjaxError(f"{self.name}: nothing reads the setting: {unknown('setting', name, shared)}")

    def _check_axes(self, word: Word) -> None:
        """Refuse the name of an axis that the grid of a word does not have."""
        for argument in word.meaning.facts.get("axes", ()):
            name, where = word.given[argument], word.given.get("over") or word.given["where"]
            grid = where.given["grid"] if isinstance(where, At) else where
            along = self.grids[grid].given["over"] or {}
            if name not in (*along, "", "layers"):
                raise SinkjaxError(f"{self.name}: {word.word}: {unknown(f'axis of {grid}', name, along)}")

    @property
    def words(self) -> list[Word | Field]:
        """Every word and field of the study."""
        parts = [self.known, self.grids, self.controls, self.computations, self.trainings, self.measures, self.figures]
        return [word for part in (*parts, *(claim.words for claim in self.claims.values())) for word in words_in(part)]

    def __hash__(self) -> int:
        return hash((self.name, self.grids, self.measures))


def _has_whole(contrast: Word) -> bool:
    """Whether a contrast has a whole, of which it is a share: a named one, or else what the measure itself is.

    Its facts: `wholes`, the arguments that name one, where nothing else is a whole of logarithms; `of`, the argument without
    which there is none.
    """
    given, facts = contrast.given, contrast.meaning.facts
    if any(given.get(name) is not None for name in facts.get("wholes", ())):
        return True
    measure = given.get("measure")
    log = isinstance(measure, Word) and bool(measure.meaning.facts.get("log"))
    return not (log and "wholes" in facts) and ("of" not in facts or given.get(facts["of"]) is not None)


def stated(study: Study) -> dict[str, Setting]:
    """The settings of a study that it states itself, each with its line of help."""
    return {name: entry for name, entry in study.settings.items() if isinstance(entry, Setting)}


def axes(study: Study) -> set[str]:
    """The names of all axes of a study's grids."""
    return {name for grid in study.grids.values() for name in grid.given["over"] or {}}


# Settings that a study has if its words name them.
SHARED: dict[str, Setting] = {
    "eps": Setting(0.3, "attention that a key must receive on average to be a head's sink (Gu et al. 2025)"),
    "controls": Setting(20, "random controls for each condition that a claim is about"),
    "control_prompts": Setting(
        16, "prompts on which controls, known numbers and the untrained twin are measured: the first ones"
    ),
    "twin": Setting(True, "whether the claims are also measured on the same architecture with random weights"),
    "map_layers": Setting((), "layers whose attention maps are drawn; by default an early, a middle and a late one"),
}


def _base(study: Study) -> type[StudyConfig]:
    """The dataclass of the settings that all studies of a kind have: on a given model, or with trainings of one kind."""
    return next((word.meaning.facts["config"] for word in study.trainings.values()), StudyConfig)


def _common(study: Study) -> frozenset[str]:
    """The names of the settings that all studies of its kind have."""
    return frozenset(entry.name for entry in dataclasses.fields(_base(study)))


@functools.cache
def config_type(study: Study) -> type:
    """The dataclass of a study's settings.

    Args:
        study: The study.

    Returns:
        A frozen dataclass over `StudyConfig`, or that of the study's trainings: the shared settings that the study's words name,
        then its own.
    """
    base = _base(study)
    named = {one.name for one in study.words if isinstance(one, Field)}
    named |= {"controls", "control_prompts"} if study.controls else set()
    named |= {"control_prompts"} if study.known else set()
    judged = any(isinstance(claim.contrast, Contrast) for claim in study.claims.values())
    named |= {"twin", "control_prompts"} if judged and not study.trainings else set()
    named |= {"map_layers"} if any(word.word == "maps" for word in study.figures) else set()
    found = {name: entry for name, entry in SHARED.items() if name in named} | stated(study)
    fields = []
    for name, entry in found.items():
        old = base.__dataclass_fields__.get(name)
        shared = SHARED.get(name)
        kind = old.type if old else _type(entry.value, f"{study.name}: {name}", (shared or entry).value)
        help_text = entry.help or (shared.help if shared else "")
        hint: object = Annotated[kind, tyro.conf.arg(help=help_text)] if help_text and old is None else kind
        fields.append((name, _hint(base, name) if old else hint, field(default=entry.value)))
    own = [name for name in found if name not in _common(study)]

    def check(self: StudyConfig) -> None:
        base.__post_init__(self)
        for name in own:
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool):
                at_least(self, **{name: 1 if name in ("controls", "control_prompts") else 0})
            if isinstance(value, tuple):
                _check_list(name, value, filled=bool(found[name].value))
        if "eps" in own:
            share(self, "eps")
        if not study.trainings:
            _check_positions(study, self)
            _check_choices(study, self)

    namespace = {"__post_init__": check, "__doc__": f"{_sentence(study)}", "__module__": __name__}
    name = "".join(part.capitalize() for part in study.name.replace("/", "-").split("-"))
    made: type = dataclasses.make_dataclass(name, fields, bases=(base,), namespace=namespace, frozen=True, kw_only=True)
    return made


def _check_list(name: str, value: tuple[object, ...], filled: bool) -> None:
    """Refuse a list that is empty but must not be, or that has negative layers, positions or counts."""
    if filled and not value:
        raise SinkjaxError(f"{name} is empty")
    for entry in value:
        if isinstance(entry, int) and entry < 0:
            raise SinkjaxError(f"{name} has {entry}; layers, positions and counts start at 0")


def _check_positions(study: Study, config: Settings) -> None:
    """Refuse a position that prompts of the config's length do not have, or a key that too few of their queries see."""
    length = config.length
    for measure in study.words:
        if not isinstance(measure, Measure):
            continue
        seen = measure.meaning.facts.get("seen", ())
        for argument in ("key", "position"):
            if isinstance(written := measure.given.get(argument), str):
                raise SinkjaxError(f"{argument} of {measure} is a position, not {written!r}")
            for name, place in _integers(study, config, measure.given.get(argument)):
                if place >= length:
                    raise SinkjaxError(f"{name}: position {place} of {measure} is beyond prompts of {length} tokens")
                if argument in seen and place + MIN_QUERIES > length:
                    raise SinkjaxError(
                        f"{name}: key {place} of {measure} is seen by fewer than {MIN_QUERIES} of {length} queries"
                    )


def _check_choices(study: Study, config: Settings) -> None:
    """Refuse a value that is fixed along an axis of a grid and is not one of its values."""
    for chosen in study.words:
        if not isinstance(chosen, At):
            continue
        for axis, value in (chosen.given["fixed"] or {}).items():
            along = study.grids[chosen.given["grid"]].given["over"] or {}
            allowed = _value(config, along.get(axis))
            if isinstance(value, Field) and isinstance(allowed, tuple) and _value(config, value) not in allowed:
                listed = ", ".join(map(str, allowed))
                raise SinkjaxError(f"{value.name} is {_value(config, value)}, but must be one of {along[axis]}: {listed}")


def _integers(study: Study, config: Settings, entry: object) -> list[tuple[str, int]]:
    """The whole numbers that an argument of a measure takes, each with the name of its setting."""
    plus = entry.plus if isinstance(entry, Field) else 0
    if isinstance(entry, Field):
        over = [grid.given["over"] or {} for grid in study.grids.values()]
        entry = next((axes_of[entry.name] for axes_of in over if entry.name in axes_of), Field(entry.name))
    name = entry.name if isinstance(entry, Field) else "position"
    found = _value(config, entry)
    several = found if isinstance(found, tuple) else (found,)
    return [(name, one + plus) for one in several if isinstance(one, int) and not isinstance(one, bool)]


def _value(config: Settings, entry: object) -> object:
    """A plain value, or the setting that a field names; None for what is found later."""
    if isinstance(entry, Field):
        found = getattr(config, entry.name, None)
        return found + entry.plus if isinstance(found, int) else found
    return None if isinstance(entry, Word) else entry


def _hint(base: type, name: str) -> object:
    """The type of a shared setting."""
    from typing import get_type_hints

    return get_type_hints(base, include_extras=True)[name]


def _sentence(study: Study) -> str:
    """What a study is, in a line."""
    values = {name: entry.value for name, entry in stated(study).items()}
    return " ".join(filled(study.title or study.name, values).split())


def filled(text: str, values: Mapping[str, object]) -> str:
    """A text with settings in place of their names in braces.

    Args:
        text: With `{key}` for the setting `key`.
        values: Name -> value; other names stay in braces.

    Returns:
        The text.
    """

    def said(found: re.Match[str]) -> str:
        value = values.get(found[1], found[0])
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    return NAMED.sub(said, text)


def _type(value: object, what: str, like: object) -> object:
    """The type of a setting, from its default."""
    if isinstance(value, tuple):
        entry = next(iter(value or (like if isinstance(like, tuple) else ())), 0)
        return tuple.__class_getitem__((type(entry), ...))
    if type(value) in (bool, int, float, str):
        return type(value)
    raise SinkjaxError(f"{what} must be a number, a text, a truth value or a list of these, not {value!r}")


# Prose: what a config file says about a study that is declared in Python.


def with_prose(study: Study, prose: Mapping[str, Any], what: str) -> Study:
    """A study with the prose of its config file.

    Args:
        study: As it is declared.
        prose: title, question, notes, and claims: name -> statement, or {statement, paper}.
        what: The file, for errors.

    Returns:
        The study with both.

    Raises:
        SinkjaxError: A key or the name of a claim is unknown.
    """
    for key in prose:
        if key not in ("title", "question", "notes", "claims"):
            raise SinkjaxError(f"{what}: prose: {unknown('key', key, ('title', 'question', 'notes', 'claims'))}")
    claims = dict(study.claims)
    for name, said in (prose.get("claims") or {}).items():
        if name not in claims:
            raise SinkjaxError(f"{what}: prose: {unknown('claim', name, claims)}")
        said = {"statement": said} if isinstance(said, str) else said
        for key in said:
            if key not in ("statement", "paper"):
                raise SinkjaxError(f"{what}: prose: {name}: {unknown('key', key, ('statement', 'paper'))}")
        before = claims[name]
        statement, paper = _line(said.get("statement", before.statement)), _line(said.get("paper", before.paper))
        claims[name] = dataclasses.replace(before, statement=statement, paper=paper)
    title, question = (_line(prose.get(key, getattr(study, key))) for key in ("title", "question"))
    notes = tuple(map(_line, prose.get("notes", study.notes)))
    return dataclasses.replace(study, title=title, question=question, claims=claims, notes=notes)


def _line(text: object) -> str:
    return " ".join(str(text).split())


# YAML


def to_yaml(study: Study) -> str:
    """A study as a YAML document, which `from_yaml` reads back equal.

    Args:
        study: The study.

    Returns:
        The document.
    """
    document: dict[str, object] = {STUDY: study.name}
    for name in ("title", "question"):
        if getattr(study, name):
            document[name] = getattr(study, name)
    if study.notes:
        document["notes"] = list(study.notes)
    document["settings"] = {name: _setting(entry) for name, entry in stated(study).items()}
    if study.needs:
        document["needs"] = list(study.needs)
    for part in ("known", "grids", "controls", "computations", "trainings", "measures"):
        document[part] = plain(getattr(study, part))
    document["claims"] = {name: _claim(claim) for name, claim in study.claims.items()}
    document["figures"] = plain(study.figures)
    document = {name: entry for name, entry in document.items() if entry not in ([], {})}
    return yaml.dump(document, Dumper=Compact, sort_keys=False, allow_unicode=True, width=WIDTH)


WIDTH = 110


class Compact(documents.Dumper):
    """YAML that writes whatever fits into a line on one line."""

    def represent_sequence(self, tag: str, sequence: Iterable[object], flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, _fits(sequence))

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, _fits(mapping))


def _fits(value: object) -> bool:
    """Whether a value fits into a line."""
    return len(str(value)) < WIDTH - 20


def _setting(entry: Setting) -> object:
    value = documents.plain(entry.value)
    return {"value": value, "help": entry.help} if entry.help else value


def _claim(claim: Claim) -> dict[str, object]:
    kind = next(name for name, kind in KINDS.items() if isinstance(claim.contrast, kind))
    found = {"statement": claim.statement, "source": claim.source, "paper": claim.paper, kind: plain(claim.contrast)}
    found |= {"sign": claim.sign} if claim.sign != 1 else {}
    found |= {"stays": True} if claim.stays else {}
    found |= {"given": plain(claim.given)} if claim.given is not None else {}
    found |= {"beside": plain(claim.beside)} if claim.beside else {}
    return {name: entry for name, entry in found.items() if entry != ""}


def from_yaml(text: str, what: str = "the study") -> Study:
    """The study of a YAML document.

    Args:
        text: The document.
        what: The file, for errors.

    Returns:
        The study.

    Raises:
        SinkjaxError: The document is not valid YAML; a key, a word or an argument is unknown, or a word is in the wrong place.
    """
    return from_document(documents.parse(text, what), what)


def from_document(values: Mapping[str, object], what: str) -> Study:
    """The study of a mapping, as `from_yaml`."""
    known = [entry.name for entry in dataclasses.fields(Study)]
    given: dict[str, Any] = {}
    for key, node in values.items():
        where = f"{what}: {key}"
        if key == STUDY:
            given["name"] = str(node)
        elif key not in known or key == "name":
            raise SinkjaxError(f"{what}: {unknown('key', key, (STUDY, *known[1:]))}")
        elif key == "claims":
            given[key] = {name: _read_claim(entry, f"{where}.{name}") for name, entry in _mapping(node, where).items()}
        elif key == "settings":
            given[key] = {name: _read_setting(entry, f"{where}.{name}") for name, entry in _mapping(node, where).items()}
        elif key in TABLES:
            given[key] = {name: read(entry, PARTS[key], f"{where}.{name}") for name, entry in _mapping(node, where).items()}
        elif key in PARTS:
            given[key] = read(node if isinstance(node, list) else [node], PARTS[key], where)
        else:
            given[key] = tuple(map(str, node)) if isinstance(node, list) else str(node)
    if "name" not in given:
        raise SinkjaxError(f"{what} lacks the key {STUDY!r}, the name of the study")
    return Study(**given)


def _mapping(node: object, where: str) -> Mapping[str, Any]:
    if not isinstance(node, dict):
        raise SinkjaxError(f"{where} must hold names and values, not {documents.describe(node)}")
    return node


def _read_setting(node: object, where: str) -> Setting:
    if not isinstance(node, dict):
        return setting(node)
    for key in node:
        if key not in ("value", "help"):
            raise SinkjaxError(f"{where}: {unknown('key', key, ('value', 'help'))}")
    if "value" not in node:
        raise SinkjaxError(f"{where} lacks the key 'value', its default")
    return setting(node["value"], node.get("help", ""))


def _read_claim(node: object, where: str) -> Claim:
    given = dict(_mapping(node, where))
    kinds: dict[str, type[Word]] = {**KINDS, "given": Premise, "beside": Contrast}
    allowed = tuple(dict.fromkeys((*(entry.name for entry in dataclasses.fields(Claim)), *KINDS)))
    for key in given:
        if key not in allowed:
            raise SinkjaxError(f"{where}: {unknown('key', key, allowed)}")
    found: dict[str, Any] = {}
    for key, entry in given.items():
        found[key] = read(entry, kinds[key], f"{where}.{key}") if key in kinds else entry
    judged = [name for name in KINDS if name in found]
    if len(judged) != 1:
        raise SinkjaxError(f"{where} takes one of {', '.join(KINDS)}, such as contrast: {{effect: {{measure: ..., where: ...}}}}")
    found["contrast"] = found.pop(judged[0])
    return Claim(**found)


__all__ = [
    "Claim",
    "Computation",
    "Described",
    "Identity",
    "Number",
    "Premise",
    "Setting",
    "Study",
    "Training",
    "config_type",
    "from_yaml",
    "setting",
    "to_yaml",
]
