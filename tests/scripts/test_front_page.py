"""The head of the README is what docs/data/claims.csv says."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUMMARY = "docs/data/emergence/summary.csv"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("front_page")


def test_the_pages_say_what_the_tables_say(script, tmp_path, monkeypatch):
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md", *script.PROSE)}
    for name in (*texts, "docs/pretraining-340k.md", "docs/while-it-learns.md", "docs/in-use.md", SUMMARY):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    script.main()
    for name, text in texts.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text, name
        for section in script.PROSE.get(name, ("findings",)):
            assert f"<!-- {section} made by scripts/front_page.py -->" in text


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_page_begins_with_the_findings(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.index("findings made by scripts/front_page.py") < text.index("\n## ", text.index("## Main findings") + 5)


def test_a_row_of_the_small_model_that_is_not_there_stops_the_script(script):
    assert script.filled("{340k/k}", []).endswith("%")
    with pytest.raises(SystemExit, match="no share of the sink that nothing takes"):
        script.filled("{340k/nothing}", [])
    assert 0 < float(script.filled("{learning/never hidden/attention to token 1}", [])) < 1
    with pytest.raises(SystemExit, match="always hidden"):
        script.filled("{learning/always hidden/attention to token 1}", [])
    with pytest.raises(SystemExit, match="mini-softmax/one key"):
        script.filled("{in-use/mini-softmax/one key}", [])
    with pytest.raises(SystemExit, match="step 3"):
        script.filled("{emergence/step 3/loss (nats per token)}", [])


def test_a_number_of_emergence_has_the_digits_of_its_size_and_its_interval(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "ROOT", tmp_path)
    (tmp_path / SUMMARY).parent.mkdir(parents=True)
    (tmp_path / SUMMARY).write_text(
        "model,measure,mean,low,high,effect_mean,effect_low,effect_high\n"
        "late,heads (%),72.4,68.3,76.1,-1.25,-2,-0.5\nlate,loss,3.1,3,3.2,0.2242,0.1941,0.2543\nlate,none (%),0,0,0,0,0,0\n"
    )
    assert script.filled("{emergence/late/heads (%)}", []) == "72% [68, 76]"
    assert script.filled("{emergence/late/heads (%)/effect}", []) == "-1.2 [-2.0, -0.5]"
    assert script.filled("{emergence/late/loss/effect}", []) == "0.224 [0.194, 0.254]"
    assert script.filled("{emergence/late/none (%)}", []) == "0% [0, 0]"
    assert script.filled("{emergence/late/loss}", [], ends=False) == "3.1"


def test_each_model_has_its_word_number_and_few_samples(script):
    row = {
        "statement": "It moves.",
        "source": "Kiya et al. 2026, Fig. 4",
        "word": "weaker",
        "unit": "points",
        "d": "3.0",
        "d_low": "2.0",
        "d_high": "4.0",
        "n": "5",
    }
    given = {"model": "smollm2-135m", "bos": "none", "text": "wikitext", "s": ""}
    rows = [row | given | {"study": found.study, "claim": found.claim} for found in script.FINDINGS]
    rows[0] |= {"s": "0.3", "s_low": "0.2", "s_high": "0.4", "n": "12"}
    first, _, second, *_ = script.lines(rows, "").split("\n\n")
    assert first == "*Kiya et al. 2026: It moves.* **SmolLM2-135M-Instruct: weaker (30% [20, 40] of the whole).**"
    assert second == "*Kiya et al. 2026: It moves.* **SmolLM2-135M-Instruct: weaker (3 [2, 4] points, 5 independent samples).**"
    with pytest.raises(SystemExit, match="has no number of the claim"):
        script.lines(rows[1:], "")
