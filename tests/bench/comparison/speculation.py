"""What drafts win: a model that edits a file, and one that writes what stood nowhere, with drafts and without in turn;
and llama.cpp's server with its own speculation by n-grams on the same file."""
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import tempfile
import threading
import time
import urllib.request

import copier_text

from .clusters import free_port, started_workers, wait_for_health
from .guesses import guesses_asked
from .runner import measure, say
from .samples import LLAMA, STRATA, Failed, Key

CONTEXT, KV_TOKENS = 4096, 24 * 1024
PARTS = ("edits", "prose", "guesses", "peers")
# Tokens of an answer. Those of one client are more, so that a measurement takes some seconds.
EDITED, PROSE = 384, {1: 192, 8: 96, 32: 64}
ON, OFF = "auto", "off"
# Its kinds of speculation by n-grams as they are, and with the sizes that suit short runs best.
LLAMA_KINDS = {
    OFF: [],
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple of 3 and 15": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3",
                                 "--spec-ngram-simple-size-m", "15"],
    "ngram-cache": ["--spec-type", "ngram-cache"],
}


@dataclasses.dataclass
class Asked:
    """Clients that are answered at once, in one way."""
    title: str
    who: str
    key: Key
    ask: object  # (the number of the measurement) -> tokens/s


def post_json(url, body, timeout_s=1800):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        return json.load(response)


def at_once(calls):
    """What each of the functions gives, and the seconds until all have."""
    given = [None] * len(calls)

    def call(i):
        with contextlib.suppress(OSError, KeyError, ValueError):
            given[i] = calls[i]()

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - start
    if None in given:
        raise Failed(f"{given.count(None)} of {len(calls)} answers failed: look at the logs, or leave speculation out "
                     "of --rows")
    return given, took


def strata_ask(url, prompt, tokens, drafts, **more):
    answer = post_json(f"{url}/v1/completions", {"model": "copier", "prompt": prompt, "max_tokens": tokens,
                                                 "ignore_eos": True, "speculate": drafts, **more})
    if answer["usage"]["completion_tokens"] != tokens:
        raise Failed(f"{STRATA} answered with {answer['usage']['completion_tokens']} tokens for {tokens}")
    return answer["choices"][0]["text"]


def llama_ask(url, prompt, tokens):
    answer = post_json(f"{url}/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
                                             "cache_prompt": True})
    return answer["content"]


def edit_speed(ask, clients, first):
    """Tokens/s of answers that edit files, behind prompts that were computed before. `ask`: (prompt, tokens) -> text."""
    prompts = [copier_text.prompt(first + i) for i in range(clients)]
    at_once([lambda prompt=prompt: ask(prompt, 1) for prompt in prompts])
    texts, took = at_once([lambda prompt=prompt: ask(prompt, EDITED) for prompt in prompts])
    for i, text in enumerate(texts):
        if text != copier_text.answer(first + i, EDITED):
            raise Failed("the model does not write the edited file: write it again with tests/bench/make_copier.py")
    return clients * EDITED / took


def prose_speed(url, drafts, clients, first):
    tokens = PROSE[clients]
    calls = [lambda seed=first + i: strata_ask(url, copier_text.prose(seed), tokens, drafts, temperature=1, seed=seed)
             for i in range(clients)]
    return clients * tokens / at_once(calls)[1]


class Seeds:
    """No two measurements have the same texts: nothing is to be found in other answers."""

    def __init__(self):
        self.next = 0

    def take(self, count):
        self.next += count
        return self.next - count


@contextlib.contextmanager
def strata_url(peers, results, folder, workers, threads):
    say(f"starting a cluster of {workers} x {threads} threads")
    with started_workers(peers, folder, workers, threads, peers.shape["layers"]) as (cluster, cuts):
        cluster.load("copier", peers.models / "hf", cuts=cuts, quantize="int8",
                     context=CONTEXT, kv_tokens=KV_TOKENS, sessions=40)
        results.isa = cluster.json("node", "list")["nodes"][0]["isa"]
        yield f"http://{cluster.http}"


