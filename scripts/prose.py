"""Passages of pages whose numbers scripts/front_page.py fills in: page -> section -> paragraphs and tables."""

from __future__ import annotations

RUNS = "[protocol](../../../docs/protocol.md): 15 articles of WikiText-2, 64 tokens each, no BOS; 95% intervals over articles"
SINKS, SECOND = "[heads that sink on key 0 (%)]", "[heads that sink on key 1 (%)]"
GIVEN, SIZE = "[attention that key 10 receives from later queries (%)]", "[largest |h| at position 10]"
FIRST = "[largest |h| at position 0]"
RATIO = "[ratio of the first token's L2 norm to the others', {}]"
LOSS, STATES = "[loss (nats per token)]", "[change of the final states (%)]"
half = "{{emergence/{}/step from which half of the change is made}}".format
LOGS = ", in logarithms"
DROPPED = ", MLP of block 0 dropped at token 0"


def later(name: str, scale: str = "") -> str:
    """How much later an event is than the one before."""
    return f"{{emergence/{name}/steps after the line above{scale}}}"


def last(edit: str, measure: str) -> str:
    """A number of the last model under an edit."""
    return f"{{emergence/step 7000{edit}/{measure}}}"


WINDOWS = {"early": "0 to 3", "middle": "4 to 11", "until it forms": "0 to 11", "after it forms": "12 to 29", "all": "all"}
ISOLATED = {  # kind of isolation -> what the token sees, the windows that the table shows
    "self": ("only itself", (*WINDOWS,)),
    "one other key": ("only key 5", ("early", "middle", "all")),
    "even": ("all keys evenly", ("early", "middle", "all")),
    "all but the first": ("all but the first key", ("all",)),
}
SENDERS = {
    "attention 0, donor mean": "attention 0",
    "MLP 0, donor mean": "MLP 0",
    "attention 1, donor mean": "attention 1",
    "MLP 1, donor mean": "MLP 1",
    "both blocks, donor mean": "all four",
    "both blocks, donor other": "all four, by another position's outputs",
    "late attention, donor mean": "attention 11",
    "late MLP, donor mean": "MLP 11",
}
PACKAGED = {
    "heads that sink on BOS (%)": f"gu/sink-rate[natural text: no edit]{SINKS}",
    "the same with random tokens after BOS (%)": f"gu/sink-rate[random tokens: no edit]{SINKS}",
    "heads that sink on the token after BOS, with BOS hidden (%)": f"kiya/mask[all layers]{SECOND}",
    "heads that sink on BOS after it has traded places with token 4 (%)": (
        "kiya/bos-swap[with BOS: position 4][heads that sink on the position (%)]"
    ),
    "norm of BOS's hidden state over the others'": f"gu/norms[no edit]{RATIO.format('hidden states')}",
    "norm of its keys over the others'": f"gu/norms[no edit]{RATIO.format('keys')}",
    "norm of its values over the others'": f"gu/norms[no edit]{RATIO.format('values')}",
}


def _packaged() -> str:
    models = ("mini-softmax", "mini-head-norm")
    rows = [[name, *(f"{{{where}@{model}}}" for model in models)] for name, where in PACKAGED.items()]
    return _table(["", *models], rows)


def _isolated() -> str:
    rows = [
        [seen, WINDOWS[window]]
        + [
            _in("li/mediation", f"{grid}: kind {kind}, window {window}", *measured)
            for measured in ((GIVEN, ":change"), (SIZE, ""))
            for grid in ("isolated", "super neurons as unedited")
        ]
        for kind, (seen, windows) in ISOLATED.items()
        for window in windows
    ]
    return _table(
        ["the token sees", "in layers", "gains", "gains, neurons as unedited", r"\|h\|", r"\|h\|, neurons as unedited"], rows
    )


def _replaced() -> str:
    replaced = {name: f"for all readers: sender {sender}" for sender, name in SENDERS.items()}
    rows = [
        [name, _in("background/circuit", edit, SINKS, ":change"), _in("background/circuit", edit, FIRST)]
        for name, edit in replaced.items()
    ]
    return _table(["output replaced at the first token", "heads that sink on it, change in points", r"largest \|h\|"], rows)


def _in(study: str, edit: str, measure: str, which: str = "") -> str:
    return f"{{{study}[{edit}]{measure}@smollm{which}}}"


def _gain(edit: str) -> str:
    return _in("li/mediation", edit, GIVEN, ":change")


def _cost(kind: str, way: str) -> str:
    return _in("background/kinds", f"kind {kind}, way {way}", LOSS, ":change")


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


