"""What keeps the benchmark honest: times count only for equal numbers, and a page is written only where it may be."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a script, or a module beside it, as Python does when it runs one."""
    monkeypatch.syspath_prepend(SCRIPTS.parent)
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


@pytest.fixture
def measured(script):
    """A run in which sinkjax is 3 times as fast as transformers in one forward, and 4 times in the sweep."""
    program = {"trace": 0.1, "compile": 1.0, "arguments": 4_000_000, "results": 10_000, "temporaries": 1_000_000}
    reply = {"planned": {"parameters": 4_000_000, "one call": 900_000}, "programs": {"forward": program}}
    return script("bench_peers.report").Measured(
        model="tiny (quantised to Q4_1)",
        prompts=16,
        length=64,
        edits=30,
        text="prose",
        date="2026-01-01",
        cpu="a processor",
        cores=2,
        load=0.0,
        versions={"sinkjax": {"jax": "1"}, "transformers": {"torch": "2"}},
        seconds={
            "forward": {"sinkjax": [1.0, 2.0, 1.0], "transformers": [3.0, 6.0, 9.0]},
            "sweep": {"sinkjax": [10.0], "transformers": [40.0]},
        },
        matmul={"XLA": [100.0], "torch": [90.0]},
        block_flops=5e9,
        passes={"forward": {"sinkjax": 30, "transformers": 30}, "sweep": {"sinkjax": 500, "transformers": 900}},
        differences={"transformers": {"resid_max": 1e-5}},
        first_calls={"empty": {"forward": 5.0, "sweep": 20.0}, "filled": {"forward": 2.0, "sweep": 12.0}},
        compiled={4: reply, 30: reply},
        model_layers=30,
    )


