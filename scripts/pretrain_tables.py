"""Write the tables of the pretraining lab into docs/results/pretraining.md, each between its own markers.

    sinkjax run pretrain/mini --text FOLDER_OF_BOOKS
    python scripts/pretrain_tables.py results/pretrain/mini
    python scripts/pretrain_tables.py results/emergence/causal    # its training is the first row of pretrain/mini

The folders are those of studies, finished or not. Of a study at the size of its file, the logs of finished runs are kept
(scripts/kept_logs.py), and its table is made of all that is kept, so that its seeds can be trained a few at a time, on several
machines (`--seed 3 --seeds 2`, `--seed 5 --seeds 3`). At another size a table shows what its folder holds. A study of which
nothing is kept and no folder given keeps its table, or has none: scripts/pretrain_page.py makes those of the size 340k.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import kept_logs
import numpy as np
import xarray
from pretrain_runs import LEARNING
from sections import write_section

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.lab.trained import specs
from sinkjax.papers.pretrain._task import of_lines
from sinkjax.report.markdown import markdown
from sinkjax.report.section import Section
from sinkjax.studies.assemble import assemble
from sinkjax.studies.registry import choose, documented, find
from sinkjax.studies.run import section_of
from sinkjax.train import log
from sinkjax.train.config import DIVERGED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "pretraining.md"
HEAD = "# The pretraining lab"
NOT_RUN = "Not run."
SHARED = {("families", "llama"): "mini/softmax"}  # a row that is a row of another study, with seeds of its own
SAME = {"emergence/causal": "pretrain/mini"}  # a study whose training, but for the models that it keeps, is a row of another
# Fields of a training that may differ between its seeds.
FREE = {"seed", "seeds", "text", "mesh", "micro_batch", "together", "checkpoints"}


def main() -> None:
    """Read the folders and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="the folders of studies")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--logs", type=Path, default=kept_logs.LOGS, help="where the logs of finished runs are kept")
    options = parser.parse_args()
    try:
        found = dict(filter(None, (read(folder, options.logs) for folder in options.folders)))
    except SinkjaxError as error:
        parser.error(str(error))
    for name, config in studies().items():
        if stores := kept(name, config, options.logs):
            found[name] = assemble(find(name).trace(config, None), stores)
    for name, section in found.items():
        write_section(options.out, name, text(section), HEAD)
    print(options.out)


def studies() -> dict[str, Any]:
    """The tables that ship, with their configs, in the order of the page: what is measured at mini size first."""
    others = {f"pretrain/{name}" for name in LEARNING}  # scripts/learning_page.py has them
    names = [name for name in documented() if name.startswith("pretrain/") and name not in others]
    return {name: choose(name).config for name in sorted(names, key=lambda name: (name != "pretrain/mini", name))}


def read(folder: Path, logs: Path) -> tuple[str, Section] | None:
    """Keep the finished runs of a study's folder; of another size than its file's, the marker of its table and what it holds.

    Errors: a folder of something else; runs of other settings, or on another text, than those that are kept.
    """
    chosen = choose(str(folder))
    name = SAME.get(chosen.experiment, chosen.experiment)
    if not name.startswith("pretrain/"):
        raise SinkjaxError(f"{folder} is no study of pretraining, but of {chosen.experiment}")
    own = studies().get(name)
    if own is None or chosen.config.size != own.size:
        section = section_of(chosen, folder)
        return section.study + f" at {chosen.config.size}" * (own is not None), section
    for spec in specs(find(name).trace(own, None), own):
        if (folder / spec.name / log.LOG).is_file():
            keep(folder / spec.name, f"{_short(name)}/{spec.name}", logs, documents.plain(documents.fields(spec.training)))
    return None


def _short(name: str) -> str:
    """The name of a table in the folder of logs."""
    return name.partition("/")[2]


def kept(name: str, config: Any, logs: Path) -> dict[str, Any]:
    """The evaluations of the runs of a study that are kept, by row."""
    rows = [spec.name for spec in specs(find(name).trace(config, None), config)]
    found = {row: _evaluations(f"{_short(name)}/{row}", logs) for row in rows}
    for (study, row), home in SHARED.items():
        if study == _short(name) and found.get(row) is None and (data := _evaluations(home, logs)) is not None:
            own = np.isin(data["run"], range(config.seed, config.seed + config.seeds))
            found[row] = data.isel(run=own) if own.any() else None
    return {row: data for row, data in found.items() if data is not None}


def _evaluations(name: str, logs: Path) -> xarray.Dataset | None:
    """The evaluations of a training; None if it is not kept."""
    return of_lines(*kept_logs.read(name, logs)) if name in kept_logs.names(name, logs) else None


def keep(folder: Path, home: str, logs: Path, stated: dict[str, Any]) -> None:
    """Add the finished runs of a training to those that are kept, in the order of their seeds; a seed given again replaces.

    Errors: another training than stated, or on another text than what is kept.
    """
    first, lines = log.read(folder)
    for name, value in stated.items():
        if name not in FREE and first["config"].get(name, value) != value:
            raise SinkjaxError(f"{folder} was trained with {name} {first['config'][name]!r}, and its study states {value!r}")
    runs = finished(first, lines)
    if not runs:
        return
    first["config"]["text"] = Path(first["config"]["text"] or "").name  # not where it lies
    if home in kept_logs.names(home, logs):
        former, others = kept_logs.read(home, logs)
        if former["data"]["corpus"] != first["data"]["corpus"]:
            raise SinkjaxError(f"{folder} was trained on another text than the runs in {home}")
        runs = finished(former, others) | runs
    seeds = sorted(runs)
    first["config"] |= {"seed": seeds[0], "seeds": len(seeds)}
    first["runs"] = [{**runs[seed][0], "run": number} for number, seed in enumerate(seeds)]
    body = [{**line, "run": number} for number, seed in enumerate(seeds) for line in runs[seed][1]]
    kept_logs.keep(home, first, body, logs)


def finished(first: dict[str, Any], lines: list[dict[str, Any]]) -> dict[int, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The runs of a log that made all steps or diverged, by seed: what they are, and their evaluations."""
    found = {}
    for run in first["runs"]:
        own = [line for line in lines if line["run"] == run["run"]]
        if own and (own[-1]["status"] == DIVERGED or own[-1]["step"] == first["config"]["steps"]):
            found[run["seed"]] = (run, own)
    return found


def table_of(study: str) -> dict[str, Any]:
    """The document of a table of pretraining."""
    name = f"pretrain/{study}"
    return documents.parse(documented()[name], name)


def text(section: Section) -> str:
    """A study's short table with the paper's numbers, the verdicts on its claims, and what a reader has to know."""
    said = ", ".join(f"{name} {value}" for name, value in section.provenance.items())
    about = f"Means over {section.over}, 95% intervals in brackets. Run with {said}."
    own = table_of(_short(section.study)).get("notes", ()) if section.study in documented() else ()
    return markdown(
        dataclasses.replace(
            section,
            question=f"`sinkjax run {section.study}`. {section.question}",
            findings=(*section.findings, about) if said else (NOT_RUN,),
            verdicts=section.verdicts if said else (),
            notes=tuple(own),
        )
    )


if __name__ == "__main__":
    main()
