#!/usr/bin/env python3
"""Strata's tokenizers beside Hugging Face's `tokenizers`, one thread each, in turn on the same text.

    tokenizers.py [--megabytes N] [--rounds N] [--only KIND ...] [--json]

Needs `pip install tokenizers` and the target tokenizer_bench. Trains a vocabulary of each kind on
text that every Debian machine has (Python's own sources and the texts of /usr/share), encodes other
such text with both, checks that the ids are equal, and prints megabytes a second and their ratio
(the medians; above 1 Strata is faster). `word` is one word of a megabyte.
"""
import argparse
import array
import json
import os
import pathlib
import statistics
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


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=4, help="of text to encode")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=KINDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = list(texts())
    training, rest = found[0::3], "".join(found[1::3] + found[2::3])
    size = int(arguments.megabytes * 1e6)
    text = (rest * (1 + size // len(rest)))[:size]
    word = "".join(c for c in text if c.isalpha())[:1_000_000]
    results = []
    for kind in arguments.only or KINDS:
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
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