@contextlib.contextmanager
def llama_url(peers, folder, flags):
    port = free_port()
    command = [str(peers.llama_server), "-m", str(peers.models / "q8_0.gguf"), "-t", "2", "-np", "1", "-c", str(CONTEXT),
               "-fa", "on", "--host", "127.0.0.1", "--port", str(port), *flags]
    folder.mkdir()
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for_health(f"http://127.0.0.1:{port}", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def asked_of_strata(title, what, threads, url, ask):
    """With drafts and without. `ask`: (drafts) -> tokens/s."""
    return [Asked(f"{title}, drafts {drafts}", STRATA, Key(what, "int8", threads, STRATA, drafts),
                  lambda drafts=drafts: ask(drafts)) for drafts in (OFF, ON)]


def strata_group(parts, one, two, seeds):
    """What is asked of one worker of two threads, and of two of one; URLs."""
    def edits(url, clients):
        return lambda drafts: edit_speed(
            lambda prompt, tokens: strata_ask(url, prompt, tokens, drafts, temperature=0), clients, seeds.take(clients))

    group = []
    if "edits" in parts or "peers" in parts:
        group += asked_of_strata("a file edited, one worker, 1 client", "edit1", 2, one, edits(one, 1))
    if "edits" in parts:
        group += asked_of_strata("a file edited, two workers, 1 client", "edit1x2", 1, two, edits(two, 1))
        group += asked_of_strata("a file edited, one worker, 4 clients", "edit4", 2, one, edits(one, 4))
    for clients in PROSE if "prose" in parts else ():
        group += asked_of_strata(
            f"prose, one worker, {clients} client{'s' if clients > 1 else ''}", f"prose{clients}", 2, one,
            lambda drafts, clients=clients: prose_speed(one, drafts, clients, seeds.take(clients)))
    return group


def measure_speculation(peers, results, arguments):
    lacking = {"peers"} if not peers.llama_server else set()
    lacking |= {"guesses"} if not peers.guessers else set()
    parts = [part for part in arguments.speculation if part not in lacking]
    seeds = Seeds()
    with tempfile.TemporaryDirectory(prefix="strata-bench.") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        one = stack.enter_context(strata_url(peers, results, folder / "one", 1, 2)) if parts != ["guesses"] else None
        two = stack.enter_context(strata_url(peers, results, folder / "two", 2, 1)) if "edits" in parts else None
        group = strata_group(parts, one, two, seeds)
        if "guesses" in parts:
            group += [Asked(title, STRATA, key, ask) for title, key, ask in guesses_asked(
                peers, peers.guessers_shape, peers.guessers, folder, stack, seeds)]
            results.commands.setdefault(("a draft model", STRATA),
                                        "strata model load model --quantize int8 --speculate model=guesser")
        for kind, flags in LLAMA_KINDS.items() if "peers" in parts else ():
            url = stack.enter_context(llama_url(peers, folder / f"llama-{len(group)}", flags))
            group.append(Asked(
                f"a file edited, {kind}", LLAMA, Key("edit1", "int8", 2, LLAMA, kind),
                lambda url=url: edit_speed(lambda prompt, tokens: llama_ask(url, prompt, tokens), 1, seeds.take(1))))
            results.commands.setdefault(("a file edited", f"{LLAMA}, {kind}"),
                                        " ".join(["llama-server -m q8_0.gguf -t 2 -np 1 -fa on", *flags]))
        results.commands.setdefault(
            ("a file edited, and prose", STRATA),
            f"strata model load copier --quantize int8 --context {CONTEXT} --kv-tokens {KV_TOKENS}")
        for asked in group:  # Warm: the beginning of the prompts is known, and what steps take.
            asked.ask()
        measure([group], results, arguments.rounds, lambda asked: {asked.key: asked.ask()})
