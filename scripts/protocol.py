"""Put the runs of the protocol of 0.4, and finished runs that replace or complete them, into the tables of the pages.

    python scripts/protocol.py adopt RUN --commit C --seconds S    # keep a finished run in docs/results/data/mended; then publish
    python scripts/protocol.py adopt RUN --commit C --seconds S --plan qwen [--model NAME]    # a run of a plan, in data/qwen
    python scripts/protocol.py publish                             # kept runs into the tables; then scripts/findings.py

The runs of the frozen list are in docs/results/data/protocol-0.4. A run in data/mended takes the place of one there of the
same study and condition, and both stay. The articles are measured and never kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import findings
from long_tables import rows_as_text
from named import CLAIMS, DATA, DOCS, SUMMARY, condition, read

from sinkjax.config_files import documents
from sinkjax.config_files.files import CONFIG_FILE, write

KEPT, MENDED = (DOCS / DATA / name for name in ("protocol-0.4", "mended"))
OURS = ("off-signal", "off-subspace")  # plans whose runs are in the tables
TEXT = "wikitext"  # the name of the articles, in place of their path
CLAIMED, SUMMARISED, FACTS = "claims.csv", "summary.csv", "run.json"
SHOWN = Path("figures") / f"{findings.DRAWING}.png"


def main() -> None:
    """Adopt or publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    adopting = commands.add_parser("adopt", help="keep a finished run")
    adopting.add_argument("folder", type=Path, help="the run, on the articles of WikiText-2's test split")
    adopting.add_argument("--commit", required=True, help="the code")
    adopting.add_argument("--seconds", type=float, required=True, help="its processor time")
    adopting.add_argument(
        "--plan", choices=("qwen", "off-signal", "off-subspace"), help="the plan that the run belongs to (scripts/scores.py)"
    )
    adopting.add_argument("--model", help="the name in the tables of a model that was given as a file")
    commands.add_parser("publish", help="put the claims and summaries of kept runs into the tables")
    options = parser.parse_args()
    if options.command == "publish":
        publish()
        return
    line = ["git", "rev-parse", options.commit]
    commit = subprocess.run(line, cwd=DOCS, capture_output=True, text=True, check=True).stdout.strip()
    made = {"seconds": round(options.seconds), "commit": commit}
    names = {"model": options.model} if options.model else {}
    adopt(options.folder, made, names, DOCS / DATA / options.plan if options.plan else None)


def settings(folder: Path) -> dict[str, Any]:
    """The settings of a run."""
    return documents.parse((folder / CONFIG_FILE).read_text(encoding="utf-8"), CONFIG_FILE)


def adopt(out: Path, made: dict[str, object], names: Mapping[str, str] = MappingProxyType({}), kept: Path | None = None) -> None:
    """Copy a run's settings, tables and shown figure into a folder, whole or not at all. names: of settings that are files."""
    given = settings(out)
    stated = {**given, "text": TEXT, **names}
    paths = {str(given[name]): value for name, value in names.items()}  # a model's file, which the tables name
    target = (kept or MENDED) / f"{stated['experiment'].replace('/', '-')}-{stated['model']}"
    folder = target.with_suffix(".new")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / SHOWN.parent).mkdir(parents=True)
    write(folder / CONFIG_FILE, documents.dump(stated))
    write(folder / CLAIMED, renamed(out / CLAIMED, paths))
    write(folder / f"{SUMMARISED}.gz", gzip.compress(renamed(out / SUMMARISED, paths), mtime=0))
    if (out / SHOWN).exists():
        write(folder / SHOWN, (out / SHOWN).read_bytes())
    write(folder / FACTS, json.dumps(made) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def renamed(file: Path, names: Mapping[str, str]) -> bytes:
    """The bytes of a table with some texts in place of others."""
    text = file.read_text(encoding="utf-8")
    for before, after in names.items():
        text = text.replace(before, after)
    return text.encode()


def publish() -> None:
    """Replace the rows of these studies and conditions in the tables of the pages; of two runs of one, the mended one counts."""
    folders = {}
    for file in (
        file for kept in (KEPT, MENDED, *(DOCS / DATA / name for name in OURS)) for file in sorted(kept.glob(f"*/{FACTS}"))
    ):
        stated = settings(file.parent)
        folders[stated["experiment"], condition(stated)] = file.parent
    claims = findings.collect(read(DOCS / CLAIMS), [*folders.values()], DOCS)
    summary = [row for row in read(DOCS / DATA / SUMMARY) if (row["study"], condition(row)) not in folders]
    for (study, measured), folder in folders.items():
        summary += [{"study": study, **measured._asdict(), **row} for row in read(folder / f"{SUMMARISED}.gz")]
    summary.sort(key=lambda row: (row["study"], *condition(row)))
    write(DOCS / CLAIMS, findings.as_csv(claims))
    write(DOCS / DATA / SUMMARY, lzma.compress(rows_as_text(summary).encode(), preset=9))
    print(f"{len(claims)} claims; now: python scripts/findings.py")


if __name__ == "__main__":
    main()