PROSE = {
    "docs/papers.md": {
        "mask": f"""*SmolLM2-135M-Instruct, from a 4-bit file (Q4_1), `kiya/mask`: the first key is hidden in one layer (left)
or in layers 0 to l (right). With it hidden in all layers, {{kiya/mask[all layers]{SECOND}@smollm}}% of heads sink on the second
token, where {{kiya/mask[no edit]{SINKS}@smollm}}% did on the first (top), and the second has a massive activation (bottom). If
it is hidden in layers 0 to 2 only, {{kiya/mask[layers 0 to 2]{SECOND}@smollm}}% of heads sink on the second token and
{{kiya/mask[layers 0 to 2]{SINKS}@smollm}}% still on the first.*""",
        "isolate": f"""*The same model, `li/isolate`, on documents of the packaged text: token 10 sees only itself in one layer
(left) or in layers 0 to l (right). In one layer this changes little. In all layers, on WikiText-2,
{{li/isolate[all layers][heads that sink on key 10 (%)]@smollm}}% of heads sink on it,
{{li/isolate[all layers]{SINKS}@smollm}}% instead of {{li/isolate[no edit]{SINKS}@smollm}}% on token 0, and its massive activation
({{li/isolate[all layers]{SIZE}@smollm}}) is as large as token 0's ({{li/isolate[all layers]{FIRST}@smollm}}). If it sees only
token 5 instead, {{li/isolate[only one other key: seen 5 in all layers][heads that sink on key 10 (%)]@smollm}}% sink on
it.*""",
        "open": """In SmolLM2 such a token gets {kiya/self.sink@smollm=weaker} of the first token's attention, mean over 8
positions; whether one that sees one other token instead gets less is undecided (by {kiya/self.other@smollm=undecided}). In
Gemma 3 270M, read behind `<bos>`, it gets no sink ({kiya/self.sink@gemma=differs}), and the second token does not take over
when `<bos>` is hidden ({kiya/mask.all@gemma=differs}); in Kiya's Llamas, which have a BOS too, it does. `mini-softmax`, trained
here with a fixed BOS, resembles Gemma in this ({kiya/self.sink@mini-softmax=differs} and
{kiya/mask.all@mini-softmax=differs}).""",
    },
    "docs/pretraining.md": {
        "packaged": f"""Means over 15 articles of WikiText-2 after BOS, from the runs of the [protocol](protocol.md), whose
tables have the intervals:

{_packaged()}

As in LLaMA3-8B (Gu et al.) and in SmolLM2, BOS has small keys and values in `mini-softmax`. The angle of its key changes
its score by {{gu/angles[no edit][score gap of the first key, angle]@mini-softmax}} nats, its norm by
{{gu/angles[no edit][score gap of the first key, norms]@mini-softmax}}. Unlike in SmolLM2, the sink belongs to BOS and not to
position 0: when the first key is hidden, the token after BOS gains {{kiya/mask.all@mini-softmax=differs}} of its attention,
whereas in SmolLM2 and in the Llamas of Kiya et al. the sink moves to the next token. In `mini-head-norm` one head of eight
sinks, and BOS has large values.""",
        "emergence": f"""**A previous-token head comes first**, at step {half("a head that attends to the previous token")}. The
first token's values are next: half of their decrease is over at step {half("norm of the first token's value")}, or
{later("norm of the first token's value")} steps later. Attention to the first token follows at
{half("attention to the first token")}.

**The first token's largest activation, over its own median, comes last**, at step
{half("largest activation over the median")}, or {later("largest activation over the median")} steps after attention. In
logarithms it is also last, {later("largest activation over the median", LOGS)} steps after the values; values and attention
show no order there (values are {later("norm of the first token's value", LOGS)} steps later). [While it
learns](while-it-learns.md) measures the largest activation over the median of all positions, and finds no order.

**In the last model** {last("", "heads that attend to the first token beyond all random targets (%)")} of heads attend to the
first token, and {last("", "heads that attend to the previous token beyond all random targets (%)")} to the previous one, more
than to any of 500 sets of random targets; a head can do both. By induction,
{last("", "heads that attend to what followed the same token before beyond all random targets (%)")} do.

**Hiding key 0 costs more as the sink grows**: {{emergence/step 2458, key 0 masked/loss (nats per token)/effect}} nats per token
at step 2,458, when {{emergence/step 2458/heads that sink on key 0 (%)}} of heads sink, and
{last(", key 0 masked", "loss (nats per token)/effect")} at step 7,000, when {last("", "heads that sink on key 0 (%)")} do. The
sink does not move to key 1 ({last(", key 0 masked", "heads that sink on key 1 (%)")} of heads).

**Without block 0's MLP output at token 0, fewer heads sink**: the difference is
{last(DROPPED, "heads that sink on key 0 (%)/effect")} percentage points at step 7,000, at a cost of
{last(DROPPED, "loss (nats per token)/effect")} nats. The activation is then
{last(DROPPED, "largest |h| of token 0 over its median")} times the median instead of
{last("", "largest |h| of token 0 over its median")}, and the norm of the values is
{last(DROPPED, "norm of token 0's value over others'")} of the others' instead of
{last("", "norm of token 0's value over others'")}.""",
    },
    "sinkjax/papers/li/README.md": {
        "mediation": f"""The following results are of SmolLM2, token 10 ({RUNS}).

The super neurons mediate the chain: they bring the whole activation and {_gain("one link put in: link neurons")} points of
attention, of {_gain("isolated: kind self, window all")} that isolation brings. The large dim does not: it brings the whole
activation but only {_gain("one link put in: link disparity")} points, and taking it out of the isolated run raises the
attention from {_in("li/mediation", "isolated: kind self, window all", GIVEN)}% to
{_in("li/mediation", "one link taken out: link disparity", GIVEN)}%.

Isolation up to layer 11, where the first token's activation forms, has nearly the whole effect; isolation after that layer has
none. The super neurons are the four largest of layers 0 to 11. "Gains" is the change in the attention from later queries, in
points; the unedited token has {_in("li/mediation", "isolated: no edit", GIVEN)}%. |h| is the token's largest activation, a mean
over articles; unedited it is {_in("li/mediation", "isolated: no edit", SIZE)}.

{_isolated()}

If the super neurons keep their values from the unedited run, the activation stays near its unedited size under any isolation,
and a token that sees only itself gains {_gain("one link taken out: link neurons")} points; this rest does not need the
activation. In layers 4 to 11 the token must see only itself, while in layers 0 to 3 another key or a uniform average does
more.""",
    },
    "sinkjax/papers/background/README.md": {
        "kinds": f"""In SmolLM2 ({RUNS}), {{background/kinds.more@smollm=replicates:whole}}% of heads have a no-op sink on the
first token, and {{background/kinds.more@smollm=replicates}} fewer a broadcast sink.

**No-op heads do not need the sink's value, but they need a harmless place for its weight.** Setting the value to zero changes
the loss by {_cost("no-op", "zero")} nats. Moving the weight to each query's own key raises it by {_cost("no-op", "diagonal")},
sharing it among the other keys by {_cost("no-op", "spread")}, and giving the sink another token's value by
{_cost("no-op", "shuffled")}.

**Broadcast heads use the value.** Without it the loss rises by {_cost("broadcast", "zero")} nats, and final states move by
{_in("background/kinds", "kind broadcast, way zero", STATES)}% of their norm, compared with
{_in("background/kinds", "kind no-op, way zero", STATES)}% for all no-op heads together. The mean of the other tokens' values
serves as well as the sink's own value: it changes the loss by {_cost("broadcast", "mean")} nats.""",
        "circuit": f"""In SmolLM2, two claims of `background/circuit` differ, one is weaker and one is untested ({RUNS}). In
block 1 the first token receives {{background/circuit.early@smollm=differs:opposite}} less attention than the strongest other
key, so no sink forms within two blocks. Replacing both blocks' outputs by their means removes
{{background/circuit.sink@smollm=weaker}} of the sinks beyond the controls. Unedited,
{_in("background/circuit", "for all readers: no edit", SINKS)}% of heads sink on the first token, and its largest |h| is
{_in("background/circuit", "for all readers: no edit", FIRST)}:

{_replaced()}

MLP 11 makes the activation. Block 0 matters for the sinks, but not through the activation: with MLP 0's mean output, the
activation stays and most sinks go. The donor matters as much as the component. Among the single paths, attention 0 to MLP 0
costs about as much as attention 0 for all its readers
({_in("background/circuit", "for one reader: path attention 0 to MLP 0, donor mean", SINKS, ":change")} points). MLP 1 to MLP 11
removes more than half of the activation (to
{_in("background/circuit", "for one reader: path MLP 1 to late MLP, donor mean", FIRST)}), but changes the sinks by only
{_in("background/circuit", "for one reader: path MLP 1 to late MLP, donor mean", SINKS, ":change")} points.""",
    },
}
