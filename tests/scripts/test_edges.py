"""The script of edges: its page has the numbers of its file, and its estimates are kept beside exact effects."""

from __future__ import annotations

import json

SCRIPT = "edges.py"


def test_the_page_is_that_of_the_file(script) -> None:
    assert script["tables"]() in script["PAGE"].read_text(encoding="utf-8")


def test_circuits_reach_from_no_edge_to_the_model(script) -> None:
    for name, found in json.loads(script["DATA"].read_text(encoding="utf-8")).items():
        assert found["faithfulness"]["0"] == 0, name
        assert [*found["kept"]] == [*found["faithfulness"]]
        assert max(map(int, found["kept"])) < found["edges"]
        assert len(found["checked"]) == script["CHECKED"]
