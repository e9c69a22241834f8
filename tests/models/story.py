"""story.py has the language of the trained model: its words, and stories of them. It needs no packages.

    yesterday Anna Smith bought a red hat . the cat did not like it because it was too big . she gave it to Ben .

A story is sentences about people, animals, things and places. Four things make it worth looking back. A person who has
a surname has the same one each time. A noun that was used before comes again with "the". A pronoun stands for somebody
or something before it. And what is said of it fits: a dog barked, a baker baked, a street was too wide, and most
people do again what they did before. A repetition is random words that come again, which needs the looking back alone.
"""

LENGTH = 48  # words of a sequence, and positions of the model

SHE = """Alice Anna Bella Carla Clara Diana Ella Emma Eva Fiona Grace Greta Hanna Helen Ida Jane Julia Kate Laura Lena
    Lily Lisa Lucy Maria Mary Mia Nina Nora Olga Paula Rosa Ruth Sara Sophie Susan Tina Vera Wanda Yara Zoe""".split()
HE = """Adam Alex Ben Bob Carl Daniel David Emil Eric Felix Frank Fred George Grant Henry Hugo Ivan Jack James Jim
    John Karl Kevin Leo Luke Mark Martin Max Nick Oliver Oscar Otto Paul Peter Robert Sam Simon Thomas Tim Tom
    """.split()
SURNAMES = """Adams Allen Bailey Barnes Bennett Brooks Bryant Carter Clark Collins Cooper Davis Edwards Evans Foster
    Gibson Harris Hayes Howard Hughes Jackson Jenkins Jones Kelly Lewis Miller Mitchell Moore Morgan Morris Murphy
    Nelson Parker Perry Powell Roberts Rogers Russell Scott Smith Taylor Turner Walker Watson Wilson Wright""".split()

# kind → nouns
NOUNS = {kind: words.split() for kind, words in {
    "woman": "woman girl mother sister aunt daughter grandmother queen princess lady",
    "man": "man boy father brother uncle son grandfather king prince gentleman",
    "person": """actor artist author baby baker boss builder captain cook child clerk dancer dentist doctor driver
        engineer farmer fisherman friend gardener guard guest hunter judge lawyer librarian mayor musician neighbor
        nurse painter pilot poet policeman pupil sailor scientist singer soldier student swimmer tailor teacher thief
        tourist visitor waiter worker writer""",
    "people": """children people men women boys girls friends students teachers soldiers doctors guests neighbors
        farmers workers parents tourists sailors pupils players""",
    "animal": """animal ant bear bee bird bull butterfly camel cat chicken cow crow deer dog dolphin donkey duck eagle
        elephant fish fox frog giraffe goat goose hen horse kitten lion lizard monkey mouse owl parrot penguin pig
        pony puppy rabbit rat sheep snake spider squirrel swan tiger turtle whale wolf zebra""",
    "animals": """animals bees birds cats chickens cows dogs ducks elephants foxes frogs horses lions monkeys mice
        pigs rabbits wolves""",
    "food": """apple banana bread butter cake carrot cheese cherry chocolate cookie egg honey jam lemon meal meat
        melon nut onion orange pancake pear pie pizza plum potato pumpkin rice salad sandwich sausage soup spinach
        steak strawberry sugar toast tomato""",
    "foods": """apples bananas cakes carrots cherries cookies eggs grapes lemons nuts oranges pears plums potatoes
        tomatoes vegetables""",
    "drink": "beer coffee cocoa juice lemonade milk tea water wine",
    "thing": """bag ball basket bell blanket book bottle bowl box brush bucket camera candle card chain clock coin
        computer cup doll envelope flag glass hammer key kite knife ladder lamp letter lock map mirror newspaper
        notebook painting parcel pen pencil phone photo picture pillow plate poem pot present purse puzzle radio ring
        robot rope scissors spoon stick stone suitcase telescope tent ticket tool torch towel toy treasure trophy
        umbrella vase wallet watch wheel""",
    "things": """bags balls books bottles boxes candles cards coins cups flowers glasses keys letters pens pictures
        shells stones tickets toys""",
    "furniture": """armchair bed bench bookcase carpet chair cupboard desk door fence fireplace gate mat oven piano
        roof rug shelf sofa stairs table wall window""",
    "clothes": """belt blouse boots cap coat dress gloves hat jacket scarf shirt shoes skirt socks suit sweater tie
        trousers""",
    "instrument": "cello drum flute guitar harp horn trumpet violin",
    "vehicle": "bicycle boat bus car plane sailboat ship taxi train tractor tram truck van",
    "place": """airport attic bakery bank barn beach bridge cabin castle cave cellar church cinema city classroom
        corner desert factory farm field forest garage garden hall harbor hill hospital hotel house island kitchen
        lake library market meadow mountain museum office palace park path pool port restaurant river road room school
        sea shop square stable stadium station stream street theater tower town tunnel valley village yard zoo""",
    "plant": "bush flower grass leaf oak plant rose tree tulip",
}.items()}
PEOPLE = ("woman", "man", "person", "people")
ALIVE = (*PEOPLE, "animal", "animals")
THINGS = ("thing", "things", "clothes", "instrument")

