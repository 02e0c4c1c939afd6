"""Turns of conversation that ingot-tiny learns from, and the ones kept back to test it.

A turn is a question, a short reasoning and an answer. Whether a phrasing of a fact, or a pair of
operands, is kept back is a hash of it, so training and evaluation agree without sharing a list.
"""

import dataclasses
import zlib

from facts import (
    ADJECTIVES,
    COLOURS,
    COUNTRIES,
    CREATURES,
    DAYS,
    ELEMENTS,
    FOODS,
    MONTHS,
    ORDINALS,
    PLACES,
    SMALL_TALK,
    SPELL,
    THINGS,
    VERBS,
    WITH_ARTICLE,
)


@dataclasses.dataclass
class Turn:
    question: list  # [(text, loss weight)]: joined, it is what the user says
    thinking: str
    answer: str
    expect: str = ""  # what an answer must contain to be right


def held_out(*key):
    """One in ten, the same everywhere."""
    return zlib.crc32("|".join(map(str, key)).encode()) % 10 == 0


def simple(question, thinking, answer, expect=""):
    return Turn([(question, 0.05)], thinking, answer, expect or answer)


def the(country):
    return "the " + country if country in WITH_ARTICLE else country


# ------------------------------------------------------------------------------------------- facts
# Phrasings of each kind of question. The last ones, marked UNSEEN, are never trained; of the rest,
# each is kept back for a tenth of the facts.
UNSEEN = 2
CAPITAL_OF = [
    "What is the capital of {}?",
    "What is the capital city of {}?",
    "Name the capital of {}.",
    "Which city is the capital of {}?",
    "Tell me the capital of {}.",
    "The capital of {} is which city?",
    "Do you know the capital of {}?",
    "capital of {}",
    "What's the capital of {}?",
    "Capital of {}?",
    "What city is the capital of {}?",
    "I would like to know the capital of {}.",
    "Could you tell me the capital of {}?",
    "Give me the capital of {}.",
]
COUNTRY_OF = [
    "Which country has the capital {}?",
    "{} is the capital of which country?",
    "Of which country is {} the capital?",
    "What country is {} the capital of?",
    "Name the country whose capital is {}.",
    "{} is the capital of what country?",
    "Which country's capital is {}?",
    "Tell me which country has {} as its capital.",
    "Whose capital is {}?",
    "Which country has {} as its capital?",
]
SYMBOL_OF = [
    "What is the chemical symbol of {}?",
    "What is the symbol of {}?",
    "What is the symbol for {}?",
    "Which symbol does {} have?",
    "Give me the chemical symbol for {}.",
    "symbol of {}",
    "What is the chemical symbol for {}?",
    "Tell me the symbol of {}.",
    "Name the symbol of {}.",
]
ELEMENT_OF_SYMBOL = [
    "Which element has the symbol {}?",
    "What element is {}?",
    "Which chemical element has the symbol {}?",
    "What does the chemical symbol {} stand for?",
    "Name the element with the symbol {}.",
    "The symbol {} belongs to which element?",
    "Which element is {}?",
    "What element has the symbol {}?",
]
NUMBER_OF = [
    "What is the atomic number of {}?",
    "Which atomic number does {} have?",
    "Tell me the atomic number of {}.",
    "atomic number of {}",
    "What atomic number has {}?",
    "How many protons has {}?",
    "Name the atomic number of {}.",
    "Give me the atomic number of {}.",
]
ELEMENT_OF_NUMBER = [
    "Which element has the atomic number {}?",
    "What element has atomic number {}?",
    "Which element has {} protons?",
    "Name the element with the atomic number {}.",
    "What is element number {}?",
    "Which element is number {}?",
    "Tell me which element has the atomic number {}.",
]


def _capital(i):
    country, city = COUNTRIES[i % len(COUNTRIES)]
    return (
        CAPITAL_OF,
        the(country),
        f"The question is about {the(country)}. Its capital is {city}.",
        f"The capital of {the(country)} is {city}.",
        f"{city}.",
    )


def _country(i):
    country, city = COUNTRIES[i % len(COUNTRIES)]
    return (
        COUNTRY_OF,
        city,
        f"The question is about {city}. It is the capital of {the(country)}.",
        f"{city} is the capital of {the(country)}.",
        f"{the(country)}.",
    )


def _symbol(i):
    symbol, name = ELEMENTS[i % len(ELEMENTS)]
    return (
        SYMBOL_OF,
        name,
        f"The element is {name}. Its symbol is {symbol}.",
        f"The symbol of {name} is {symbol}.",
        f"is {symbol}.",
    )


