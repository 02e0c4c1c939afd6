#!/usr/bin/env python3
"""What the model has learned, measured in forward passes.

  exam.py MODEL [--rows 64] [--lengths 128,1024]     of an exported checkpoint, as JSON

Greedy decoding gives exactly the wanted answer if and only if, with the wanted answer as input, the
likeliest token at each of its positions is the wanted one. So one pass over whole conversations
answers hundreds of questions. All questions are kept back from training, but for products.
"""

import argparse
import json
import random

import torch

import checkpoint
import tasks
from conversation import Chat
from facts import COUNTRIES
from model import Config, Model, State


def fact_turns(n, kept, rng):
    turns = []
    while len(turns) < n:
        kind = rng.choice(list(tasks.FACTS))
        turn, how = tasks.fact(kind, rng.randrange(tasks.FACTS[kind][1]), rng.randrange(64))
        if how == kept:
            turns.append([turn])
    return turns


def sum_turns(n, rng):
    turns = []
    while len(turns) < n:
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
        if tasks.held_out("sum", min(a, b), max(a, b)):
            turns.append([tasks.sum_turn(a, b, rng.randrange(64))])
    return turns


def lookup_turns(n, distance, chat, rng):
    """One question each about a value whose statement begins about `distance` tokens (within a tenth)
    before the end of the notes."""
    turns = []
    while len(turns) < n:
        document = tasks.Document(
            rng, int((distance * rng.uniform(1.0, 1.12) + 30) * 4.6), 0.3, 0.0
        )
        sizes = [len(chat.encode(text)) for text, _ in document.pieces]
        whole = sum(sizes)
        starts = {key: whole - sum(sizes[:at]) for key, (_, at) in document.records.items()}
        key = min(starts, key=lambda k: abs(starts[k] - distance))
        if abs(starts[key] - distance) <= max(10, distance // 10):
            turns.append([document.open(document.ask(key))])
    return turns


def sets(n, lengths, chat):
    rng = random.Random(20)
    longest = lengths[-1]
    france = next(i for i, (country, _) in enumerate(COUNTRIES) if country == "France")
    out = {
        "named": ([[tasks.product_turn(17, 23, 0)], [tasks.fact("capital", france, 0)[0]]], False),
        "held facts": (fact_turns(n, "held", rng), False),
        "held facts, thinking": (fact_turns(n, "held", rng), True),
        "unseen phrasings": (fact_turns(n, "unseen", rng), False),
        "held sums": (sum_turns(n, rng), False),
        "held sums, thinking": (sum_turns(n, rng), True),
        "products": ([[tasks.any_product(rng)] for _ in range(n)], False),
        "products, thinking": ([[tasks.any_product(rng)] for _ in range(n)], True),
        "letters": ([[tasks.any_letters(rng)] for _ in range(n)], False),
        "copy": ([[tasks.any_copy(rng)] for _ in range(n)], False),
    }
    for distance in (50, 200, 700, 1000, 2000, 3000, 3500):
        if distance * 1.15 + 60 < longest:
            few = max(8, n // (1 if distance < 500 else 4))
            out[f"look-up at {distance}"] = (lookup_turns(few, distance, chat, rng), False)
    return out


def answer_span(turn, thinking, chat):
    """-> ids of prompt and answer, index of the answer's first token"""
    prompt = chat.prompt(turn, True, thinking).ids
    whole = chat.turn(turn, True, thinking).ids
    return whole, len(prompt)


@torch.no_grad()
def run(model, n, lengths, device):
    """-> {name: share of exact answers}, and the share of draft tokens that the model agrees with"""
    chat, results = Chat(), {}
    w = model.stored()
    drafts = agreed = 0
    for name, (turns, thinking) in sets(n, lengths, chat).items():
        spans = [answer_span(turn[0], thinking, chat) for turn in turns]
        spans = [s for s in spans if len(s[0]) <= lengths[-1]]
        if not spans:
            continue
        right = 0
        length = min(T for T in lengths if T >= max(len(s[0]) for s in spans))
        rows = max(1, (32768 if device == "cuda" else 2048) // length)
        for begin in range(0, len(spans), rows):
            part = spans[begin : begin + rows]
            ids = torch.full((rows if device == "cuda" else len(part), length), chat.pad)
            counted = torch.zeros_like(ids, dtype=torch.bool)
            for row, (tokens, first) in enumerate(part):
                ids[row, : len(tokens)] = torch.tensor(tokens)
                counted[row, first : len(tokens)] = True
            ids, counted = ids.to(device), counted.to(device)
            x = model.trunk(ids, w, State())
            best = model.logits(model.final(x, w), w).argmax(-1)
            good = (best[:, :-1] == ids[:, 1:]) | ~counted[:, 1:]
            right += int(good.all(1)[: len(part)].sum())
            if model.c.mtp:  # the draft of p + 2 against what the model itself says at p + 1
                next_ids = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=chat.pad)
                draft = model.logits(model.draft(x, next_ids, w, State()), w).argmax(-1)
                counts = counted[:, 2:]
                drafts += int(counts.sum())
                agreed += int(((draft[:, :-2] == best[:, 1:-1]) & counts).sum())
        results[name] = round(right / len(spans), 4)
    if drafts:
        results["drafts agree"] = round(agreed / drafts, 4)
    return results


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=64, help="questions of each kind")
    parser.add_argument(
        "--lengths",
        default="128,1024,4096",
        help="of sequences; look-ups that do not fit are left out",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Model(Config(f"{options.model}/config.json"), options.device)
    checkpoint.load(model, options.model)
    print(
        json.dumps(
            run(model, options.rows, [int(n) for n in options.lengths.split(",")], options.device),
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