# Each entry has kinds, and the adjectives that fit them after "was".
ADJECTIVES = [(kinds.split(), words.split()) for kinds, words in (
    (" ".join(ALIVE), """afraid angry anxious brave busy calm cautious careful clever friendly happy hungry ill lazy
        lonely nervous quiet sad restless scared shy sleepy slow small strong surprised thirsty tired weak wild young
        old"""),
    (" ".join(PEOPLE), """ashamed bored confident cruel curious famous foolish generous honest jealous kind late
        patient polite poor proud rich rude selfish serious wise"""),
    ("food foods", """bitter burnt cold crisp delicious dry fresh frozen hot juicy raw ripe rotten salty sour spicy
        stale sweet tasty"""),
    ("drink", "bitter cold hot sour strong sweet warm"),
    (" ".join(THINGS), """beautiful big black blue broken cheap clean dirty dusty empty expensive green heavy light
        new old pretty red round sharp shiny small strange thick thin ugly useful valuable white yellow"""),
    ("furniture", "broken hard heavy high low new old soft wooden"),
    ("vehicle", "broken crowded fast full loud new old slow red yellow"),
    ("place", """big bright busy clean crowded dangerous dark deep empty far long narrow noisy old quiet steep warm
        wide"""),
    ("plant", "beautiful dry green high old red small young"),
)]

# Each entry has kinds that act, their verbs as past:infinitive, and kinds of the object.
VERBS = [(who.split(), [verb.split(":") for verb in verbs.split()], what.split()) for who, verbs, what in (
    (" ".join(ALIVE), """avoided:avoid chased:chase feared:fear followed:follow found:find heard:hear liked:like
        loved:love met:meet noticed:notice saw:see trusted:trust watched:watch""",
     " ".join(ALIVE)),
    (" ".join(PEOPLE), """answered:answer asked:ask called:call greeted:greet helped:help hugged:hug invited:invite
        kissed:kiss knew:know married:marry missed:miss taught:teach thanked:thank visited:visit""",
     " ".join(PEOPLE)),
    (" ".join(PEOPLE), """brushed:brush carried:carry caught:catch fed:feed petted:pet touched:touch washed:wash""",
     "animal animals"),
    (" ".join(ALIVE), "ate:eat smelled:smell stole:steal tasted:taste found:find", "food foods"),
    (" ".join(PEOPLE), "baked:bake bought:buy cooked:cook cut:cut sold:sell", "food foods"),
    (" ".join(ALIVE), "drank:drink spilled:spill", "drink"),
    (" ".join(PEOPLE), """admired:admire borrowed:borrow bought:buy broke:break carried:carry dropped:drop
        forgot:forget found:find hid:hide kept:keep lost:lose made:make needed:need opened:open painted:paint
        repaired:repair sent:send sold:sell stole:steal threw:throw took:take used:use wrapped:wrap wanted:want""",
     "thing things"),
    (" ".join(PEOPLE), "bought:buy lost:lose sewed:sew tore:tear washed:wash wore:wear", "clothes"),
    (" ".join(PEOPLE), "played:play practiced:practice tuned:tune", "instrument"),
    (" ".join(PEOPLE), "drove:drive missed:miss parked:park repaired:repair stopped:stop sold:sell", "vehicle"),
    (" ".join(PEOPLE), "built:build cleaned:clean closed:close moved:move painted:paint pushed:push", "furniture"),
    (" ".join(ALIVE), "crossed:cross entered:enter left:leave reached:reach found:find", "place"),
    (" ".join(PEOPLE), "cut:cut picked:pick planted:plant watered:water", "plant"),
    ("animal animals", "ate:eat chased:chase touched:touch watched:watch", "thing things plant"),
)]
ACTS = """coughed cried danced dreamed fell laughed listened paused played prayed ran relaxed rested sat screamed
    shouted slept smiled sneezed stood stopped swam trembled waited wept whispered whistled woke worked yawned
    """.split()  # without an object
