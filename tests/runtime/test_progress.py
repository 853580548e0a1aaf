"""A log without a terminal says how much is done and how long the rest takes."""

import itertools

from sinkjax.runtime import progress


def test_a_line_of_a_log_says_the_time_left(monkeypatch, capsys):
    clock = itertools.count(0, 100)  # seconds, later at every look
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.bar("sweep", show=True, total=6, done=2) as advance:  # at 0 s; two were in the store
        advance(2, "")
        advance(4, "1 prompts/s")  # 2 calls in 500 s
        advance(6, "1 prompts/s")
    assert capsys.readouterr().err.splitlines() == [
        "sweep: 2 of 6, ",
        "sweep: 4 of 6, 1 prompts/s, 8 min left",
        "sweep: 6 of 6, 1 prompts/s",
    ]
