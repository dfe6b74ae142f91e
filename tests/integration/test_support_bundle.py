"""What `strata support-bundle` collects, and that no secret is in it."""

import json
import os
import subprocess
import tarfile

import pytest

from cluster import BIN, RECALL, Cluster, Failed

# Each is planted where it may come to lie.
PROMPT = "the-prompt-of-somebody who asked"
HUB_TOKEN = "hf_PlantedTokenOfTheHub0123456789"
PASSWORD = "planted-password-of-a-config"


def members(path):
    with tarfile.open(path) as archive:
        return {name.split("/", 1)[1]: archive.extractfile(name).read().decode() for name in archive.getnames()
                if archive.getmember(name).isfile()}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    os.environ["HF_TOKEN"] = HUB_TOKEN
    try:
        with Cluster(folder / "c", log_level="debug") as c:
            config = folder / "w0.toml"
            config.write_text(f"nice = 3  # {PASSWORD}\n")
            c.start_worker("w0", "--config", config, "--log-level", "debug")
            c.load("recall", RECALL, context=512)
            key = c.json("key", "create", "--name", "me", "--admin")["secret"]
            os.environ["STRATA_API_KEY"] = key
            c.run("generate", "recall", PROMPT, "--max-tokens", 2)
            # What is refused may say what it was.
            for wrong in ([PROMPT, "--request-id", "x" * 200], [PROMPT * 3000]):
                with pytest.raises(Failed):
                    c.run("generate", "recall", *wrong)
            with pytest.raises(Failed):
                c.run("model", "pull", "org/name")
            before = subprocess.run([BIN / "strata", "--coordinator", c.address, "node", "list"], capture_output=True, text=True,
                                    env={**os.environ, "STRATA_API_KEY": "strata-" + "0123456789abcdef" * 4})
            assert before.returncode != 0
            out, err, _ = c.run("support-bundle", "--output", folder / "b.tar.gz")
            yield {"files": members(folder / "b.tar.gz"), "out": out, "err": err, "key": key, "path": folder / "b.tar.gz"}
    finally:
        os.environ.pop("HF_TOKEN", None)
        os.environ.pop("STRATA_API_KEY", None)


def test_it_has_what_helps(bundle):
    files = bundle["files"]
    assert set(files) >= {"CONTENTS", "status.json", "doctor.json", "versions.json", "facts/coordinator.json", "facts/node-w0.json",
                          "log/coordinator.log", "log/node-w0.log", "metrics/coordinator.txt", "metrics/node-w0.txt"}
    assert json.loads(files["status.json"])["nodes"][0]["name"] == "w0"
    assert set(json.loads(files["versions.json"])) == {"strata", "coordinator", "node w0"}
    assert "findings" in json.loads(files["doctor.json"])
    assert "strata_requests_total" in files["metrics/coordinator.txt"] and "strata_worker_info" in files["metrics/node-w0.txt"]
    assert "a request ended" in files["log/coordinator.log"] and "joined the cluster" in files["log/node-w0.log"]
    flags = {f["name"]: f for f in json.loads(files["facts/node-w0.json"])["flags"]}
    assert flags["nice"]["value"] == "3" and flags["nice"]["from"] == "file"
    assert flags["memory"] == {"name": "memory", "value": "1GiB", "from": "command line"}


def test_it_lists_what_is_in_it(bundle):
    listed = {line.split(":")[0] for line in bundle["files"]["CONTENTS"].splitlines()}
    assert listed | {"CONTENTS"} == set(bundle["files"])
    assert bundle["files"]["CONTENTS"] in bundle["out"] and "look through it" in bundle["err"]


def test_no_secret_is_in_it(bundle):
    everything = "\n".join(bundle["files"].values())
    for secret in (bundle["key"], bundle["key"].removeprefix("strata-"), HUB_TOKEN, PROMPT, PROMPT.split()[0], PASSWORD,
                   "0123456789abcdef0123456789abcdef"):
        assert secret not in everything, secret
    assert "PRIVATE KEY" not in everything


def test_its_user_alone_reads_it(bundle):
    assert bundle["path"].stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_stays(bundle, tmp_path):
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    done = subprocess.run([BIN / "strata", "support-bundle", "--coordinator", "127.0.0.1:1", "--output", path], capture_output=True, text=True)
    assert done.returncode == 1 and "exists" in done.stderr and path.read_text() == "mine", done


def test_it_is_of_this_machine_alone_where_nobody_answers(tmp_path):
    done = subprocess.run([BIN / "strata", "support-bundle", "--coordinator", "127.0.0.1:1", "--json"], cwd=tmp_path, capture_output=True,
                          text=True)
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    files = members(tmp_path / document["file"])
    assert "127.0.0.1:1" in files["coordinator.txt"] and set(document["files"]) == set(files)
    assert "this machine alone" in done.stderr
