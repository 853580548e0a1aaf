"""Manipulation checks of studies that ran before claims had them: docs/results/data/took.csv, which scripts/findings.py applies.

    python scripts/took.py STUDY MODEL BOS WIKITEXT [prompts=64 ...]    # the edits that claims check

The edits, their random controls and the prompts are those of the study. A control is measured only where the edit took.
"""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml
from long_tables import as_text
from named import DATA, DOCS

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.study.choice import by_name
from sinkjax.study.inputs import prompts
from sinkjax.study.measures import Measure, probe_of, read_measure
from sinkjax.study.numbers import CONTROLS, Stored
from sinkjax.study.parts import Part, parts
from sinkjax.study.places import Case
from sinkjax.study.registry import program
from sinkjax.study.took import Check
from sinkjax.study.work import Batch, Point, Sweep

TABLE = DOCS / DATA / "took.csv"
COLUMNS = ("study", "model", "bos", "text", "claim", "holds", "took")


class Measured(Stored):
    """The numbers of single conditions, each measured when it is asked for."""

    def __init__(self, model: Model, batch: Batch, found: list[Part], settings: Any) -> None:
        super().__init__(settings, model.config, {})
        self.model, self.batch, self.parts = model, batch, {part.name: part for part in found}

    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> Any:
        return self._of(measure, [point for point in sweep.points() if point.case == case] if edited else sweep.points()[:1])[0]

    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> Any:
        part = self.parts.get(f"{sweep.name}{CONTROLS}")
        points = [] if part is None else [point for point in part.of(part.lab) if point.draw >= 0 and point.case == case]
        return self._of(measure, points) if points else None

    def _of(self, measure: Measure, points: Sequence[Point]) -> Any:
        found = []
        for point in points:
            key = (measure.name, "", point.label)
            if key not in self._read:
                data = sinkjax.sweep(
                    self.model,
                    self.batch.tokens,
                    [point.edit],
                    probe=probe_of([measure]),
                    lengths=self.batch.lengths,
                    progress=False,
                )
                self._read[key] = read_measure(measure, data)[0]
            found.append(self._read[key])
        return np.stack(found)


def main(study: str, name: str, bos: str, wikitext: str, *settings: str) -> None:
    """Measure the checks of a study's claims on one model, and put them into the table."""
    chosen = by_name(study)
    stated = {field: yaml.safe_load(value) for field, _, value in (one.partition("=") for one in settings)}
    fields = {"model": name, "bos": bos, "text": wikitext, "split": "all", **stated}
    config = documents.build(type(chosen.config), {**documents.fields(chosen.config), **fields}, study)
    model = sinkjax.load(name)
    lab = program(study).trace(config, model.config)
    inputs = next(part.inputs for part in parts(lab) if isinstance(part, Part) and part.role == "sweep")
    batch = prompts(model, dataclasses.replace(chosen, config=config), inputs, config.prompts)
    lab = lab.on(model, batch)
    read = Measured(model, batch, [part for part in parts(lab) if isinstance(part, Part)], config)
    rows = {}
    for claim in lab.claims.values():
        if isinstance(claim.took, Check):
            holds, text = claim.took.test(read)
            rows[study, name, bos, claim.name] = [study, name, bos, "wikitext", claim.name, str(int(holds)), text]
            print(claim.name, holds, text, flush=True)
    kept = list(csv.DictReader(TABLE.open(newline=""))) if TABLE.exists() else []
    former = {(row["study"], row["model"], row["bos"], row["claim"]): [row[column] for column in COLUMNS] for row in kept}
    write(TABLE, as_text(COLUMNS, [row for _, row in sorted((former | rows).items())]))


if __name__ == "__main__":
    main(*sys.argv[1:])
