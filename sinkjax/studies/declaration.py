"""A study as a value: grids, measures, claims and figures as words, which print as YAML and read back equal.

A paper's study is declared in Python (`sinkjax/papers/<paper>/<study>.py`); its prose (title, question, statements, the paper's
numbers, notes) is in its config file. Your own study can be written in the same way, or as a single YAML file.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short, unknown
from sinkjax.studies.config import StudyConfig
from sinkjax.studies.grids import At, Draws, Grid
from sinkjax.studies.scope import Contrast, FigureWord, Known, Measure
from sinkjax.studies.words import Field, Number, Table, Word, frozen, words_in

STUDY = "study"  # the key of a document that contains a whole study


class Premise(Word, noun="premise", supplied=1):
    """A condition that a model must meet for a paper's claim to apply to it, by the paper's own definition."""


class Identity(Word, noun="identity", supplied=1):
    """A fact that the edit or a theorem forces in every model, and so a check of the code."""


class Described(Word, noun="described number", supplied=1):
    """Exact numbers, such as functions of the weights, which become summary rows without a test."""


class Computation(Word, noun="computation", supplied=3):
    """Numbers that no edit or statistic can give, from a named function of the model and a batch."""


class Training(Word, noun="training", supplied=2):
    """Models to train, from a named function of the settings and the training's name that returns a `TrainingSpec`.

    Its fact `config` is the dataclass of settings shared by all studies with such trainings.
    """


@dataclass(frozen=True)
class Setting:
    """A setting of a study: its default, which determines its type, and a help text."""

    value: object
    help: str = ""


def setting(value: object, help: str = "") -> Setting:
    """Make a setting with a help text.

    Args:
        value: The default: a number, a string, a boolean, or a tuple of these.
        help: Help text on the command line.

    Returns:
        The setting.
    """
    return Setting(frozen(value), help)


@dataclass(frozen=True)
class Claim:
    """A claim about one figure, table or theorem of a paper, with the contrast that the paper uses.

    Attributes:
        contrast: The contrast to judge, an identity (holds or fails), or exact numbers (described).
        source: Paper and figure, table or section.
        sign: 1 if the paper says that the contrast is above 0, -1 if below.
        stays: Whether the paper says that nothing changes.
        given: The paper's own premise, or None.
        beside: Additional readouts, printed without a word.
        statement: The claim in one sentence.
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
            raise SinkjaxError(f"a claim needs a contrast, an identity or described numbers, not {self.contrast!r}")
        if not isinstance(self.given, Premise | None):
            raise SinkjaxError(f"the premise of a claim must be a premise, not {self.given!r}")
        for entry in self.beside:
            if not isinstance(entry, Contrast):
                raise SinkjaxError(f"beside takes contrasts, not {entry!r}")
        refuse(self.sign not in (-1, 1), f"the sign of a claim must be 1 or -1, not {self.sign!r}")

    @property
    def words(self) -> tuple[Word, ...]:
        """All words that the claim reads."""
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
ALIKE = 0.75  # an unused setting at least this similar to another is assumed to be a misspelling
TABLES = ("settings", "known", "grids", "controls", "computations", "trainings", "claims")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
        name: "paper/study".
        title, question: Texts of its section; they may refer to settings in braces.
        notes: How to read the numbers.
        settings: Name -> setting, besides the shared ones; a plain value changes the default of a shared setting.
        needs: Parts that a model must have (`studies/specs.py`).
        known: Name -> number measured on the unedited model before the sweeps.
        grids: Name -> conditions; a grid named "identity" has edits that must change nothing.
        controls: Grid -> its random controls, which run for the conditions that claims are about.
        computations: Name -> calculation that no edit can express.
        trainings: Name -> models that the study trains, instead of grids and computations on a given model.
        measures: Columns of the summary, for every condition or for the models of every training.
        claims: Name -> claim.
        figures: The figures.
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
        settings = {name: entry if isinstance(entry, Setting) else Setting(entry) for name, entry in self.settings.items()}
        object.__setattr__(self, "settings", frozen(settings))
        self._check_kinds()
        if bool(self.trainings) == bool(self.grids or self.computations):
            raise SinkjaxError(f"{self.name}: a study needs a grid, a computation or a training")
        self._check_claims()
        for name in self.controls:
            if name not in self.grids:
                raise SinkjaxError(f"{self.name}: {unknown('grid of controls', name, self.grids)}")
        words = [word for word in self.words if isinstance(word, Word)]
        for word in words:
            self._check_names(word)
        for word in words:
            self._check_axes(word)
        self._check_fields()

    def _check_kinds(self) -> None:
        """Raise for values of the wrong kind in any part."""
        kinds: dict[str, type] = {**PARTS, "claims": Claim}
        for part, kind in kinds.items():
            entries = getattr(self, part)
            for entry in entries.values() if part in TABLES else entries:
                if not isinstance(entry, kind):
                    raise SinkjaxError(f"{self.name}: {part} takes {getattr(kind, 'noun', 'claim')}s, not {entry!r}")
        for name in ("name", "title", "question"):
            if not isinstance(getattr(self, name), str):
                raise SinkjaxError(f"{self.name}: the {name} of a study must be a string, not {short(getattr(self, name))}")

    def _check_claims(self) -> None:
        """Raise for two claims on the same numbers, or for a claim with `stays` but no whole."""
        judged: dict[tuple[object, ...], str] = {}
        for name, claim in self.claims.items():
            first = judged.setdefault((claim.contrast, claim.given, claim.sign, claim.stays), name)
            if first != name:
                raise SinkjaxError(
                    f"{self.name}: the claims {first!r} and {name!r} judge the same numbers: leave one of the two out"
                )
            if claim.stays and not _has_whole(claim.contrast):
                raise SinkjaxError(f"{self.name}: claim {name}: stays needs a whole, and {claim.contrast.word} here has none")

    def _check_names(self, word: Word) -> None:
        """Raise for a word that names a grid, a computation or a training that the study lacks."""
        named = [("grid", "grid", self.grids), ("grid", "over", self.grids), ("computation", "computation", self.computations)]
        named += [("training", argument, self.trainings) for argument in word.meaning.facts.get("trainings", ())]
        for what, argument, names in () if isinstance(word, Grid) else named:
            written = word.given.get(argument)
            if isinstance(written, str) and written not in names and (written or what != "training"):
                raise SinkjaxError(f"{self.name}: {unknown(what, written, names)}")

    def _check_axes(self, word: Word) -> None:
        """Raise for an axis name that a word's grid lacks."""
        if isinstance(word, At):
            along = self.grids[word.given["grid"]].given["over"] or {}
            for axis in word.given["fixed"] or {}:
                if axis not in along:
                    raise SinkjaxError(f"{self.name}: {unknown('axis of ' + word.given['grid'], axis, along)}")
        if isinstance(word, FigureWord) and not isinstance(word.given.get("over", ""), str):
            raise SinkjaxError(f"{self.name}: {word.word}: over takes the name of a grid: {', '.join(self.grids)}")
        for argument in word.meaning.facts.get("axes", ()):
            name, where = word.given[argument], word.given.get("over") or word.given["where"]
            grid = where.given["grid"] if isinstance(where, At) else where
            along = self.grids[grid].given["over"] or {}
            if name not in (*along, "", "layers"):
                raise SinkjaxError(f"{self.name}: {word.word}: {unknown(f'axis of {grid}', name, along)}")

    def _check_fields(self) -> None:
        """Raise for a field without a value, or a setting that nothing reads because its name is misspelt."""
        fields = {word.name for word in self.words if isinstance(word, Field)}
        shared = {*SHARED, *common_settings(self)}
        allowed = {*self.settings, *self.known, *axes(self), *shared}
        for name in sorted(fields - allowed):
            refuse(name in Number.vocabulary, f"{self.name}: {name} is a word, not a field: write it without $")
            raise SinkjaxError(f"{self.name}: {unknown('field', name, sorted(allowed))}")
        for name, entry in stated(self).items():
            if not entry.help and name not in fields | shared and difflib.get_close_matches(name, shared, n=1, cutoff=ALIKE):
                raise SinkjaxError(f"{self.name}: nothing reads the setting: {unknown('setting', name, shared)}")

    @property
    def words(self) -> list[Word | Field]:
        """Return every word and field of the study."""
        parts = [self.known, self.grids, self.controls, self.computations, self.trainings, self.measures, self.figures]
        return [word for part in (*parts, *(claim.words for claim in self.claims.values())) for word in words_in(part)]

    def __hash__(self) -> int:
        return hash((self.name, self.grids, self.measures))


