#!/usr/bin/env python3
"""configs.jsonl: what files beside a tokenizer.json (tokenizer_config.json, special_tokens_map.json,
added_tokens.json) make of its tokens when transformers' AutoTokenizer loads the folder.

    make_configs.py [--seed N] [--count N] [--out FILE]     # transformers 5.24.0, tokenizers 0.23.3

The first line: {"bases": {NAME: a tokenizer.json}, "texts": {NAME: [...]}}. Every other line:
{"base", "added_tokens": those of tokenizer.json, "files": {name: content}, "named": {name: token},
"vocab_size", "ids": [[...] for each text of the base], "decoded": [...], "decoded_skip": [...]}, or
"error" in place of the results: the kind of error that transformers raises. `decoded_skip` is left
out where a special token is found in normalized text and the normalizer changes it: tokenizers 0.23
shows such a one even then, and earlier releases do not. "name" is there for the cases that are not drawn.
"""
import argparse
import json
import logging
import os
import random
import shutil
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

from transformers import AutoTokenizer

logging.disable(logging.CRITICAL)
HERE = Path(__file__).resolve().parent
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
PLAIN = dict.fromkeys(FLAGS, False)
STANDARD = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
OTHERS = ["image_token", "audio_token", "video_bos_token"]
CONTENTS = ["<s>", "</s>", "<pad>", "<S>", "<img>", "<tool_call>", "ab", "a", "<x>", "hello", "\u00e9<z>", "<unk>", "[CLS]", "[MASK]",
            " <b>", "<|im_end|>"]
TEXTS = ["hello ab <s> a </s>b  <pad><S>", "x <img>  <tool_call> a<x> <x>ab", "<S> \u00c9<z> \u00e9<z> <unk>[CLS] a.b , [MASK]", "ab  <b> c<|im_end|>", ""]


def bases():
    letters = "abcdefghijklmnopqrstuvwxyz<>/|[]_.,"
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
           "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    empty = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
             "decoder": None}

    def vocab(pieces):
        return {piece: i for i, piece in enumerate(pieces)}
    bytes_ = {**empty, "pre_tokenizer": level, "decoder": level,
              "model": {**bpe, "vocab": vocab([*letters, "\u0120", "\u00c3", "\u00a9", "ab"]), "merges": [["a", "b"]]}}
    lower = {**bytes_, "normalizer": {"type": "Lowercase"}, "model": {**bytes_["model"], "vocab": {**bytes_["model"]["vocab"], "<unk>": 70}}}
    marks = {**empty, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {
        "type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {
            "type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {**bpe, "unk_token": "<unk>", "fuse_unk": True, "vocab": vocab(["<unk>", "<s>", "</s>", "\u2581", *letters, "\u2581a"]),
                  "merges": ["\u2581 a"]}}
    words = {**empty, "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                                     "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
             "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                       "vocab": vocab(["[PAD]", "[UNK]", "[CLS]", "hello", "##llo", "he", *letters, *("##" + c for c in letters)])}}
    scores = {**empty, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
              "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
              "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                        "vocab": [["<unk>", 0.0], ["<s>", 0.0], ["\u2581", -2.0], *([c, -3.0 - i / 8] for i, c in enumerate(letters)),
                                  ["\u2581hello", -4.5], ["ab", -3.5]]}}
    return {"bytes": bytes_, "lower": lower, "marks": marks, "words": words, "scores": scores}


def flags(rng):
    return {name: rng.random() < (0.7 if name == "special" else 0.25) for name in FLAGS}


def token(rng, typed):
    """A token as tokenizer_config.json may have it."""
    content = rng.choice(CONTENTS)
    if rng.random() < 0.6:
        return content
    given = {name: value for name, value in flags(rng).items() if rng.random() < 0.7}
    if not typed:
        given.pop("special", None)
    return {**({"__type": "AddedToken"} if typed else {}), "content": content, **given}


def names(rng, typed):
    result = {}
    for name in rng.sample(STANDARD, rng.randint(0, 4)) + rng.sample(OTHERS, rng.choice([0, 0, 1, 2])):
        result[name] = None if rng.random() < 0.05 else token(rng, typed)
    return result


