"""li/variance: the first token's head outputs vary most, because they are not an average (Li et al. 2026, variance discrepancy).

On random tokens. With even attention, every score of the first block set to 0, position i averages i + 1 values.
"""

from sinkjax.papers.li._variance import decay, first_outputs, first_varies_most, output_structure, variance_by_position, variances
from sinkjax.studies.vocabulary import *

SOURCE = "Li et al. 2026, variance discrepancy"

STUDY = Study(
    name="li/variance",
    needs=("softmax", "causal mask", "concatenated heads"),
    settings={
        "prompts": 256,
        "permutations": setting(200, "random pairings of the dims with the rows of W_O, the controls of the rank correlation"),
    },
    computations={"variance": first_outputs()},
    claims={
        "first": Claim(first_varies_most("variance"), SOURCE),
        "decays": Claim(decay("variance"), SOURCE, beside=(decay("variance", 1),)),
        "after": Claim(first_varies_most("variance", "after"), SOURCE),
        "structure": Claim(output_structure("variance"), SOURCE),
        "numbers": Claim(variances("variance"), SOURCE),
    },
    figures=(variance_by_position("variance"),),
)
