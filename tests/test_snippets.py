"""The Python snippets of README and docs run as they stand, in order, and show what the page says they show."""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BUILT = {"_build", "generated"}  # by make docs
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if not BUILT & {*page.parts} and SNIPPET.search(page.read_text("utf-8"))
]

pytestmark = pytest.mark.notebook


@functools.cache
def execute(page: Path) -> dict[str, Any]:
    """The names that the snippets of a page leave behind."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "`.*` is deprecated and will be removed in version", FutureWarning)  # of transformers
        for snippet in SNIPPET.findall(page.read_text(encoding="utf-8")):
            exec(compile(snippet, str(page), "exec"), names)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    execute(page)


def test_every_stage_of_the_walk_agrees_with_the_reference():
    names = execute(ROOT / "docs" / "numbers-differ.md")
    assert set(names["ours"]) == set(names["theirs"])
    assert max(names["differences"].values()) < 1e-5


def test_the_first_snippet_moves_a_sink_as_the_page_says(capsys):
    execute.__wrapped__(ROOT / "README.md")
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["[0.75] [0.]", "[0.] [0.75]"]
    assert all(f"`{line}`" in (ROOT / "README.md").read_text(encoding="utf-8") for line in printed)
