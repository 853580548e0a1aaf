"""The scan of SmolLM2: any token makes the sink's state when it sees only itself."""

from __future__ import annotations

import numpy as np

import sinkjax


def peak(found):
    """The ratio of each token's largest activation to the first token's, in the layer where the latter is largest."""
    layer = int(found["first_largest"].values.argmax())
    return found["largest"].values[:, layer] / float(found["first_largest"][layer]), found["cosine"].values[:, layer]


def test_in_smollm2_almost_any_token_is_like_the_first(smollm2):
    exception = smollm2.tokenizer.encode('(["')
    tokens = [*exception, *np.random.default_rng(0).choice(smollm2.config.vocab_size, 120, replace=False)]
    found = sinkjax.scan(smollm2, tokens)
    ratio, cosine = peak(found)
    assert len(exception) == 1
    assert ratio[0] < 0.01
    assert (ratio[1:] > 0.5).all()
    assert np.median(cosine[1:]) > 0.999
    middle = (found["first_score"] + found["other_score"]) / 2
    assert float((found["score"][1:] > middle).mean()) > 0.99
