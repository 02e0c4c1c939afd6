#!/usr/bin/env python3
"""Compares the tokenizer with PyPI's `tokenizers` (pip install tokenizers). For developers.

  tools/check_tokenizer.py golden            writes tests/golden/text/corpus_ids.json: digests of the ids that the
                                             library gives for the corpus of tests/golden/text/corpus.json
  tools/check_tokenizer.py compare [FILE …]  compares `build/ingot tokens` with the library, id by id, on the corpus
                                             or on the files
  tools/check_tokenizer.py unicode           prints src/text/unicode_since_14.inc: the characters that the library
                                             puts in another category than Unicode 14 does (run by Python 3.11)
"""
import array
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/text"


def corpus():
    """The corpus; tests/support/text_corpus.cpp makes the same bytes."""
    recipe = json.loads((GOLDEN / "corpus.json").read_text(encoding="utf-8"))
    fragments = [text.encode() for text in recipe["fragments"]]
    fragments += [bytes.fromhex(text) for text in recipe["hex_fragments"]]
    mask = (1 << 64) - 1
    state = recipe["seed"]

    def random(below):
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 32) % below

    out = bytearray()
    while len(out) < recipe["bytes"]:
        kind = random(16)
        if kind < 13:
            out += fragments[random(len(fragments))]
        elif kind < 14:
            out += fragments[random(len(fragments))] * (1 + random(40))
        else:  # any character of the first planes
            point = random(0x20000)
            out += chr(point).encode() if not 0xD800 <= point < 0xE000 else b" "
    return bytes(out)


def libraries():
    """The library with the tokenizer's added tokens, and without them (text typed by a user)."""
    from tokenizers import Tokenizer
    packed = ROOT / "configs/deepseek-v4-flash/tokenizer.json.zst"
    file = json.loads(subprocess.run(["zstd", "-dc", packed], check=True, capture_output=True).stdout)
    whole = Tokenizer.from_str(json.dumps(file))
    file["added_tokens"] = []
    return {"recognise": whole, "as_text": Tokenizer.from_str(json.dumps(file))}


def encode(library, data):
    return library.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids


def digest(ids):
    return hashlib.sha256(array.array("i", ids).tobytes()).hexdigest()


def golden():
    data = corpus()
    result = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for name, library in libraries().items():
        ids = encode(library, data)
        result[name] = {"count": len(ids), "sha256": digest(ids)}
    (GOLDEN / "corpus_ids.json").write_text(json.dumps(result, indent=1) + "\n")


def compare(files):
    failed = False
    texts = {name: pathlib.Path(name).read_bytes() for name in files} or {"corpus": corpus()}
    for name, data in texts.items():
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            for added, library in libraries().items():
                command = [ROOT / "build/ingot", "tokens", "--model", ROOT / "configs/deepseek-v4-flash", "--input",
                           file.name, "--json"] + (["--allow-special"] if added == "recognise" else [])
                ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["ids"]
                theirs = encode(library, data)
                if ours == theirs:
                    print(f"{name} {added}: {len(ours)} ids, equal")
                    continue
                failed = True
                at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
                print(f"{name} {added}: differ at id {at}: {ours[at:at + 6]}, library {theirs[at:at + 6]} "
                      f"{library.decode(theirs[at:at + 6], skip_special_tokens=False)!r}")
    return failed


def unicode():
    import tokenizers
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, points))
    new = {}
    for category in "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf".split():
        others = set()  # what is left when the category is removed
        for piece, _ in Split(Regex(r"\p{%s}" % category), "removed").pre_tokenize_str(text):
            others.update(map(ord, piece))
        new.update({c: category for c in points if c not in others and unicodedata.category(chr(c)) != category})
    print(f"// Made by tools/check_tokenizer.py unicode: what the library behind PyPI tokenizers {tokenizers.__version__} knows\n"
          "// and Unicode 14 does not, or puts in another category.")
    first = last = None
    for c in sorted(new) + [None]:
        if last is not None and c is not None and c == last + 1 and new[c] == new[last]:
            last = c
            continue
        if last is not None:
            print(f"{{0x{first:X}, 0x{last:X}, Category::{new[last]}}},")
        first = last = c


if __name__ == "__main__":
    if sys.argv[1:] == ["golden"]:
        golden()
    elif sys.argv[1:2] == ["compare"]:
        sys.exit(compare(sys.argv[2:]))
    elif sys.argv[1:] == ["unicode"]:
        unicode()
    else:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
