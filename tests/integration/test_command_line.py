"""What interfaces promise of the command line and of processes."""

import json
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, SOURCE, Cluster, wait_until, worker_has_mlx


def run(binary, *arguments, stdin=""):
    return subprocess.run([BIN / binary, *map(str, arguments)], capture_output=True, text=True,
                          input=stdin, timeout=GIVE_UP_S)


@pytest.mark.parametrize("binary", ["strata", "strata-coordinator", "strata-worker"])
def test_help_version_and_wrong_use(binary):
    assert run(binary, "--help").returncode == 0
    assert re.search(r"\d+\.\d+\.\d+", run(binary, "--version").stdout)
    done = run(binary, "--no-such-flag")
    assert done.returncode == 2 and done.stderr


def test_a_backend_that_this_build_or_machine_has_not_is_wrong_use(tmp_path):
    absent = "cuda" if worker_has_mlx() else "mlx"
    done = run("strata-worker", "--backend", absent, "--coordinator", "127.0.0.1:1", "--data-dir", tmp_path)
    assert done.returncode == 2 and "--backend cpu" in done.stderr, done.stderr


@pytest.mark.parametrize("binary", ["strata-coordinator", "strata-worker"])
def test_the_documents_have_each_flag_with_its_default(binary):
    text = run(binary, "--help").stdout
    flags = {}
    for entry in re.split(r"\n  (?=-)", text)[1:]:
        name = entry.split()[0]
        default = re.search(r"\(default ([^)]*)\)", entry)
        flags[name] = default[1] if default and name != "--data-dir" else ""
    for standard in ("-h,--help", "--version"):
        del flags[standard]
    documented = {}
    section = (SOURCE / "docs/OPERATIONS.md").read_text().split("## Flags")[1]
    for row in section.split(f"`{binary}`:")[1].split("\n\n`strata-")[0].splitlines():
        if row.startswith("| `--"):
            name, default = (cell.strip(" `") for cell in row.split("|")[1:3])
            documented[name] = default
    wrong = [f"| `{name}` | `{flags[name]}` |" if name in flags else f"no row {name}"
             for name in sorted(flags.keys() | documented.keys()) if flags.get(name) != documented.get(name)]
    assert not wrong, f"docs/OPERATIONS.md, Flags, {binary}: it should have " + ", ".join(wrong)


CALLS = {name: set(re.findall(r"^ *rpc (\w+)\(", (SOURCE / f"proto/strata/v1/{name}.proto").read_text(), re.M))
         for name in ("admin", "inference")}


def test_the_documents_have_each_call_of_the_protocol():
    called = CALLS["admin"] | CALLS["inference"]
    section = re.search(r"^## gRPC$(.*?)^##", (SOURCE / "docs/API.md").read_text(), re.M | re.S)[1]
    rows = " ".join(row.split("|")[1] for row in section.splitlines() if row.startswith("| `"))
    documented = set(re.findall(r"`(\w+)", rows))
    assert documented == called, (f"docs/API.md, gRPC: rows lack {sorted(called - documented)}, "
                                  f"and have too much: {sorted(documented - called)}")


@pytest.mark.parametrize("service", CALLS)
def test_each_call_of_the_protocol_is_served_and_can_be_called(service):
    # A service compiles without them, and a client waits.
    for source in (f"coordinator/service/calls/{service}_service.cc", f"tests/sdk/fake_{service}.cc"):
        missing = CALLS[service] - set(re.findall(r"\bRequest(\w+)", (SOURCE / source).read_text()))
        assert not missing, f"{source}: Serve lacks {sorted(missing)}"
    sdk = "".join(path.read_text() for path in (SOURCE / "sdk/cpp").glob("*.cc"))
    missing = [call for call in sorted(CALLS[service]) if not re.search(rf"\b(?:Async)?{call}\b", sdk)]
    assert not missing, f"sdk/cpp does not call {missing}"


