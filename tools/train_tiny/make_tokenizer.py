#!/usr/bin/env python3
"""Makes tokenizer.json: byte-level BPE with DeepSeek-V4's pre-tokeniser stages and chat markers.

  make_tokenizer.py REAL_TOKENIZER.json OUT.json

Trained on the text of tasks.py with the package `tokenizers`. No token spans two digits, so that
arithmetic is about digits; the markers have the first and the last ids.
"""

import argparse
import json
import pathlib
import random
import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import tasks

MARKERS = """<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜▁pad▁｜> <｜User｜> <｜Assistant｜> <think> </think> ｜DSML｜
<｜latest_reminder｜> <｜action｜> <｜query｜> <｜authority｜> <｜domain｜> <｜title｜> <｜read_url｜>""".split()
# English that the tasks do not have, so that other text is not spelt in single bytes.
GENERAL = """the and that have for not with you this but his from they say her she will one all would there their what so
up out if about who get which go me when make can like time no just him know take people into year your good some could
them see other than then now look only come its over think also back after use two how our work first well way even new
want because any these give day most us is are was were been has had did does do is it in on at by an or as be we he I
my am please thanks system message answer question short long number word name list text file line write read model""".split()


def corpus(sentences, seed=1):
    rng = random.Random(seed)
    for _ in range(sentences):
        turn = tasks.any_turn(rng)
        yield from (text for text, _ in turn.question)
        yield turn.thinking
        yield turn.answer
        yield tasks.filler(rng)
    for turn in tasks.lookup_conversation(rng, 40000, 2000):
        yield from (text for text, _ in turn.question)
        yield turn.answer
    for _ in range(30):
        yield " ".join(GENERAL)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("real")
    parser.add_argument("out")
    parser.add_argument("--vocab", type=int, default=2560)
    options = parser.parse_args()
    stages = json.loads(pathlib.Path(options.real).read_text())
    tokenizer = Tokenizer(models.BPE())
    splits = [
        pre_tokenizers.Split(Regex(s["pattern"]["Regex"]), "isolated")
        for s in stages["pre_tokenizer"]["pretokenizers"][:-1]
    ]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    leading, trailing = MARKERS[:3], MARKERS[3:]
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab - len(trailing),
        special_tokens=leading,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((re.sub(r"\d+", "7", text) for text in corpus(60000)), trainer)
    trained = json.loads(tokenizer.to_str())
    vocab, merges = trained["model"]["vocab"], trained["model"]["merges"]
    entries = [
        {
            "id": i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, text in enumerate(leading)
    ]
    first = options.vocab - len(trailing)
    assert len(vocab) == first, f"the corpus gave {len(vocab)} entries, not {first}"
    entries += [
        {
            "id": first + i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": text.startswith("<｜"),
        }
        for i, text in enumerate(trailing)
    ]
    out = {key: stages[key] for key in ("version", "truncation", "padding")}
    out["added_tokens"] = entries
    out |= {
        key: stages[key] for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    }
    out["model"] = {
        **{k: v for k, v in stages["model"].items() if k not in ("vocab", "merges")},
        "vocab": vocab,
        "merges": merges,
    }
    pathlib.Path(options.out).write_text(
        json.dumps(out, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n"
    )
    longest = sorted((t for t in vocab), key=len)[-5:]
    print(f"{options.out}: {options.vocab} ids, {len(merges)} merges; longest {longest}")


if __name__ == "__main__":
    main()