def _element_of_symbol(i):
    symbol, name = ELEMENTS[i % len(ELEMENTS)]
    return (
        ELEMENT_OF_SYMBOL,
        symbol,
        f"The symbol is {symbol}. It belongs to {name}.",
        f"{symbol} is the symbol of {name}.",
        f"of {name}.",
    )


def _number(i):
    number = i % len(ELEMENTS) + 1
    name = ELEMENTS[number - 1][1]
    return (
        NUMBER_OF,
        name,
        f"The element is {name}. Its number is {number}.",
        f"The atomic number of {name} is {number}.",
        f"is {number}.",
    )


def _element_of_number(i):
    number = i % len(ELEMENTS) + 1
    name = ELEMENTS[number - 1][1]
    return (
        ELEMENT_OF_NUMBER,
        str(number),
        f"The number is {number}. It belongs to {name}.",
        f"Element {number} is {name}.",
        f"is {name}.",
    )


FACTS = {
    "capital": (_capital, len(COUNTRIES)),
    "country": (_country, len(COUNTRIES)),
    "symbol": (_symbol, len(ELEMENTS)),
    "element": (_element_of_symbol, len(ELEMENTS)),
    "number": (_number, len(ELEMENTS)),
    "element number": (_element_of_number, len(ELEMENTS)),
}


def fact(kind, i, phrasing):
    """-> (turn, how it is kept: "train", "held" or "unseen")"""
    phrasings, subject, thinking, answer, expect = FACTS[kind][0](i)
    phrasing %= len(phrasings)
    unseen = phrasing >= len(phrasings) - UNSEEN
    kept = "unseen" if unseen else "held" if held_out(kind, i, phrasing) else "train"
    return simple(phrasings[phrasing].format(subject), thinking, answer, expect), kept


def any_fact(rng):
    while True:
        kind = rng.choices(list(FACTS), (3, 2, 1, 1, 1, 1))[0]
        turn, kept = fact(kind, rng.randrange(FACTS[kind][1]), rng.randrange(64))
        if kept == "train":
            turn.question = [(variation(turn.question[0][0], rng), 0.05)]
            return turn


# Words that may begin a sentence in lower case; names may not.
OPENINGS = set(
    "What What's Which Name Tell The Do Could Give Of Whose How Who Hello! Hi! Good Are Can Write".split()
)


def variation(question, rng):
    """The same question as hurried or polite people write it."""
    pick = rng.random()
    if pick < 0.08 and question.split()[0] in OPENINGS:
        return question[0].lower() + question[1:]
    if pick < 0.14:
        return question.rstrip("?.")
    if pick < 0.20:
        return question.removesuffix(".").removesuffix("?") + (
            ", please." if question.endswith(".") else ", please?"
        )
    if pick < 0.24:
        return rng.choice(["Hello! ", "Hi! ", "A question: ", "Please tell me: "]) + question
    return question


# -------------------------------------------------------------------------------------- arithmetic
SUM = [
    "What is {} + {}?",
    "{} + {}",
    "What is {} plus {}?",
    "Add {} and {}.",
    "What is the sum of {} and {}?",
    "{} + {} = ?",
    "Calculate {} + {}.",
    "How much is {} + {}?",
    "{}+{}",
    "What is {}+{}?",
]
PRODUCT = [
    "What is {} × {}?",
    "{} × {}",
    "What is {} times {}?",
    "Multiply {} by {}.",
    "What is the product of {} and {}?",
    "{} * {}",
    "What is {} * {}?",
    "Calculate {} × {}.",
    "How much is {} × {}?",
    "{} x {}",
    "{}x{}",
    "What is {}x{}?",
    "What is {} x {}?",
    "{}×{}",
]


def sum_turn(a, b, phrasing):
    ones, carry = a % 10 + b % 10, (a % 10 + b % 10) // 10
    thinking = f"{a % 10} + {b % 10} = {ones}. {a // 10} + {b // 10} + {carry} = {a // 10 + b // 10 + carry}. So {a + b}."
    return simple(
        SUM[phrasing % len(SUM)].format(a, b), thinking, f"{a} + {b} = {a + b}.", f"= {a + b}."
    )


def product_turn(a, b, phrasing):
    tens, ones = b // 10 * 10, b % 10
    if tens and ones:
        thinking = f"{a} × {tens} = {a * tens}. {a} × {ones} = {a * ones}. {a * tens} + {a * ones} = {a * b}."
    else:
        thinking = f"{a} × {b} = {a * b}."
    return simple(
        PRODUCT[phrasing % len(PRODUCT)].format(a, b),
        thinking,
        f"{a} × {b} = {a * b}.",
        f"= {a * b}.",
    )


