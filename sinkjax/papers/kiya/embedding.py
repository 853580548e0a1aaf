"""kiya/embedding: does BOS attract queries by the direction of its first key, before any context or position (section 3)?

k = RMSNorm(e) W_K of BOS against q_avg = RMSNorm(e_avg) W_Q of the mean of the others, ranked among the keys of all other tokens.
"""

from sinkjax.papers.kiya._first_keys import first_keys, key_cosine_by_head, key_cosines, key_norms, vocabulary
from sinkjax.studies.vocabulary import *

STUDY = Study(
    name="kiya/embedding",
    needs=("norm", "norm before attention", "embedding without positions", "plain embedding"),
    settings={"prompts": 1, "special": setting(False, "whether special tokens other than the BOS enter the mean embedding")},
    computations={"keys": first_keys(F.special)},
    claims={
        "direction": Claim(key_cosines("keys"), "Kiya et al. 2026, section 3"),
        "size": Claim(key_norms("keys"), "Kiya et al. 2026, section 3"),
    },
    figures=(vocabulary("keys"), key_cosine_by_head("keys")),
)