def rows(markdown: str) -> list[list[str]]:
    """The cells of a table, below its header."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_a_ratio_is_taken_within_a_round(script, measured) -> None:
    assert script("bench_peers.report").ratios(measured, "forward", "transformers") == [3.0, 3.0, 9.0]


@pytest.mark.parametrize(("seconds", "verdict"), [(34.9, "missed"), (35.0, "met")])
def test_a_goal_is_reached_from_its_value_on(script, measured, seconds: float, verdict: str) -> None:
    report = script("bench_peers.report")
    changed = dataclasses.replace(measured, seconds=measured.seconds | {"sweep": {"sinkjax": [10.0], "transformers": [seconds]}})
    table = rows(report.verdicts(changed))
    assert [row[0] for row in table] == ["one forward, transformers", "the sweep, transformers"]  # no goal for who did not run
    assert table[1][3] == verdict
    assert float(table[1][4]) == pytest.approx(seconds / (500 * 5e9 / 100e9), abs=0.01)  # the products alone take 25 s


def test_the_rate_counts_the_blocks_that_are_computed(script, measured) -> None:
    ours, theirs = rows(script("bench_peers.report").rates(measured))
    assert ours == ["sinkjax", "30", "150", "500", "250"]
    assert theirs == ["transformers", "30", "25", "900", "112"]


def test_every_table_of_the_section_is_whole(script, measured) -> None:
    section = script("bench_peers.report").section(measured)
    assert re.search(r"tiny \(.*Q4_1\) .*float32, 16 prompts", section)
    for block in section.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_a_section_replaces_itself_and_leaves_the_others(script, tmp_path: Path) -> None:
    write = script("sections").write_section
    page = tmp_path / "docs" / "page.md"
    write(page, "one", "first", "# Title")
    write(page, "two", "second", "# Title")
    text = page.read_text()
    write(page, "one", "changed", "# Another title")
    assert page.read_text() == text.replace("first", "changed")
    assert text.startswith("# Title\n\n<!-- begin one -->\nfirst\n<!-- end one -->\n\n<!-- begin two -->")


@pytest.mark.parametrize("damage", ["<!-- begin one -->", "<!-- end one -->", "<!-- end one -->\n<!-- begin one -->"])
def test_a_page_with_damaged_markers_is_left_as_it_is(script, tmp_path: Path, damage: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n{damage}\nwords of a person")
    with pytest.raises(ValueError, match="once each"):
        script("sections").write_section(page, "one", "numbers", "# Title")
    assert page.read_text() == f"# Title\n{damage}\nwords of a person"


@pytest.mark.parametrize(("statistic", "value"), [("resid_max", 2.003), ("resid_max", np.nan), ("resid_argmax", 6)])
def test_no_time_counts_for_other_numbers(script, statistic: str, value: float) -> None:
    compare = script("bench_sweep").compare
    reference = {"resid_max": np.full((3, 3), 2.0, np.float32), "resid_argmax": np.full((3, 3), 5)}
    near = reference | {"resid_max": reference["resid_max"] * 1.0005}
    assert compare("a side", near, reference)["resid_max"] == pytest.approx(5e-4, rel=1e-2)
    changed = reference[statistic].copy()
    changed[1, 1] = value
    with pytest.raises(SystemExit, match=statistic):
        compare("a side", reference | {statistic: changed}, reference)
    with pytest.raises(SystemExit, match="statistics"):
        compare("a side", {"resid_max": reference["resid_max"]}, reference)


@pytest.mark.parametrize(
    ("value", "off", "agrees"),
    [
        (1e-4, 1.1e-7, True),  # 1.1e-3 of a weight of 1e-4, beside one of 1: float32 rounding, as seen on another machine
        (1e-4, 1.2e-6, False),
        (0.0, 9e-7, True),
        (0.0, 1e-6, False),
        (0.5, 5.0e-4, True),
        (0.5, 5.1e-4, False),
    ],
)
def test_numbers_agree_up_to_a_relative_and_an_absolute_part(script, value: float, off: float, agrees: bool) -> None:
    bench = script("bench_sweep")
    reference = np.array([1.0, value])
    for scale in (1.0, 1e4):  # the absolute part goes with the largest value
        for sign in (-1, 1):
            array = scale * (reference + np.array([0, sign * off]))
            assert bool((bench.differences(array, scale * reference) <= bench.TOLERANCE).all()) is agrees
            assert np.allclose(array, scale * reference, bench.TOLERANCE, bench.ROUNDING * scale) is agrees
    assert not bench.differences(np.zeros(2), np.zeros(2)).any()


@pytest.mark.parametrize(("entries", "off", "agrees"), [(1, 9e-3, True), (1, 2e-2, False), (3, 9e-3, False), (1, np.nan, 0)])
def test_few_entries_may_amplify_rounding(script, entries: int, off: float, agrees: bool) -> None:
    bench, reference = script("bench_sweep"), {"resid_max": np.ones(200_000)}
    record = {"resid_max": np.r_[np.full(entries, 1 + off), np.ones(200_000 - entries)]}
    if agrees:
        assert bench.compare("a side", record, reference)["resid_max"] == pytest.approx(off, rel=1e-2)
    else:
        with pytest.raises(SystemExit, match="differs"):
            bench.compare("a side", record, reference)


def test_no_time_counts_for_an_edit_that_did_nothing(script) -> None:
    check = script("bench_sweep").check_edits
    received = np.full((2, 1, 3, 2, 4), 0.9)  # edit, prompt, layer, head, key
    received[0, :, 0, :, 0] = received[1, :, 2, :, 0] = 1 / 4
    check("a side", {"attention_received": received}, [0, 2])
    with pytest.raises(SystemExit, match="layer 1"):
        check("a side", {"attention_received": received}, [0, 1])


def test_what_a_library_prints_does_not_disturb_the_replies() -> None:
    code = (
        "from bench_peers.worker import serve\n"
        "def double(x):\n"
        "    print('a banner'); return {'twice': 2 * x, 'array': [x]}\n"
        "serve({'double': double})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPTS, input='{"job": "double", "x": 3}\n', capture_output=True, text=True, check=True
    )
    ready, reply = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    assert reply.pop("seconds") < 60
    assert reply == {"twice": 6}
    assert "a banner" in done.stderr


def test_a_side_that_dies_ends_the_run_with_its_last_words(script, tmp_path: Path) -> None:
    worker = script("bench_peers.worker").Worker
    with pytest.raises(SystemExit, match=r"No module named bench_peers\.nobody"):
        worker("nobody", tmp_path)
