"""Plain English for tests on a real model, written for them: each passage has more than 64 tokens."""

PASSAGES = (
    "The harbour lay quiet in the early morning. A single boat, its paint long faded by salt and sun, rocked against the wooden "
    "pier while gulls argued over something on the stones. Nobody in the village could remember who owned it. The baker said it "
    "had belonged to a fisherman who left one autumn for the north and never wrote; the teacher was sure that it had simply "
    "drifted in after a storm and that nobody had ever come to ask for it.",
    "To measure the height of a tower without climbing it, walk away until the top appears at half a right angle above the "
    "horizon. The distance from you to the foot is then the height, apart from the height of your eyes. The method needs flat "
    "ground and a steady hand, and it fails in fog. Surveyors in antiquity knew it well, and they also knew how to correct it on "
    "a slope, by measuring twice from two places.",
    "When the committee met in March, it had three questions before it: how much water the reservoir would hold by summer, who "
    'would pay for the new pipes, and whether the mill should be allowed to keep its old right to the stream.\n\n"We have talked '
    'about this for eleven years," said the chairman. "I would like to live to see the end of it." There was some laughter, and '
    "then the engineer unrolled her drawings.",
    "Bread dough is alive. Yeast feeds on the sugars that the flour gives up, and the gas that it breathes out is caught in a "
    "net of gluten, so the loaf rises. In a cold kitchen this takes a whole night; in a warm one it takes an hour. Salt slows "
    "it down, sugar wakes it up, and too much of either will kill it. Bakers therefore weigh everything, and they never trust "
    "a clock more than their own fingers.",
)
