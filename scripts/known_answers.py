"""Train the models of configs/queue/known-answers.yaml one after the other, and compare their cards with their known answers.

    python scripts/known_answers.py run --text FOLDER_OF_BOOKS    # what is not kept yet; goes on where it ended
    python scripts/known_answers.py list                          # every row, and whether it is kept
    python scripts/cards.py page                                  # the page of all cards

A finished row is a file of docs/results/data/cards-trained (settings, last evaluation, truth, card) and one or two rows of
docs/results/data/cards.csv. Weights are not kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cards
from queue_runs import Run, Trained, shortened, to_its_end

import sinkjax
from sinkjax.checkpoints.load import untrained_like
from sinkjax.checkpoints.model import Model
from sinkjax.config_files import documents

PLAN, KEPT = cards.TRAININGS, cards.TRAINED


def main() -> None:
    """Train or list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="train and measure what is not kept yet")
    runs.add_argument("--text", required=True, help="folder of the text")
    commands.add_parser("list", help="the rows")
    every = plan()["rows"]
    runs.add_argument("--rows", nargs="+", choices=every, default=list(every), help="these rows only")
    options = parser.parse_args()
    for name in getattr(options, "rows", every):
        row = every[name]
        there = kept(name).exists()
        if options.command == "list":
            print(f"{name}: {'kept' if there else 'not run'}")
        elif not there:
            print(measure(name, row, to_its_end(Run(f"known/{name}", plan()["seed"], row["changes"]), options.text)), flush=True)


def plan() -> dict[str, Any]:
    """The rows with their known answers, and the rule."""
    return documents.parse(PLAN.read_text(encoding="utf-8"), PLAN.name)


def kept(name: str) -> Path:
    """The file of a row."""
    return KEPT / f"{name}.json"


def decided(stated: Mapping[str, Any], rates: Mapping[str, Any], rule: Mapping[str, float]) -> dict[str, Any]:
    """The truth of a trained model, by the rule of the plan; {} if it is undecided.

    stated: the row's truth. rates: "sink", a number for each of the first keys, and "sink_bias", of no key.
    """
    sinks, bias = list(rates["sink"]), rates["sink_bias"]
    if max(*sinks, bias) <= rule["none"]:
        return {"kind": cards.NOTHING}
    if stated["kind"] == cards.NOTHING:
        return {}
    there = bias if stated["kind"] == cards.NO_KEY else sinks.pop(stated["position"])
    return dict(stated) if there >= rule["sink"] and there > max(sinks) else {}


def rates(end: Mapping[str, Any], rows_sum_to_1: bool) -> dict[str, Any]:
    """The sink rates of a log's entry; by shares where rows need not sum to 1, as in a card."""
    by = "" if rows_sum_to_1 else "_share"
    return {"sink": end[f"sink{by}"], "sink_bias": end[f"sink_bias{by}"]}


def prompts(model: Model, fields: Mapping[str, Any]) -> Any:
    """The text of a row's card."""
    places = fields.get("fixed_positions")
    return cards.ids(model, places[0], (fields["fixed_token"],)) if places else "packaged"


def measure(name: str, row: Mapping[str, Any], done: Trained) -> str:
    """Make the card of a trained model, and of its untrained twin if the plan asks for it, keep both and remove the weights."""
    model = sinkjax.load(str(done.model))
    found = rates(done.end, model.config.normaliser.rows_sum_to_1)
    truth = decided(row["truth"], found, plan()["rule"])
    text, held_out, begun = prompts(model, row["changes"]), bool(row.get("held_out")), time.process_time()
    size = {"prompts": cards.PROMPTS, "length": cards.LENGTH}
    card = sinkjax.card(model, text, **size)
    entry = {
        **done.about(),
        "seconds": [round(done.seconds), round(time.process_time() - begun)],
        "end": shortened({"loss": done.end["loss"], **found}),
        "truth": truth,
        "answer": cards.answer(card),
        "lines": card.lines(),
        "card": shortened(dataclasses.asdict(dataclasses.replace(card, prefix=None, model={}))),
    }
    said = cards.keep(f"trained {name}", card, truth, row["why"], held_out)
    if row.get("twin"):
        twin = sinkjax.card(untrained_like(model), text, **size)
        cards.keep(f"untrained {name}", twin, cards.NONE, "random weights", held_out)
    KEPT.mkdir(exist_ok=True)
    kept(name).write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")
    done.clear()
    return f"{said}; {entry['seconds']} s; {entry['end']}"


if __name__ == "__main__":
    main()