def extra(rng, typed):
    kind = rng.random()
    if kind < 0.6:
        return [token(rng, typed) if typed else rng.choice(CONTENTS) for _ in range(rng.randint(0, 3))]
    if kind < 0.9:
        return {rng.choice(OTHERS + ["boi", "eoi"]): rng.choice(CONTENTS) for _ in range(rng.randint(0, 2))}
    return None


def draw(rng, base, document):
    size = len(document["model"]["vocab"])
    in_file = [{"id": size + i, "content": c, **flags(rng)} for i, c in enumerate(rng.sample(CONTENTS, rng.randint(0, 4)))]
    config = {"tokenizer_class": rng.choice(["PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer"])}
    config.update(names(rng, True))
    if rng.random() < 0.4:
        config["extra_special_tokens"] = extra(rng, True)
    if rng.random() < 0.3:
        config["additional_special_tokens"] = extra(rng, True)
    if rng.random() < 0.2:
        config["model_specific_special_tokens"] = {rng.choice(OTHERS + ["boi"]): rng.choice(CONTENTS)}
    if rng.random() < 0.1:
        config["split_special_tokens"] = True
    if rng.random() < 0.15:
        config["clean_up_tokenization_spaces"] = True
        if rng.random() < 0.3:
            config["clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"] = True
    if rng.random() < 0.1:
        config.update(add_bos_token=True, add_eos_token=True, add_prefix_space=True, legacy=False, model_max_length=3)
    files = {"tokenizer_config.json": config}
    if rng.random() < 0.6:
        decoder = {}
        for entry in in_file + [{"id": rng.randint(0, 100), "content": rng.choice(CONTENTS)} for _ in range(rng.randint(0, 3))]:
            given = {k: v for k, v in entry.items() if k != "id"}
            if rng.random() < 0.5 or "special" not in given:
                given.update(flags(rng))
            if rng.random() < 0.1:
                given.pop(rng.choice(FLAGS))
            decoder[str(entry["id"])] = given
        config["added_tokens_decoder"] = decoder
    if rng.random() < 0.4:
        files["special_tokens_map.json"] = names(rng, False)
        if rng.random() < 0.4:
            files["special_tokens_map.json"][rng.choice(["additional_special_tokens", "extra_special_tokens"])] = [
                rng.choice(CONTENTS) for _ in range(rng.randint(0, 2))]
    if rng.random() < 0.3:
        files["added_tokens.json"] = {rng.choice(CONTENTS): rng.randint(0, 100) for _ in range(rng.randint(1, 3))}
    if rng.random() < 0.1:
        del files["tokenizer_config.json"]
    return {"base": base, "added_tokens": in_file, "files": files}