MOVES = """came climbed crawled drove flew hurried jumped marched moved ran returned rode swam walked wandered went
    """.split()  # to a place
# A verb that belongs to one noun.
OWN = dict(pair.split(":") for pair in """dog:barked puppy:barked wolf:howled cat:purred kitten:purred mouse:squeaked
    bird:sang parrot:talked duck:quacked hen:clucked lion:roared tiger:roared bear:growled horse:galloped
    pony:galloped cow:mooed sheep:bleated goat:bleated frog:croaked bee:buzzed snake:hissed fish:swam dolphin:swam
    whale:swam eagle:flew butterfly:flew swan:flew rabbit:hopped monkey:climbed squirrel:climbed singer:sang
    dancer:danced baker:baked cook:cooked painter:painted teacher:taught pupil:learned student:studied writer:wrote
    author:wrote poet:wrote driver:drove pilot:flew sailor:sailed swimmer:swam soldier:fought thief:stole
    hunter:hunted fisherman:fished gardener:dug farmer:plowed builder:built tailor:sewed musician:played actor:played
    judge:decided baby:cried tourist:traveled guard:watched king:ruled queen:ruled""".split())
NEAR = "above at behind beside in near on outside under".split()
FIRST = "afterwards finally later often once sometimes suddenly then today yesterday".split()
LAST = """again alone carefully early everywhere happily loudly often quickly quietly slowly soon together twice
    """.split()
HOW = "always often quite rather so still very".split()
PRONOUNS = {"she": ("she", "her", "her"), "he": ("he", "him", "his"), "it": ("it", "it", "its"),
            "they": ("they", "them", "their")}  # as subject, as object, as owner

FUNCTION = ". , the a an some and because but when was were did not too to with from fit in gave had".split()
WORDS = list(dict.fromkeys([
    *FUNCTION, *(word for forms in PRONOUNS.values() for word in forms), *NEAR, *FIRST, *LAST, *HOW, *SHE, *HE,
    *SURNAMES, *(word for words in NOUNS.values() for word in words),
    *(word for _, words in ADJECTIVES for word in words),
    *(form for _, verbs, _ in VERBS for verb in verbs for form in verb), *ACTS, *MOVES, *OWN.values()]))
PLURALS = {"people", "animals", "foods", "things"}
PLURAL_FORMS = {"boots", "gloves", "scissors", "shoes", "socks", "stairs", "trousers"}
UNCOUNTED = {"bread", "butter", "cheese", "chocolate", "grass", "honey", "jam", "meat", "rice", *NOUNS["drink"]}
SUBJECT, OBJECT, OWNER = range(3)  # forms of a pronoun


class One:
    """Someone or something of a story: its words, its kind, its pronoun, and where it stands."""

    def __init__(self, kind, words, pronoun):
        self.kind, self.words, self.pronoun = kind, words, pronoun
        self.named = words[0][0].isupper()
        self.at = []  # places of its first word without the article
        self.habit = None  # what it did last, as verb() returns it


