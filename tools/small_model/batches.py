"""Packed rows from worker processes: documents are laid out anew so that each begins at a multiple of four tokens, as pools need it."""
import collections
import multiprocessing
import os
import threading
import time

import numpy as np

ALIGN = 4
AHEAD = 60_000_000  # tokens that are kept ready: what a busy device leaves time for is not lost


def lay_out(tokens, weight, doc, length):
    """Documents of one row, each lengthened to whole pools, in a row of `length`; what no longer fits is left out. A document's filler
    belongs to it and counts nothing."""
    new_tokens = np.full(length, tokens[-1], np.uint16)
    new_weight = np.zeros(length, np.float16)
    new_doc = np.full(length, -1, np.int16)
    at = 0
    edges = np.append(np.flatnonzero(np.diff(doc, prepend=-2)), len(doc))
    for begin, end in zip(edges[:-1], edges[1:]):
        size = end - begin
        if doc[begin] < 0 or at + size > length:
            continue
        new_tokens[at:at + size] = tokens[begin:end]
        new_weight[at:at + size] = weight[begin:end]
        padded = min(-(-size // ALIGN) * ALIGN, length - at)
        new_doc[at:at + padded] = doc[begin]
        at += padded
    return new_tokens, new_weight, new_doc


def _work(seed, length, slack, mix, rows, out):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(10)
    from data.corpus import Stream
    stream = Stream(seed=seed, length=length - slack, mix=mix)
    while True:
        laid = [lay_out(*(next(stream)), length) for _ in range(rows)]
        out.put(tuple(np.stack(x) for x in zip(*laid)))


class Batches:
    """Batches of `rows` rows. To be made before the device is first used, since workers are forked; begin() comes after all are made. If
    the workers fall behind, earlier rows are given again; `repeated` counts how often."""

    KEPT = 400  # batches

    def __init__(self, length, mix, rows, workers, seed, slack=None):
        slack = max(32, length // 128) if slack is None else slack
        context = multiprocessing.get_context("fork")
        self.share = max(1, rows // 4)  # rows of one message
        self.rows = rows
        self.queue = context.Queue(maxsize=32)
        self.workers = [context.Process(target=_work, args=(seed * 1000 + i, length, slack, mix, self.share, self.queue), daemon=True)
                        for i in range(workers)]
        for w in self.workers:
            w.start()
        self.most = max(4, AHEAD // (self.share * length))
        self.ready, self.kept, self.repeated = collections.deque(), [], 0
        self.random = np.random.default_rng(seed)

    def begin(self):
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self):
        while True:
            if len(self.ready) < self.most:
                self.ready.append(self.queue.get())
            else:
                time.sleep(0.1)

    def part(self):
        begin = time.time()
        while not self.ready:
            if len(self.kept) * self.share >= 4 * self.rows:
                self.repeated += 1
                return self.kept[self.random.integers(len(self.kept))]
            if time.time() - begin > 300:
                raise RuntimeError("no rows came from the workers in 300 s")
            time.sleep(0.01)
        part = self.ready.popleft()
        if len(self.kept) < self.KEPT * self.rows // self.share:
            self.kept.append(part)
        else:
            self.kept[self.random.integers(len(self.kept))] = part
        return part

    def next(self):
        """tokens uint16, doc int16, weight float16, each [rows, length]"""
        parts = [self.part() for _ in range(-(-self.rows // self.share))]
        tokens, weight, doc = (np.concatenate(x)[:self.rows] for x in zip(*parts))
        return tokens, doc, weight

    def close(self):
        for w in self.workers:
            w.terminate()
        self.queue.cancel_join_thread()
