"""Words: the calls that a study is made of, as values that are printed, compared, hashed, and written as YAML.

`mask_key(F.key)` masks nothing. It is the word `mask_key` with its argument, which a study reads later, when the model and the
settings are known. There is one class for each kind of word (`EditWord`, `Place`, `Measure`, `Contrast`, ...), so that a word in
the wrong place is refused by name. A function becomes a word with its kind's decorator:

    @Measure.define("heads that sink on key {key} (%)", ...)
    def sink_rate(data, key, eps=F.eps): ...

The signature is checked where the word is written; the function runs when it is read (`Scope.get`). No JAX is imported here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from sinkjax.errors import SinkjaxError, unknown

Kind = TypeVar("Kind", bound="Word")
Entry = TypeVar("Entry")
FIELD = re.compile(r"\$(\w+)(?: ([+-]) (\d+))?")


@dataclass(frozen=True, repr=False)
class Field:
    """A name whose value is known later: a setting, a number measured on the unedited model, or an axis of a grid.

    Attributes:
        name: The name.
        plus: A number that is added to its value.
    """

    name: str
    plus: int = 0

    def __add__(self, number: int) -> Field:
        return Field(self.name, self.plus + number)

    def __sub__(self, number: int) -> Field:
        return Field(self.name, self.plus - number)

    def __str__(self) -> str:
        return self.name + (f" {'+' if self.plus > 0 else '-'} {abs(self.plus)}" if self.plus else "")

    def __repr__(self) -> str:
        return f"F.{self}"


class Fields:
    """`F.key` is the field `key`."""

    def __getattr__(self, name: str) -> Any:  # placeholder for a value of any type
        if name.startswith("_"):
            raise AttributeError(name)
        return Field(name)


F = Fields()


class Table(dict[str, Entry]):
    """A mapping that can be hashed; nothing changes it once it is made, and its order counts."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and [*self.items()] == [*other.items()]


@dataclass(frozen=True)
class Meaning:
    """The definition of a word: its function, the arguments that a writer gives, their kinds, and known facts of its results.

    Attributes:
        of: The function.
        signature: Its arguments, without the reader's own.
        facts: Whatever the decorator of the kind was given.
    """

    of: Callable[..., Any]
    signature: inspect.Signature
    facts: Mapping[str, Any]

    @functools.cached_property
    def kinds(self) -> dict[str, type[Word]]:
        """Argument -> the kind of word that it takes; other arguments take plain values and fields.

        Annotations are text. They are looked up when all kinds are defined; imports that only a type checker makes are not there.
        """
        names, found = getattr(self.of, "__globals__", {}), {}
        for argument, hint in getattr(self.of, "__annotations__", {}).items():
            for option in str(hint).split("|"):
                kind = names.get(option.strip())
                if inspect.isclass(kind) and issubclass(kind, Word):
                    found[argument] = kind
        return found

    @property
    def first(self) -> str:
        """The name of the first argument, which may be written without it; "" if there is none."""
        return next(iter(self.signature.parameters), "")