def any_sum(rng):
    while True:
        a, b = rng.randrange(100), rng.randrange(100)
        if not held_out("sum", min(a, b), max(a, b)):
            return sum_turn(a, b, rng.randrange(64))


def any_product(rng):
    most = rng.choice((13, 31, 100, 100))  # small ones are asked more often
    return product_turn(rng.randrange(most), rng.randrange(most), rng.randrange(64))


# ------------------------------------------------------------------------------ letters, order, talk
def any_letters(rng):
    word = rng.choice(SPELL)
    letters = "-".join(word)
    pick = rng.randrange(4)
    if pick < 2:
        ask = rng.choice(
            [
                "Spell the word {}.",
                "Spell {}.",
                "How do you spell {}?",
                "Please spell {}.",
                'Spell "{}".',
            ]
        )
        return simple(ask.format(word), f"The word is {word}.", letters)
    if pick == 2:
        ask = rng.choice(
            [
                "How many letters does the word {} have?",
                "How many letters are in {}?",
                "Count the letters of {}.",
            ]
        )
        return simple(
            ask.format(word),
            f"{letters}: {len(word)} letters.",
            f"The word {word} has {len(word)} letters.",
        )
    letter = rng.choice(word) if rng.random() < 0.8 else rng.choice("aeiourstln")
    n = word.count(letter)
    ask = rng.choice(
        ["How many times does the letter {1} occur in {0}?", "How many {1} are in the word {0}?"]
    )
    return simple(
        ask.format(word, letter),
        f"{letters}: {n} times {letter}.",
        f"The letter {letter} occurs {n} time{'' if n == 1 else 's'} in {word}.",
    )


def any_order(rng):
    pick = rng.randrange(6)
    if pick < 2:
        a = rng.randrange(90)
        b = a + rng.randrange(2, 10)
        if pick == 0:
            ask = rng.choice(["Count from {} to {}.", "List the numbers from {} to {}."])
            return simple(
                ask.format(a, b), f"Up from {a} to {b}.", ", ".join(map(str, range(a, b + 1)))
            )
        ask = rng.choice(["Count down from {} to {}.", "Count backwards from {} to {}."])
        return simple(
            ask.format(b, a), f"Down from {b} to {a}.", ", ".join(map(str, range(b, a - 1, -1)))
        )
    if pick == 2:
        i, step = rng.randrange(7), rng.choice((1, -1))
        word = "after" if step == 1 else "before"
        ask = rng.choice(["Which day comes {} {}?", "What day is {} {}?", "Which day is {} {}?"])
        day, other = DAYS[i], DAYS[(i + step) % 7]
        return simple(
            ask.format(word, day), f"One day {word} {day}.", f"{other} comes {word} {day}."
        )
    if pick == 3:
        i, step = rng.randrange(12), rng.choice((1, -1))
        word = "after" if step == 1 else "before"
        ask = rng.choice(
            ["Which month comes {} {}?", "What month is {} {}?", "Which month is {} {}?"]
        )
        month, other = MONTHS[i][0], MONTHS[(i + step) % 12][0]
        return simple(
            ask.format(word, month), f"One month {word} {month}.", f"{other} comes {word} {month}."
        )
    if pick == 4:
        name, days = rng.choice(MONTHS)
        ask = rng.choice(["How many days does {} have?", "How many days are in {}?"])
        return simple(ask.format(name), f"The month is {name}.", f"{name} has {days} days.")
    i = rng.randrange(12)
    ask = rng.choice(
        [
            "What is the {} month?",
            "Which month is the {} of the year?",
            "Name the {} month of the year.",
        ]
    )
    return simple(
        ask.format(ORDINALS[i]),
        f"Month number {i + 1}.",
        f"The {ORDINALS[i]} month is {MONTHS[i][0]}.",
    )


def any_talk(rng):
    questions, answer = rng.choice(SMALL_TALK)
    return simple(variation(rng.choice(questions), rng), "A friendly answer is enough.", answer)


def any_copy(rng):
    words = [
        rng.choice(SPELL) if rng.random() < 0.7 else str(rng.randrange(10000))
        for _ in range(rng.randrange(2, 9))
    ]
    text = " ".join(words)
    ask = rng.choice(
        [
            "Repeat: {}",
            "Say this again: {}",
            "Copy this: {}",
            "Write this once more: {}",
            "Echo: {}",
        ]
    )
    return simple(ask.format(text), "I copy the words.", text)


