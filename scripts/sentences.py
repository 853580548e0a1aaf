"""What the verdicts of docs/findings.md say in words; a sentence whose verdicts have changed ends scripts/findings.py."""

from __future__ import annotations

from dataclasses import dataclass

LM, LM_BOS, MINI, MINI_SINK = "smollm2-135m", "smollm2-135m, after token 0", "mini-softmax, after BOS", "mini-sink, after BOS"
YES, NO, OPEN = "supported", "contradicted", "inconclusive"
MASKED = "Masking the logits towards key 0 in"
DROPPED = "Dropping the first token's MLP output where its norm grows most removes"


@dataclass(frozen=True)
class Sentence:
    """What is said of verdicts. text: {0}, {1}, ... are their numbers. rests_on: (model, study, start of the claim, verdict)."""

    text: str
    rests_on: tuple[tuple[str, str, str, str], ...] = ()


def of_both(study: str, start: str, verdict: str) -> tuple[tuple[str, str, str, str], ...]:
    """A claim with one verdict on SmolLM2 and on mini-softmax."""
    return (LM, study, start, verdict), (MINI, study, start, verdict)


SENTENCES = {
    "What holds on these models": (
        Sentence(
            "SmolLM2 sinks on whatever token is first: {0} % of its heads do on natural text, and where an ordinary first token"
            " changes places with another one, the new first token gets more than half of the sink in deeper layers.",
            (
                (LM, "gu/sink-rate", "On natural text more than", YES),
                (LM, "kiya/bos-swap", "When an ordinary first token changes places", YES),
            ),
        ),
        Sentence(
            "Hidden from all later tokens in all layers, the first token loses its sink to the second: {0} % of SmolLM2's heads.",
            ((LM, "kiya/mask", f"{MASKED} all layers moves", YES),),
        ),
        Sentence(
            "Heads sink by angle and not by norm: in the heads that sink, the angle of the first key raises its score by {0} nats"
            " in SmolLM2 and by {1} in mini-softmax. The values that they read there are small: {2} and {3} of the others' norm.",
            (
                *of_both("gu/angles", "In heads that sink on the first key, its angle", YES),
                *of_both("gu/norms", "The values of the first token", YES),
            ),
        ),
        Sentence(
            "One MLP writes the massive activation of SmolLM2. Without what that MLP writes at the first token more than half of"
            " the sink is gone, there and in mini-softmax. Set to zero, the activation costs {0} nats a token; to its mean, {1}.",
            (
                (LM, "background/massive", "Setting the massive activations to zero", YES),
                (LM, "background/massive", "Setting the massive activations to their mean", YES),
                (LM, "background/patch", "The MLP output of one layer", YES),
                *of_both("background/compression", DROPPED, YES),
            ),
        ),
    ),
    "What does not hold": (
        Sentence(
            "A token that attends to itself alone does not take the sink over. In SmolLM2 it gets an activation ten"
            " times its size and a sink beside that of the first token, in mini-softmax no sink to speak of.",
            (
                *of_both("kiya/self", "The attention sink moves from the first token", NO),
                (LM, "kiya/self", "A query that attends to itself alone in all layers gets an activation", YES),
                (MINI, "kiya/self", "A query that attends to itself alone in all layers gets from later ones", NO),
            ),
        ),
        Sentence(
            "That its head outputs are no average does not explain its sink: in SmolLM2 even attention does more than"
            " half as much.",
            ((LM, "li/isolate", "Token 10, attending to itself alone, becomes a sink because", NO),),
        ),
        Sentence(
            "Head outputs that are pushed away from their mean, tenfold in one of the first three layers, do not give a"
            " token half of the first token's sink, in either model, with any of three means.",
            tuple(
                found
                for mean in ("positions", "prompts", "prompts and positions")
                for found in of_both("li/amplify", f"Head outputs of token 10 pushed away from the mean over {mean} by", NO)
            ),
        ),
        Sentence(
            "Four first tokens and a window of 28 do not undo 90 % of the damage that a window of 32 alone does: {0} of"
            " it in SmolLM2, on texts of 128 tokens.",
            ((LM, "background/streaming", "Keeping the first 4 tokens undoes more than 90 %", NO),),
        ),
    ),
    "What depends on the model": (
        Sentence(
            "mini-softmax was trained with a BOS in front of every block. Hiding BOS there takes the sink away instead of moving"
            " it, and the sink follows BOS to another position; in SmolLM2 it stays at position 0.",
            (
                (MINI, "kiya/mask", f"{MASKED} all layers moves", NO),
                (MINI, "kiya/bos-swap", "When BOS changes places with another token, the sink over all", YES),
                (LM_BOS, "kiya/bos-swap", "When BOS changes places with another token, the sink over all", NO),
            ),
        ),
        Sentence(
            "mini-softmax and mini-sink have a sink and no massive activation.",
            (
                (MINI, "kiya/baseline", "Without an edit the attention sink is on the first token, with BOS", YES),
                (MINI, "background/massive", "In most prompts the first token has a massive", NO),
                (MINI_SINK, "background/massive", "In most prompts the first token has a massive", NO),
            ),
        ),
    ),
    "What cannot be said": (
        Sentence(
            "Whether more than half of the sink moves where the first token is hidden up to the layer in which its sink"
            " forms: {0} % of SmolLM2's heads then sink on the second token, about half of those that sank on the first.",
            ((LM, "kiya/mask", f"{MASKED} the layers up to the one", OPEN),),
        ),
        Sentence(
            "Whether any of this holds in larger models, in SmolLM2 without the rounding of its weights to 4 bits, on"
            " texts that people wrote, or in other trainings: these are one model of 135M parameters, one of 1.4M, and"
            " 84 short synthetic texts."
        ),
    ),
}
