"""Six habits that make English read as translated, counted in the package and its pages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint
ROOT = Path(__file__).parents[2]
BOUND = 400
# Rules 1 to 5 and 8 of the project's style guide. A hit is a candidate: a real question is good English.
RULES = {
    "1: name the thing, no headless what-clause": (
        r"\b[Ww]hat (?:is|are|was|were|has|have|a|an|the|it|they|this|these|each|every|no|all|one|its|their|must|may|can|does|do"
        r"|did|others?|another|\w+s (?:is|are))\b"
    ),
    "2: repeat the noun, no 'that of'": r"\bthose (?:of|in|on|with|at|from|that|which|who)\b|\bthat of\b",
    "3: give a fragment its head noun": (
        r'^\s+[\w*, ]+: (?:Of|As|That|Those|In|With|For|By)\b|"""(?:[Oo]f|That of|Those of) |# of '
        r"|[.;] [a-z_, ]+: (?:of|its|that of|those of|as for|what)\b"
    ),
    "4: negate the verb, not the noun": (
        r"(?<![Tt]here )\b(?:is|are|was|were|be) (?:none\b|no (?!longer\b|more\b|less\b|fewer\b|one\b))"
    ),
    "5: subject first, condition after it": (
        r'(?:^\s*(?:- |\| )?|[.;] |""")(?:Of|Where|Without|With|Behind|Beside|Beyond) (?!the field)[^.;:|?]{2,70}, '
    ),
    "8: no preposition before which": (
        r"\b(?:of|by|in|at|from|on|to|for|with|without|behind|after|before|beyond|among|under|as) which\b"
    ),
}


def texts() -> list[Path]:
    folders = [path for name in ("sinkjax", "docs") for end in ("*.py", "*.md") for path in (ROOT / name).rglob(end)]
    return [path for path in folders if not {"_build", "generated"} & {*path.parts}] + [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]


def hits(text: str) -> list[tuple[int, str]]:
    """The line, counted from 1, and the rule of each hit."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, rule) for number, line in lines for rule, pattern in RULES.items() for _ in re.finditer(pattern, line)]


def test_each_rule_finds_an_example_of_its_own():
    examples = [
        "What a run found.",
        "its interval is that of its values",
        "    level: Of the bootstrap.",
        "an underscore is none",
        "Without locks, nothing is locked",
        "the columns of which are sorted",
    ]
    assert [[rule for _, rule in hits(example)] for example in examples] == [[rule] for rule in RULES]
    assert not hits("The results of a run, whose intervals come from the bootstrap, are not averages.")


def test_sentences_that_read_as_translated_stay_few():
    found = {path.relative_to(ROOT).as_posix(): hits(path.read_text(encoding="utf-8")) for path in texts()}
    files = Counter({name: len(each) for name, each in found.items()})
    rules = Counter(rule for each in found.values() for _, rule in each)
    print(f"{files.total()} hits:", dict(rules.most_common()))  # pytest shows it when the test fails, and with -s
    for name, count in files.most_common(15):
        print(f"{count:4} {name}: lines {', '.join(str(line) for line, _ in found[name][:12])}")
    assert files.total() <= BOUND
