"""What errors and problems tell people to type, typed verbatim in the states that say it: it is
taken, and mends what was wrong or leads on.

hint_cases.py has every hint that names a command, and by which day (a test below) it is followed.
"""

import collections
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess

from cluster import BIN, GIVE_UP_S, GOLDEN, NEVER, RECALL, SOURCE, Cluster, Process, wait_until
from checkpoints import make_checkpoint
from hint_cases import ELSEWHERE, HINTS
from hints import WORD, told
from http_client import request
from relay import Relay
from test_detaching import LARGE, interrupt_once
from test_model_check import spoil_packed_weights


def test_every_hint_is_followed_in_its_state_or_has_a_reason_why_not():
    said = collections.Counter(command for command, _ in told())
    cases = [*((hint.command, hint.said) for hint in HINTS.values()),
             *((command, words) for command, words, _ in ELSEWHERE)]
    followed = collections.Counter(command for command, _ in cases)
    where = {command: source for command, source in told()}
    wrong = [f"`{command}`, said {said[command]} times (as in {where.get(command)}), has {followed[command]} cases"
             for command in sorted(said | followed) if said[command] != followed[command]]
    assert not wrong, ("hint_cases.py: a hint is a row of HINTS, followed in the test of its day, or of ELSEWHERE: "
                       + "; ".join(wrong))
    sources = collections.defaultdict(str)
    for command, where in set(told()):
        # Without what is between joined literals.
        sources[command] += re.sub(r'"\s*"', "", (SOURCE / where).read_text())
    for command, words in cases:
        assert words in sources[command], (command, words)


def expression(command):
    """What matches `command` where its names are known."""
    return "".join(r"\S(?:[^`]*\S)?" if part == WORD else re.escape(part)
                   for part in re.split(rf"\b({WORD})\b", command))


class Day:
    """A cluster on which hints are followed: all of the day's, by its end."""

    def __init__(self, name, cluster):
        self.name, self.cluster = name, cluster
        self.left = {title for title, hint in HINTS.items() if hint.day == name}

    def fails(self, *arguments, env=None):
        """The line in which a command that fails says why."""
        done = subprocess.run(self.cluster.command(*arguments), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=GIVE_UP_S,
                              env={**os.environ, **(env or {})})
        assert done.returncode == 1, (done.stdout, done.stderr)
        return done.stderr.splitlines()[-1]

    def problem(self, *words):
        """All of the first problem that has these words, once there is one."""
        def there():
            return [p for p in self.cluster.json("status")["problems"]
                    if all(word in p["what"] + p["do"] for word in words)]

        found = wait_until(there, f"a problem says {words}")[0]
        return found["what"] + "; " + found["do"]

    def command(self, title, text, **names):
        """The words of the command that the hint `title` has in `text`; of what stands for a name
        in it, those of `names`."""
        hint = HINTS[title]
        assert hint.day == self.name
        assert hint.said in text, text
        commands = re.findall(r"`(strata [^`]*)`", text) + re.findall(
            r"; (strata (?:node|model|key|session) [^`\n]*)$", text)
        found = [c for c in commands if re.fullmatch(expression(hint.command), c)]
        assert found, f"{title}: {hint.command} is not in: {text}"
        self.left.discard(title)
        words = shlex.split(found[0])[1:]
        return [str(names.get(word, word)) for word in words]

    def follow(self, title, text, env=None, **names):
        """Types it; what it prints."""
        words = self.command(title, text, **names)
        done = subprocess.run(self.cluster.command(*words), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=GIVE_UP_S,
                              env={**os.environ, **(env or {})})
        assert done.returncode == 0, f"{title}: {' '.join(words)}\n{text}\n{done.stderr}"
        return done.stdout


@contextlib.contextmanager
def day(name, folder, **flags):
    with Cluster(folder, **flags) as cluster:
        today = Day(name, cluster)
        yield today, cluster
        assert not today.left, "these were not followed"


ASK = ["generate", "recall", "--token-ids", "1,2", "--max-tokens", 2]
LONG = ["generate", "recall", "--token-ids", "1,2", "--max-tokens", 300, "--ignore-eos"]
LLAMA = GOLDEN / "models" / "llama"


