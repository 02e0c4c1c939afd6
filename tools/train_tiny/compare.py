#!/usr/bin/env python3
"""Compares the PyTorch model with ingot's reference engine, and with a numpy oracle block by block.

  compare.py CHECKPOINT --ingot build/ingot [--length 200] [--tasks]
  compare.py CHECKPOINT --oracle ORACLE.py [--length 200]

With --ingot: logits after every token of one sequence, from `ingot score`. Random weights amplify
every rounding, so the whole model is compared statistically: median relative logit error under 0.10
and the same argmax at 85 % of positions. With --oracle: each block on the oracle's own input of that
block, against the tolerances that a right implementation stays under. Exit status 1 if one is missed.
"""

import argparse
import importlib.util
import json
import random
import subprocess
import sys

import torch

import checkpoint
import stream
from conversation import Chat
from model import Config, Model, State

# ‖a − b‖ / ‖b‖ over all rows, and the same of the worst row
TOLERANCE = {
    "q": (5e-3, 5e-2),
    "o": (3e-3, 5e-2),
    "attn_out": (1.5e-2, 5e-2),
    "ffn_out": (1.5e-2, 5e-2),
}
DEFAULT_TOLERANCE = (1e-3, 5e-2)


def relative(a, b):
    a, b = a.float().flatten(1), b.float().flatten(1)
    worst = ((a - b).norm(dim=1) / b.norm(dim=1).clamp_min(1e-9)).max().item()
    return ((a - b).norm() / b.norm()).item(), worst


def compare_logits(model, ids, ingot, folder):
    top = min(model.c.vocab, 1000)  # the most that score lists: the likeliest
    command = [
        ingot,
        "score",
        "--model",
        folder,
        "--device",
        "cpu",
        "--threads",
        "1",
        "--top",
        str(top),
        "--json",
        "--tokens",
        ",".join(map(str, ids)),
    ]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    listed = torch.tensor(
        [[token for token, _, _ in position["top"]] for position in answer["positions"]]
    )
    theirs = torch.tensor(
        [[logit for _, logit, _ in position["top"]] for position in answer["positions"]]
    )
    with torch.no_grad():
        w = model.stored()
        ours = model.logits(
            model.final(model.trunk(torch.tensor([ids]), w, State(exact=True)), w), w
        )[0]
    error = (ours.gather(1, listed) - theirs).norm(dim=1) / theirs.norm(dim=1)
    same = (ours.argmax(1) == listed[:, 0]).float().mean().item()
    nll = torch.nn.functional.cross_entropy(ours[:-1], torch.tensor(ids[1:])).item()
    print(
        f"{len(ids)} positions: relative logit error median {error.median():.4f}, largest {error.max():.4f}, "
        f"same argmax {100 * same:.1f} %; mean nll {nll:.4f} here, {answer['mean_nll']:.4f} ingot"
    )
    return error.median().item() < 0.10 and same >= 0.85


def check(name, ours, theirs, results):
    part = name.rpartition(".")[2]
    bound, bound_row = TOLERANCE.get(part, DEFAULT_TOLERANCE)
    error, worst = relative(ours, theirs)
    good = error <= bound and worst <= bound_row
    results.setdefault(part, []).append((error, worst, good))
    if not good:
        print(
            f"  {name}: {error:.2e} (bound {bound:.1e}), worst row {worst:.2e} (bound {bound_row:.1e})"
        )


def compare_picks(scores, picks, counts):
    """-> which rows chose the same blocks; appends (same, excused) of each row, excused being a
    choice between scores closer than 1 % of the row's range: one FP4 rounding of a key or query that
    flips moves a score that far."""
    same = torch.ones(len(scores), dtype=torch.bool)
    for i, (row, theirs) in enumerate(zip(scores, picks)):
        theirs = set(theirs[theirs >= 0].tolist())
        order = row.argsort(descending=True)
        n = len(theirs)
        same[i] = set(order[:n].tolist()) == theirs
        finite = row[row.isfinite()]
        close = (
            n == 0
            or n == len(finite)
            or row[order[n - 1]] - row[order[n]] < 1e-2 * (finite.max() - finite.min())
        )
        counts.append((bool(same[i]), bool(close)))
    return same