# ----------------------------------------------------------------------------------------- look-ups
RECORDS = [
    ("The code of {} is", "What is the code of {}?", "The code of {} is {}."),
    ("The home of {} is the", "What is the home of {}?", "The home of {} is the {}."),
    (
        "The favourite food of {} is",
        "What is the favourite food of {}?",
        "The favourite food of {} is {}.",
    ),
    (
        "The lucky number of {} is",
        "What is the lucky number of {}?",
        "The lucky number of {} is {}.",
    ),
]
NOTE_WEIGHT = 0.02  # of what notes say beside the values: most of it cannot be foretold
REMINDERS = ["Remember: ", "As I said: ", "Once more: ", "Note again: "]


def _value(kind, rng):
    return (
        lambda: str(rng.randrange(1000, 10000)),
        lambda: rng.choice(PLACES),
        lambda: rng.choice(FOODS),
        lambda: str(rng.randrange(10, 1000)),
    )[kind]()


def filler(rng):
    """A sentence of no importance."""
    return rng.choice(
        [
            lambda: f"The {rng.choice(CREATURES)} {rng.choice(VERBS)} the {rng.choice(COLOURS)} {rng.choice(THINGS)}.",
            lambda: f"A {rng.choice(CREATURES)} went to the {rng.choice(PLACES)} on {rng.choice(DAYS)}.",
            lambda: f"There is a {rng.choice(ADJECTIVES)} {rng.choice(THINGS)} in the {rng.choice(PLACES)}.",
            lambda: f"In {rng.choice(MONTHS)[0]} the {rng.choice(PLACES)} is {rng.choice(ADJECTIVES)}.",
            lambda: f"The {rng.choice(CREATURES)} and the {rng.choice(CREATURES)} had {rng.choice(FOODS)} for supper.",
        ]
    )()


class Document:
    """Records hidden among filler: key -> (value, index of the piece that begins its statement).
    `pieces` are [(text, weight)], cut where no token spans."""

    def __init__(self, rng, length, record_share, reminder_share):
        """length: characters"""
        self.rng, self.records, self.pieces, self.size = rng, {}, [], 0
        self._say(
            rng.choice(["Read these notes.\n", "Here are some notes.\n", "My notes:\n"]), NOTE_WEIGHT
        )
        while self.size < length:
            pick = rng.random()
            if pick < record_share:
                self._record()
            elif pick < record_share + reminder_share and self.records:
                key = rng.choice(list(self.records))
                self._statement(rng.choice(REMINDERS), key, 1.0)
            else:
                self._say(filler(rng) + "\n", NOTE_WEIGHT)
        if not self.records:
            self._record()

    def _say(self, text, weight):
        self.pieces.append((text, weight))
        self.size += len(text)

    def _record(self):
        kind = self.rng.randrange(len(RECORDS))
        who = f"the {self.rng.choice(ADJECTIVES)} {self.rng.choice(CREATURES)}"
        if (kind, who) not in self.records:
            self.records[kind, who] = (_value(kind, self.rng), len(self.pieces))
            self._statement("", (kind, who), 0.0)

    def _statement(self, opening, key, weight):
        """A record, for the first time (its value cannot be known) or again (it can be)."""
        kind, who = key
        value = self.records[key][0]
        # A number's digits are tokens of their own; a word's token has the space before it.
        space, value = (" ", value) if value.isdigit() else ("", " " + value)
        self._say(opening + RECORDS[kind][0].format(who) + space, NOTE_WEIGHT)
        self._say(value, weight)
        self._say(".\n", NOTE_WEIGHT)

    def ask(self, key):
        """A turn about one record; the first turn of a conversation has the notes before it."""
        kind, who = key
        value, _ = self.records[key]
        _, ask, answer = RECORDS[kind]
        return simple(
            ask.format(who),
            f"I look for {who} in the notes. It says {value}.",
            answer.format(who, value),
            f" {value}.",
        )

    def open(self, turn):
        last, weight = self.pieces[-1]
        turn.question = self.pieces[:-1] + [(last + "\n", weight)] + turn.question
        return turn


def lookup_conversation(rng, length, questions):
    record_share = rng.uniform(0.1, 0.45)
    document = Document(rng, length, record_share, rng.uniform(0.1, 0.55) if length > 400 else 0.0)
    keys = rng.sample(list(document.records), min(questions, len(document.records)))
    turns = [document.ask(key) for key in keys]
    document.open(turns[0])
    return turns


SHORT = (
    (any_fact, 20),
    (any_sum, 26),
    (any_product, 26),
    (any_letters, 9),
    (any_order, 6),
    (any_talk, 5),
    (any_copy, 6),
)


def any_turn(rng):
    return rng.choices([task for task, _ in SHORT], [share for _, share in SHORT])[0](rng)