def test_a_second_process_is_told_who_holds_the_data_directory(tmp_path):
    with Cluster(tmp_path) as c:
        done = run("strata-coordinator", "--listen", "127.0.0.1:0", "--http-listen",
                   "127.0.0.1:0", "--data-dir", tmp_path / "coordinator")
        assert done.returncode == 1
        assert str(c.coordinator.process.pid) in done.stderr and "--data-dir" in done.stderr


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=GIVE_UP_S) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("commands")) as c:
        c.start_workers(2)
        c.run("model", "add", RECALL)
        yield c


def test_health_is_200_only_while_a_request_would_be_served(cluster):
    assert get(f"http://{cluster.http}/livez") == 200
    assert get(f"http://{cluster.http}/health") == 503
    cluster.load("recall")
    wait_until(lambda: get(f"http://{cluster.http}/health") == 200, "/health says so")
    assert get(f"http://{cluster.http}/nothing") == 404
    cluster.run("model", "unload", "recall")


def test_documents_have_the_promised_fields(cluster):
    nodes = cluster.json("node", "list")["nodes"]
    assert [n["name"] for n in nodes] == ["w0", "w1"]
    assert set(nodes[0]) >= {"name", "state", "address", "memory_bytes", "backend", "isa"}
    models = cluster.json("model", "list")["models"]
    assert set(models[0]) >= {"name", "state", "family", "digest"}
    assert cluster.json("session", "list") == {"sessions": []}
    status = cluster.json("status")
    assert set(status) >= {"nodes", "models", "sessions", "kv", "problems"}
    plan = cluster.json("plan", "recall", "--goal", "throughput")
    assert set(plan) >= {"epoch", "numerics_class", "stages", "kv_tokens", "limiting_node",
                         "predicted_tokens_per_s", "lower_bound_gap", "why", "drafts"}
    assert [set(drafts) for drafts in plan["drafts"]] == [{"right", "tokens_per_s", "times", "drafts", "steps"}] * 3
    assert all(drafts["times"] >= 0.999 and drafts["tokens_per_s"] > 0 for drafts in plan["drafts"])
    assert set(plan["stages"][0]) >= {"node", "first_layer", "last_layer", "weight_bytes",
                                      "kv_bytes", "kv_tokens", "predicted_ms"}
    assert plan["why"]
    assert cluster.json("model", "list")["models"][0]["state"] == "registered", "plan changes nothing"


def test_what_is_in_use_is_not_removed_and_the_command_is_named(cluster):
    cluster.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)])
    _, err, status = cluster.run("model", "remove", "recall", check=False)
    assert status == 1 and "model unload" in err
    _, err, status = cluster.run("node", "remove", "w0", check=False)
    assert status == 1 and "unload" in err
    cluster.run("model", "unload", "recall")


def test_resize_changes_the_pool_of_a_loaded_model(cluster):
    cluster.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)], kv_tokens=1024)
    before = cluster.kv()
    cluster.run("model", "resize", "recall", "--kv-tokens", 4096)
    wait_until(lambda: cluster.json("model", "list")["models"][0]["state"] == "ready", "ready")
    after = cluster.kv()
    assert len(before) == len(after) == 2
    assert all(b["total"] > a["total"] for a, b in zip(before, after))
    assert cluster.generate("recall", ids=[1, 2], max_tokens=3,
                            ignore_eos=True)["finish_reason"] == "length"
    cluster.run("model", "unload", "recall")


def test_bench_reports_true_numbers(cluster):
    cluster.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)])
    report = cluster.json("bench", "recall", "--clients", 2, "--requests", 6, "--prompt-tokens", 20,
                          "--max-tokens", 8)
    assert report["requests"] == 6 and report["failed"] == 0
    assert report["generated_tokens_per_s"] > 0 and report["prompt_tokens_per_s"] > 0
    assert 0 < report["ttft_ms"]["p50"] <= report["ttft_ms"]["p99"]
    cluster.run("model", "unload", "recall")