def compare_blocks(model, ids, oracle_path, folder):
    spec = importlib.util.spec_from_file_location("oracle", oracle_path)
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    reference = oracle.Oracle(folder)
    reference.trace = {}
    _, hidden = reference.forward(ids, {}, every=True)
    # All rows of the MTP block: its own forward keeps the last row's logits alone.
    reference.keep("mtp.in", hidden[:-1])
    draft_logits = torch.tensor(reference.mtp_forward(hidden[:-1], ids[1:], {}))
    trace = {k: torch.tensor(v) for k, v in reference.trace.items()}
    results, missed, picks = {}, 0, []
    with torch.no_grad():
        w = model.stored()
        tokens = torch.tensor([ids])
        x = (
            torch.nn.functional.embedding(tokens[0], w["embed.weight"])
            .unsqueeze(1)
            .expand(-1, model.c.hc, -1)
        )
        blocks = [(f"layers.{i}", i) for i in range(model.c.layers)] + [
            ("mtp.0", model.c.layers)
        ] * model.c.mtp
        for p, layer in blocks:
            state = State(exact=True, trace={})
            at = tokens[:, 1:] if p == "mtp.0" else tokens
            if p == "mtp.0":
                x = None
                u = trace[p + ".attn_in"][None].bfloat16()
            else:
                u, post, comb = model.hyper(x, w, p + ".hc_attn", p + ".attn_norm.weight")
                check(p + ".attn_in", u, trace[p + ".attn_in"], results)
                check(p + ".attn_comb", comb, trace[p + ".attn_comb"], results)
                check(p + ".attn_post", post, trace[p + ".attn_post"], results)
                u = trace[p + ".attn_in"][None].bfloat16()
            y = model.attention(u, w, layer, p + ".attn", state)
            for part in ("q", "kv", "compressed"):
                if f"{p}.{part}" in state.trace:
                    check(
                        f"{p}.{part}", state.trace[f"{p}.{part}"][0], trace[f"{p}.{part}"], results
                    )
            same = torch.ones(y.shape[1], dtype=torch.bool)  # rows whose blocks are the oracle's
            if p + ".index_picks" in trace:
                same = compare_picks(
                    state.trace[p + ".index_score"][0], trace[p + ".index_picks"], picks
                )
            check(p + ".o", state.trace[p + ".o"][0][same], trace[p + ".o"][same], results)
            check(p + ".attn_out", y[0][same], trace[p + ".attn_out"][same], results)
            z = trace[p + ".ffn_in"].bfloat16()
            state = State(exact=True)
            y = model.moe(z, at[0], w, layer, p + ".ffn", state)
            check(p + ".ffn_out", y, trace[p + ".ffn_out"], results)
            x = trace[p + ".out"].bfloat16()
        ours = model.logits(
            model.final(trace[f"layers.{model.c.layers - 1}.out"][None].bfloat16(), w), w
        )[0]
        check("logits", ours, trace["logits"], results)
        if model.c.mtp:
            h = trace["mtp.in"][None].bfloat16()
            ours = model.logits(model.draft(h, tokens[:, 1:], w, State(exact=True)), w)[0, -1:]
            error, _ = relative(ours, draft_logits)
            print(f"mtp.0 whole, last position: relative logit error {error:.4f}")
    for part, rows in results.items():
        missed += sum(not good for _, _, good in rows)
        print(
            f"{part:12} {len(rows)} blocks: largest error {max(r[0] for r in rows):.2e}, "
            f"worst row {max(r[1] for r in rows):.2e}"
        )
    if picks:
        wrong = sum(not same and not close for same, close in picks)
        print(
            f"index picks  {sum(same for same, _ in picks)} of {len(picks)} rows chose the same blocks, {wrong} of the "
            "others by more than a near tie"
        )
        missed += wrong
    return missed == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("--ingot")
    parser.add_argument("--oracle")
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument(
        "--tasks",
        action="store_true",
        help="a conversation as it is trained, of at most that length, instead of random ids",
    )
    parser.add_argument("--tokens", help="comma-separated ids instead of random ones")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Model(Config(f"{options.checkpoint}/config.json"))
    checkpoint.load(model, options.checkpoint)
    rng = random.Random(options.seed)
    if options.tasks:
        make = stream.short_sequence if options.length <= 256 else stream.long_sequence
        ids, _ = make(Chat(f"{options.checkpoint}/tokenizer.json"), rng, options.length)
    else:
        ids = [rng.randrange(model.c.vocab) for _ in range(options.length)]
    if options.tokens:
        ids = [int(t) for t in options.tokens.split(",")]
    good = True
    if options.ingot:
        good &= compare_logits(model, ids, options.ingot, options.checkpoint)
    if options.oracle:
        good &= compare_blocks(model, ids, options.oracle, options.checkpoint)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
