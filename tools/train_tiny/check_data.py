#!/usr/bin/env python3
"""Checks tokenizer.json and the conversations against ingot, and shows what training sees.

  check_data.py --ingot build/ingot

Text must give the ids of `ingot tokens`, conversations those of its rendered prompt, and the pieces
that carry loss weights the ids of the whole text. Exit status 1 if one differs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import stream
import tasks
from conversation import HERE, Chat


def ingot_ids(ingot, kind, text, *more):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "in"
        file.write_text(text)
        command = [
            ingot,
            "tokens",
            "--model",
            HERE / "tokenizer.json",
            f"--{kind}",
            file,
            "--json",
            *more,
        ]
        answer = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
    return [
        entry if isinstance(entry, int) else entry["id"]
        for entry in answer.get("ids") or answer["tokens"]
    ]


def said(turn):
    return "".join(text for text, _ in turn.question)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ingot", required=True)
    options = parser.parse_args()
    chat, rng, wrong = Chat(), random.Random(5), 0
    text = "\n@@\n".join(
        part
        for _ in range(1000)
        for turn in [tasks.any_turn(rng)]
        for part in (said(turn), turn.thinking, turn.answer)
    )
    text += "Größe: naïve — 日本語 テスト 123456 ½\n\n x\t y  \n lots   of  space \r\n it's a/b_c"
    ids = chat.tokenizer.encode(text).ids
    same = ids == ingot_ids(options.ingot, "input", text)
    wrong += not same
    print(f"text: {len(ids)} ids, {'the same' if same else 'OTHERS'} in ingot")
    for thinking in (False, True):
        agreed = 0
        for _ in range(10):
            turns = tasks.lookup_conversation(rng, 1500, 3)[:2] + [tasks.any_turn(rng)]
            messages, ids = [], []
            for turn in turns[:-1]:
                messages += [
                    {"role": "user", "content": said(turn)},
                    {"role": "assistant", "content": turn.answer},
                ]
                ids += chat.turn(turn, not ids, False).ids
            messages.append({"role": "user", "content": said(turns[-1])})
            ids += chat.prompt(turns[-1], False, thinking).ids
            agreed += ids == ingot_ids(
                options.ingot,
                "messages",
                json.dumps(messages),
                "--thinking",
                "high" if thinking else "none",
            )
            agreed -= any(
                [i for text, _ in t.question for i in chat.encode(text)] != chat.encode(said(t))
                for t in turns
            )
        wrong += agreed != 10
        print(f"conversations, thinking {thinking}: {agreed} of 10 the same in ingot")
    for length in (128, 1024, 4096):
        ids, weights = stream.batch(chat, rng, length, 65536)
        print(
            f"length {length}: {100 * (ids != chat.pad).mean():.0f} % filled, "
            f"{100 * (weights > 0.5).mean():.0f} % of tokens fully weighted"
        )
    ids, _ = stream.batch(chat, rng, 128, 512)
    for row in ids:
        print(
            "  "
            + repr(
                chat.tokenizer.decode(
                    [i for i in row.tolist() if i != chat.pad], skip_special_tokens=False
                )
            )
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
