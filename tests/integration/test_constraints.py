"""Answers that are held to constraints, on real processes: a random model with a vocabulary of bytes, so that
nothing but the masks makes JSON of what it says."""

import json
import os
import subprocess
import threading
import time

import pytest
from checkpoints import make_checkpoint
from client_environment import environment
from cluster import BIN, NEVER, Cluster, Failed, cut, wait_until
from http_client import begin, events, post, request
from metrics_text import scrape, total

LAYERS = 4
MERGES = ['" :', '" ,', '{ "', '" }', '1 2', 'a b', 't h', 'th e', '[ ]', 't r', 'u e', 'tr ue', 'n u', 'l l', 'nu ll', 'i n']
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "count", "tags", "done"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "count": {"type": "integer", "minimum": 0, "maximum": 999},
    "tags": {"type": "array", "items": {"enum": ["a", "b\u00e9", "c\""]}, "maxItems": 3}, "done": {"type": "boolean"},
    "more": {"type": ["null", "number"], "maximum": 100, "minimum": -100}}}


def byte_characters():
    """GPT-2's: the character that stands for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def make_tokenizer(folder, more=()):
    """Byte-level BPE: special tokens (`more` are some), all bytes, and some of what JSON has. How many there are."""
    words = [*byte_characters().values(), *(merge.replace(" ", "") for merge in MERGES)]
    special = ["<unk>", "<s>", "</s>", *more]
    tokenizer = {
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(special)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {word: i for i, word in enumerate([*special, *words])}, "merges": MERGES}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return len(special) + len(words)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The model has more logits than the tokenizer tokens."""
    folder = tmp_path_factory.mktemp("model") / "bytes"
    make_checkpoint(folder, layers=LAYERS, hidden=64, ffn=96, vocab=304, heads=2, kv_heads=2, context=2048)
    assert make_tokenizer(folder) <= 304
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, model):
    # What is slow to compile takes more memory than this, however busy the machine is.
    with Cluster(tmp_path_factory.mktemp("constraints"), constraint_timeout=NEVER, constraint_memory="512MiB") as c:
        c.start_workers(2)
        c.load("bytes", model, cuts=cut(["w0", "w1"], LAYERS), context=2048, sessions=16)
        yield c


def body(seed, max_tokens=700, **fields):
    held = fields or {"guided_json": SCHEMA}
    return {"model": "bytes", "prompt": f"Say {seed % 7}", "seed": seed, "temperature": 1.5, "max_tokens": max_tokens, **held}


def answer(cluster, *args, **fields):
    """(text, finish_reason, completion tokens)"""
    said = post(cluster, "/v1/completions", body(*args, **fields))
    choice = said["choices"][0]
    return choice["text"], choice["finish_reason"], said["usage"]["completion_tokens"]


def at_once(tasks, threads=16):
    """What each of `tasks` gives, so many at a time."""
    results, left, lock = [None] * len(tasks), list(enumerate(tasks)), threading.Lock()

    def work():
        while True:
            with lock:
                if not left:
                    return
                i, task = left.pop(0)
            results[i] = task()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


def judge(schema, texts):
    """What the recognizer says of each: "admitted", and "begun" where it is the beginning of one that is."""
    judged = subprocess.run([BIN.parent / "tests" / "grammar_judge"], capture_output=True, check=True, text=True,
                            input=json.dumps({"schema": json.dumps(schema), "texts": texts, "draw": 0}) + "\n")
    return json.loads(judged.stdout)


