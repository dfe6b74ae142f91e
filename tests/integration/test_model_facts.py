"""What `model add` and `model show` say of a checkpoint before anything is loaded, and the
coordinator's offline commands of the same."""

import json
import shutil
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, GOLDEN, RECALL, Cluster

CHECKPOINTS = {
    "recall": RECALL, "mlx": GOLDEN / "models" / "llama31-mlx4",
    "gguf": GOLDEN / "gguf" / "llama-q4_0.gguf", "gpt-oss": GOLDEN / "models" / "gpt-oss-mxfp4",
    "deepseek": GOLDEN / "models" / "deepseek-v3", "bare": GOLDEN / "models" / "llama"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("facts")) as c:
        c.added = {name: c.json("model", "add", path, "--name", name)
                   for name, path in CHECKPOINTS.items()}
        yield c


def says(facts, text):
    return any(text in sentence for sentence in facts["cannot"])


def test_an_mlx_folder_tells_its_integers(cluster):
    facts = cluster.added["mlx"]["facts"]
    assert facts["container"] == "safetensors"
    assert [f["name"] for f in facts["formats"]] == ["int4 affine, groups of 64", "BF16"]
    assert facts["weight_bytes"]["int8"] is None and facts["weight_bytes"]["int4"] is None
    assert says(facts, "--quantize int8 and int4 are refused")
    # As `model load` says it.
    _, error, status = cluster.run("model", "load", "mlx", "--quantize", "int8", check=False)
    assert status == 1 and "stored quantized" in error


def test_a_gguf_file_tells_its_blocks_and_its_own_tokenizer(cluster):
    model = cluster.added["gguf"]
    facts = model["facts"]
    assert facts["container"] == "gguf"
    assert {f["name"] for f in facts["formats"]} >= {"Q4_0", "Q8_0"}
    assert sum(f["bytes"] for f in facts["formats"]) < CHECKPOINTS["gguf"].stat().st_size
    assert model["has_tokenizer"] == (facts["tokenizer"] is not None)


def test_gpt_oss_tells_its_experts_and_windows(cluster):
    facts = cluster.added["gpt-oss"]["facts"]
    assert [f["name"] for f in facts["formats"]] == ["BF16", "MXFP4"]
    assert {(layer["experts"], layer["experts_per_token"]) for layer in facts["layers"]} == {(4, 2)}
    groups = [layer["kv_group"] for layer in facts["layers"]]
    assert groups[0].startswith("window-") and groups[1] == "full"
    assert says(facts, "no cached prefixes")


def test_deepseek_tells_its_latent_vectors_and_dense_layers(cluster):
    model = cluster.added["deepseek"]
    layers = model["facts"]["layers"]
    assert [layer["experts"] for layer in layers] == [0, 8, 8]
    assert {layer["kv_group"] for layer in layers} == {"mla"}
    # A latent vector of 32 and a key of 8, in float16.
    assert [layer["kv_bytes_per_token"] for layer in layers] == [80, 80, 80]
    assert model["kv_bytes_per_token"] == 240
    weights = model["facts"]["weight_bytes"]
    assert weights["none"] == model["weight_bytes"] > weights["int8"] > weights["int4"]
    assert layers[1]["weight_bytes"] > layers[1]["weight_bytes_int8"]


def test_a_folder_without_a_tokenizer_takes_token_ids_only(cluster):
    facts = cluster.added["bare"]["facts"]
    assert facts["tokenizer"] is None and facts["tokenizer_ids"] == 0
    assert facts["chat_template"] is None
    assert says(facts, "takes token ids only") and says(facts, "no chat template")


def test_memory_is_what_a_plan_counts(cluster):
    cluster.start_worker("w0")
    model = cluster.added["recall"]
    facts = model["facts"]
    for quantize in ("none", "int8", "int4"):
        (stage,) = cluster.json("plan", "recall", "--quantize", quantize)["stages"]
        suffix = "" if quantize == "none" else f"_{quantize}"
        layers = sum(layer[f"weight_bytes{suffix}"] for layer in facts["layers"])
        assert layers < stage["weight_bytes"]
        if quantize == "none":
            ends = facts["embedding_bytes"] + facts["head_bytes"]
            assert stage["weight_bytes"] in (layers + ends, facts["weight_bytes"]["none"])
    cluster.workers["w0"].stop()


def test_show_says_the_same_after_a_restart_and_list_stays_short(cluster):
    before = {name: cluster.json("model", "show", name)["facts"] for name in CHECKPOINTS}
    assert before == {name: model["facts"] for name, model in cluster.added.items()}
    cluster.coordinator.stop()
    cluster.start_coordinator()
    after = {name: cluster.json("model", "show", name)["facts"] for name in CHECKPOINTS}
    assert after == before
    assert all("facts" not in model for model in cluster.json("model", "list")["models"])


@pytest.mark.parametrize("command", ["tokenize", "detokenize", "template"])
def test_offline_commands_report_what_show_does(cluster, command):
    for name, path in CHECKPOINTS.items():
        done = subprocess.run([BIN / "strata-coordinator", command, path], capture_output=True,
                              text=True, timeout=GIVE_UP_S, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        first, *report = done.stdout.splitlines()
        assert first == str(path)
        shown = cluster.run("model", "show", name)[0].splitlines()
        # But for what the model is called.
        own = path.name.removesuffix(".gguf")
        assert [line.replace(f"'{own}'", f"'{name}'").replace(f" generate {own} ",
                                                              f" generate {name} ")
                for line in report] == shown[3:], name


def test_offline_commands_say_what_is_wrong(tmp_path):
    def run(*arguments):
        return subprocess.run([BIN / "strata-coordinator", *map(str, arguments)],
                              capture_output=True, text=True, timeout=GIVE_UP_S)

    done = run("tokenize", tmp_path)
    assert done.returncode == 1 and "config.json" in done.stderr
    done = run("tokenize", RECALL / "tokenizer.json")
    assert done.returncode == 2 and "--jsonl" in done.stderr
    # What looks like a flag behind -- is a text.
    flag, text = run("tokenize", RECALL, "--", "--jsonl"), run("tokenize", RECALL, "jsonl")
    assert flag.returncode == 0 and len(flag.stdout.splitlines()) > len(text.stdout.splitlines())
    lines = json.dumps({"text": "a key"}) + "\n"
    done = subprocess.run([BIN / "strata-coordinator", "tokenize", RECALL, "--jsonl"], input=lines,
                          capture_output=True, text=True, timeout=GIVE_UP_S)
    assert list(json.loads(done.stdout)) == ["ids"]


def test_a_folder_of_a_gguf_file_alone_has_that_files_tokenizer_and_template(tmp_path):
    source = GOLDEN / "gguf" / "llama-q4_0.gguf"
    shutil.copy(source, tmp_path / "model.gguf")

    def run(command, path, *arguments):
        done = subprocess.run([BIN / "strata-coordinator", command, path, *arguments],
                              capture_output=True, text=True, timeout=GIVE_UP_S)
        return done.returncode, done.stdout, done.stderr

    of_file = run("tokenize", source, "a key")
    assert of_file[0] == 0 and len(of_file[1].splitlines()) >= len("a key"), of_file
    assert run("tokenize", tmp_path, "a key") == of_file
    assert run("detokenize", tmp_path, "100,101") == run("detokenize", source, "100,101")
    # These files have no chat template: the sentence says so, and where one would be.
    status, _, said = run("template", tmp_path, "hello")
    assert status == 1 and "has no chat template" in said, said
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0]['content'] }}")
    assert run("template", tmp_path, "hello")[:2] == (0, "hello\n")
