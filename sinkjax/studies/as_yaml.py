"""Studies as text: the prose in a config file, and a YAML document that reads back equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.studies.declaration import KINDS, PARTS, STUDY, TABLES, Claim, Premise, Setting, Study, setting, stated
from sinkjax.studies.scope import Contrast
from sinkjax.studies.words import Word, plain, read

WIDTH = 110  # characters per line


def with_prose(study: Study, prose: Mapping[str, Any], what: str) -> Study:
    """Add the prose of its config file to a study.

    Args:
        study: The declared study.
        prose: The title, question, notes, and claims (name -> statement, or {statement, paper}).
        what: The file, for errors.

    Returns:
        The study with its prose.

    Raises:
        SinkjaxError: A key or the name of a claim is unknown.
    """
    check_keys(prose, ("title", "question", "notes", "claims"), f"{what}: prose")
    claims = dict(study.claims)
    for name, said in (prose.get("claims") or {}).items():
        if name not in claims:
            raise SinkjaxError(f"{what}: prose: {unknown('claim', name, claims)}")
        said = {"statement": said} if isinstance(said, str) else said
        check_keys(said, ("statement", "paper"), f"{what}: prose: {name}")
        texts: dict[str, Any] = {key: one_line(said.get(key, getattr(claims[name], key))) for key in ("statement", "paper")}
        claims[name] = dataclasses.replace(claims[name], **texts)
    title, question = (one_line(prose.get(key, getattr(study, key))) for key in ("title", "question"))
    notes = tuple(map(one_line, prose.get("notes", study.notes)))
    return dataclasses.replace(study, title=title, question=question, claims=claims, notes=notes)


def check_keys(given: Iterable[str], allowed: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in allowed:
            raise SinkjaxError(f"{where}: {unknown('key', key, allowed)}")


def one_line(text: object) -> str:
    """Join a text written over several lines."""
    return " ".join(str(text).split())


# YAML


def to_yaml(study: Study) -> str:
    """Write a study as a YAML document, which `from_yaml` reads back equal.

    Args:
        study: The study.

    Returns:
        The document.
    """
    document: dict[str, object] = {STUDY: study.name}
    document |= {field.name: plain(getattr(study, field.name)) for field in dataclasses.fields(study) if field.name != "name"}
    document["settings"] = {name: _setting(entry) for name, entry in stated(study).items()}
    document["claims"] = {name: _claim(claim) for name, claim in study.claims.items()}
    document = {name: entry for name, entry in document.items() if entry not in ("", [], {})}
    return yaml.dump(document, Dumper=Compact, sort_keys=False, allow_unicode=True, width=WIDTH)


class Compact(documents.Dumper):
    """YAML dumper that writes everything that fits on one line."""

    def represent_sequence(self, tag: str, sequence: Iterable[object], flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, _fits(sequence))

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, _fits(mapping))


def _fits(value: object) -> bool:
    """Return whether a value fits on one line."""
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
    """Read a study from a YAML document.

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
    """Read a study from a mapping, as `from_yaml`."""
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
        raise SinkjaxError(f"{where} must be a mapping of names to values, not {documents.describe(node)}")
    return node


def _read_setting(node: object, where: str) -> Setting:
    if not isinstance(node, dict):
        return setting(node)
    check_keys(node, ("value", "help"), where)
    if "value" not in node:
        raise SinkjaxError(f"{where} lacks the key 'value', its default")
    return setting(node["value"], node.get("help", ""))


def _read_claim(node: object, where: str) -> Claim:
    given = dict(_mapping(node, where))
    kinds: dict[str, type[Word]] = {**KINDS, "given": Premise, "beside": Contrast}
    allowed = tuple(dict.fromkeys((*(entry.name for entry in dataclasses.fields(Claim)), *KINDS)))
    check_keys(given, allowed, where)
    found = {key: read(entry, kinds[key], f"{where}.{key}") if key in kinds else entry for key, entry in given.items()}
    judged = [name for name in KINDS if name in found]
    if len(judged) != 1:
        raise SinkjaxError(f"{where} takes one of {', '.join(KINDS)}, such as contrast: {{effect: {{measure: ..., where: ...}}}}")
    found["contrast"] = found.pop(judged[0])
    return Claim(**found)
