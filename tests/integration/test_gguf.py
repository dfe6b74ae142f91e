"""GGUF files through real processes."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from cluster import GOLDEN, Cluster, cut, read_safetensors, served_cases

MODELS = ["llama-f32", "llama-f16", "llama-q8_0", "llama-q4_0", "llama31-q8_0", "qwen2-f32",
          "qwen2-f16", "qwen2-q8_0", "qwen2-q4_0", "phi3-q4_0", "phi3-longrope-bf16",
          "phi4-mini-bf16", "mixtral-bf16", "mixtral-experts-q4_0", "qwen3-moe-q8_0",
          "qwen3-yarn-q8_0", "smollm3-bf16", "granite-bf16", "olmo2-bf16", "gemma2-q8_0",
          "gemma3-q8_0", "gpt-oss-mxfp4", "llama-q4_1", "llama-q5_0", "llama-q5_1",
          "llama-kquants", "llama-lowbits", "deepseek-v2-old-q8_0", "deepseek-v3-q8_0",
          "gemma-bf16", "ministral3-bf16", "olmo3-bf16", "glm4-bf16", "glm4-moe-bf16",
          "seed-oss-bf16", "minimax-m2-bf16", "qwen25-vl-bf16", "qwen3-vl-bf16"]
LAYERS = 3
MORE_LAYERS = {"smollm3-bf16": 4, "gemma2-q8_0": 4, "gemma3-q8_0": 7, "olmo3-bf16": 4}
WORKERS = [f"w{i}" for i in range(7)]
TOLERANCE = 5e-4  # tests/golden/README.md


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("gguf")) as c:
        c.start_workers(len(WORKERS))
        for model in MODELS:
            c.run("model", "add", GOLDEN / "gguf" / f"{model}.gguf")
        yield c


def golden_cases_of(model):
    """A file with the weights of the model that it was made of has none of its own."""
    if not (GOLDEN / "gguf" / f"{model}.cases.json").exists():
        return served_cases(model.rsplit("-", 1)[0])
    return (json.loads((GOLDEN / "gguf" / f"{model}.cases.json").read_text()),
            read_safetensors(GOLDEN / "gguf" / f"{model}.expected.safetensors"))


def generate(cluster, model, case, folder):
    return cluster.generate(model, ids=case["prompt_ids"], max_tokens=24, temperature=0,
                            ignore_eos=True, logits=folder / "logits.safetensors")


def cuts_of(model, stages):
    """So many stages, or one a layer."""
    layers = MORE_LAYERS.get(model, LAYERS)
    return cut(WORKERS[:stages or layers], layers)


@pytest.mark.parametrize("model", MODELS)
def test_logits_are_right_and_the_same_bits_for_every_partition(cluster, model, tmp_path):
    bits = json.loads((GOLDEN / "bits.json").read_text())
    cases, expected = golden_cases_of(model)
    for stages in (1, 2, None):
        cluster.load(model, cuts=cuts_of(model, stages), kv_dtype="f32", activations="f32")
        for case in cases:
            want = expected[f"{case['name']}.logits"]
            answer = generate(cluster, model, case, tmp_path)
            assert answer["token_ids"] == case["greedy_ids"]
            assert answer["logits"].shape == want.shape
            assert np.abs(answer["logits"] - want).max() <= TOLERANCE
            digest = hashlib.sha256(answer["logits"].tobytes()).hexdigest()
            name = f"gguf/{model}/{case['name']}"
            assert bits[answer["numerics_class"]][name] == digest, stages
        cluster.run("model", "unload", model)


@pytest.mark.parametrize("model,weights,head", [
    ("llama-q8_0", "q8_0", "q8_0"), ("llama-q4_0", "q4_0", "q8_0"), ("qwen2-q8_0", "q8_0", "q8_0"),
    ("phi3-q4_0", "q4_0", "q8_0"), ("mixtral-experts-q4_0", "q4_0", "q8_0"),
    ("qwen3-moe-q8_0", "q8_0", "q8_0"),
    ("llama-q4_1", "q4_1", "q4_1"), ("llama-q5_0", "q5_0", "q5_0"), ("llama-q5_1", "q5_1", "q5_1"),
    ("llama-kquants", "q6_k+q5_k+q4_k", "q6_k"),
    ("llama-lowbits", "iq4_nl+q3_k+iq4_xs+q2_k", "q3_k")])
def test_stored_blocks_take_int8_activations_and_give_the_same_bits(cluster, model, weights, head,
                                                                    tmp_path):
    answers = []
    (case,), _ = golden_cases_of(model)
    for stages in (1, 2, None):
        cluster.load(model, cuts=cuts_of(model, stages))
        answers.append(generate(cluster, model, case, tmp_path))
        cluster.run("model", "unload", model)
    assert f"/w={weights},head={head},act=int8/" in answers[0]["numerics_class"]
    for answer in answers[1:]:
        assert answer["numerics_class"] == answers[0]["numerics_class"]
        assert answer["logits"].tobytes() == answers[0]["logits"].tobytes()


def test_workers_fetch_the_tensors_of_their_layers_alone(tmp_path):
    whole = (GOLDEN / "gguf" / "llama-f32.gguf").stat().st_size
    with Cluster(tmp_path / "own") as c:
        c.start_workers(2)
        c.load("m", path=GOLDEN / "gguf" / "llama-f32.gguf", cuts=cut(["w0", "w1"], LAYERS),
               context=64)  # Rotary tables are fetched too.
        folders = [tmp_path / "own" / f"w{i}" / "cache" / "sha256" for i in range(2)]
        sizes = [sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
                 for folder in folders]
        assert all(0 < size < 0.7 * whole for size in sizes) and sum(sizes) < whole, sizes


def test_a_folder_and_an_upload_are_the_same_model_as_the_file(cluster, tmp_path):
    shutil.copy(GOLDEN / "gguf" / "llama-q4_0.gguf", tmp_path / "any-name.gguf")
    cluster.run("model", "add", tmp_path, "--name", "folder")
    cluster.run("model", "add", tmp_path / "any-name.gguf", "--upload", "--name", "uploaded")
    models = {m["name"]: m["digest"] for m in cluster.json("model", "list")["models"]}
    assert models["folder"] == models["uploaded"] == models["llama-q4_0"]


def test_what_is_quantized_already_is_not_quantized_again(cluster):
    _, said, status = cluster.run("model", "load", "llama-q8_0", "--quantize", "int4", check=False)
    assert status == 1 and "--quantize none" in said


def test_an_architecture_that_is_not_known_is_refused_by_name(cluster, tmp_path):
    content = (GOLDEN / "gguf" / "gemma2-q8_0.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(content.replace(b"gemma2", b"gemma4"))
    _, said, status = cluster.run("model", "add", tmp_path / "m.gguf", check=False)
    assert status == 1 and 'general.architecture "gemma4" is not supported yet' in said


def test_a_broken_file_is_refused_by_name(cluster, tmp_path):
    content = (GOLDEN / "gguf" / "llama-q4_0.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[:-5000])
    _, said, status = cluster.run("model", "add", tmp_path / "cut.gguf", check=False)
    assert status == 1 and "cut.gguf: tensor" in said and "bytes of data" in said
