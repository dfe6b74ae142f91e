#!/usr/bin/env python3
"""Rank files as tiktoken reads them, of the vocabularies beside this, and what tiktoken does with them.

    pip install tiktoken==0.14.0
    python make_tiktoken.py

Writes tiktoken_files/NAME (ranks), NAME.config.json (the tokenizer_config.json beside it, if the
special tokens come from there) and NAME.jsonl: `{"text", "ids", "decoded"}`, special tokens found.
"""
import base64
import json
import unicodedata
from pathlib import Path

import tiktoken

import families

HERE = Path(__file__).parent
# The file's name, the family whose vocabulary it gets, and the pattern that goes with the name.
FILES = [("cl100k_base.tiktoken", "cl100k", families.LLAMA3),
         ("o200k_base.tiktoken", "o200k", families.O200K),
         ("qwen.tiktoken", "qwen", families.QWEN2),
         ("tiktoken.model", "kimi", families.KIMI)]


def byte_alphabet():
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(0x100, 0x200))
    return {chr(b) if b in kept else chr(next(moved)): b for b in range(256)}


def specials(name, count):
    """The special tokens, and what tokenizer_config.json says of them (nothing if the name does)."""
    if name == "qwen.tiktoken":
        names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
        return {n: count + i for i, n in enumerate(names)}, None
    named = {count: "[BOS]", count + 1: "<|endoftext|>", count + 3: "<|im_end|>"}
    tokens = {content: i for i, content in named.items()}
    if name == "tiktoken.model":
        tokens = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(count, count + 256)}
    config = {"added_tokens_decoder": {str(i): {"content": c, "special": True} for i, c in named.items()}}
    return tokens, config


def main():
    out = HERE / "tiktoken_files"
    out.mkdir(exist_ok=True)
    alphabet = byte_alphabet()
    for name, family, pattern in FILES:
        vocab = json.loads((HERE / family / "tokenizer.json").read_text())["model"]["vocab"]
        pieces = sorted((t for t in vocab if all(c in alphabet for c in t)), key=vocab.get)
        ranks = {bytes(alphabet[c] for c in piece): i for i, piece in enumerate(pieces)}
        tokens, config = specials(name, len(ranks))
        (out / name).write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in ranks.items()))
        if config is not None:
            (out / f"{name}.config.json").write_text(json.dumps(config, indent=1) + "\n")
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=tokens)
        lines = []
        for line in (HERE / family / "cases.jsonl").read_text().split("\n")[:-1]:
            text = json.loads(line)["text"] + "<|endoftext|>a<|im_end|> [BOS]"
            if name == "qwen.tiktoken":  # Its tokenizer does so first.
                text_read = unicodedata.normalize("NFC", text)
            else:
                text_read = text
            ids = encoding.encode(text_read, allowed_special="all")
            lines.append(json.dumps({"text": text, "ids": ids, "decoded": encoding.decode(ids)}) + "\n")
        (out / f"{name}.jsonl").write_text("".join(lines))
        print(name, len(ranks), "ranks", len(lines), "cases")


if __name__ == "__main__":
    main()
