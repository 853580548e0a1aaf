"""background/mechanism: the parts of GPT-2's sink circuit (Ran-Milo, Ofek and Mendel 2026, arXiv 2604.14722, Table 1).

The study removes query biases, position vectors and MLPs one at a time, and repeats the paper's own controls. Matched controls
of the three columns of W_K are three random other columns.
"""

from sinkjax.papers.background._mechanism import WAYS, effective_vectors, intervention, second_half_attention_to, without_columns
from sinkjax.studies.vocabulary import *

SEEN, SIZE = second_half_attention_to(0), largest_activation(0)
TABLE = "Ran-Milo et al. 2026, Table 1"


def removed(way: str, stays: bool = False) -> Claim:
    """Claim that an intervention takes attention from the first token, or that this attention stays."""
    return Claim(effect(SEEN, at("edited", fixed={"way": way})), TABLE, sign=1 if stays else -1, stays=stays)


STUDY = Study(
    name="background/mechanism",
    needs=("position vectors", "query biases", "MLP"),
    settings={"prompts": 16},
    known={"vectors": effective_vectors()},
    grids={
        "edited": grid(intervention(F.way), over={"way": WAYS}, title="intervention"),
        "columns": grid(without_columns(), title="three columns of W_K"),
        "identity": grid(edit("position_vector", "scale", 1.0)),
    },
    controls={"columns": draws(without_columns(random=True))},
    measures=(SEEN, SIZE),
    claims={
        "bias": removed("no query bias"),
        "vector": removed("first position vector replaced"),
        "effective": removed("effective vectors exchanged"),
        "positions": removed("position vectors exchanged", stays=True),
        "token": removed("no first token", stays=True),
        "mlp": removed("no MLP"),
        "none": removed("no position vectors"),
        "columns": Claim(effect(SEEN, at("columns")), TABLE, sign=-1),
    },
    figures=(dots((SEEN, SIZE), over="edited"), dots(SEEN, over="columns")),
)