def check_all(cluster, count):
    """Asks so many, and has those that ended judged by jsonschema, the others by the recognizer."""
    answers = at_once([lambda seed=seed: answer(cluster, seed) for seed in range(count)])
    whole = [text for text, reason, _ in answers if reason == "stop"]
    cut_off = [text for text, reason, _ in answers if reason == "length"]
    assert len(whole) + len(cut_off) == count
    assert len(whole) >= 0.9 * count
    program = ("import json, sys, jsonschema\n"
               "asked = json.load(sys.stdin)\n"
               "judge = jsonschema.Draft202012Validator(asked['schema'])\n"
               "for text in asked['texts']: judge.validate(json.loads(text))\n")
    done = subprocess.run([environment("jsonschema", "jsonschema==4.26.0"), "-c", program], input=json.dumps({"schema": SCHEMA, "texts": whole}),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    verdict = judge(SCHEMA, whole + cut_off)
    assert all(verdict["admitted"][:len(whole)]) and all(verdict["begun"])
    assert not any(verdict["admitted"][len(whole):])


def test_answers_satisfy_their_schema(cluster):
    check_all(cluster, 48)


@pytest.mark.long
def test_a_thousand_answers_satisfy_their_schema(cluster):
    check_all(cluster, 1000)


def test_each_kind_holds(cluster):
    cut_off = []
    for seed in range(3):
        text, reason, _ = answer(cluster, seed, guided_choice=["yes", "no", "perhaps"])
        assert (text in ("yes", "no", "perhaps")) and reason == "stop"
        text, reason, _ = answer(cluster, seed, guided_regex="[a-f]{3}-[0-9]{2,4}")
        assert len(text.split("-")[0]) == 3 and text.split("-")[1].isdigit() and reason == "stop"
        text, reason, _ = answer(cluster, seed, guided_grammar='root ::= "<" [xyz]{1,5} ">"')
        assert text[0] == "<" and text[-1] == ">" and set(text[1:-1]) <= set("xyz") and reason == "stop"
        text, reason, _ = answer(cluster, seed, response_format={"type": "json_object"})
        if reason == "length":
            cut_off.append(text)
        else:
            assert reason == "stop" and isinstance(json.loads(text), dict)
    assert all(judge({"type": "object"}, cut_off)["begun"])


def test_the_command_line_holds_answers_too(cluster, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "boolean"}))
    for flags in (["--json-schema", path], ["--choice", "true", "--choice", "false"], ["--regex", "true|false"]):
        said = cluster.json("generate", "bytes", "Say", "--temperature", "1.5", *flags)
        assert said["text"] in ("true", "false") and said["finish_reason"] == "stop"


def test_logprobs_are_of_the_row_as_it_is(cluster):
    said = post(cluster, "/v1/completions", body(3, guided_choice=["yes", "no"], logprobs=2))["choices"][0]["logprobs"]
    held, top = said["token_logprobs"][0], said["top_logprobs"][0]
    assert held <= max(top.values()) and not set(top) <= {"y", "n"}


def test_least_tokens_and_end_tokens_hold_while_something_else_may_come(cluster):
    for fields in ({"min_tokens": 30}, {"ignore_eos": True}):
        for seed in range(4):
            text, reason, tokens = answer(cluster, seed, guided_regex="(ab)*", **fields, max_tokens=40)
            assert set(text) <= set("ab") and tokens >= 30
            text, reason, tokens = answer(cluster, seed, guided_regex="[xy]{3}", **fields, max_tokens=40)
            assert len(text) == 3 and reason == "stop"


def test_stop_strings_end_nothing(cluster):
    text, reason, _ = answer(cluster, 1, guided_choice=["a stop here"], stop=["stop"])
    assert (text, reason) == ("a stop here", "stop")


