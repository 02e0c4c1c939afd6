#!/usr/bin/env python3
"""Trains ingot-tiny and exports it as an official checkpoint folder.

  train.py --out DIR --minutes 9            on a GPU: everything else has its default
  train.py --out DIR --device cpu --steps 40 --tokens 2048 --lengths 128 --workers 1

The schedule follows the clock, not a number of steps, so that a run of any speed ends with its
learning rate at the end. --state FILE keeps master weights and optimizer, and --resume goes on from
it; --init DIR starts from an exported checkpoint, where no state file came back.
"""

import argparse
import json
import pathlib
import random
import time

START = time.monotonic()  # before PyTorch is read, which takes its time on a fresh machine

import torch

import checkpoint
import exam
import tokenwise
from model import Config, Model, State
from stream import Stream

HERE = pathlib.Path(__file__).resolve().parent
MTP_WEIGHT, INDEX_WEIGHT, BIAS_SPEED = 0.3, 1.0, 1e-3
# Until the first share of the run queries see all blocks, after the second only those the indexer chose, between
# them by turns: what is never attended to teaches the indexer nothing.
SPARSE_FROM, SPARSE_ONLY = 0.45, 0.8
LONGEST_FROM = 0.35  # and after which the longest sequences come in


def options_of():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--out", required=True, help="folder of the exported checkpoint")
    p.add_argument("--log", help="JSON lines of what was measured (default OUT/train.jsonl)")
    p.add_argument("--config", default=HERE / "config.json")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument(
        "--minutes", type=float, help="of the whole process, its start and the last export included"
    )
    p.add_argument("--steps", type=int, help="instead of --minutes")
    p.add_argument("--tokens", type=int, default=32768, help="of one step")
    p.add_argument("--lengths", default="128,1024,4096", help="of sequences, ascending")
    p.add_argument("--shares", default="0.55,0.32,0.13", help="of steps, for each length")
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--compile", choices=("on", "off"), help="default: on where there is a GPU")
    p.add_argument("--init", help="exported checkpoint to start from")
    p.add_argument(
        "--progress",
        type=float,
        default=0.0,
        help="where on the schedule to begin, 0 to 1: with --init, 0.4 say",
    )
    p.add_argument(
        "--state", help="file for master weights and optimizer, written every minute and at the end"
    )
    p.add_argument("--resume", action="store_true", help="go on from --state where it exists")
    options = p.parse_args()
    if (options.minutes is None) == (options.steps is None):
        p.error("give --minutes or --steps, one of them")
    return options


def learning_rate(progress):
    """Warm-up, plateau, and a straight line down: the rounding of FP4 weights needs a quiet end."""
    if progress < 0.03:
        return progress / 0.03
    return 1.0 if progress < 0.5 else max(0.02, (1 - progress) / 0.5)


def optimizer_of(model, lr, device):
    """Matrices decay; norms, biases, mixes and embeddings do not."""
    decayed, plain = [], []
    for key, w in model.params.items():
        (decayed if model.kinds[key.replace("/", ".")] in ("fp8", "fp4") else plain).append(w)
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-10, fused=device == "cuda")


