"""story.py has the toy language of the trained model: its words, and sequences of them. It needs no packages.

A story names two or three people and two or three things, and speaks of them again and again:

    Anna Hill meets the old cat . the old cat likes Ben Stone . Anna Hill ...

Which surname a first name has, and which adjective a noun, is drawn for each story. So a model can know it only from
the words before: it has to look for the earlier place, and to copy what stood after it. A repetition is random words
that come again, which need the same and nothing else.
"""

import random

LENGTH = 32  # words of a sequence, and positions of the model

FIRST = "Anna Ben Clara David Emma Felix Greta Hugo Ida Jack Kate Leo Mia Nora Otto Paul".split()
LAST = "Baker Bell Brook Carter Cook Fisher Hill Hunter King Lake Miller Rose Smith Snow Stone Wood".split()
ADJECTIVES = "big black blue green happy new old quiet red small tired white".split()
NOUNS = "apple bird boat book car cat dog fish garden horse house lamp letter river song tree".split()
VERBS = "asks calls finds follows helps knows likes meets paints sees thanks wants".split()
PLACES = "behind near with".split()
WORDS = [".", "the", "is", *PLACES, *FIRST, *LAST, *ADJECTIVES, *NOUNS, *VERBS]


def story(draw):
    """Returns LENGTH + 1 words of a story. draw: a random.Random."""
    people = list(zip(draw.sample(FIRST, 3), draw.sample(LAST, 3)))
    things = [("the", *pair) for pair in zip(draw.sample(ADJECTIVES, 3), draw.sample(NOUNS, 3))]
    cast = people[:draw.randint(2, 3)] + things[:draw.randint(2, 3)]
    words = []
    while len(words) <= LENGTH:
        one, other = draw.sample(cast, 2)
        does = [draw.choice(VERBS)] if draw.random() < 0.7 else ["is", draw.choice(PLACES)]
        words += [*one, *does, *other, "."]
    return words[:LENGTH + 1]


def repetition(draw):
    """Returns LENGTH + 1 words in which a row of different random words comes again and again, and where it first comes
    again. Other words may stand before it."""
    period = draw.randint(2, draw.choice((LENGTH // 4, LENGTH // 2)))
    before = draw.choice((0, draw.randint(0, LENGTH - period - 1)))
    words = draw.sample(WORDS, before + period)
    while len(words) <= LENGTH:
        words.append(words[-period])
    return words, before + period
