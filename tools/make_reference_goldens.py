#!/usr/bin/env python3
"""Makes the golden files that the reference engine is tested against.

  make_reference_goldens.py ORACLE.py          writes tests/golden/reference/*.safetensors.zst
  make_reference_goldens.py ORACLE.py --full   writes tests/golden/reference/full/ (git ignores it):
                                               every layer and every row, for
                                               reference_tests "[.oracle]"

ORACLE.py is a numpy implementation of the model with the functions `synth`, `Oracle`, `pack` and
`write_safetensors`. Needs python3, numpy and the zstd program.
"""
import argparse
import importlib.util
import pathlib
import random
import subprocess
import tempfile

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "reference"
PROMPT_TOKENS = 200
# First token, block boundaries of 4 and 128, the window's edge, the last token.
ROWS = [0, 3, 4, 127, 128, 131, 160, 199]
GREEDY_PROMPT, GREEDY_TOKENS = 12, 24

# name: (seed, layers kept in the small golden). Each kind of layer, hash and gate routing, is there.
MODELS = {
    "tiny": (1, ["layers.0", "layers.2", "layers.3", "mtp.0"]),
    "tiny-tp": (1, ["layers.1", "layers.2"]),
    "mix": (3, ["layers.0", "layers.1"]),
}
ALL_ROWS = ("attn_in", "compressed", "index_k")  # what later rows of a block depend on


def load_oracle(path):
    spec = importlib.util.spec_from_file_location("oracle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def greedy(model, vocab, rng):
    """Prompt, continuation, and for each step the best two logits and the rms of all."""
    prompt = [rng.randrange(vocab) for _ in range(GREEDY_PROMPT)]
    state, current, tokens, gaps = {}, prompt, [], []
    for _ in range(GREEDY_TOKENS):
        logits, _ = model.forward(current, state)
        best = np.argsort(-logits[0], kind="stable")[:2]
        tokens.append(int(best[0]))
        gaps.append([float(logits[0, best[0]]), float(logits[0, best[1]]),
                     float(np.sqrt((logits ** 2).mean()))])
        current = [tokens[-1]]
    return np.array(prompt), np.array(tokens), np.array(gaps, np.float32)


def dump(oracle, model, vocab, rng):
    ids = [rng.randrange(vocab) for _ in range(PROMPT_TOKENS)]
    model.trace = {}
    _, hidden = model.forward(ids, {}, every=True)
    model.keep("mtp.0.logits", model.mtp_forward(hidden[:-1], ids[1:], {}))
    trace, model.trace = model.trace, None
    trace["tokens"] = np.array(ids)
    return trace


def previous(layer):
    """The tensor that holds the streams in front of a layer; none in front of layer 0 and mtp.0."""
    prefix, index = layer.rsplit(".", 1)
    return f"layers.{int(index) - 1}.out" if prefix == "layers" and index != "0" else None


def small(oracle, trace, layers, last_layer):
    kept = {"tokens": trace["tokens"], "rows": np.array(ROWS), "logits": oracle.bf16(trace["logits"])}
    for name, value in trace.items():
        layer, _, what = name.rpartition(".")
        if layer in layers and what != "logits":
            rows = [r for r in ROWS if r < len(value)]  # the MTP block has one position less
            kept[name] = value if what in ALL_ROWS else value[rows]
    for layer in layers:
        if previous(layer):
            kept[previous(layer)] = trace[previous(layer)][ROWS]
    if "mtp.0" in layers:
        kept["mtp.0.logits"] = trace["mtp.0.logits"]
        kept["hidden"] = trace[f"layers.{last_layer}.out"]
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle")
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    oracle = load_oracle(options.oracle)
    for name, (seed, layers) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            oracle.synth(GOLDEN / f"{name}.json", folder, seed)
            model = oracle.Oracle(folder)
            rng = random.Random(11)
            trace = dump(oracle, model, model.c.vocab, rng)
            last_layer = model.c.layers - 1
            if options.full:
                kept = dict(trace, rows=np.arange(PROMPT_TOKENS),
                            hidden=trace[f"layers.{last_layer}.out"])
            else:
                kept = small(oracle, trace, layers, last_layer)
            kept["greedy_prompt"], kept["greedy_tokens"], kept["greedy_gaps"] = greedy(
                model, model.c.vocab, rng)
            out = GOLDEN / "full" if options.full else GOLDEN
            out.mkdir(exist_ok=True)
            plain = out / f"{name}.safetensors"
            oracle.write_safetensors(plain, {k: oracle.pack(v) for k, v in kept.items()})
            if not options.full:
                subprocess.run(["zstd", "-19", "-q", "-f", "--rm", plain], check=True)


if __name__ == "__main__":
    main()
