#!/usr/bin/env python3
"""Strata's tokenizers beside Hugging Face's `tokenizers`, one thread each, in turn on the same text.

    tokenizers.py [--megabytes N] [--rounds N] [--only KIND ...] [--json]

Needs `pip install tokenizers` and the target tokenizer_bench. Trains a vocabulary of each kind on
text that every Debian machine has (Python's own sources and the texts of /usr/share), encodes other
such text with both, checks that the ids are equal, and prints megabytes a second and their ratio
(the medians; above 1 Strata is faster). `word` is one word of a megabyte. The last lines are the
seconds to build a tokenizer of 262,144 tokens, as Gemma 3 has: a tokenizer.json (Hugging Face's
beside it), a GGUF file of scores, a GGUF file of merges.
"""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

# This file's own name would be found first.
sys.path = [p for p in sys.path if pathlib.Path(p or ".").resolve() != pathlib.Path(__file__).parent]
from tokenizers import Regex, Tokenizer, decoders, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers, trainers  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def texts():
    """Code and prose, alternating."""
    code = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    prose = sorted(p for root in ("/usr/share/common-licenses", "/usr/share/doc", "/usr/share/perl")
                   for kind in ("*", "*/copyright", "*/README*", "**/*.pod")
                   for p in pathlib.Path(root).glob(kind) if p.is_file())
    for pair in zip(code * 9, prose):
        for path in pair:
            try:
                yield path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                pass


def bpe(pre_tokenizer, lines, **fields):
    tokenizer = Tokenizer(models.BPE(**fields))
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = [] if fields else pre_tokenizers.ByteLevel.alphabet()
    special = ["<unk>"] + BYTES if fields else []
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=32000, initial_alphabet=alphabet, special_tokens=special, show_progress=False,
        limit_alphabet=1000))
    return tokenizer


def plain(tokenizer):
    """Without the byte tokens as added tokens, which training made of them."""
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(document))


def byte_level(lines):
    tokenizer = bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), lines)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def metaspace(lines):
    return plain(bpe(pre_tokenizers.Metaspace(), lines, unk_token="<unk>", byte_fallback=True,
                     fuse_unk=True))


def llama2(lines):
    """The whole text is one piece, as in the files of Llama 2 and Mistral."""
    tokenizer = metaspace(lines)
    tokenizer.pre_tokenizer = None
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                 normalizers.Replace(" ", "▁")])
    return tokenizer


def unigram(lines):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator((line for text in lines for line in text[:20000].splitlines()),
                                  trainers.UnigramTrainer(vocab_size=8000, unk_token="<unk>",
                                                          special_tokens=["<unk>"],
                                                          show_progress=False))
    return tokenizer


KINDS = {"byte_level": byte_level, "metaspace": metaspace, "llama2": llama2, "unigram": unigram}