def test_first_steps(tmp_path):
    with day("first", tmp_path / "cluster") as (today, c):
        data = c.data_dir / "models"
        out, _, _ = c.run("status")
        today.follow("no model, in status", out, PATH=RECALL)
        c.run("model", "remove", "recall")
        out, _, _ = c.run("model", "list")
        today.follow("no model, in the list", out, PATH=RECALL)
        c.run("model", "remove", "recall")
        elsewhere = tmp_path / "only on this machine"
        today.follow("a path that the coordinator cannot read",
                     today.fails("model", "add", elsewhere), **{str(elsewhere): RECALL})
        c.run("model", "remove", "recall")
        today.follow("no such model", today.fails("model", "load", "recall"), PATH=RECALL)

        def asked(path, body=None):
            status, _, answer = request(c, "POST" if body else "GET", path, body)
            assert status == 503, answer
            return json.dumps(answer)

        today.follow("not healthy", asked("/health"))
        c.start_worker("w0")
        today.follow("no model is loaded", asked("/tokenize", {"prompt": "a"}), NAME="recall")
        c.run(*ASK)
        today.follow("no node to show", today.fails("node", "show", "nobody"))
        today.follow("no node to drain", today.fails("node", "drain", "nobody"))
        today.follow("nobody to plan with",
                     today.fails("model", "load", "recall", "--nodes", "nobody"))
        today.follow("no session", today.fails("session", "cancel", "nothing"))
        c.run("model", "unload", "recall")
        today.follow("not loaded, at unload", today.fails("model", "unload", "recall"))
        today.follow("not loaded, at a request", today.fails(*ASK))
        c.run(*ASK)
        c.run("model", "unload", "recall")
        resize = ["model", "resize", "recall", "--kv-tokens", 1024]
        today.follow("not loaded, at resize", today.fails(*resize), N=1024)
        c.run(*resize)
        c.run("model", "unload", "recall")

        plain = tmp_path / "plain"
        shutil.copytree(RECALL, plain)
        for file in plain.glob("*.jinja"):
            file.unlink()
        config = json.loads((plain / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (plain / "tokenizer_config.json").write_text(json.dumps(config))
        c.run("model", "add", plain)
        c.run("model", "load", "plain")
        today.follow("no template", today.fails("chat", "plain", "Hello"), PROMPT="Hello")
        c.run("model", "unload", "plain")
        c.run("model", "add", LLAMA)
        c.run("model", "load", "llama")
        today.follow("no template and no tokenizer", today.fails("chat", "llama", "Hello"),
                     IDS="1,2,3")
        c.run("model", "unload", "llama")
        again = ["model", "add", LLAMA, "--name", "recall"]
        today.follow("another model", today.fails(*again))
        c.run(*again)
        c.run("model", "remove", "recall")

        upload = ["model", "add", RECALL, "--upload"]
        c.run(*upload)
        today.follow("uploaded before", today.fails(*upload))
        c.run(*upload)
        pull = ["model", "pull", "org/recall"]
        today.follow("pulled before", today.fails(*pull))
        shutil.copytree(RECALL, data / "recall")
        today.follow("a folder in the way of a pull", today.fails(*pull))
        c.run("model", "remove", "recall")
        shutil.rmtree(data / "recall", ignore_errors=True)
        shutil.copytree(RECALL, data / "recall")
        today.follow("a folder in the way of an upload", today.fails(*upload))
        c.run("model", "remove", "recall")

        # A folder whose name has to be quoted.
        large = tmp_path / "it's large"
        make_checkpoint(large, **LARGE, sparse=True)
        adding = c.popen("model", "add", large, "--name", "large")
        _, err = interrupt_once(adding, "digesting")
        today.follow("Ctrl-C at add", err.splitlines()[-1])
        wait_until(lambda: "large" in c.run("model", "list")[0], "it is registered all the same")
        out, _, _ = c.run("model", "add", large, "--name", "again", "--detach")
        today.follow("added in the background", out)
        wait_until(lambda: "again" in c.run("model", "list")[0], "it is registered all the same")
        changing = tmp_path / "it's mine"
        shutil.copytree(GOLDEN / "models" / "gemma3", changing)
        c.run("model", "add", changing, "--name", "mine")
        weights = changing / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        refused = today.fails("model", "load", "mine")
        today.follow("files have changed", refused)
        today.follow("files have changed, and are wanted so", refused)
        c.run("model", "load", "mine")


def begin(cluster, worker, *arguments, env=None, count=1):
    """Requests that get no token until their worker runs again."""
    cluster.workers[worker].kill(signal.SIGSTOP)
    process = subprocess.Popen(cluster.command(*arguments), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **(env or {})})
    cluster.wait_sessions(count)
    return process


def test_something_runs(tmp_path):
    with day("running", tmp_path, step_timeout=NEVER, lease=NEVER) as (today, c):
        c.start_workers(2)
        c.run("model", "add", RECALL)
        load = ["model", "load", "recall", "--nodes", "w0", "--context", 512]
        c.run(*load)
        today.follow("loaded, at remove", today.fails("model", "remove", "recall"))
        c.run(*load)
        today.follow("a node in use", today.fails("node", "remove", "w0"))
        today.follow("a node alive", today.fails("node", "remove", "w1"))
        c.run("model", "load", "recall", "--context", 512)
        assert c.json("model", "show", "recall")["plan"]["stages"][0]["node"] == "w0"

        today.follow("no node to check with",
                     today.fails("model", "check", "recall", "--node", "nobody"))
        c.run("node", "drain", "w0")
        today.follow("nobody to check with", today.fails("model", "check", "recall"))
        c.run("node", "resume", "w0")
        c.run("node", "resume", "w1")

        process = begin(c, "w0", *LONG)
        today.follow("in flight, at unload", today.fails("model", "unload", "recall"),
                     ID=c.json("session", "list")["sessions"][0]["request_id"])
        c.workers["w0"].kill(signal.SIGCONT)
        process.communicate(timeout=GIVE_UP_S)
        process = begin(c, "w0", *LONG)
        refused = today.fails("model", "load", "recall", "--nodes", "w0", "--context", 256)
        today.follow("in flight, at another load", refused)
        c.workers["w0"].kill(signal.SIGCONT)
        process.communicate(timeout=GIVE_UP_S)
        c.run("model", "load", "recall", "--nodes", "w0", "--context", 512)

        # An id that a shell and a command line would take for something else.
        process = begin(c, "w0", *LONG, "--guaranteed", "--request-id=-rf it's")
        smaller = ["model", "resize", "recall", "--kv-tokens", 64]
        refused = today.fails(*smaller)
        today.follow("a promise that a resize would break", refused)
        c.workers["w0"].kill(signal.SIGCONT)
        process.communicate(timeout=GIVE_UP_S)
        c.run(*smaller)

        c.workers["w0"].kill(signal.SIGSTOP)
        resizing = c.popen("model", "resize", "recall", "--kv-tokens", 2048)
        wait_until(lambda: c.json("model", "show", "recall")["state"] == "resizing", "it resizes")
        today.follow("resizing, at resize",
                     today.fails("model", "resize", "recall", "--kv-tokens", 1024))
        c.workers["w0"].kill(signal.SIGCONT)
        resizing.communicate(timeout=GIVE_UP_S)

        # Its coordinator, which would say so too, stands still.
        process = begin(c, "w0", *LONG, "--deadline", "2s")
        c.coordinator.kill(signal.SIGSTOP)
        _, err = process.communicate(timeout=GIVE_UP_S)
        for stopped in (c.coordinator, c.workers["w0"]):
            stopped.kill(signal.SIGCONT)
        today.follow("past its deadline", err.splitlines()[-1])


def test_nodes_come_and_go(tmp_path):
    with day("nodes", tmp_path, recovery_timeout="200ms") as (today, c):
        names = [f"w{i}" for i in range(6)]
        c.start_workers(3)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        today.follow("one joined", today.problem("w2 joined"))
        for name in names[3:]:
            c.start_worker(name)
        c.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        today.follow("many joined", today.problem("nodes joined"))
        c.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)

        def lose(name, stop=True):
            c.workers[name].stop() if stop else c.workers[name].kill()
            wait_until(lambda: c.node(name)["state"] == "lost", f"{name} is lost")

        lose("w5")
        today.follow("one is lost", today.problem("node w5", "is lost"))
        assert c.node("w5") is None

        # Its requests may end, others are told to go elsewhere.
        c.workers["w0"].kill(signal.SIGSTOP)
        running = c.popen(*LONG)
        c.wait_sessions(1)
        c.workers["w1"].kill(signal.SIGTERM)
        refused = wait_until(lambda: (lambda r: r[2] == 1 and "being stopped" in r[1] and r[1])(
            c.run(*ASK, "--deadline", "2s", check=False)), "w1 is being stopped")
        c.workers["w0"].kill(signal.SIGCONT)
        running.communicate(timeout=GIVE_UP_S)
        wait_until(lambda: c.node("w1")["state"] == "lost", "w1 is lost")
        today.follow("a request to a stopping one", refused)
        c.run(*ASK)

        c.start_worker("w1")
        c.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        lose("w1", stop=False)
        today.follow("a request to a lost one", today.fails(*ASK))
        c.run(*ASK)
        c.start_worker("w1")
        c.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        lose("w1", stop=False)
        today.follow("one with layers is lost", today.problem("node w1", "is lost"))
        c.run(*ASK)

        c.start_worker("w1")
        c.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        c.workers["w1"].stop()
        listen = c.address
        c.coordinator.stop()
        c.start_coordinator(listen)
        for name in ("w0", "w2", "w3", "w4"):
            c.wait_node(name)
        today.follow("a request to one that is away", today.fails(*ASK))
        c.run(*ASK)

        for name in ("w2", "w3", "w4"):
            if any(stage["node"] == name
                   for stage in c.json("model", "show", "recall")["plan"]["stages"]):
                c.load("recall", cuts=[("w0", 0, 7)], context=512)
        for name in ("w2", "w3", "w4"):
            lose(name)
        out, _, _ = c.run("status")
        today.follow("more are lost than shown", out)
        today.follow("many are lost", today.problem("nodes are lost"))
        assert {n["name"] for n in c.json("node", "list")["nodes"]} == {"w0"}

        c.coordinator.stop()
        with contextlib.closing(sqlite3.connect(c.data_dir / "state.db")) as store:
            store.execute("DELETE FROM models")
            store.commit()
        c.start_coordinator(listen)
        today.follow("a loaded model that is gone", today.problem("was loaded before"))
        wait_until(lambda: not c.json("status")["problems"], "nothing is wrong")


