"""Write pages of results, and the numbers of README.md, of docs/index.md, of the table of studies and of some other pages.

    python scripts/front_page.py

Pages of results are made from the template of their name. Another page has a part between
`<!-- NAME made by scripts/front_page.py -->` and `<!-- end -->` for each template NAME of scripts/templates/front that it shows.
The numbers are named as in scripts/named.py. CITATION.cff and the notebooks get the repository's address (scripts/address.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import address
from named import Named
from sections import END, replaced
from templates import TEMPLATES, page

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/dictionary.md",
    "docs/index.md",
    "docs/how-to/card.md",
    "docs/performance.md",
    "docs/papers.md",
    "docs/results/emergence.md",
    "docs/results/pretraining-setting.md",
    "docs/results/studies.md",
)
PAGES += tuple(f"sinkjax/papers/{paper}/README.md" for paper in ("li", "background"))
RESULTS = ("benchmarks", "parity", "pretraining", "pretraining-340k", "trigger", "while-it-learns")
WITHOUT_ENDS = ("caption", "findings", "papers", "studies")  # no room for intervals


def section(name: str, docs: Path, path: str) -> str:
    """A template with its numbers, from the tables in `docs`; path: the path of the folder docs from the page.

    {badge} and {install} are made from the repository's address.
    """
    where = address.address(docs.parent)
    others = {"docs": path, "badge": address.badge(where), "install": address.install(where)}
    return page(f"front/{name}.md", Named(docs, ends=name not in WITHOUT_ENDS, **others)).rstrip()


def main() -> None:
    """Rewrite the pages, and write the repository's address into the notebooks and CITATION.cff."""
    address.fill(ROOT)
    for name in RESULTS:
        (ROOT / "docs/results" / f"{name}.md").write_text(page(f"{name}.md", Named(ROOT / "docs")), encoding="utf-8")
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for template in sorted((TEMPLATES / "front").glob("*.md")):
            begin = f"<!-- {template.stem} made by scripts/front_page.py -->"
            if begin in text:
                docs = os.path.relpath("docs", Path(name).parent)
                made = section(template.stem, ROOT / "docs", "" if docs == "." else f"{docs}/")
                text = replaced(text, begin, END, made, name)
        (ROOT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
