"""The main sweep as a batch script: what becomes of the sink on the first token if no query may attend to that token?

    python scripts/batch_sweep.py --model smollm2-135m --prompts 32 --length 64 --out results/mask.zarr

The logits towards key 0 are masked in no layer, in each layer, in layers 0 to l, and in all layers (Kiya et al. 2026). One
program is compiled for all of these edits. Killed and started again, the same command goes on where it was.
"""

from __future__ import annotations

import argparse

import jax

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.data.corpora import passages


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="preset, Hugging Face folder or hub id, or .gguf file")
    parser.add_argument("--text", default="auto", help="auto, wikitext, packaged, or a file or folder with one paragraph a line")
    parser.add_argument("--prompts", type=int, default=32, help="passages of text")
    parser.add_argument("--length", type=int, default=64, help="tokens of each passage")
    parser.add_argument("--out", default="results/mask.zarr", help="the store to write, or to go on with")
    return parser.parse_args()


def masks(layers: int) -> list[sinkjax.Edit]:
    """No edit first; then key 0 masked in one layer, in the first layers, and in all of them."""
    single = [sinkjax.mask_key(0, layers=layer).named(f"layer {layer}") for layer in range(layers)]
    first = [sinkjax.mask_key(0, layers=slice(0, end)).named(f"layers 0 to {end - 1}") for end in range(2, layers)]
    return [sinkjax.compose(label="no edit"), *single, *first, sinkjax.mask_key(0).named("all layers")]


def main() -> None:
    args = arguments()
    print(f"{jax.device_count()} x {jax.devices()[0].device_kind}")
    model = sinkjax.load(args.model)
    text = passages(args.text, args.prompts, length=8 * args.length)  # characters: enough for that many tokens
    tokens, lengths = sinkjax.encode(model, text.texts, bos="none", length=args.length)

    result = sinkjax.sweep(
        model,
        tokens,
        masks(model.config.layers),
        probe=sinkjax.Probe(attention_received=True, resid_max=True),
        lengths=lengths,
        out=args.out,
        attributes={"text": {"source": text.source, "sha256": text.sha256, "bos": "none"}},
    )

    print(
        f"{text.source}\nheads that sink on key 0 and on key 1, and the change from no edit: mean and 95 % interval over passages"
    )
    rates = [metrics.sink_rate(result, key) for key in (0, 1)]
    columns = [table for rate in rates for table in (intervals.intervals(rate), intervals.paired_differences(rate, rate[0]))]
    table = [("", "key 0", "change", "key 1", "change")]
    table += [(label, *map(str, row)) for label, *row in zip(result.edit.values, *columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    try:
        main()
    except sinkjax.SinkjaxError as error:
        raise SystemExit(f"error: {error}") from None
