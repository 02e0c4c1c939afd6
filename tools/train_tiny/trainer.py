"""The training loop of train.py."""

import json
import math
import pathlib
import random
import time

import torch

import checkpoint
import exam
import tokenwise
from model import Config, Model, State
from parallel import Group, place
from stream import Stream

HERE = pathlib.Path(__file__).resolve().parent
MTP_WEIGHT, INDEX_WEIGHT, BIAS_SPEED = 0.3, 1.0, 1e-3
# Until the first share of the run queries see all blocks, after the second only those the indexer chose, between
# them by turns: what is never attended to teaches the indexer nothing.
SPARSE_FROM, SPARSE_ONLY = 0.4, 0.75
LONGEST_FROM = 0.2  # and after which the longest sequences come in
COMPARE_STEPS = 500  # between comparisons of the ranks' weights


def learning_rate(progress):
    """Warm-up, plateau, and a straight line down: the rounding of FP4 weights needs a quiet end."""
    if progress < 0.03:
        return progress / 0.03
    return 1.0 if progress < 0.5 else max(0.02, (1 - progress) / 0.5)


def optimizer_of(model, lr):
    """Matrices decay; norms, biases, mixes and embeddings do not."""
    decayed, plain = [], []
    for key, w in model.params.items():
        (decayed if model.kinds[key.replace("/", ".")] in ("fp8", "fp4") else plain).append(w)
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-10, fused=True)


