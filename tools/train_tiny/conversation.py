"""Conversations as token ids, in the chat format of DeepSeek-V4 (model specification 6.2)."""

import dataclasses
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Encoded:
    ids: list
    weights: list  # of the prediction OF each token, not after it


class Chat:
    def __init__(self, path=HERE / "tokenizer.json"):
        self.tokenizer = Tokenizer.from_file(str(path))
        added = {t.content: i for i, t in self.tokenizer.get_added_tokens_decoder().items()}
        self.bos, self.eos = added["<｜begin▁of▁sentence｜>"], added["<｜end▁of▁sentence｜>"]
        self.user, self.assistant = added["<｜User｜>"], added["<｜Assistant｜>"]
        self.think, self.think_end = added["<think>"], added["</think>"]
        self.pad = added["<｜▁pad▁｜>"]
        self.known = {}

    def encode(self, text):
        """Short texts repeat: they are kept."""
        ids = self.known.get(text)
        if ids is None:
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            if len(text) < 40 and len(self.known) < 400000:
                self.known[text] = ids
        return ids

    def prompt(self, turn, first, thinking):
        """What stands before the answer, as generation sees it."""
        out = Encoded([], [])
        self._add(out, ([self.bos] if first else []) + [self.user], 0.0)
        for text, weight in turn.question:
            self._add(out, self.encode(text), weight)
        self._add(out, [self.assistant, self.think if thinking else self.think_end], 0.0)
        return out

    def turn(self, turn, first, thinking):
        out = self.prompt(turn, first, thinking)
        if thinking:
            self._add(out, self.encode(turn.thinking) + [self.think_end], 1.0)
        self._add(out, self.encode(turn.answer) + [self.eos], 1.0)
        return out

    @staticmethod
    def _add(out, ids, weight):
        out.ids += ids
        out.weights += [weight] * len(ids)