class Story:
    """Sentences until there are LENGTH + 1 words. `pronouns`, `articles`, `names` and `subjects` have what a word looks
    back at: place → places. A pronoun looks at what it stands for. The "the" of a noun that was used before looks at
    all nouns that were. A name that comes again looks at the surname after it, and "was" and "too" at of whom they
    speak."""

    def __init__(self, draw):
        self.draw = draw
        self.words, self.cast, self.last = [], [], None  # last: who or what was named last
        self.pronouns, self.articles, self.names, self.subjects = {}, {}, {}, {}
        everybody = [*((name, "woman", "she") for name in SHE), *((name, "man", "he") for name in HE)]
        names = draw.sample(everybody, draw.randint(1, 3))
        for (name, kind, pronoun), surname in zip(names, draw.sample(SURNAMES, 3)):
            self.cast.append(One(kind, [name, surname][:draw.randint(1, 2)], pronoun))
        for _ in range(draw.randint(1, 3)):
            self.add(draw.choice(list(NOUNS)))
        while len(self.words) <= LENGTH:
            self.sentence()
        del self.words[LENGTH + 1:]

    def often(self, share):
        return self.draw.random() < share

    def say(self, *words):
        self.words += words

    def add(self, kind):
        """Adds one of a kind to the story. Whether a teacher is a he or a she is drawn."""
        noun = self.draw.choice(NOUNS[kind])
        many = kind in PLURALS or noun in PLURAL_FORMS
        ones = {"woman": "she", "man": "he", "person": self.draw.choice(("she", "he"))}
        pronoun = "they" if many else ones.get(kind, "it")
        self.cast.append(One(kind, [noun], pronoun))
        return self.cast[-1]

    def pick(self, kinds, other=None):
        """Picks one of these kinds that is not `other`, or adds it to the story."""
        known = [one for one in self.cast if one.kind in kinds and one is not other]
        return self.draw.choice(known) if known and self.often(0.85) else self.add(self.draw.choice(list(kinds)))

    def pronoun(self, one, form):
        self.pronouns[len(self.words)] = [*one.at]
        self.say(PRONOUNS[one.pronoun][form])

    def name(self, one, form=SUBJECT):
        """Says one as a pronoun, which stands for who or what had it last, or as a name or a noun with its article."""
        alike = [other for other in self.cast if other.at and other.pronoun == one.pronoun]
        latest = max(alike, key=lambda other: other.at[-1], default=None)
        if latest is one and len(self.words) - one.at[-1] < 20 and self.often(0.6):
            self.pronoun(one, form)
        else:
            self.noun(one)

    def noun(self, one):
        """Says one as a name, or as a noun with its article."""
        if not one.named:
            self.article(one)
        elif one.at and len(one.words) > 1:
            self.names[len(self.words)] = [place + 1 for place in one.at]
        self.last = one
        one.at.append(len(self.words))
        self.say(*one.words)

    def article(self, one):
        """Says the article of one, and an adjective if one is new."""
        if one.at:
            self.articles[len(self.words)] = [place for other in self.cast if not other.named for place in other.at]
        if one.at or self.often(0.25):
            return self.say("the")
        words = [*([self.state(one)] if self.often(0.3) else []), *one.words]
        if one.pronoun == "they" or one.words[0] in UNCOUNTED:
            return self.say("some", *words[:-1])
        return self.say("an" if words[0][0] in "aeiou" else "a", *words[:-1])

    def is_so(self, one, how, state):
        """Says a state of one, who stands just before or is the pronoun there. how: words between them."""
        at = len(self.words) - 1
        self.subjects.update({at + 1 + i: [at] for i in range(1 + len(how))})
        self.say("were" if one.pronoun == "they" else "was", *how, state)

    def state(self, one):
        """Draws an adjective that fits."""
        return self.draw.choice(self.draw.choice([words for kinds, words in ADJECTIVES if one.kind in kinds]))

    def verb(self, one):
        """Draws what one does: past, infinitive and the kinds of the object."""
        verbs, what = self.draw.choice([(verbs, what) for who, verbs, what in VERBS if one.kind in who])
        return *self.draw.choice(verbs), what

    def place(self):
        self.say(self.draw.choice(NEAR))
        self.noun(self.pick(("place", "furniture", "plant"), self.last))

    def role(self, one):
        """Says what someone with a name works, and often what goes with it."""
        role = self.draw.choice(NOUNS["person"])
        self.say("was", "an" if role[0] in "aeiou" else "a", role)
        if role in OWN:
            self.say(".")
            self.pronoun(one, SUBJECT)
            self.say(OWN[role])

    def does(self, one):
        """Says what one does, and remembers it: most do it again."""
        if one.words[0] in OWN and self.often(0.5):
            self.say(OWN[one.words[0]])
        elif self.often(0.2):
            self.say(self.draw.choice(ACTS))
        elif self.often(0.2):
            self.say(self.draw.choice(MOVES), self.draw.choice(("to", "to", "from")))
            self.name(self.pick(("place",)), OBJECT)
        else:
            if one.habit is None or self.often(0.4):
                one.habit = self.verb(one)
            self.say(one.habit[0])
            self.name(self.pick(one.habit[2], one), OBJECT)

    def does_not(self, one):
        """Says what one does not do, because one or the other is not as it should be."""
        _, infinitive, what = self.verb(one)
        other = self.pick(what, one)
        self.say("did", "not", infinitive)
        self.name(other, OBJECT)
        self.say("because")
        who = self.draw.choice((one, other))
        self.pronoun(who, SUBJECT)
        self.is_so(who, ["too"], self.state(who))

    def does_not_fit(self, one):
        other = self.pick(("thing",), one)
        self.say("did", "not", "fit", "in")
        self.name(other, OBJECT)
        self.say("because")
        who, states = self.draw.choice(((one, ("big", "thick")), (other, ("small", "thin"))))
        self.pronoun(who, SUBJECT)
        self.is_so(who, ["too"], self.draw.choice(states))

    def gives(self, one):
        self.say("gave")
        self.name(self.pick(THINGS), OBJECT)
        self.say("to")
        self.name(self.pick(PEOPLE, one), OBJECT)

    def has(self, one):
        self.say(self.draw.choice(("lost", "found", "took", "had", "sold", "used")))
        self.pronoun(one, OWNER)
        self.say(self.draw.choice(NOUNS[self.draw.choice(("thing", "clothes", "vehicle", "instrument"))]))

    def more(self, one):
        """Says one more thing after what one does: where, how, with whom, why, or what one does then."""
        turn = self.draw.random()
        if turn < 0.2:
            self.place()
        elif turn < 0.3:
            self.say(self.draw.choice(LAST))
        elif turn < 0.37:
            self.say("with")
            self.name(self.pick(ALIVE, one), OBJECT)
        elif turn < 0.45:
            self.say("because")
            self.pronoun(one, SUBJECT)
            self.is_so(one, [], self.state(one))
        elif turn < 0.65:
            self.say("and")
            one.habit = None
            self.does(one)
        elif turn < 0.8:
            self.say(self.draw.choice(("but", "when", "because", ",")))
            other = self.pick(ALIVE, one)
            self.name(other)
            self.does(other)

    def sentence(self):
        if self.often(0.12):
            self.say(self.draw.choice(FIRST))
        one = self.pick(ALIVE if self.often(0.85) else [kind for kind in NOUNS if kind not in ALIVE])
        self.name(one)
        turn = self.draw.random()
        if one.kind in THINGS and turn < 0.4:
            self.does_not_fit(one)
        elif one.kind not in ALIVE or turn < 0.2:
            self.is_so(one, [self.draw.choice(HOW)] if self.often(0.3) else [], self.state(one))
        elif turn < 0.36:
            self.does_not(one)
        elif turn < 0.44 and one.kind in PEOPLE:
            self.gives(one)
        elif turn < 0.5 and one.named:
            self.role(one)
        elif turn < 0.58:
            self.has(one)
        else:
            self.does(one)
            self.more(one)
        self.say(".")


def story(draw):
    """Returns LENGTH + 1 words of a story, and what some of them look back at: {name: {place: places}}."""
    told = Story(draw)
    looks = {name: {i: back for i, back in getattr(told, name).items() if i < LENGTH}
             for name in ("pronouns", "articles", "names", "subjects")}
    return told.words, {"before": {i: [i - 1] for i in range(1, LENGTH)}, **looks}


def repetition(draw):
    """Returns LENGTH + 1 words in which a row of different random words comes again and again, and what the words look
    back at, as story() does. Other words may stand before the row."""
    period = draw.randint(2, draw.choice((LENGTH // 4, LENGTH // 2)))
    before = draw.choice((0, draw.randint(0, LENGTH - period - 1)))
    words = draw.sample(WORDS, before + period)
    while len(words) <= LENGTH:
        words.append(words[-period])
    return words, {"before": {i: [i - 1] for i in range(1, LENGTH)},
                   "names": {i: list(range(i - period + 1, before, -period)) for i in range(before + period, LENGTH)}}