class Trainer:
    def __init__(self, options, process_start):
        self.o, self.process_start = options, process_start
        self.device = options.device
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        if self.device == "cpu":
            torch.set_num_threads(1)
        self.lengths = [int(n) for n in options.lengths.split(",")]
        self.shares = [float(s) for s in options.shares.split(",")][: len(self.lengths)]
        rank = place().get("rank", 0)
        # Its processes are forked, so it comes before anything that touches the GPU or starts threads.
        self.stream = Stream(
            options.tokens, self.lengths, options.workers, options.seed + 1009 * rank
        )
        self.group = Group(self.device)
        self.leads = self.group.rank == 0
        self.model = Model(Config(options.config), self.device, options.seed)
        if options.init:
            checkpoint.load(self.model, options.init)
        self.optimizer = optimizer_of(self.model, options.lr)
        self.step, self.progress_before, self.trained_seconds = 0, options.progress, 0.0
        self.taken = [0.0] * len(self.lengths)
        self.rng = random.Random(options.seed)
        self.sums, self.skipped = {}, torch.zeros((), device=self.device)
        self.best, self.lr_scale = float("inf"), 1.0
        self.state_file = pathlib.Path(options.state) if options.state else None
        if options.resume and self.state_file and self.state_file.exists():
            self.load_state()
        self.started = None
        if self.leads:
            out = pathlib.Path(options.out)
            out.mkdir(parents=True, exist_ok=True)
            self.log_file = open(options.log or out / "train.jsonl", "a")

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

    def plan(self):
        """What all ranks do next, or None at the end."""
        progress = self.progress()
        if progress >= 1:
            return None
        sparse = progress >= SPARSE_ONLY or (progress >= SPARSE_FROM and self.rng.random() < 0.5)
        return progress, self.next_length(progress), sparse, self.lr_scale

    def batch(self, length):
        """-> ids, weights on the device; the host does not wait for them"""
        out = []
        for array, kind in zip(self.stream.next(length), (torch.long, torch.float)):
            t = torch.from_numpy(array)
            t = t.pin_memory() if self.device == "cuda" else t
            out.append(t.to(self.device, non_blocking=True).to(kind))
        return out

    def train_step(self, progress, length, sparse, lr_scale):
        ids, weights = self.batch(length)
        for group in self.optimizer.param_groups:
            # New optimizer state needs its own warm-up, wherever the schedule begins.
            group["lr"] = (
                self.o.lr
                * lr_scale
                * learning_rate(progress)
                * min(1.0, (self.step - self.first_step + 1) / 20)
            )
        losses, measures, loads = self.losses(ids, weights, sparse)
        total = (
            losses["main"]
            + MTP_WEIGHT * losses.get("mtp", 0)
            + INDEX_WEIGHT * losses.get("index", 0)
        )
        total.backward()
        params = list(self.model.parameters())
        self.group.average(params, list(loads.values()))
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        # A fused optimizer leaves the weights alone where this is 1; asking here would make the host wait.
        self.optimizer.found_inf = (~torch.isfinite(norm)).float()
        self.optimizer.step()
        self.skipped += self.optimizer.found_inf
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():  # balance the experts; quiet at the end
            for name, load in loads.items():
                speed = BIAS_SPEED * learning_rate(progress)
                self.model.fixed[name] += speed * torch.sign(load.mean() - load)
        self.step += 1
        if self.leads:
            for name, value in {**losses, **measures, "norm": norm}.items():
                key = f"{name}.{length}" if name != "norm" else name
                total, n = self.sums.get(key, (0.0, 0))
                self.sums[key] = (total + value.detach(), n + 1)

    def unite(self):
        """Makes sure that all ranks have the same weights."""
        tensors = [p.data for p in self.model.parameters()]
        tensors += [t for _, t in sorted(self.model.fixed.items())]
        for p in self.model.parameters():
            state = self.optimizer.state.get(p, {})
            tensors += [state[key] for key in ("exp_avg", "exp_avg_sq") if key in state]
        if not self.group.unite(tensors) and self.leads:
            print(
                f"train.py: the ranks' weights differed at step {self.step}; all have rank 0's now",
                flush=True,
            )

    # -- the run
    def report(self, **more):
        entry = {
            "step": self.step,
            "progress": round(self.progress(), 4),
            "seconds": round(self.seconds(), 1),
            "tokens": self.step * self.o.tokens * self.group.world,
            "waited": self.stream.waited,
            "skipped": int(self.skipped),
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
                    losses, _, _ = self.losses(*self.batch(length), sparse)
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
        fitting = self.group.all(self.lengths)
        for i in reversed(range(len(self.lengths))):
            if not all(self.lengths[i] in lengths for lengths in fitting):
                del self.lengths[i], self.shares[i], self.taken[i]
        parameters = sum(p.numel() for p in self.model.parameters())
        average_ms = self.group.choose_kind(parameters, self.device)
        self.unite()
        if not self.leads:
            self.follow()
            return
        reserve = 25.0  # last exam and export
        self.budget = (
            o.minutes * 60 - (time.monotonic() - self.process_start) - reserve
            if o.minutes
            else math.inf
        )
        if self.budget < 5:
            raise SystemExit("train.py: --minutes leaves no time to train after the start")
        self.started = time.monotonic()
        self.report(
            event="start",
            start_seconds=round(self.started - self.process_start, 1),
            parameters=parameters,
            compiled=self.compiled,
            gpus=self.group.world,
            step_tokens=self.o.tokens * self.group.world,
            lr=self.o.lr,
            average_ms=average_ms,
        )
        self.lead()
        self.report()
        size = self.export()
        self.save_state()
        self.examine(256 if self.device == "cuda" else 16)
        self.report(
            event="end",
            exported_bytes=size,
            process_seconds=round(time.monotonic() - self.process_start, 1),
        )
        self.stream.close()

    def lead(self):
        """Rank 0: the loop, and all that looks at the clock."""
        exports, last_state, last_report = [0.5, 0.75, 0.9], time.monotonic(), time.monotonic()
        while plan := self.group.agree(self.plan()):
            self.train_step(*plan)
            if self.step % COMPARE_STEPS == 0:
                self.unite()
            now = time.monotonic()
            if now - last_report > 10 or (self.o.steps and self.step % 10 == 0):
                self.report()
                last_report = now
            if exports and self.progress() >= exports[0]:
                exports.pop(0)
                self.export()
                if self.device == "cuda":
                    self.examine(64)
            if now - last_state > 120:
                self.save_state()
                last_state = time.monotonic()
        self.unite()
        self.group.trained()

    def follow(self):
        """The other ranks: what rank 0 says."""
        while plan := self.group.agree():
            self.train_step(*plan)
            if self.step % COMPARE_STEPS == 0:
                self.unite()
        self.unite()
        self.stream.close()
