"""An endless stream of training batches, made by processes while the model trains.

Every batch has the same number of tokens; its length is one of LENGTHS. A sequence is one
conversation from position 0, filled with turns until the next would not fit: nothing is packed that
the model would not see when it is used.
"""

import multiprocessing
import os
import queue
import random

import numpy as np

import tasks
from conversation import Chat
from parallel import end_with_parent

CHARACTERS_PER_TOKEN = 4.2  # of notes; a little low, so that questions still fit


def short_sequence(chat, rng, length):
    """Turns of all kinds. Only the last may think: the reasoning of earlier turns is dropped from a
    prompt, so it would not be seen when the model is used."""
    lookup = rng.random() < 0.25
    turns = tasks.lookup_conversation(rng, rng.randrange(30, 130), 3) if lookup else []
    mode = rng.random()
    if mode < 0.12:
        part = chat.turn(turns[0] if turns else tasks.any_turn(rng), True, True)
        if len(part.ids) <= length:
            return part.ids, part.weights
    last = None
    if mode < 0.5:
        last = chat.turn(turns.pop() if len(turns) > 1 else tasks.any_turn(rng), False, True)
        length -= len(last.ids)
    ids, weights = [], []
    while True:
        part = chat.turn(turns.pop(0) if turns else tasks.any_turn(rng), not ids, False)
        if len(ids) + len(part.ids) > length:
            if not ids:
                continue
            return (ids + last.ids, weights + last.weights) if last else (ids, weights)
        ids += part.ids
        weights += part.weights


def long_sequence(chat, rng, length):
    """Notes that nearly fill the length, and questions about them."""
    questions = rng.randrange(4, 12) if length > 512 else 3
    size = int(
        (length - 30 * questions)
        * CHARACTERS_PER_TOKEN
        * (1.0 if rng.random() < 0.7 else rng.uniform(0.3, 1.0))
    )
    ids, weights = [], []
    turns = tasks.lookup_conversation(rng, size, questions)
    while True:
        turn = turns.pop(0) if turns else tasks.any_turn(rng)
        thinking = not turns and rng.random() < 0.15
        part = chat.turn(turn, not ids, thinking)
        if len(ids) + len(part.ids) > length:
            if not ids:  # notes too long for their length: others
                turns, size = (
                    tasks.lookup_conversation(rng, size * 9 // 10, questions),
                    size * 9 // 10,
                )
                continue
            return ids, weights
        ids += part.ids
        weights += part.weights
        if thinking:
            return ids, weights


def batch(chat, rng, length, tokens):
    """-> ids, weights: [tokens / length, length]; padding has weight 0"""
    rows = tokens // length
    ids = np.full((rows, length), chat.pad, np.int16)
    weights = np.zeros((rows, length), np.float16)
    make = short_sequence if length <= 256 else long_sequence
    for row in range(rows):
        a, b = make(chat, rng, length)
        ids[row, : len(a)], weights[row, : len(b)] = a, b
    return ids, weights


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it cannot go on after a fork


def _work(seed, tokens, lengths, queues):
    end_with_parent()
    chat, rng = Chat(), random.Random(seed)
    while True:
        # Make what is shortest of, so that no length runs dry.
        length = min(lengths, key=lambda n: queues[n].qsize())
        made = batch(chat, rng, length, tokens)
        queues[length].put(made)


class Stream:
    def __init__(self, tokens, lengths, workers, seed, depth=24):
        context = multiprocessing.get_context(
            "fork"
        )  # so make the stream before the GPU is touched
        self.queues = {n: context.Queue(depth) for n in lengths}
        self.workers = [
            context.Process(
                target=_work, args=(seed * 1000 + i, tokens, lengths, self.queues), daemon=True
            )
            for i in range(workers)
        ]
        for worker in self.workers:
            worker.start()
        self.waited = 0

    def next(self, length):
        try:
            return self.queues[length].get_nowait()
        except queue.Empty:
            self.waited += 1
            return self.queues[length].get(timeout=120)

    def close(self):
        for worker in self.workers:
            worker.terminate()
