"""Draw the small figures of the gallery: docs/images/gallery/*.png and docs/gallery.json.

    sinkjax run kiya/all --out results/kiya
    python scripts/gallery.py results

Every run of a study below the folders that are given is taken, and its first figure drawn small. Figures of other studies stay;
of several runs of one study, the last counts. The page itself is made when the site is built (docs/generate.py), where a study
without a figure has a card without one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from sinkjax.config_files.files import CONFIG_FILE, write
from sinkjax.errors import SinkjaxError
from sinkjax.study import results
from sinkjax.study.registry import choose

DOCS = Path(__file__).resolve().parents[1] / "docs"
DPI = 72  # of figures 9 inches wide


def main() -> None:
    """Draw the figures of the runs that are given, and list them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders with runs of studies, at any depth")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    listed = options.docs / "gallery.json"
    cards = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else {}
    for folder in sorted(path.parent for given in options.folders for path in given.rglob(CONFIG_FILE)):
        cards |= dict(card(folder, options.docs))
    write(listed, json.dumps(dict(sorted(cards.items())), indent=1, ensure_ascii=False) + "\n")
    print(f"{len(cards)} studies have a figure: {listed}")


def card(folder: Path, docs: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The study of a run and its card, if there is a figure; the figure is written into the documentation."""
    try:
        chosen = choose(str(folder))
        if chosen.suite:  # its studies have folders of their own
            return
        section = results.section_of(chosen, folder)
    except SinkjaxError as error:
        print(f"{folder}: {error}")
        return
    if not section.drawings:
        return
    drawing, image = section.drawings[0], f"images/gallery/{section.study.replace('/', '-')}.png"
    (docs / image).parent.mkdir(parents=True, exist_ok=True)
    drawing.figure.savefig(docs / image, dpi=DPI, metadata={"Software": None})
    told = [getattr(chosen.config, "model", "models trained from scratch")]
    if "prompts" in section.provenance:
        told.append(f"prompts: {section.provenance['prompts']}")
    yield section.study, {"image": image, "on": "; ".join(told), "caption": f"{drawing.caption} {drawing.source}".strip()}


if __name__ == "__main__":
    main()
