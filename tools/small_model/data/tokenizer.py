"""The small model's tokenizer: trains it on generated text, writes its folder, and encodes conversations.

    python -m data.tokenizer     # writes data/tokenizer/ anew from fixed seeds; needs `tokenizers`
"""
import argparse
import json
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers, Regex

from . import render, tasks

FOLDER = Path(__file__).parent / "tokenizer"
VOCABULARY = 2048  # all ids, the 36 added tokens included, which come last
# Words as GPT-like models cut them, each digit alone.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SAMPLE_SEED = 20
SAMPLE_DOCUMENTS = 30000


def sample_texts():
    """Text pieces of conversations of every task."""
    for n in range(SAMPLE_DOCUMENTS):
        task = tasks.TASK_NAMES[n % len(tasks.TASK_NAMES)]
        for text, _ in render.pieces(tasks.conversation(task, SAMPLE_SEED, n, longest=512)):
            if text not in render.SPECIAL:
                yield text


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(render.SPECIAL), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    tokenizer.train_from_iterator(sample_texts(), trainer)
    for name in render.SPECIAL:
        added = AddedToken(name, special=name not in render.NOT_SPECIAL, normalized=False)
        (tokenizer.add_tokens if name in render.NOT_SPECIAL else tokenizer.add_special_tokens)([added])
    return tokenizer


def write(tokenizer, folder=FOLDER):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n")
    ids = {name: tokenizer.token_to_id(name) for name in render.SPECIAL}
    put(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "padding_side": "left",
        "model_max_length": 1 << 20, "clean_up_tokenization_spaces": False})
    ends = [ids["<|endoftext|>"], ids["<|user|>"], ids["<|observation|>"]]
    put(folder / "generation_config.json", {"eos_token_id": ends, "pad_token_id": ends[0], "do_sample": False})


def put(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


class Encoder:
    """Conversations to ids and classes. Short pieces are remembered; there are few of them and they come back all the time."""
    MOST_REMEMBERED = 200_000
    LONGEST_REMEMBERED = 80  # characters

    def __init__(self, folder=FOLDER):
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.known = {name: [self.tokenizer.token_to_id(name)] for name in render.SPECIAL}

    def ids(self, text):
        found = self.known.get(text)
        if found is None:
            found = self.tokenizer.encode(text, add_special_tokens=False).ids
            if len(text) <= self.LONGEST_REMEMBERED and len(self.known) < self.MOST_REMEMBERED:
                self.known[text] = found
        return found

    def encode(self, conversation):
        """ids uint16 [n], classes uint8 [n]."""
        ids, kinds = [], []
        for text, kind in render.pieces(conversation):
            piece = self.ids(text)
            ids += piece
            kinds += [kind] * len(piece)
        return np.array(ids, np.uint16), np.array(kinds, np.uint8)


def main():
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    tokenizer = train()
    write(tokenizer)
    print(f"{tokenizer.get_vocab_size()} ids, <|user|> is {tokenizer.token_to_id('<|user|>')}; wrote {FOLDER}")


if __name__ == "__main__":
    main()
