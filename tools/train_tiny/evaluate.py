#!/usr/bin/env python3
"""Asks an exported ingot-tiny what it was taught, through `ingot generate` (greedy, reference engine).

  evaluate.py MODEL --ingot build/ingot             everything, about ten minutes of one core
  evaluate.py MODEL --ingot build/ingot --sample    about a minute
  evaluate.py MODEL --sample --questions FILE       asks nothing: writes requests with what is wanted

Kept back from training: phrasings not seen with this fact, phrasings not seen at all, operand pairs
of sums not seen. Look-ups and copies are newly drawn; products, letters and orders are all trained. An answer is right if it contains the fact. Prints
a table and, with --json FILE, writes it; exit status 1 if a requirement is missed.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import exam
import tasks
from conversation import Chat

# What the model must reach, where a set has such a bound.
REQUIRED = {
    "named": 1.0,
    "held facts": 0.95,
    "held sums": 0.80,
    "look-up at 200": 0.90,
    "look-up at 1000": 0.90,
}
DISTANCES = (50, 200, 500, 1000, 2000, 3000, 4000)
MANY = (50, 200, 1000)  # of these a hundred are asked, of the others thirty: prefill takes the time


def named():
    """The questions that the model's card answers for."""
    questions = [("What is 17 × 23?", "391"), ("What is the capital of France?", "Paris")]
    return [[tasks.simple(q, "", a)] for q, a in questions]


def distinct(n, draw):
    """n of the questions that draw() makes, none twice."""
    found = {}
    while len(found) < n:
        ((turn,),) = draw()
        found.setdefault(turn.question[0][0], [turn])
    return list(found.values())


def question_sets(sample, chat):
    rng = random.Random(11)
    n = 20 if sample else 200

    def facts(n, kept):
        return distinct(n, lambda: exam.fact_turns(1, kept, rng))

    def sums(n):
        return distinct(n, lambda: exam.sum_turns(1, rng))

    sets = {
        "named": (named(), False),
        "named, thinking": (named(), True),
        "held facts": (facts(n, "held"), False),
        "held facts, thinking": (facts(n // 2, "held"), True),
        "unseen phrasings": (facts(n, "unseen"), False),
        "held sums": (sums(n), False),
        "held sums, thinking": (sums(n // 2), True),
        "products": ([[tasks.any_product(rng)] for _ in range(n)], False),
        "products, thinking": ([[tasks.any_product(rng)] for _ in range(n // 2)], True),
        "letters": ([[tasks.any_letters(rng)] for _ in range(n // 2)], False),
        "order": ([[tasks.any_order(rng)] for _ in range(n // 2)], False),
        "copy": ([[tasks.any_copy(rng)] for _ in range(n // 2)], False),
    }
    for distance in DISTANCES:
        if not sample or distance <= 1000:
            few = n // 5 if sample else 100 if distance in MANY else 30
            sets[f"look-up at {distance}"] = (exam.lookup_turns(few, distance, chat, rng), False)
    return sets


def requests(sets):
    for name, (turns, thinking) in sets.items():
        for i, (turn,) in enumerate(turns):
            body = {
                "messages": [
                    {"role": "user", "content": "".join(text for text, _ in turn.question)}
                ],
                "max_tokens": 120 if thinking else 60,
                "temperature": 0,
                "reasoning_effort": "high" if thinking else "none",
            }
            yield {
                "custom_id": f"{name}|{i}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": body,
            }, turn


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--ingot", default="build/ingot")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="also write the counts")
    parser.add_argument(
        "--questions", metavar="FILE", help='write {"request": …, "expect": …} lines and ask nothing'
    )
    parser.add_argument("--show", type=int, default=2, help="wrong answers shown of each set")
    options = parser.parse_args()
    chat = Chat(pathlib.Path(options.model) / "tokenizer.json")
    asked = {
        line["custom_id"]: (line, turn)
        for line, turn in requests(question_sets(options.sample, chat))
    }
    if options.questions:
        pathlib.Path(options.questions).write_text(
            "".join(
                json.dumps({"request": line, "expect": turn.expect}, ensure_ascii=False) + "\n"
                for line, turn in asked.values()
            )
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        source, target = (
            pathlib.Path(folder) / "questions.jsonl",
            pathlib.Path(folder) / "answers.jsonl",
        )
        source.write_text("".join(json.dumps(line) + "\n" for line, _ in asked.values()))
        # 1 is that some requests failed: they count as wrong
        status = subprocess.run(
            [
                options.ingot,
                "generate",
                "--model",
                options.model,
                "--device",
                "cpu",
                "--threads",
                str(options.threads),
                "--input",
                source,
                "--output",
                target,
                "--quiet",
            ]
        ).returncode
        if status not in (0, 1):
            sys.exit(f"evaluate.py: ingot generate ended with status {status}")
        answers = [json.loads(line) for line in target.read_text().splitlines()]
    results, shown = {}, {}
    for answer in answers:
        name = answer["custom_id"].partition("|")[0]
        response = answer.get("response") or {}
        choices = (response.get("body") or {}).get("choices") or [{}]
        text = choices[0].get("message", {}).get("content") or ""
        turn = asked[answer["custom_id"]][1]
        right = turn.expect in text
        results.setdefault(name, []).append(right)
        if not right and shown.setdefault(name, 0) < options.show:
            shown[name] += 1
            print(f"  {name}: {turn.question[-1][0]!r} -> {text!r}, wanted {turn.expect!r}")
    missed = []
    for name, rows in results.items():
        share = sum(rows) / len(rows)
        bound = REQUIRED.get(name)
        good = bound is None or share >= bound
        missed += [] if good else [name]
        print(
            f"{name:24} {sum(rows):4} of {len(rows):4}  {100 * share:5.1f} %"
            + (
                ""
                if bound is None
                else f"  (at least {100 * bound:.0f} %: {'met' if good else 'MISSED'})"
            )
        )
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({n: [sum(r), len(r)] for n, r in results.items()}, indent=1) + "\n"
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
