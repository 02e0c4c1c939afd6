#!/usr/bin/env python3
"""Trains ingot-tiny and exports it as an official checkpoint folder.

  train.py --out DIR --minutes 9            on all GPUs: everything else has its default
  train.py --out DIR --device cpu --steps 40 --tokens 2048 --lengths 128 --workers 1

The schedule follows the clock, not a number of steps, so that a run of any speed ends with its
learning rate at the end. --state FILE keeps master weights and optimizer, and --resume goes on from
it; --init DIR starts from an exported checkpoint, where no state file came back.

With several GPUs there is a process for each, and one that watches over them: where they cannot work
together or one ends, training goes on with one GPU from the last state.
"""

import argparse
import os
import pathlib
import sys
import time
import traceback

START = time.monotonic()  # before PyTorch is read, which takes its time on a fresh machine

import parallel

HERE = pathlib.Path(__file__).resolve().parent


def options_of():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--out", required=True, help="folder of the exported checkpoint")
    p.add_argument("--log", help="JSON lines of what was measured (default OUT/train.jsonl)")
    p.add_argument("--config", default=HERE / "config.json")
    p.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    p.add_argument(
        "--gpus", type=int, help="processes, one for each GPU (default: all; on a CPU 1)"
    )
    p.add_argument(
        "--minutes", type=float, help="of the whole process, its start and the last export included"
    )
    p.add_argument("--steps", type=int, help="instead of --minutes")
    p.add_argument(
        "--tokens", type=int, help="of one step and GPU; default: 32768, with several GPUs 16384"
    )
    p.add_argument("--lengths", default="128,1024,4096", help="of sequences, ascending")
    p.add_argument("--shares", default="0.46,0.32,0.22", help="of steps, for each length")
    p.add_argument(
        "--lr", type=float, help="default: 1.5e-3 for 32768 tokens of all GPUs, by the square root"
    )
    p.add_argument("--workers", type=int, default=6, help="that make batches, for each GPU")
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
        "--state", help="file for master weights and optimizer, written every two minutes and at the end"
    )
    p.add_argument("--resume", action="store_true", help="go on from --state where it exists")
    options = p.parse_args()
    if (options.minutes is None) == (options.steps is None):
        p.error("give --minutes or --steps, one of them")
    options.device = options.device or ("cuda" if parallel.visible_gpus() else "cpu")
    if options.gpus is None:
        options.gpus = max(1, parallel.visible_gpus()) if options.device == "cuda" else 1
    if options.gpus < 1:
        p.error("--gpus: at least 1")
    if options.tokens is None:
        options.tokens = 32768 if options.gpus == 1 else 16384
    if options.lr is None:
        options.lr = min(2e-3, 1.5e-3 * (options.tokens * options.gpus / 32768) ** 0.5)
    return options


def main():
    options = options_of()
    told = parallel.place()
    if options.gpus > 1 and not told:
        sys.exit(parallel.supervise(sys.argv[1:], options.gpus, START, options.state))
    status = 0
    try:
        import trainer  # and PyTorch

        trainer.Trainer(options, told.get("start", START)).run()
    except BaseException as error:
        if not told:
            raise
        traceback.print_exc()
        status = 1 if not isinstance(error, SystemExit) else 2
    if told:  # the others may be gone: nothing of their group is waited for
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()