def test_nothing_is_placed_on_a_draining_node(cluster):
    cluster.run("node", "drain", "w1")
    assert cluster.node("w1")["state"] == "draining"
    plan = cluster.json("plan", "recall")
    assert [s["node"] for s in plan["stages"]] == ["w0"]
    cluster.run("node", "resume", "w1")
    assert cluster.node("w1")["state"] == "ready"


@pytest.mark.parametrize("layers", ["0-7", "0-2", "3-5", "6-7"])
def test_worker_bench_measures_the_real_runner(layers):
    """Whole models, and stages with and without embedding and head."""
    done = run("strata-worker", "bench", "--model", RECALL, "--layers", layers, "--threads", 1,
               "--prompt", 32, "--generate", 8, "--batch", "1,2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["prompt_tokens_per_s"] > 0 and report["generated_tokens_per_s"] > 0
    assert 0 < report["bandwidth_share"] and report["read_bandwidth_bytes_per_s"] > 0
    assert report["pinned_cores"] == [] and report["memory_nodes"] == 1
    assert report["large_page_bytes"] >= 0
    assert report["isa"] and [b["batch"] for b in report["batch"]] == [1, 2]


def test_worker_bench_divides_a_stage_over_ranks():
    """As on the thread of one, with memory that they share out."""
    bench = ["strata-worker", "bench", "--model", RECALL, "--prompt", 32, "--generate", 8, "--batch", "1",
             "--json"]
    one, three = [run(*bench, *more) for more in (["--threads", 1], ["--ranks", "2,1,1"])]
    assert one.returncode == 0 and three.returncode == 0, three.stderr
    one, three = json.loads(one.stdout), json.loads(three.stdout)
    assert three["generated_tokens_per_s"] > 0 and three["prompt_tokens_per_s"] > 0
    # The first rank has the embedding too, which is the head's matrix.
    assert one["memory_bytes"] < three["memory_bytes"] < 2 * one["memory_bytes"]
    for wrong in ("1", "1,0", "1,x", "1," * 9):
        refused = run(*bench, "--ranks", wrong)
        assert refused.returncode == 2 and "ranks" in refused.stderr, refused


def test_worker_bench_makes_up_the_weights_of_a_shape():
    taken = {}
    for quantize in ("none", "int8", "int4"):
        done = run("strata-worker", "bench", "--shape", "tiny11", "--layers", "0-0", "--quantize",
                   quantize, "--threads", 1, "--prompt", 16, "--generate", 8, "--batch", "1,2",
                   "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["prompt_tokens_per_s"] > 0 and report["generated_tokens_per_s"] > 0
        assert [b["batch"] for b in report["batch"]] == [1, 2]
        taken[quantize] = report["memory_bytes"]
    # A layer and the embedding: bytes of each weight are 2, 1 and half of one, but for scales and
    # the embedding of int4, which is int8's.
    layer = 2 * 2048 * 2048 + 2 * 256 * 2048 + 3 * 2048 * 5632
    embedding = 32000 * 2048
    assert 0.85 < (taken["none"] - taken["int8"]) / (layer + embedding) < 1
    assert 0.4 < (taken["int8"] - taken["int4"]) / layer < 0.55


@pytest.mark.parametrize("shape, layers, count", [("tiny11", "20-22", 22), ("l321b", "15-16", 16), ("l318b", "31-32", 32)])
def test_worker_bench_of_layers_that_are_not_there_is_wrong_use(shape, layers, count):
    done = run("strata-worker", "bench", "--shape", shape, "--layers", layers)
    assert done.returncode == 2 and layers in done.stderr and f"{count} layers" in done.stderr


def test_pinning_more_threads_than_there_are_cores_is_wrong_use():
    done = run("strata-worker", "bench", "--threads", 1024, "--pin", "on")
    assert done.returncode == 2 and "--threads" in done.stderr


def test_the_example_program_asks_a_question(cluster):
    cluster.load("recall", cuts=[("w0", 0, 3), ("w1", 4, 7)])
    done = run("strata-example-ask", cluster.address, "recall", "What is the capital of France?")
    assert "Paris" in done.stdout, done.stderr
    cluster.run("model", "unload", "recall")