def test_what_cannot_be_held_is_refused_by_keyword_and_path(cluster):
    status, _, said = request(cluster, "POST", "/v1/completions", body(1, guided_json={
        "type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}, "uniqueItems": True}}}))
    assert status == 400 and "uniqueItems" in said["error"]["message"], said
    assert "/properties/a" in json.dumps(said), said
    status, _, said = request(cluster, "POST", "/v1/completions", body(1, guided_regex="a" * (300 << 10)))
    assert status == 400 and said["error"]["code"] == "constraint_too_long", said


def texts_of(cluster, seeds, threads):
    return at_once([lambda seed=seed: answer(cluster, seed, 150)[0] for seed in seeds], threads)


def test_the_same_text_alone_and_in_a_batch_of_sixteen(cluster):
    seeds = range(100, 116)
    assert texts_of(cluster, seeds, 1) == texts_of(cluster, seeds, 16)


def test_the_same_text_though_it_was_preempted_or_a_worker_was_killed(tmp_path, model, cluster):
    seeds = range(100, 108)
    alone = texts_of(cluster, seeds, 1)
    with Cluster(tmp_path / "small", recovery_timeout="60s") as c:
        c.start_workers(2)
        c.load("bytes", model, cuts=cut(["w0", "w1"], LAYERS), context=512, kv_tokens=512)
        assert texts_of(c, seeds, 8) == alone
        assert c.json("model", "show", "bytes")["preemptions"] > 0
        answers = {}
        thread = threading.Thread(target=lambda: answers.update(all=texts_of(c, seeds, 8)))
        thread.start()
        wait_until(lambda: c.json("session", "list")["sessions"], "requests run")
        assert thread.is_alive()
        c.workers["w1"].kill()
        c.start_worker("w1", wait=False)
        thread.join()
        assert answers["all"] == alone


def test_a_schema_that_is_slow_is_refused_in_time_and_slows_nobody(cluster):
    # Half a minute, or four gigabytes.
    slow = "root ::= " + " | ".join(f"[a-z]{{{i},{i + 200}}}" for i in range(0, 200, 2))
    streams = [begin(cluster, "/v1/completions", body(seed, 1500, stream=True, guided_regex="[a-z ]*", ignore_eos=True))
               for seed in range(8)]
    counts = [0] * 8

    def read(i):
        for _ in events(streams[i][1]):
            counts[i] += 1

    readers = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for reader in readers:
        reader.start()
    wait_until(lambda: min(counts) > 10, "all streams run")
    before = list(counts)
    status, _, said = request(cluster, "POST", "/v1/completions", body(1, guided_grammar=slow))
    assert status == 400 and said["error"]["code"] == "grammar_too_expensive", said
    assert all(now > then + 10 for now, then in zip(counts, before)), (counts, before)
    for reader in readers:
        reader.join()
    for connection, _ in streams:
        connection.close()


def test_many_answers_to_a_slow_schema_wait_for_one_compile(cluster):
    slow = "root ::= " + " | ".join(f"[a-z]{{{i},{i + 201}}}" for i in range(0, 200, 2))
    begun = scrape(cluster.http)
    for choices in (64, 1):
        status, _, said = request(cluster, "POST", "/v1/completions", body(1, guided_grammar=slow, n=choices))
        assert status == 400 and said["error"]["code"] == "grammar_too_expensive", said
    ended = scrape(cluster.http)
    for name in ("strata_constraint_compile_failures_total", "strata_constraint_compile_seconds_count"):
        assert total(ended, name) - total(begun, name) == 1, name


def test_what_constraints_cost_is_counted(cluster):
    before = scrape(cluster.http)
    held = {"guided_json": {"type": "object", "properties": {"counted": {"type": "boolean"}}, "required": ["counted"]}}
    held["speculate"] = "off"  # A mask for each token.
    _, _, tokens = answer(cluster, 1, **held)
    answer(cluster, 2, **held)
    after = scrape(cluster.http)

    def grew(name):
        return total(after, name) - total(before, name)

    assert grew("strata_constraint_compiles_total") == grew("strata_constraint_kept_grammars") == 1
    assert grew("strata_constraint_kept_bytes") > 0 and grew("strata_constraint_compile_failures_total") == 0
    assert grew("strata_constraint_mask_seconds_count") > tokens


def test_a_grammar_whose_masks_are_slow_is_refused_and_slows_nobody(cluster):
    slow = "root ::= s\ns ::= s s s | s s | [a-z] | [a-z] [a-z]"
    said = {}
    thread = threading.Thread(target=lambda: said.update(all=request(
        cluster, "POST", "/v1/completions", body(1, 1500, guided_grammar=slow, min_tokens=1500))))
    thread.start()
    for seed in range(4):
        assert answer(cluster, seed)[1] in ("stop", "length")
    thread.join()
    status, _, why = said["all"]
    assert status == 400 and why["error"]["code"] == "grammar_too_expensive", why
    status, _, said = request(cluster, "POST", "/v1/completions", body(2, guided_grammar=slow))
    assert status == 400 and said["error"]["code"] == "grammar_too_expensive", said


def test_a_stop_ends_what_is_compiled_and_what_waits_for_it(tmp_path, model):
    with Cluster(tmp_path / "stops", constraint_timeout="30s") as c:
        c.start_workers(2)
        c.load("bytes", model, cuts=cut(["w0", "w1"], LAYERS), context=512)

        def ask(i):
            slow = "root ::= " + " | ".join(f"[a-z]{{{j},{j + 300 + i}}}" for j in range(0, 200, 2))
            return request(c, "POST", "/v1/completions", body(1, guided_grammar=slow))

        threads = [threading.Thread(target=lambda i=i: said.append(ask(i))) for i in range(6)]
        said = []
        for thread in threads:
            thread.start()
        compiles = f"/proc/{c.coordinator.process.pid}/task"
        wait_until(lambda: any(open(f"{compiles}/{task}/children").read().split() for task in os.listdir(compiles)), "a grammar is compiled")
        begun = time.monotonic()
        c.coordinator.terminate()
        for thread in threads:
            thread.join()
        c.coordinator.wait()
        assert time.monotonic() - begun < 10
        assert [status for status, _, _ in said] == [503] * 6, said


def test_a_model_without_tokenizer_refuses_constraints_by_name(tmp_path, cluster):
    folder = tmp_path / "ids"
    make_checkpoint(folder, layers=LAYERS, hidden=64, ffn=96, vocab=128, heads=2, kv_heads=2)
    cluster.load("ids", folder, cuts=cut(["w0", "w1"], LAYERS), sessions=1)
    with pytest.raises(Failed, match="no tokenizer"):
        cluster.run("generate", "ids", "--token-ids", "5", "--choice", "a")
    cluster.run("model", "unload", "ids")
