"""Conversations of all tasks, packed into rows.

    stream = Stream(seed=1, length=2048, mix="mid")
    tokens, weight, doc_id = next(stream)

`tokens` uint16 [length]; `weight` float16 [length]: how much token i counts when it is predicted from those before it, 0 for padding;
`doc_id` int16 [length]: which conversation of the row a token belongs to, -1 for padding. Conversations are whole: none is cut, and one
longer than a row is left out. Rows follow from (seed, length, mix) alone; give each worker a seed of its own.
"""
import numpy as np

from .draw import Draw
from .tasks import conversation

# Shares of tokens.
MIXES = {
    "short": dict(arithmetic=.28, lists=.14, json=.09, tools=.18, copy=.07, story=.03, chat=.13, recall=.08),
    "mid": dict(arithmetic=.22, lists=.10, json=.09, tools=.18, copy=.07, story=.02, chat=.11, recall=.21),
    "long": dict(arithmetic=.09, lists=.04, json=.04, tools=.09, copy=.03, story=.01, chat=.06, recall=.64),
    "chat": dict(arithmetic=.18, lists=.08, json=.08, tools=.16, copy=.05, story=.10, chat=.30, recall=.05),
}


class Stream:
    PENDING = 24  # conversations to choose from when a row has little room left

    def __init__(self, seed, length, mix, prompt_weight=0.1, hay_weight=0.01, encoder=None):
        from .tokenizer import Encoder
        self.encoder = encoder or Encoder()
        self.seed, self.length, self.shares = seed, length, MIXES[mix]
        self.weights = np.array([0, hay_weight, prompt_weight, 1], np.float16)  # by class
        self.padding = self.encoder.ids("<|endoftext|>")[0]
        self.made = {task: 0 for task in self.shares}    # tokens so far
        self.index = {task: 0 for task in self.shares}   # conversations so far
        self.order = Draw(seed, mix, length)
        self.pending = []

    def __iter__(self):
        return self

    def document(self):
        """The next conversation that fits into a row: of the task that is furthest behind its share, or nearly so."""
        total = sum(self.made.values()) + 1
        while True:
            task = max(self.shares, key=lambda t: self.shares[t] * (1 + 0.02 * self.order.random()) - self.made[t] / total)
            made = conversation(task, self.seed, self.index[task], self.length)
            self.index[task] += 1
            ids, kinds = self.encoder.encode(made)
            self.made[task] += len(ids)
            if len(ids) <= self.length:
                return ids, kinds

    def __next__(self):
        tokens = np.full(self.length, self.padding, np.uint16)
        weight = np.zeros(self.length, np.float16)
        doc_id = np.full(self.length, -1, np.int16)
        at = number = 0
        while True:
            while len(self.pending) < self.PENDING:
                self.pending.append(self.document())
            fit = next((i for i, (ids, _) in enumerate(self.pending) if len(ids) <= self.length - at), None)
            if fit is None:
                return tokens, weight, doc_id
            ids, kinds = self.pending.pop(fit)
            end = at + len(ids)
            tokens[at:end], weight[at:end], doc_id[at:end] = ids, self.weights[kinds], number
            weight[at] = 0  # nothing before it in its conversation predicts it
            at, number = end, number + 1
