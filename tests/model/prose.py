"""Plain English for tests on a real model, written for them: each passage has more than 64 tokens."""

from pathlib import Path

PASSAGES = tuple(Path(__file__).with_name("prose.txt").read_text(encoding="utf-8").rstrip("\n").split("\n---\n"))
