"""Write the tables and the figure of the pretraining studies: docs/results/data/pretraining.csv and pretraining-claims.csv.

    sinkjax run pretrain/mini --text FOLDER_OF_BOOKS
    python scripts/pretrain_tables.py results/pretrain/mini
    python scripts/pretrain_tables.py results/emergence/causal    # its training is the first row of pretrain/mini
    python scripts/front_page.py                                  # the page that shows some of these numbers

The folders are those of studies, finished or not. Of a study at the size of its file, the logs of finished runs are kept
(scripts/kept_logs.py), and its table is made of all that is kept, so that its seeds can be trained a few at a time, on several
machines (`--seed 3 --seeds 2`, `--seed 5 --seeds 3`). At another size a table shows what its folder holds. A study of which
nothing is kept and no folder given keeps its lines, or has none.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kept_logs
import numpy as np
import xarray
from long_tables import CLAIMS, COLUMNS, claims, of_section, replace
from matplotlib.figure import Figure
from named import DATA, DOCS

from sinkjax.analysis import intervals
from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.papers.pretrain._outcomes import by_shares
from sinkjax.papers.pretrain._task import of_lines
from sinkjax.report.section import Section
from sinkjax.study.registry import choose, documented, find
from sinkjax.study.results import assemble, section_of
from sinkjax.study.trained import specs
from sinkjax.train import log
from sinkjax.train.config import DIVERGED

CORE = "pretrain/mini"
FEWEST = 8  # seeds of an interval
WHILE_IT_LEARNS = ("hidden", "optimisers", "released", "chats", "smollm2")  # tables of another page
SHARED = {("families", "llama"): "mini/softmax"}  # a row that is a row of another study, with seeds of its own
SAME = {"emergence/causal": CORE}  # a study whose training, but for the models that it keeps, is a row of another
# Fields of a training that may differ between its seeds.
FREE = {"seed", "seeds", "text", "mesh", "micro_batch", "together", "checkpoints"}


def main() -> None:
    """Read the folders and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="the folders of studies")
    parser.add_argument("--data", type=Path, default=DOCS / DATA, help="the folder of the tables")
    parser.add_argument("--images", type=Path, default=DOCS / "images", help="the folder of the figure")
    parser.add_argument("--logs", type=Path, default=kept_logs.LOGS, help="where the logs of finished runs are kept")
    options = parser.parse_args()
    try:
        found = dict(filter(None, (read(folder, options.logs) for folder in options.folders)))
    except SinkjaxError as error:
        parser.error(str(error))
    for name, config in studies().items():
        if stores := kept(name, config, options.logs):
            found[name] = assemble(find(name).trace(config, None), stores)
        if stores and name == CORE:
            draw(stores, options.images / "pretrain-mini.png")
    for name, section in found.items():
        replace(options.data / "pretraining.csv", COLUMNS, of_section(section, _short(name)))
        replace(options.data / "pretraining-claims.csv", CLAIMS, claims(section, _short(name)))
    print(options.data / "pretraining.csv")


def draw(stores: Mapping[str, xarray.Dataset], file: Path) -> None:
    """Attention to the first token while the rows of the core table learn: means, with 95% intervals from FEWEST seeds on."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    ax, rows = figure.subplots(), documents.parse(documented()[CORE], CORE)["trainings"]
    for name, own in stores.items():
        at, first = own["step"].values, own["share" if by_shares(own) else "received"].mean(("layer", "head")).values
        steps = functools.reduce(np.intersect1d, at)  # runs may be evaluated at other steps
        values = np.stack([first[run][np.isin(at[run], steps)] for run in range(len(at))])
        ax.plot(steps, values.mean(axis=0), label=f"{rows[name]['row']['label']} ({len(values)})", linewidth=1.8)
        if len(values) >= FEWEST:
            each = [intervals.interval(at) for at in values.T]
            ax.fill_between(steps, *([getattr(one, end) for one in each] for end in ("low", "high")), alpha=0.2, linewidth=0)
    ax.set_xlim(0, float(steps.max()))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("training step")
    ax.set_ylabel("attention to the first token")
    ax.legend(frameon=False, title="(seeds)", title_fontsize=10, loc="upper left", alignment="left")
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def studies() -> dict[str, Any]:
    """The tables that ship, with their configs, in the order of the page: what is measured at mini size first."""
    others = {f"pretrain/{name}" for name in WHILE_IT_LEARNS}
    names = [name for name in documented() if name.startswith("pretrain/") and name not in others]
    return {name: choose(name).config for name in sorted(names, key=lambda name: (name != CORE, name))}


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


if __name__ == "__main__":
    main()
