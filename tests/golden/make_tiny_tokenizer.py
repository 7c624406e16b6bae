#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tiny-mm/tokenizer.json: a vocabulary of 512 tokens for the small random
checkpoint. Nine tokens of the format, all 256 bytes, letters and pieces of words
merged by byte-pair encoding from the text below, and the three tokens of images
at the ids that tiny-mm/config.json names. The same file on every run."""

import collections
import json
import pathlib

SPACE = "\u2581"
SIZE = 512
FORMAT = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]", "<start_of_turn>",
          "<end_of_turn>", "\n"]
IMAGES = ["<start_of_image>", "<end_of_image>", "<image_soft_token>"]
FOUND_IN_TEXT = ["[multimodal]", "\n"]  # the others are control tokens
LETTERS = SPACE + "abcdefghijklmnopqrstuvwxyzAIT.,?'"

# Common words and those of a conversation about a picture; pieces are learned
# from it in order of frequency.
TEXT = """the user asks the model and the model answers the user
what is in this picture and what do you see in the image
there is a small house with a red door and a tree in front of it
I see a man and a woman who are walking with their dog in the park
the sky is blue and the water is green, there are some people on the beach
can you tell me more about the picture? yes, I can tell you about it
how many people are there in the image? there are three people in it
thank you for the answer, that is what I wanted to know about this
it is not the same as the other one, but it has the same color
when they come here they will find that there was no time for that
we have been there for some time and we would like to go out now
she said that he had made this for her because it was her first day
which of these would you like to have? one of them, please, the first
this is one of the many things that people should know about the world
The answer is in the text, and the text is in the book on the table
A long time ago there was a little girl who lived in the old town"""


def learn(words: collections.Counter, count: int) -> list[tuple[str, str]]:
    """The first `count` merges; of pairs that are equally frequent the first by letters."""
    split = {word: list(word) for word in words}
    merges = []
    while len(merges) < count:
        pairs: collections.Counter = collections.Counter()
        for word, parts in split.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += words[word]
        made = {left + right for left, right in merges}
        left, right = min((pair for pair in pairs if "".join(pair) not in made),
                          key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        for parts in split.values():
            at = 0
            while at + 1 < len(parts):
                if parts[at] == left and parts[at + 1] == right:
                    parts[at:at + 2] = [left + right]
                at += 1
    return merges


def main() -> None:
    words = collections.Counter(SPACE + word for word in TEXT.split())
    tokens = FORMAT + [f"<0x{byte:02X}>" for byte in range(256)] + list(LETTERS)
    merges = learn(words, SIZE - len(IMAGES) - len(tokens))
    tokens += [left + right for left, right in merges] + IMAGES
    assert len(tokens) == len(set(tokens)) == SIZE
    added = [{
        "id": tokens.index(text), "content": text, "single_word": False, "lstrip": False,
        "rstrip": False, "normalized": False, "special": text not in FOUND_IN_TEXT
    } for text in FORMAT + IMAGES]
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                          "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {text: index for index, text in enumerate(tokens)},
                  "merges": [list(merge) for merge in merges]},
    }
    path = pathlib.Path(__file__).parent / "tiny-mm" / "tokenizer.json"
    path.write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
                    .replace("],[", "],\n[").replace(',"<', ',\n"<') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
