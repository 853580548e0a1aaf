"""Write the questions of sinkjax/interop/tasks, with a fixed seed: python scripts/task_questions.py

choice has one right answer of four, last_word a word that the text has named before, copy a line to repeat, and text the whole
texts of last_word.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "sinkjax" / "interop" / "tasks"
COUNT = 120  # of last_word and copy
KINDS = {
    "bird": "robin eagle sparrow owl swan crow pigeon parrot",
    "fish": "salmon trout cod shark tuna herring carp eel",
    "tree": "oak pine willow birch maple elm cedar palm",
    "fruit": "apple pear plum cherry banana grape peach mango",
    "tool": "hammer saw wrench drill screwdriver axe shovel rake",
    "metal": "copper silver iron gold tin lead zinc nickel",
    "drink": "tea coffee milk lemonade wine beer juice cocoa",
    "insect": "bee ant wasp moth beetle fly mosquito butterfly",
    "flower": "rose tulip daisy lily violet daffodil orchid poppy",
}
OPPOSITES = (
    "hot cold,big small,wet dry,early late,open closed,full empty,fast slow,high low,young old,loud quiet,hard soft,light dark,"
    "rich poor,strong weak,clean dirty,happy sad,long short,thick thin,good bad,left right,day night,up down,true false"
)
USES = {
    "You cut bread with a": "knife",
    "You sweep the floor with a": "broom",
    "You open a locked door with a": "key",
    "You write on a blackboard with": "chalk",
    "You look at the stars through a": "telescope",
    "You dry your hair with a": "towel",
    "You eat soup with a": "spoon",
    "You keep food cold in a": "fridge",
    "You sleep in a": "bed",
    "You cross the river by the": "bridge",
    "You tell the time by a": "clock",
    "You keep off the rain with an": "umbrella",
    "A person who bakes bread is a": "baker",
    "A person who teaches children is a": "teacher",
    "A person who flies a plane is a": "pilot",
    "A person who puts out fires is a": "firefighter",
    "A person who grows wheat is a": "farmer",
    "A person who looks after sick people is a": "nurse",
    "A person who catches fish is a": "fisherman",
    "A person who writes books is an": "author",
    "The animal that gives us wool is the": "sheep",
    "The animal that barks at strangers is the": "dog",
    "The animal that gives us milk is the": "cow",
    "The season after winter is": "spring",
}
NAMES = "Anna Tom Mary Peter Lucy John Emma Paul Ruth Mark Jane David Kate Simon Rose Henry"
THINGS = "key letter map ring book lamp coat ball cup clock knife rope"
PLACES = "kitchen garden cellar drawer barn attic box car basket cupboard tent boat"
STORIES = (
    "{a} put the {x} in the {p} and the {y} in the {q}. {b} came home and asked for the {x}. {a} said that it was in the|{p}",
    "{a} had a {x} and {b} had a {y}. One day they met at the {p}. {a} took the {y} home, and {b} was glad to have the|{x}",
    "Nobody knew who had taken the {x} from the {p}. {b} asked everyone. In the end it was {a}. So {b} was angry with|{a}",
    "{a} was cleaning the {p} when a {x} fell on the floor. {b} heard it and came to the {p} to pick up the|{x}",
)


def choice(rng: random.Random) -> list[dict]:
    """Kinds of things, opposites, and what things are for: a question, four choices, and the place of the right one."""
    kinds = [
        (f"{'An' if word[0] in 'aeiou' else 'A'} {word} is a kind of", kind, KINDS)
        for kind in KINDS
        for word in KINDS[kind].split()
    ]
    pairs = [pair.split() for pair in OPPOSITES.split(",")]
    words = [word for pair in pairs for word in pair]
    opposites = [(f"The opposite of {one} is", other, [word for word in words if word != one]) for one, other in pairs]
    uses = [(question, right, list(USES.values())) for question, right in USES.items()]
    questions = []
    for question, right, others in [*kinds, *opposites, *uses]:
        choices = [right, *rng.sample([word for word in others if word != right], 3)]
        rng.shuffle(choices)
        questions.append({"question": question, "choices": choices, "answer": choices.index(right)})
    rng.shuffle(questions)
    return questions


def last_word(rng: random.Random) -> list[dict]:
    """A short story without its last word, and the word."""
    stories = []
    for number in range(COUNT):
        (a, b), (x, y), (p, q) = (rng.sample(words.split(), 2) for words in (NAMES, THINGS, PLACES))
        text, word = STORIES[number % len(STORIES)].format(a=a, b=b, x=x, y=y, p=p, q=q).split("|")
        stories.append({"text": text, "word": word})
    return stories


def copy(rng: random.Random) -> list[dict]:
    """Four names with three numbers each, one of the names again, and its numbers."""
    lists = []
    for _ in range(COUNT):
        names = rng.sample(NAMES.split(), 4)
        numbers = [" ".join(str(rng.randrange(10)) for _ in range(3)) for _ in names]
        asked = rng.randrange(3)
        lines = [f"{name}: {number}" for name, number in zip(names, numbers, strict=True)]
        lists.append({"text": "\n".join([*lines, f"{names[asked]}:"]), "numbers": numbers[asked]})
    return lists


if __name__ == "__main__":
    for make in (choice, last_word, copy):
        lines = [json.dumps(question) + "\n" for question in make(random.Random(make.__name__))]
        (FOLDER / f"{make.__name__}.jsonl").write_text("".join(lines), encoding="utf-8")