def test_loads_take_long(tmp_path):
    with day("loading", tmp_path, load_timeout="4s", retry_load="30s") as (today, c), \
            Relay(c.address, hold_after=1 << 20) as relay:
        c.start_worker("w0", coordinator=relay.address)
        c.start_worker("w1")
        c.run("model", "add", RECALL)
        load = ["model", "load", "recall", "--nodes", "w0", "--context", 512]
        loading = c.popen(*load)
        _, err = interrupt_once(loading, "fetching")
        today.follow("Ctrl-C at load", err.splitlines()[-1])
        out, _, _ = c.run(*load, "--detach")
        today.follow("loading in the background", out)
        today.follow("loading, at a request", today.fails(*ASK))
        late = today.problem("to load layers")
        failed = today.fails(*load)
        today.follow("tried again by itself", failed)
        today.follow("a load that stands still", late)
        today.follow("a load that stands still, elsewhere", late)
        assert c.json("model", "show", "recall")["plan"]["stages"][0]["node"] == "w1"
        c.run(*ASK)
        relay.release()


def test_stages_are_not_linked(tmp_path):
    with day("links", tmp_path, step_timeout="3s", load_timeout="30s") as (today, c), \
            Relay() as relay:
        worker = c.start_worker("w1", "--listen", "127.0.0.1:0", "--advertise", relay.address,
                                wait=False)
        relay.target = worker.wait_for(r"^listening on (\S+)").group(1)
        c.start_worker("w0")
        c.wait_node("w1")
        cuts = ["model", "load", "recall", "--layers", "w0:0-3,w1:4-7", "--context", 512]
        c.run("model", "add", RECALL)
        c.run(*cuts)
        c.run("model", "unload", "recall")
        relay.stall()
        loading = c.popen(*cuts)
        said = today.problem("to link its stage")
        assert "w1" in today.follow("stages are not linked", said)
        relay.mend()
        loading.communicate(timeout=GIVE_UP_S)


