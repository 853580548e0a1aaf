"""Write the findings at the head of README.md and docs/index.md, the README's table of studies, and numbers of other pages.

    python scripts/front_page.py

A page has a part between `<!-- NAME made by scripts/front_page.py -->` and `<!-- end -->` for each template NAME of
scripts/templates/front that it shows. The numbers are named as in scripts/named.py; {finding STUDY.CLAIM} is a statement of a
paper, then in bold the word and the number of each model that tests it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from findings import MAIN
from named import TRAINED, Condition, Named, Row, in_shares, is_in, numbers, table
from sections import END, replaced
from templates import TEMPLATES, page

from sinkjax.analysis.intervals import FEWEST

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/index.md", "docs/papers.md", "docs/pretraining.md")
PAGES += tuple(f"sinkjax/papers/{paper}/README.md" for paper in ("li", "background"))
MODELS = {
    **MAIN,
    Condition("mini-softmax", "model", "wikitext"): "`mini-softmax`",
    TRAINED: "Models trained here",
}


def finding(claim: str, rows: Sequence[Row]) -> str:
    """A paper's statement, and the word and number of each model that tests it."""
    found = [row for row in rows if f"{row['study']}.{row['claim']}" == claim]
    told = [f"{model}: {_told(row)}" for given, model in MODELS.items() for row in found if is_in(row, [given]) and row["d"]]
    if not told:
        raise SystemExit(f"docs/data/claims.csv has no number of the claim {claim}")
    return f"*{found[0]['source'].partition(', ')[0]}: {found[0]['statement']}* **{'; '.join(told)}.**"


def _told(row: Row) -> str:
    count = int(row["n"])
    few = f", {count} independent samples" if count < FEWEST else ""
    return f"{row['word']} ({numbers(row)}{' of the whole' * in_shares(row)}{few})"


def section(name: str, docs: Path, path: str) -> str:
    """A template with its numbers, from the tables in `docs`; path: the path of the folder docs from the page."""
    named = Named(docs, ends=name != "studies", docs=path)  # the table of the README has no room for intervals

    def look(what: str, which: str) -> str:
        before, _, claim = what.partition("finding ")
        return named(what, which) if before else finding(claim, table(docs / "data/claims.csv"))

    return page(f"front/{name}.md", look).rstrip()


def main() -> None:
    """Rewrite the pages."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for template in sorted((TEMPLATES / "front").glob("*.md")):
            begin = f"<!-- {template.stem} made by scripts/front_page.py -->"
            if begin in text:
                made = section(template.stem, ROOT / "docs", "" if name.startswith("docs/") else "docs/")
                text = replaced(text, begin, END, made, name)
        (ROOT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
