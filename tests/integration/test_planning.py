"""Plans for machines that need not exist: `strata plan --machines`, and the tables of docs/PLANNING.md."""

import os
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, SOURCE, Cluster, Failed

PLANNING = SOURCE / "tests" / "planning"
MACHINES = PLANNING / "machines" / "macs-at-home.toml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("planning")) as c:
        yield c


def refused(cluster, *arguments):
    with pytest.raises(Failed) as failed:
        cluster.run("plan", *arguments, "--json")
    return failed.value


def test_the_tables_of_the_document_are_what_plans_say():
    done = subprocess.run(["/usr/bin/python3", "-B", PLANNING / "make_tables.py", "--check"], capture_output=True, text=True,
                          timeout=GIVE_UP_S, env={**os.environ, "STRATA_BIN": str(BIN)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_registered_model_is_planned_for_machines_that_are_not_there(cluster):
    cluster.run("model", "add", RECALL, "--name", "recall")
    plan = cluster.json("plan", "recall", "--machines", MACHINES)
    used = {s["node"] for s in plan["stages"]}
    assert used and used <= {"m1-mini", "m2-max", "m4-pro"}
    text = cluster.run("plan", "recall", "--machines", MACHINES)[0]
    assert "m2-max" in text and text.count("% of guesses are right") == len(plan["drafts"]) == 3


def test_a_configuration_alone_is_enough(cluster, tmp_path):
    config = PLANNING / "models" / "qwen3-30b-a3b.json"
    (tmp_path / "config.json").write_text(config.read_text())
    by_file = cluster.json("plan", config, "--machines", MACHINES, "--quantize", "int8")
    by_folder = cluster.json("plan", tmp_path, "--machines", MACHINES, "--quantize", "int8")
    assert by_file == by_folder


def test_what_cannot_be_planned_is_said(cluster, tmp_path):
    failed = refused(cluster, PLANNING / "models" / "qwen3-235b-a22b.json", "--machines", MACHINES)
    assert failed.status == 1 and "memory" in failed.err
    assert "no-such-model" in refused(cluster, "no-such-model", "--machines", MACHINES).err
    failed = refused(cluster, "recall", "--machines", tmp_path / "none.toml")
    assert "none.toml" in failed.err
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[machines.a]\ndevice = "tpu"\nmemory = "1GiB"\nread-gb-s = 1\ntflop-s = 1\n')
    assert "the device of machine 'a'" in refused(cluster, "recall", "--machines", wrong).err
    # Without machines it has to be registered, and a path is no name.
    assert refused(cluster, "./config.json").status == 2
