"""mutations.jsonl: single changes of each tokenizer.json here, and what Hugging Face's `tokenizers`
makes of the file then: ids of some texts, or a refusal.

A line: {"tokenizer", "patch": one operation of RFC 6902, "ids": [[...] for each text] or null: refused}.
The first line: {"texts"}. Seeded; version 0.23 of the library. Each file is loaded in a process of its
own, since some changes make the library abort or loop.

config_mutations.jsonl: likewise of the files beside a tokenizer.json, in the cases of configs.jsonl that
have a name: {"name", "patch" of "files", "ids", "named"}, by transformers 5.24 (see make_configs.py).
"""

import copy
import json
import multiprocessing
import pathlib
import random

import make_configs

HERE = pathlib.Path(__file__).resolve().parent
EACH = 26
EACH_CONFIG = 9
# Drawn behind all others, whose lines stay as they are.
LATER = ("bert", "word_ends")
TEXTS = ["Hello world! It's 2024, isn't it?", "  h\u00e9llo\n\nW\u00f6rld 12345\t\u4e2d\u6587 \U0001f642 ",
         "<s>one two</s> <|im_end|>\n<think> x", "a  b   c\u00a0d e\u0301 \uff21 don't", ""]


def children(value):
    if isinstance(value, dict):
        return list(value)
    return list(range(len(value))) if isinstance(value, list) else []


def pick(rng, document):
    """A path from the top, every turn as likely as the others; vocabularies do not win by size."""
    path, value = [], document
    while children(value) and (not path or rng.random() < 0.8):
        key = rng.choice(children(value))
        path.append(key)
        value = value[key]
    return path, value


def changes(rng, value):
    """What the value may become."""
    out = [None, True, False, -1, 0, 1, 2**31, 2**63, 1e308, 0.5, "", "x", [], {}, [value]]
    if isinstance(value, bool):
        out += [not value] * 8
    elif isinstance(value, (int, float)):
        out += [value + 1, value * 2, -value] * 2
    elif isinstance(value, str):
        out += [value + "x", value[:-1], value[::-1]] * 3
    elif isinstance(value, list) and value:
        out += [value[:-1], value[::-1], value + value[-1:]] * 3
    change = rng.choice(out)
    return change if json.dumps(change) != json.dumps(value) else "changed"


def pointer(path):
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def apply(document, patch, path):
    document = copy.deepcopy(document)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    if patch["op"] == "remove":
        del parent[path[-1]]
    else:
        parent[path[-1]] = patch["value"]
    return document


def encode(text, pipe):
    from tokenizers import Tokenizer
    try:
        tokenizer = Tokenizer.from_str(text)
        pipe.send([tokenizer.encode(t, add_special_tokens=True).ids for t in TEXTS])
    except BaseException:  # Rust's panics are none of Exception's.
        pipe.send(None)


def reference(document):
    """The ids, or None where it is refused; "hangs"."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=encode, args=(json.dumps(document), theirs))
    process.start()
    theirs.close()
    process.join(10)
    if process.is_alive():
        process.kill()
        return "hangs"
    try:
        return ours.recv() if ours.poll() else None
    except EOFError:
        return None


def main():
    rng = random.Random(7)
    with open(HERE / "mutations.jsonl", "w") as out:
        out.write(json.dumps({"texts": TEXTS}) + "\n")
        folders = sorted((p.parent for p in HERE.glob("*/tokenizer.json")), key=lambda f: (f.name in LATER, f.name))
        for folder in folders:
            document = json.loads((folder / "tokenizer.json").read_text())
            done = 0
            while done < EACH:
                path, value = pick(rng, document)
                patch = {"op": "remove", "path": pointer(path)}
                if rng.random() < 0.8:
                    patch = {"op": "replace", "path": pointer(path), "value": changes(rng, value)}
                if len(json.dumps(patch)) > 2000:
                    continue
                ids = reference(apply(document, patch, path))
                if ids == "hangs":
                    continue
                out.write(json.dumps({"tokenizer": folder.name, "patch": patch, "ids": ids}) + "\n")
                done += 1


def change_configs():
    rng = random.Random(11)
    documents = make_configs.bases()
    with open(HERE / "config_mutations.jsonl", "w") as out:
        for case in make_configs.named_cases():
            original = make_configs.answer(case, documents[case["base"]])
            if "error" in original or not case["files"]:
                continue
            for _ in range(EACH_CONFIG):
                path, value = pick(rng, case["files"])
                if len(path) < 2:
                    continue
                patch = {"op": "remove", "path": pointer(path)}
                if rng.random() < 0.8:
                    patch = {"op": "replace", "path": pointer(path), "value": changes(rng, value)}
                changed = make_configs.answer({**case, "files": apply(case["files"], patch, path)}, documents[case["base"]])
                if changed is not None:
                    out.write(make_configs.line({"name": case["name"], "patch": patch, "ids": changed.get("ids"),
                                                 "named": changed.get("named")}))


if __name__ == "__main__":
    main()
    change_configs()