def compare(tokenizer, text, rounds, folder):
    """Seconds of each in turn: Hugging Face's better call, and Strata's."""
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (folder / "text").write_bytes(text.encode())
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    strata = subprocess.Popen(
        [TOP / "build/tests/tokenizer_bench", folder / "tokenizer.json", folder / "text",
         folder / "ids"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    theirs, ours = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        encoding = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        theirs.append(time.perf_counter() - begin)
        strata.stdin.write("\n")
        strata.stdin.flush()
        ours.append(float(strata.stdout.readline()))
    strata.stdin.close()
    strata.wait()
    ids = array.array("I", (folder / "ids").read_bytes())
    if ids.tolist() != encoding.ids:
        raise SystemExit("the ids differ")
    return statistics.median(theirs), statistics.median(ours), len(ids)


def made_of_two(tokens, size):
    """`tokens` and as many longer ones, each of two before it, up to `size`."""
    chance = random.Random(1)
    tokens, seen = list(tokens), set(tokens)
    while len(tokens) < size:
        left, right = (tokens[int(len(tokens) * chance.random() ** 3)] for _ in range(2))
        token = left + right
        if len(token) <= 14 and token not in seen:
            seen.add(token)
            tokens.append(token)
    return tokens


def merges_of(tokens):
    """Every way to make a token of two others, earlier tokens first."""
    known = set(tokens)
    return [(token[:at], token[at:]) for token in tokens for at in range(1, len(token))
            if token[:at] in known and token[at:] in known]


def gguf(**fields):
    """A GGUF file without tensors: fields of tokenizer.ggml."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def typed(value):
        if isinstance(value, str):
            return 8, text(value)
        if isinstance(value, bool):
            return 7, struct.pack("<?", value)
        if isinstance(value, float):
            return 6, struct.pack("<f", value)
        return 5, struct.pack("<i", value)

    parts = [b"GGUF", struct.pack("<IQQ", 3, 0, len(fields))]
    for name, value in fields.items():
        parts.append(text("tokenizer.ggml." + name))
        if isinstance(value, list):
            parts.append(struct.pack("<IIQ", 9, typed(value[0])[0], len(value)))
            parts += [typed(item)[1] for item in value]
        else:
            parts += [struct.pack("<I", typed(value)[0]), typed(value)[1]]
    return b"".join(parts)


def large(rounds, folder):
    """Rows of seconds to build tokenizers of 262,144 tokens."""
    size = 262144
    letters = "".join(map(chr, [*range(33, 127), *range(0xC0, 0x250), *range(0x391, 0x450),
                                *range(0x4E00, 0x5E00)])) + "▁"
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    pieces = made_of_two(letters, size - len(special) - len(BYTES))
    tokens = special + BYTES + pieces
    merges = merges_of(pieces)
    tokenizer = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges,
                                     unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.add_special_tokens(special)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (folder / "scores.gguf").write_bytes(gguf(
        model="llama", tokens=tokens, add_space_prefix=False,
        scores=[0.0] * 260 + [-float(at) for at in range(len(pieces))],
        token_type=[3, 3, 3, 2] + [6] * 256 + [1] * len(pieces)))
    units = made_of_two(sorted(pre_tokenizers.ByteLevel.alphabet()), size)
    (folder / "merges.gguf").write_bytes(gguf(
        model="gpt2", pre="llama-bpe", tokens=units, token_type=[1] * size,
        merges=[" ".join(pair) for pair in merges_of(units)]))
    for name in ("tokenizer.json", "scores.gguf", "merges.gguf"):
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(float(subprocess.run([TOP / "build/tests/tokenizer_bench", folder / name],
                                             check=True, capture_output=True, text=True).stdout))
            if name == "tokenizer.json":
                begin = time.perf_counter()
                Tokenizer.from_file(str(folder / name))
                theirs.append(time.perf_counter() - begin)
        row = {"kind": "large", "input": name, "tokens": size,
               "strata_seconds": statistics.median(ours)}
        if theirs:
            row["huggingface_seconds"] = statistics.median(theirs)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=4, help="of text to encode")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=[*KINDS, "large"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = list(texts())
    training, rest = found[0::3], "".join(found[1::3] + found[2::3])
    size = int(arguments.megabytes * 1e6)
    text = (rest * (1 + size // len(rest)))[:size]
    word = "".join(c for c in text if c.isalpha())[:1_000_000]
    results = []
    kinds = arguments.only or [*KINDS, "large"]
    for kind in (kind for kind in kinds if kind in KINDS):
        tokenizer = KINDS[kind](training)
        for name, sample in (("text", text), ("word", word)):
            with tempfile.TemporaryDirectory() as folder:
                theirs, ours, ids = compare(tokenizer, sample, arguments.rounds,
                                            pathlib.Path(folder))
            megabytes = len(sample.encode()) / 1e6
            results.append({"kind": kind, "input": name, "ids": ids,
                            "huggingface_mb_per_s": megabytes / theirs,
                            "strata_mb_per_s": megabytes / ours, "ratio": theirs / ours})
            if not arguments.json:
                print(f"{kind:11} {name}  {ids:8} ids  Hugging Face {megabytes / theirs:6.2f} MB/s  "
                      f"Strata {megabytes / ours:6.2f} MB/s  {theirs / ours:5.2f} x", flush=True)
    if "large" in kinds:
        with tempfile.TemporaryDirectory() as folder:
            for row in large(arguments.rounds, pathlib.Path(folder)):
                results.append(row)
                if not arguments.json:
                    beside = (f"  Hugging Face {row['huggingface_seconds']:6.2f} s"
                              if "huggingface_seconds" in row else "")
                    print(f"large       {row['input']:14}  {row['tokens']} tokens  "
                          f"Strata {row['strata_seconds']:6.2f} s{beside}", flush=True)
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