class Trainer:
    def __init__(self, options):
        self.o = options
        self.device = options.device
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        if self.device == "cpu":
            torch.set_num_threads(1)
        self.lengths = [int(n) for n in options.lengths.split(",")]
        self.shares = [float(s) for s in options.shares.split(",")][: len(self.lengths)]
        self.stream = Stream(options.tokens, self.lengths, options.workers, options.seed)
        self.model = Model(Config(options.config), self.device, options.seed)
        if options.init:
            checkpoint.load(self.model, options.init)
        self.optimizer = optimizer_of(self.model, options.lr, self.device)
        self.step, self.progress_before, self.trained_seconds = 0, options.progress, 0.0
        self.taken = [0.0] * len(self.lengths)
        self.rng = random.Random(options.seed)
        self.sums, self.skipped = {}, 0
        self.best, self.lr_scale = float("inf"), 1.0
        self.state_file = pathlib.Path(options.state) if options.state else None
        if options.resume and self.state_file and self.state_file.exists():
            self.load_state()
        out = pathlib.Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        self.log_file = open(options.log or out / "train.jsonl", "a")
        self.started = None

    # -- state
    def save_state(self):
        if not self.state_file:
            return
        self.state_file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.state_file.with_suffix(".partial")
        torch.save(
            {
                "model": self.model.state_dict(),
                "fixed": self.model.fixed,
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "progress": self.progress(),
                "seconds": self.seconds(),
            },
            partial,
        )
        partial.rename(self.state_file)

    def load_state(self):
        kept = torch.load(self.state_file, map_location=self.device)
        self.model.load_state_dict(kept["model"])
        self.model.fixed = kept["fixed"]
        self.optimizer.load_state_dict(kept["optimizer"])
        self.step, self.progress_before, self.trained_seconds = (
            kept["step"],
            kept["progress"],
            kept["seconds"],
        )
        if self.progress_before >= 1:
            self.progress_before = 0.5  # a finished run that goes on: down the slope once more

    # -- clock
    def seconds(self):
        return self.trained_seconds + (time.monotonic() - self.started if self.started else 0)

    def progress(self):
        """0 … 1 of what this process does, on top of where it took over."""
        if not self.started:
            return self.progress_before
        if self.o.steps:
            done = (self.step - self.first_step) / self.o.steps
        else:
            done = (time.monotonic() - self.started) / self.budget
        return self.progress_before + (1 - self.progress_before) * min(done, 1.0)

    def next_length(self, progress):
        """The length that is furthest behind its share."""
        shares = list(self.shares)
        if progress < LONGEST_FROM and len(shares) > 1:
            shares[-1] = 0.0
        for i, share in enumerate(shares):
            self.taken[i] += share / sum(shares)
        i = max(range(len(shares)), key=lambda k: self.taken[k])
        self.taken[i] -= 1
        return self.lengths[i]

    # -- one step
    def losses(self, ids, weights, sparse):
        """-> {name: loss}, {name: other measure}, loads. The prediction of a token counts by that token's weight."""
        model = self.model
        w = model.stored()
        state = State(sparse=sparse, losses=[], loads={}, valid=ids != self.pad)
        x = model.trunk(ids, w, state)

        def cross_entropy(u, ahead):
            logits = model.logits(u, w)[:, :-ahead].flatten(0, 1)
            each = torch.nn.functional.cross_entropy(
                logits, ids[:, ahead:].flatten(), reduction="none"
            )
            weight = weights[:, ahead:].flatten()
            return (each * weight).sum() / weight.sum().clamp_min(1)

        out = {"main": cross_entropy(model.final(x, w), 1)}
        if model.c.mtp:
            next_ids = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=self.pad)
            out["mtp"] = cross_entropy(model.draft(x, next_ids, w, state), 2)
        if state.losses:
            out["index"] = sum(state.losses)
        captured = {"captured": sum(state.captured) / len(state.captured)} if state.captured else {}
        return out, captured, state.loads

    pad = 2

    def train_step(self):
        progress = self.progress()
        length = self.next_length(progress)
        ids, weights = self.stream.next(length)
        ids = torch.from_numpy(ids).to(self.device).long()
        weights = torch.from_numpy(weights).to(self.device).float()
        for group in self.optimizer.param_groups:
            # New optimizer state needs its own warm-up, wherever the schedule begins.
            group["lr"] = (
                self.o.lr
                * self.lr_scale
                * learning_rate(progress)
                * min(1.0, (self.step - self.first_step + 1) / 20)
            )
        sparse = progress >= SPARSE_ONLY or (progress >= SPARSE_FROM and self.rng.random() < 0.5)
        losses, measures, loads = self.losses(ids, weights, sparse)
        total = (
            losses["main"]
            + MTP_WEIGHT * losses.get("mtp", 0)
            + INDEX_WEIGHT * losses.get("index", 0)
        )
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if torch.isfinite(norm):
            self.optimizer.step()
        else:
            self.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():  # balance the experts; quiet at the end
            for name, load in loads.items():
                speed = BIAS_SPEED * learning_rate(progress)
                self.model.fixed[name] += speed * torch.sign(load.mean() - load)
        self.step += 1
        for name, value in {**losses, **measures, "norm": norm}.items():
            key = f"{name}.{length}" if name != "norm" else name
            total, n = self.sums.get(key, (0.0, 0))
            self.sums[key] = (total + value.detach(), n + 1)

    # -- the run
    def report(self, **more):
        entry = {
            "step": self.step,
            "progress": round(self.progress(), 4),
            "seconds": round(self.seconds(), 1),
            "tokens": self.step * self.o.tokens,
            "waited": self.stream.waited,
            "skipped": self.skipped,
        }
        means = {k: float(total) / n for k, (total, n) in sorted(self.sums.items())}
        entry |= {k: round(v, 4) for k, v in means.items()} | more
        self.watch(*self.sums.get(f"main.{self.lengths[0]}", (0.0, 0)))
        self.sums = {}
        self.log_file.write(json.dumps(entry) + "\n")
        self.log_file.flush()
        print(json.dumps(entry), flush=True)

    def watch(self, total, steps):
        """Halves the learning rate where the loss climbs back: there is one run, and nobody looks on.
        The mean of fewer tokens than this is noise (seen: +0.7 between means of 1,500 tokens)."""
        if steps * self.o.tokens < 1 << 18:
            return
        loss = float(total) / steps
        self.best = min(self.best, loss)
        if not loss < self.best + 0.7:
            self.lr_scale, self.best = self.lr_scale / 2, loss
            print(
                f"train.py: the loss rose to {loss:.3f}; the learning rate is now {self.lr_scale} of "
                "the schedule's",
                flush=True,
            )

    def examine(self, rows):
        start = time.monotonic()
        tokenwise.use_compiled(False)  # else all is compiled again, without gradients
        result = exam.run(self.model, rows, self.lengths, self.device)
        tokenwise.use_compiled(self.compiled)
        self.report(exam=result, exam_seconds=round(time.monotonic() - start, 1))

    def export(self):
        companions = [
            HERE / "tokenizer.json",
            HERE / "tokenizer_config.json",
            HERE / "generation_config.json",
        ]
        return checkpoint.export(self.model, self.o.out, companions)

    def warm_up(self):
        """Forward and backward of each length before the clock starts: compiles, and finds out which
        lengths fit into memory. No weight changes."""
        for length in list(self.lengths):
            for sparse in (False, True):
                try:
                    ids, weights = (
                        torch.from_numpy(a).to(self.device) for a in self.stream.next(length)
                    )
                    losses, _, _ = self.losses(ids.long(), weights.float(), sparse)
                    sum(losses.values()).backward()
                except torch.OutOfMemoryError:
                    i = self.lengths.index(length)
                    print(
                        f"train.py: sequences of {length} do not fit into memory with {self.o.tokens} tokens a step; "
                        "going on without them",
                        flush=True,
                    )
                    del self.lengths[i], self.shares[i], self.taken[i]
                    torch.cuda.empty_cache()
                    break
                finally:
                    losses = None
                    self.optimizer.zero_grad(set_to_none=True)
        if not self.lengths:
            raise SystemExit(
                "train.py: no length of --lengths fits into memory; give fewer --tokens"
            )
        if self.device == "cuda":
            torch.cuda.synchronize()

    def run(self):
        o = self.o
        wanted = o.compile or ("on" if self.device == "cuda" else "off")
        tokenwise.use_compiled(wanted == "on")
        self.first_step = self.step
        if o.minutes:
            try:
                self.warm_up()
            except Exception as error:  # of the compiler: training without it is slower, not wrong
                if wanted == "off":
                    raise
                print(
                    f"train.py: warm-up failed with compiled functions, going on without: {error!r:.500}",
                    flush=True,
                )
                wanted = "off"
                tokenwise.use_compiled(False)
                self.warm_up()
        self.compiled = wanted == "on"
        reserve = 25.0  # last exam and export
        self.budget = o.minutes * 60 - (time.monotonic() - START) - reserve if o.minutes else None
        if self.budget is not None and self.budget < 5:
            raise SystemExit("train.py: --minutes leaves no time to train after the start")
        self.started = time.monotonic()
        self.report(
            event="start",
            start_seconds=round(self.started - START, 1),
            parameters=sum(p.numel() for p in self.model.parameters()),
            compiled=self.compiled,
        )
        exports, last_state, last_report = [0.5, 0.75, 0.9], time.monotonic(), time.monotonic()
        while self.progress() < 1:
            self.train_step()
            now = time.monotonic()
            if now - last_report > 10 or (o.steps and self.step % 10 == 0):
                self.report()
                last_report = now
            if exports and self.progress() >= exports[0]:
                exports.pop(0)
                self.export()
                if self.device == "cuda":
                    self.examine(64)
            if now - last_state > 60:
                self.save_state()
                last_state = time.monotonic()
        self.report()
        size = self.export()
        self.save_state()
        self.examine(256 if self.device == "cuda" else 16)
        self.report(
            event="end", exported_bytes=size, process_seconds=round(time.monotonic() - START, 1)
        )
        self.stream.close()


def main():
    options = options_of()
    torch.manual_seed(options.seed)
    Trainer(options).run()


if __name__ == "__main__":
    main()