@dataclass(frozen=True, repr=False)
class Word:
    """A call of a named function.

    Attributes:
        word: The name.
        arguments: (name, value) of each argument that was given, in the order of the signature.
    """

    word: str
    arguments: tuple[tuple[str, object], ...] = ()
    noun: ClassVar[str] = "word"
    supplied: ClassVar[int] = 0  # leading arguments of a function that the reader supplies
    vocabulary: ClassVar[dict[str, Meaning]] = {}

    def __init_subclass__(cls, noun: str = "", supplied: int = 0) -> None:
        cls.noun, cls.supplied, cls.vocabulary = noun or cls.noun, supplied, {}

    @property
    def meaning(self) -> Meaning:
        """The word's definition."""
        return self.vocabulary[self.word]

    @functools.cached_property
    def given(self) -> Mapping[str, Any]:
        """Every argument by name, those left out at their defaults."""
        bound = self.meaning.signature.bind(**dict(self.arguments))
        bound.apply_defaults()
        return MappingProxyType(bound.arguments)

    def evaluate(self, *reader: object) -> Any:
        """Run its function: the reader's own arguments, then every argument of the word."""
        return self.meaning.of(*reader, **self.given)

    def but(self, **arguments: object) -> Self:
        """The same word with some arguments changed or added."""
        changed = {**dict(self.arguments), **{name: frozen(value) for name, value in arguments.items()}}
        return dataclasses.replace(self, arguments=tuple(changed.items()))

    def __repr__(self) -> str:
        if not self.arguments:
            return self.word
        shown = [f"{value!r}" if name == self.meaning.first else f"{name}={value!r}" for name, value in self.arguments]
        return f"{self.word}({', '.join(shown)})"

    @classmethod
    def define(
        cls, name: str = "", signature: inspect.Signature | None = None, **facts: object
    ) -> Callable[..., Callable[..., Any]]:
        """A decorator that makes a word of a function.

        Args:
            name: The word; "": the name of the function, without an underscore at its end.
            signature: The arguments that a writer gives; None: the function's arguments, without the reader's own.
            **facts: Known facts of its results, for the reader of this kind.

        Returns:
            The decorator. It returns a function of the same arguments that makes the word.
        """

        def decorate(function: Callable[..., object]) -> Callable[..., Any]:
            word = name or function.__name__.rstrip("_")
            if (former := cls.vocabulary.get(word)) and not _is_again(former.of, function):
                raise SinkjaxError(f"{former.of.__module__} defines the {cls.noun} {word!r} already; choose another name")
            own = inspect.signature(function)
            taken = signature or own.replace(parameters=list(own.parameters.values())[cls.supplied :])
            meaning = cls.vocabulary[word] = Meaning(function, taken, facts)

            def make(*given: object, **named: object) -> Word:
                try:
                    bound = taken.bind(*given, **named)
                except TypeError as error:
                    raise SinkjaxError(f"{word}: {error}") from None
                arguments = tuple((key, frozen(value)) for key, value in _flat(bound).items())
                for key, value in arguments:
                    _refuse_misplaced(f"{word}: {key}", value, meaning.kinds.get(key))
                return cls(word, arguments)

            make.__name__, make.__doc__ = word, function.__doc__
            return make

        return decorate


class Number(Word, noun="number", supplied=1):
    """A number that follows from the architecture or is drawn at random; it may be used wherever a plain value may."""


def _is_again(former: Callable[..., object], function: Callable[..., object]) -> bool:
    """Whether a function is the earlier one again: a later state of its module, or a copy of its file."""
    one, other = (getattr(each, "__code__", each) for each in (former, function))
    return former.__module__ == function.__module__ or one == other


def _flat(bound: inspect.BoundArguments) -> dict[str, object]:
    """The arguments of a call by name, positional and named ones together."""
    found: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def frozen(value: object) -> Any:
    """A value that can be hashed: lists as tuples, mappings as tables, all the way down."""
    if isinstance(value, Mapping):
        return Table({name: frozen(entry) for name, entry in value.items()})
    if isinstance(value, list | range) or type(value) is tuple:
        return tuple(map(frozen, value))
    return value


def as_tuple(value: object) -> tuple[Any, ...]:
    """The tuple of one or several values."""
    return value if isinstance(value, tuple) else (value,)


def _refuse_misplaced(where: str, value: object, kind: type[Word] | None) -> None:
    """Raise if a value, or one inside it, is not a word of the kind that belongs there; a field may be anywhere."""
    if isinstance(value, tuple | Table):
        for entry in value.values() if isinstance(value, Table) else value:
            _refuse_misplaced(where, entry, kind)
    elif isinstance(value, Word):
        if not isinstance(value, kind or Number):
            found = value if kind else f"the {value.noun} {value}"
            raise SinkjaxError(f"{where} takes {_article(kind.noun) if kind else 'a value'}, not {found}")
    elif kind is not None and value is not None and not isinstance(value, Field):
        raise SinkjaxError(f"{where} takes {_article(kind.noun)}, not {value!r}")


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def words_in(value: object) -> Iterable[Word | Field]:
    """Every word and field inside a value, the value itself first."""
    if isinstance(value, Word):
        yield value
        yield from words_in(tuple(value.given.values()))
    elif isinstance(value, Field):
        yield value
    elif isinstance(value, Mapping | tuple):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from words_in(entry)