def test_one_computes_wrongly(tmp_path):
    with day("wrong", tmp_path) as (today, c):
        for name in ("before", "bad", "after"):
            c.start_worker(name)
        cuts = [("before", 0, 5), ("bad", 6, 6), ("after", 7, 7)]
        c.load("recall", RECALL, cuts=cuts, context=256)
        c.run("model", "unload", "recall")
        spoil_packed_weights(tmp_path / "bad")
        c.load("recall", cuts=cuts, context=256)

        def differs(*flags):
            _, err, status = c.run("model", "check", "recall", *flags, check=False)
            assert status == 1, err
            return err

        itself, others = differs("--node", "bad"), differs("--node", "after")
        today.follow("a node differs from itself", itself)
        today.follow("a node differs from itself, elsewhere", itself)
        assert all(stage["node"] != "bad"
                   for stage in c.json("model", "show", "recall")["plan"]["stages"])
        assert c.json("model", "check", "recall")["equal"]
        c.run("node", "resume", "bad")
        c.load("recall", cuts=cuts, context=256)
        today.follow("two nodes differ", others)
        today.follow("two nodes differ, elsewhere", others)
        assert c.json("model", "check", "recall")["equal"]


def test_keys(tmp_path):
    with day("keys", tmp_path, step_timeout=NEVER, lease=NEVER) as (today, c):
        c.start_worker("w0")
        c.load("recall", RECALL, context=512)
        status, _, answer = request(c, "GET", "/v1/models", headers={"Host": "rebound.example"})
        assert status == 403
        first = today.follow("a name that pages use", json.dumps(answer)).strip()
        status, _, _ = request(c, "GET", "/v1/models", headers={
            "Host": "rebound.example", "Authorization": f"Bearer {first}"})
        assert status == 200
        second = today.follow("no key", today.fails(*ASK)).strip()

        def by(secret):
            return {"STRATA_API_KEY": secret}

        c.run(*ASK, check=False)
        important = [*ASK, "--priority", 5]
        made = today.follow("a key's priority", today.fails(*important, env=by(first)), N=5).strip()
        subprocess.run(c.command(*important), env={**os.environ, **by(made)}, check=True,
                       capture_output=True)
        promised = [*ASK, "--guaranteed"]
        made = today.follow("a key's guarantee", today.fails(*promised, env=by(first))).strip()
        subprocess.run(c.command(*promised), env={**os.environ, **by(made)}, check=True,
                       capture_output=True)
        today.follow("no such key", today.fails("key", "revoke", "key-00000000"))

        same = [*LONG, "--request-id", "same"]
        one = begin(c, "w0", *same, env=by(first))
        other = begin(c, "w0", *same, env=by(second), count=2)
        listed = today.follow("whose session", today.fails("session", "cancel", "same"))
        for key in sorted(set(re.findall(r"key-[0-9a-f]+", listed))):
            c.run("session", "cancel", "same", "--key", key)
        c.workers["w0"].kill(signal.SIGCONT)
        for process in (one, other):
            process.communicate(timeout=GIVE_UP_S)

        # Off loopback, while operators need no key.
        listening = Process("open", [BIN / "strata-coordinator", "--listen", "0.0.0.0:0",
                                     "--http-listen", "127.0.0.1:0", "--insecure", "--data-dir",
                                     tmp_path / "open"], tmp_path)
        c.processes.append(listening)
        port = listening.wait_for(r"^listening on \S+:(\d+)$").group(1)
        closed, c.address = c.address, f"127.0.0.1:{port}"
        c.run("key", "create", "--name", "client")
        admin = today.follow("anybody administrates", today.problem("may administrate")).strip()
        assert today.fails("status")
        c.address = closed

        admin = c.run("key", "create", "--admin")[0].strip()
        refused = today.fails("status", env=by(first))
        another = today.follow("no admin key", refused, env=by(admin)).strip()
        ids = json.loads(subprocess.run(c.command("key", "list", "--json"), capture_output=True,
                                        env={**os.environ, **by(admin)}, check=True).stdout)
        admins = [key["id"] for key in ids["keys"] if key.get("admin")]
        assert len(admins) == 2

        def revoke(key, secret):
            return subprocess.run(c.command("key", "revoke", key), capture_output=True, text=True,
                                  env={**os.environ, **by(secret)})

        def works(secret):
            return subprocess.run(c.command("status"), capture_output=True,
                                  env={**os.environ, **by(secret)}).returncode == 0

        assert revoke(admins[0], admin).returncode == 0
        left = another if works(another) else admin
        last = revoke(admins[1], left)
        assert last.returncode == 1
        made = today.follow("the last admin key", last.stderr, env=by(left)).strip()
        assert revoke(admins[1], left).returncode == 0
        assert works(made) and not works(left)
