"""gu/positions: does the first position make the sink of one token repeated (Table 7)?

Learned position vectors are replaced or exchanged as in the paper, rotary indices in the same way. Controls give another, random
token the same position.
"""

from sinkjax.papers.gu._positions import alike, position_vectors, swap_positions, take_position
from sinkjax.studies.vocabulary import *

SOURCE = "Gu et al. 2025, Table 7"
SINK, SINK_T = sink_rate(0), sink_rate(F.position)
TEXT = {"over": {"position": F.text_places}}
TAKEN, SWAPPED = take_position(0, F.position, F.vectors), swap_positions(0, F.position, F.vectors)
LEARNED = all_of((positions_are(("added",)), without_bos("swapped")))
REPEAT = {"over": {"position": F.places}, "inputs": "repeat", "prompts": F.repeat_prompts}
OTHER_TOKEN = random_position(but=(0, F.position), least=1)

STUDY = Study(
    name="gu/positions",
    needs=("scores without positions",),
    settings={
        "prompts": 64,
        "places": setting(
            (1, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 29, 32, 36, 40), "positions that the repeated first token gets"
        ),
        "text_places": setting((4, 9, 14, 19, 24, 29), "positions that the first token of natural text gets"),
        "repeat_prompts": setting(16, "prompts of one token repeated"),
    },
    known={"vectors": position_vectors()},
    grids={
        "taken": grid(TAKEN, **REPEAT, title="one token repeated, 0 becomes"),
        "swapped": grid(SWAPPED, **REPEAT, title="one token repeated, 0 swapped with"),
        "text-taken": grid(TAKEN, **TEXT, title="natural text, 0 becomes"),
        "text-swapped": grid(SWAPPED, **TEXT, title="natural text, 0 swapped with"),
        "identity": grid(swap_positions(0, 0, F.vectors)),
    },
    controls={
        "taken": draws(take_position(OTHER_TOKEN, F.position, F.vectors)),
        "swapped": draws(swap_positions(OTHER_TOKEN, F.position, F.vectors)),
    },
    measures=(SINK, SINK_T, strongest_other_sink(0), largest_activation(0)),
    claims={
        "replaced": Claim(effect(SINK, at("taken")), SOURCE, sign=-1, given=LEARNED),
        "leaves": Claim(effect(SINK, at("swapped")), SOURCE, sign=-1, given=LEARNED),
        "moves": Claim(moved(SINK, SINK_T, at("swapped")), SOURCE, given=LEARNED),
        "alike": Claim(alike("swapped", 1e-4), "Gu et al. 2025, Propositions 1 to 4"),
    },
    figures=tuple(
        lines(((SINK, SINK_T),), over=name, x="position") for name in ("swapped", "taken", "text-swapped", "text-taken")
    ),
)