# YAML: `$key + 1` is a field; a word without arguments is its name; one with only its first argument is {word: argument}.


def plain(value: object) -> object:
    """A value as YAML can hold it.

    Args:
        value: A word, a field, or tuples, tables and plain values of these.

    Returns:
        Strings, numbers, lists and dicts, which `read` turns back into an equal value.
    """
    if isinstance(value, Field):
        return f"${value}"
    if isinstance(value, Word):
        named = {name: plain(entry) for name, entry in value.arguments}
        if list(named) == [value.meaning.first] and not isinstance(named[value.meaning.first], dict):
            return {value.word: named[value.meaning.first]}
        return {value.word: named} if named or isinstance(value, Number) else value.word
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, tuple) else value


def read(node: object, kind: type[Kind] | None, where: str) -> Any:
    """Read the value of a YAML node.

    Args:
        node: What YAML holds.
        kind: The kind of word that belongs here; None for a plain value, a field or a number that is found later.
        where: Named in errors.

    Returns:
        The word, or a tuple of words for a list; the field; the plain value.

    Raises:
        SinkjaxError: The word is not one of its kind, or its arguments do not fit.
    """
    if isinstance(node, list):
        return tuple(read(entry, kind, f"{where}[{number}]") for number, entry in enumerate(node))
    if isinstance(node, str) and (found := FIELD.fullmatch(node)):
        return Field(found[1], int(f"{found[2]}{found[3]}") if found[3] else 0)
    if kind is None:
        if isinstance(node, str) and node in Number.vocabulary:
            return _word(Number, node, {}, where)
        if not isinstance(node, dict):
            return node
        if len(node) == 1 and next(iter(node)) in Number.vocabulary:
            return read(node, Number, where)
        return Table({name: read(entry, None, f"{where}.{name}") for name, entry in node.items()})
    if isinstance(node, str):
        return _word(kind, node, {}, where)
    if not isinstance(node, dict) or len(node) != 1:
        example = next(iter(kind.vocabulary), "")
        raise SinkjaxError(f"{where} takes {_article(kind.noun)}, such as {example}, not {str(node)[:60]!r}")
    ((name, given),) = node.items()
    meaning = kind.vocabulary.get(name)
    if meaning is not None and not (isinstance(given, dict) and set(given) <= {*meaning.signature.parameters}):
        if isinstance(given, dict) and not _may_be_word(given, meaning.kinds.get(meaning.first)):
            odd = next(key for key in given if key not in meaning.signature.parameters)
            raise SinkjaxError(f"{where}: {name}: {unknown('argument', odd, meaning.signature.parameters)}")
        given = {meaning.first: given}
    return _word(kind, name, given, where)


def _may_be_word(node: Mapping[str, object], kind: type[Word] | None) -> bool:
    """Whether a mapping reads as a word of a kind, or as a number that is found later."""
    return len(node) == 1 and (kind is not None or next(iter(node)) in Number.vocabulary)


def _word(kind: type[Kind], name: str, given: Mapping[str, object], where: str) -> Kind:
    """A word of a kind with arguments as YAML holds them."""
    if name not in kind.vocabulary:
        raise SinkjaxError(f"{where}: {unknown(kind.noun, name, kind.vocabulary)}")
    meaning = kind.vocabulary[name]
    read_in = {key: read(entry, meaning.kinds.get(key), f"{where}.{key}") for key, entry in given.items()}
    try:
        bound = meaning.signature.bind(**read_in)
    except TypeError as error:
        raise SinkjaxError(f"{where}: {name}: {error}") from None
    return kind(name, tuple((key, frozen(value)) for key, value in _flat(bound).items()))