def _has_whole(contrast: Word) -> bool:
    """Return whether a contrast is a share of a whole: a named one, or the measure itself.

    Its facts: `wholes`, the arguments that name a whole, which logarithms require; `of`, an argument that must be given for there
    to be a whole.
    """
    given, facts = contrast.given, contrast.meaning.facts
    if any(given.get(name) is not None for name in facts.get("wholes", ())):
        return True
    measure = given.get("measure")
    log = isinstance(measure, Word) and bool(measure.meaning.facts.get("log"))
    return not (log and "wholes" in facts) and ("of" not in facts or given.get(facts["of"]) is not None)


def stated(study: Study) -> dict[str, Setting]:
    """Return the settings that a study states itself, each with its help text."""
    return {name: entry for name, entry in study.settings.items() if isinstance(entry, Setting)}


def axes(study: Study) -> set[str]:
    """Return the names of all axes of a study's grids."""
    return {name for grid in study.grids.values() for name in grid.given["over"] or {}}


# Settings that a study has only if its words name them.
SHARED: dict[str, Setting] = {
    "eps": Setting(0.3, "attention that a key must receive on average to be a head's sink (Gu et al. 2025)"),
    "controls": Setting(20, "random controls for each condition that a claim is about"),
    "control_prompts": Setting(16, "number of prompts, from the first, for controls, known numbers and the untrained twin"),
    "twin": Setting(True, "whether the claims are also measured on the same architecture with random weights"),
    "map_layers": Setting((), "layers whose attention maps are drawn; if none, an early, a middle and a late one"),
}


def base_config(study: Study) -> type[StudyConfig]:
    """Return the settings dataclass shared by all studies of a kind: on a given model, or with trainings of one kind."""
    return next((word.meaning.facts["config"] for word in study.trainings.values()), StudyConfig)


def common_settings(study: Study) -> frozenset[str]:
    """Return the names of the settings shared by all studies of its kind."""
    return frozenset(entry.name for entry in dataclasses.fields(base_config(study)))