def named_cases():
    """What a reader gets wrong first, one at a time."""
    s = {"id": 39, "content": "<s>", **PLAIN, "special": True}

    def case(name, base="bytes", added=(s,), **files):
        return {"name": name, "base": base, "added_tokens": list(added),
                "files": {key + ".json": value for key, value in files.items()}}
    yield case("no file")
    yield case("lstrip of the decoder wins", tokenizer_config={"added_tokens_decoder": {"39": {**PLAIN, "content": "<s>", "special": True, "lstrip": True}}})
    yield case("special stays", tokenizer_config={"added_tokens_decoder": {"39": {**PLAIN, "content": "<s>"}}})
    yield case("ids of the decoder only order", tokenizer_config={"added_tokens_decoder": {
        "100": {**PLAIN, "content": "<x>"}, "50": {**PLAIN, "content": "<pad>", "rstrip": True}}})
    yield case("named tokens of the vocabulary are added", tokenizer_config={"eos_token": "a", "image_token": "<img>"})
    yield case("additional", tokenizer_config={"additional_special_tokens": ["<x>", "<img>"]})
    yield case("extra wins over additional", tokenizer_config={"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<img>"]})
    yield case("an empty extra does not", tokenizer_config={"additional_special_tokens": ["<x>"], "extra_special_tokens": []})
    yield case("extra names", tokenizer_config={"extra_special_tokens": {"image_token": "<img>", "boi": "<x>"}})
    yield case("a field wins over model_specific", tokenizer_config={
        "model_specific_special_tokens": {"boi": "<x>"}, "boi": "<x>", "image_token": "<img>"})
    yield case("model_specific alone", tokenizer_config={"model_specific_special_tokens": {"boi": "<x>"}, "boi": "<x>"})
    yield case("the older map wins", tokenizer_config={"bos_token": "<s>", "pad_token": "<x>"}, special_tokens_map={
        "bos_token": "<S>", "pad_token": {"content": "<pad>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}})
    yield case("beside a decoder it does not count", tokenizer_config={"bos_token": "<s>", "added_tokens_decoder": {}},
               special_tokens_map={"bos_token": "<S>"}, added_tokens={"<x>": 40})
    yield case("a map alone", special_tokens_map={"bos_token": "<S>", "image_token": "<img>", "additional_special_tokens": ["<x>"]})
    yield case("added_tokens.json", tokenizer_config={"pad_token": "<pad>"}, added_tokens={"<pad>": 45, "<x>": 44, "<S>": 39})
    yield case("special tokens as text", tokenizer_config={"split_special_tokens": True})
    yield case("normalized later", base="lower", added=({**s, "content": "<S>"},), tokenizer_config={
        "added_tokens_decoder": {"39": {**PLAIN, "content": "<S>", "special": True, "normalized": True, "lstrip": True}}})
    yield case("blanks before punctuation", base="scores", tokenizer_config={"clean_up_tokenization_spaces": True})
    yield case("not of BPE", tokenizer_config={"clean_up_tokenization_spaces": True})
    yield case("but if it is told to", tokenizer_config={
        "clean_up_tokenization_spaces": True, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True})
    yield case("numbered from the number of tokens", base="lower", added=({**s, "content": "<unk>", "id": 70}, {**s, "content": "<x>", "id": 71}),
               tokenizer_config={"pad_token": "<pad>"})
    yield case("a flag of no type", tokenizer_config={"added_tokens_decoder": {"39": {"content": "<s>", "lstrip": "yes"}}})
    yield case("a token that is none", tokenizer_config={"bos_token": 5})
    yield case("an extra that is a text", tokenizer_config={"extra_special_tokens": "<x>"})
    yield case("an id that is none", tokenizer_config={"added_tokens_decoder": {"x": {"content": "<s>"}}})
    yield case("a decoder of texts", tokenizer_config={"added_tokens_decoder": {"39": "<s>"}})


def answer(case, document):
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "tokenizer.json").write_text(json.dumps({**document, "added_tokens": case["added_tokens"]}))
        (folder / "config.json").write_text('{"model_type": "llama"}')
        for name, content in case["files"].items():
            (folder / name).write_text(json.dumps(content))
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        except Exception as error:
            return {"error": type(error).__name__}
        backend = tokenizer.backend_tokenizer
        added = tokenizer.added_tokens_decoder.values()
        normal = [backend.normalizer.normalize_str(t.content) if backend.normalizer and t.normalized else t.content for t in added]
        if len(set(normal)) < len(normal):
            return None  # Which of two that are found alike is taken, differs from run to run.
        result = {"named": tokenizer.special_tokens_map, "vocab_size": max(tokenizer.get_vocab().values()) + 1, "ids": ids,
                  "decoded": [tokenizer.decode(i) for i in ids]}
        # What it was normalized to by an earlier entry stays, too.
        if all(backend.id_to_token(i) == t.content for i, t in tokenizer.added_tokens_decoder.items() if t.special):
            result["decoded_skip"] = [tokenizer.decode(i, skip_special_tokens=True) for i in ids]
        return result
    finally:
        shutil.rmtree(folder)


def line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--out", type=Path, default=HERE / "configs.jsonl")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    documents = bases()
    cases = list(named_cases())
    cases += [draw(rng, base, documents[base]) for base in rng.choices(list(documents), k=args.count)]
    with args.out.open("w") as out:
        out.write(line({"bases": documents, "texts": TEXTS}))
        for case in cases:
            result = answer(case, documents[case["base"]])
            if result is not None:
                out.write(line({**case, **result}))


if __name__ == "__main__":
    main()
