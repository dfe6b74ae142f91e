"""What the engines print, as figures."""
import contextlib
import json
import re

from .samples import LLAMA, STRATA, Failed


def parse_json(text):
    """Strata's one JSON document."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failed(f"{STRATA} printed no JSON ({error}): rebuild it with ./dev build") from None


def parse_objects(text, needed, who):
    """The flat JSON objects in `text` that have the field `needed`. llama.cpp and ik_llama.cpp
    print other lines too, some of them within the list of results."""
    found = []
    for match in re.finditer(r"\{[^{}]*\}", text):
        with contextlib.suppress(ValueError):
            found.append(json.loads(match.group()))
    found = [one for one in found if needed in one]
    if not found:
        raise Failed(f"{who} printed no result with {needed}: run its command line by hand and "
                     "look")
    return found


def parse_llama_bench(text, who):
    """{(n_prompt, n_gen, flash attention on): tokens/s}, commit."""
    speeds, commit = {}, ""
    for test in parse_objects(text, "avg_ts", who):
        key = (test["n_prompt"], test["n_gen"], int(test["flash_attn"]) != 0)
        speeds[key] = test["avg_ts"]
        commit = test.get("build_commit", "")
    return speeds, commit


def parse_batched_bench(text):
    """Generated tokens over the time of prompts and answers."""
    test = parse_objects(text, "t_pp", LLAMA)[-1]
    return test["pl"] * test["tg"] / (test["t_pp"] + test["t_tg"])


def parse_dllama(text):
    """(prompt, generation) in tokens/s."""
    match = re.search(r"^Evaluation$.*?tokens/s:\s*([\d.]+).*?^Prediction$.*?tokens/s:\s*([\d.]+)",
                      text, re.M | re.S)
    if not match:
        raise Failed("distributed-llama printed no tokens/s: run its command line by hand and look")
    return float(match.group(1)), float(match.group(2))
