"""Clients whose answers are known beforehand, and when each token came."""

import collections
import http.client
import json
import random
import threading
import time

MODEL = "m"
PROMPTS = 6
LONGEST = 160  # Tokens of an answer.
SHORTEST = 20


def prompt(index):
    drawn = random.Random(index)
    return [drawn.randrange(1000) for _ in range(20 + 25 * index)]


class Ask:
    """What is asked: a prompt, greedily or drawn by a seed, over gRPC or HTTP. Its answer of fewer tokens is the
    beginning of that of more."""

    def __init__(self, index, transport, sampled):
        self.index, self.transport, self.sampled = index, transport, sampled
        self.key = (index, transport, sampled)

    def grpc_options(self, tokens):
        drawn = {"temperature": 1.0, "seed": self.index} if self.sampled else {"temperature": 0.0}
        return {"max_tokens": tokens, "ignore_eos": True, "logprobs": 1, **drawn}

    def http_body(self, tokens):
        drawn = {"temperature": 1.0, "seed": self.index} if self.sampled else {"temperature": 0.0}
        return {"model": MODEL, "prompt": prompt(self.index), "max_tokens": tokens, "ignore_eos": True, "logprobs": 1,
                "stream": True, **drawn}


def asks():
    return [Ask(index, transport, sampled) for index in range(PROMPTS) for transport in ("grpc", "http")
            for sampled in (False, True)]


class Lost(Exception):
    """A request that got no whole answer."""


class Transports:
    """Ways to ask. Any thread."""

    def __init__(self, strata, grpc_address, http_address, patience_s):
        self.strata = strata
        # Nothing is sent again by the client: what the cluster loses is to be seen.
        self.client = strata.Client(grpc_address, resume_timeout=0)
        self.http_address = http_address
        self.patience_s = patience_s

    def answer(self, ask, tokens, on_token=lambda: None):
        """[(token, its log probability)] of the whole answer; Lost if it is not whole. `on_token` at each one."""
        found = (self._over_grpc if ask.transport == "grpc" else self._over_http)(ask, tokens, on_token)
        if len(found) != tokens:
            raise Lost(f"{len(found)} tokens instead of {tokens}")
        return found

    def _over_grpc(self, ask, tokens, on_token):
        found = []
        try:
            stream = self.client.stream(MODEL, prompt(ask.index), timeout=self.patience_s, **ask.grpc_options(tokens))
            with stream:
                for piece in stream:
                    found += [(t.token_id, t.logprob) for t in piece.logprobs]
                    on_token()
        except self.strata.StrataError as error:
            raise Lost(f"after {len(found)} tokens: {type(error).__name__}: {error}") from None
        return found

    def _over_http(self, ask, tokens, on_token):
        found = []
        connection = http.client.HTTPConnection(self.http_address, timeout=self.patience_s)
        try:
            connection.request("POST", "/v1/completions", json.dumps(ask.http_body(tokens)))
            response = connection.getresponse()
            if response.status != 200:
                raise Lost(f"{response.status}: {response.read(2000).decode(errors='replace')}")
            for line in response:
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[5:])
                if "choices" not in event:
                    raise Lost(f"after {len(found)} tokens: {event}")
                for choice in event["choices"]:
                    logprobs = choice.get("logprobs")
                    if logprobs:
                        found += list(zip(logprobs["tokens"], logprobs["token_logprobs"]))
                        on_token()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Lost(f"after {len(found)} tokens: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        return found

    def close(self):
        self.client.close()


class Stream(threading.Thread):
    """One client that asks again and again. `times` are those of what it saw, in order: ("asked" or "token", when by
    time.time(), tokens of its prompt and its answer by then)."""

    def __init__(self, number, seed, transports, right):
        super().__init__(daemon=True, name=f"stream {number}")
        self.drawn = random.Random(seed * 1000 + number)
        self.transports, self.right = transports, right
        self.choices = [ask for ask in asks() if (ask.transport == "grpc") == (number % 2 == 0)]
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.times = collections.deque()
        self.answered = 0
        self.tokens = 0
        self.held = 0
        self.asked_at = None  # Of the answer that it waits for.
        self.last_at = self.token_at = time.time()  # Of anything, and of a token.
        self.wrong = []  # (when, what)

    def run(self):
        while not self.over.is_set():
            ask, tokens = self.drawn.choice(self.choices), self.drawn.randint(SHORTEST, LONGEST)
            self._note("asked", len(prompt(ask.index)))
            self.asked_at = time.time()
            try:
                found = self.transports.answer(ask, tokens, lambda: self._note("token", 1))
                if found != self.right[ask.key][:tokens]:
                    at = next(i for i, pair in enumerate(found) if pair != self.right[ask.key][i])
                    self._found(f"{ask.key}: wrong token or log probability at {at} of {tokens}: {found[at]}, not "
                                f"{self.right[ask.key][at]}")
                else:
                    self.answered += 1
                    self.tokens += tokens
            except Lost as lost:
                self._found(f"lost: {ask.key}, {tokens} tokens: {lost}")
                self.over.wait(0.2)
            except Exception as error:  # Else the thread would end without a word.
                self._found(f"broken: {ask.key}: {type(error).__name__}: {error}")
                self.over.wait(0.2)
            self.asked_at = None

    def _found(self, what):
        with self.lock:
            self.wrong.append((time.time(), what))

    def _note(self, what, tokens):
        with self.lock:
            self.held = tokens if what == "asked" else self.held + tokens
            self.last_at = time.time()
            if what == "token":
                self.token_at = self.last_at
            self.times.append((what, self.last_at, self.held))

    def since(self, when):
        """What it saw from `when` on, and the last thing before. What came earlier is forgotten."""
        with self.lock:
            while len(self.times) > 1 and self.times[1][1] < when:
                self.times.popleft()
            return list(self.times)


def right_answers(transports, at_once=8):
    """{key: the longest answer} of everything that is asked, while nothing is wrong."""
    todo, right, lock, failed = collections.deque(asks()), {}, threading.Lock(), []

    def work():
        while True:
            with lock:
                if not todo or failed:
                    return
                ask = todo.popleft()
            try:
                found = transports.answer(ask, LONGEST)
            except Exception as error:
                failed.append(error)
                return
            with lock:
                right[ask.key] = found

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return right
