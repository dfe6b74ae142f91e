"""What compare_peers reads from other engines and makes of it. The engines here are scripts that
print what real ones do."""

import contextlib
import json
import pathlib
import struct
import sys
import types

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compare_peers  # noqa: E402
import make_shape  # noqa: E402
from comparison import clusters, commands, outputs, report, runner, targets  # noqa: E402
from comparison.samples import IK, LLAMA, STRATA, Failed, Key, Results  # noqa: E402

LLAMA_BENCH = """[
  {
    "build_commit": "0123abc",
    "cpu_info": "A CPU",
    "n_threads": 1,
    "flash_attn": 0,
    "n_prompt": %(prompt)d,
    "n_gen": %(gen)d,
    "avg_ns": 64000,
    "avg_ts": 8.000000,
    "samples_ts": [ 8.0 ]
  },
  {
    "build_commit": "0123abc",
    "cpu_info": "A CPU",
    "n_threads": 1,
    "flash_attn": %(on)s,
    "n_prompt": %(prompt)d,
    "n_gen": %(gen)d,
    "avg_ns": 64000,
    "avg_ts": 10.000000,
    "samples_ts": [ 10.0 ]
  }
]
"""

DLLAMA = """💡 Arch: Llama
aaa
🔷️ Eval  105 ms Sync    0 ms | Sent     0 kB Recv     0 kB | (16 tokens)
🔶 Pred   51 ms Sync    0 ms | Sent     0 kB Recv     0 kB | <filler7>

Evaluation
   nBatches: 32
    nTokens: 16
   tokens/s: 58.25 (17.17 ms/tok)
Prediction
    nTokens: 8
   tokens/s: 13.40 (74.63 ms/tok)
"""

BATCHED = """main: some log
{"n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 1, "is_pp_shared": 0, \
"n_gpu_layers": 99, "n_threads": 1, "n_threads_batch": 1, "pp": 32, "tg": 64, "pl": 8, "n_kv": 768, \
"t_pp": 6.0, "speed_pp": 42.6, "t_tg": 26.0, "speed_tg": 19.6, "t": 32.0, "speed": 24.0}

llama_perf_context_print: load time = 1 ms
"""

STRATA_BENCH = {"what": "x", "isa": "avx512vnni", "threads": 1, "prompt_tokens_per_s": 150.0,
                "generated_tokens_per_s": 20.0, "bandwidth_share": 0.9,
                "read_bandwidth_bytes_per_s": 15e9,
                "batch": [{"batch": 1, "generated_tokens_per_s": 20.0, "step_ms": 49.0},
                          {"batch": 8, "generated_tokens_per_s": 120.0, "step_ms": 66.0}]}


def test_llama_bench_is_read_with_and_without_flash_attention():
    text = "a notice\n" + LLAMA_BENCH % {"prompt": 0, "gen": 64, "on": "1"} + "~ggml: bye {\n"
    assert outputs.parse_llama_bench(text, "llama.cpp") == (
        {(0, 64, False): 8.0, (0, 64, True): 10.0}, "0123abc")


def test_ik_llama_bench_says_true_and_prints_lines_between():
    text = LLAMA_BENCH % {"prompt": 512, "gen": 0, "on": "true"}
    text = text.replace("[\n", "[\n===== a line of the loader\n", 1)
    assert outputs.parse_llama_bench(text, "ik_llama.cpp")[0] == {
        (512, 0, False): 8.0, (512, 0, True): 10.0}


@pytest.mark.parametrize("text", ["", "error: failed to load model", "[\n", "[\n  {\n", "[]"])
def test_output_without_results_is_refused_with_the_engines_name(text):
    with pytest.raises(Failed, match="llama.cpp.*by hand"):
        outputs.parse_llama_bench(text, "llama.cpp")


def test_distributed_llama_is_read():
    assert outputs.parse_dllama(DLLAMA) == (58.25, 13.4)
    with pytest.raises(Failed, match="by hand"):
        outputs.parse_dllama(DLLAMA.split("Prediction")[0])


def test_the_rpc_split_counts_prompts_time_too():
    assert outputs.parse_batched_bench(BATCHED) == 8 * 64 / 32.0


def filled(isa="avx512vnni"):
    results = Results()
    results.isa = isa

    def add(what, weights, threads, who, values, variant=""):
        for number, value in enumerate(values, 1):
            results.add(number, {Key(what, weights, threads, who, variant): value})

    add("bandwidth", "int8", 1, STRATA, [15e9, 14e9, 16e9])
    add("generation", "int8", 1, STRATA, [20, 14, 22])
    add("share", "int8", 1, STRATA, [0.9])
    add("generation", "int8", 1, LLAMA, [8, 9, 8], "flash attention off")
    add("generation", "int8", 1, LLAMA, [7, 10, 10], "flash attention on")
    add("prompt", "int8", 1, STRATA, [150])
    add("prompt", "int8", 1, LLAMA, [60], "flash attention on")
    add("prompt", "int8", 1, IK, [100], "flash attention off")
    add("batch8", "int8", 1, STRATA, [120])
    return results


def by(rows, what):
    return [(r["against"], r["strata"], r["theirs"], r["ratio"], r["target"], r["met"])
            for r in rows if r["what"] == what]


def test_the_variant_with_the_higher_median_is_what_strata_is_held_against():
    rows = targets.rows_of(filled(), [1], 512, 8192)
    assert by(rows, "int8 generation") == [
        ("llama.cpp Q8_0, flash attention on", 20, 10, 2.2, 1.8, True),
        ("read bandwidth, 15.0 GB/s", 20, None, 0.9, 0.88, True)]
    assert by(rows, "int8 generation, batch of 8") == [
        ("its own batch of 1", 120, 20, 6, 5.5, True)]


def test_a_ratio_is_of_rounds_not_of_medians_that_met_memory_in_different_states():
    results = Results()
    ours, theirs = Key("prompt", "int8", 2, STRATA), Key("prompt", "int8", 2, LLAMA)
    # Memory becomes twice as fast in the middle of the third round.
    for number, speeds in enumerate([(20, 10), (20, 10), (40, 10), (40, 20), (40, 20)], 1):
        results.add(number, dict(zip((ours, theirs), speeds)))
    (compared,) = targets.speed_rows(results, "prompt", "int8", 2, {LLAMA: 3})
    assert (compared["strata"], compared["theirs"]) == (40, 10)
    assert (compared["ratio"], compared["met"]) == (2, False)


def test_a_round_without_one_of_the_two_is_in_no_ratio():
    results = Results()
    ours, theirs = Key("prompt", "int8", 2, STRATA), Key("prompt", "int8", 2, LLAMA)
    for number, speed in enumerate((20, 40, 40), 1):
        results.add(number, {ours: speed})
    results.add(1, {theirs: 10})
    results.add(3, {theirs: 20})
    assert results.ratio(ours, theirs) == 2
    assert results.ratio(ours, Key("prompt", "int8", 2, IK)) is None


def test_a_peer_that_fails_once_is_missing_in_that_round_only():
    results = Results()
    group = [commands.Run("prompt", who, [], None) for who in (STRATA, LLAMA)]
    asked = []

    def run_one(run):
        asked.append(run.who)
        if asked.count(LLAMA) == 2 and run.who == LLAMA:
            raise Failed("no memory")
        return {Key("prompt", "int8", 2, run.who): len(asked)}

    runner.measure([group], results, 3, run_one)
    assert asked == [STRATA, LLAMA, LLAMA, STRATA, STRATA, LLAMA]
    assert results.samples == {Key("prompt", "int8", 2, STRATA): [(1, 1), (2, 4), (3, 5)],
                               Key("prompt", "int8", 2, LLAMA): [(1, 2), (3, 6)]}
    assert results.failures == {"no memory": {2}}


def test_prompts_have_other_targets_without_int8_dot_products():
    assert by(targets.rows_of(filled(), [1], 512, 8192), "int8 prompt of 512") == [
        ("llama.cpp Q8_0, flash attention on", 150, 60, 2.5, 3.0, False),
        ("ik_llama.cpp Q8_0, flash attention off", 150, 100, 1.5, 1.5, True)]
    assert by(targets.rows_of(filled("avx2"), [1], 512, 8192), "int8 prompt of 512") == [
        ("llama.cpp Q8_0, flash attention on", 150, 60, 2.5, None, None),
        ("ik_llama.cpp Q8_0, flash attention off", 150, 100, 1.5, None, None),
        ("the better: ik_llama.cpp Q8_0, flash attention off", 150, 100, 1.5, 1.3, True)]


def test_the_table_says_ratios_and_shares_with_their_targets():
    lines = report.table(targets.rows_of(filled(), [1], 512, 8192)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:4]] == [
        ["int8 generation", "1", "20.0", "llama.cpp Q8_0, flash attention on", "10.0", "2.20",
         "≥ 1.80", "met"],
        ["int8 generation", "1", "20.0", "read bandwidth, 15.0 GB/s", "", "90 %", "≥ 88 %", "met"]]


def test_a_cluster_is_compared_with_rpc_one_worker_and_the_bench():
    results = Results()
    for what, value in (("cluster8", 60.0), ("cluster4", 60.0), ("cluster1", 19.0), ("steps", 20.0)):
        results.add(1, {Key(what, "int8", 2, STRATA): value})
    results.add(1, {Key("cluster8", "int8", 2, LLAMA, "flash attention on"): 10.0})
    assert [(r["ratio"], r["target"]) for r in targets.cluster_rows(results)] == [
        (6.0, 5.0), (1.0, 0.9), (0.95, 0.95)]


# ---- The whole of it, on engines that are scripts


def program(path, text, status=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    path.chmod(0o755)


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.delenv("STRATA_CPU_ISA", raising=False)
    make_shape.make("small", tmp_path / "models", 1, ["hf"], lambda line: None)
    for name in ("q8_0.gguf", "q4_0.gguf", "f16.gguf", "q40.m", "dllama.t"):
        (tmp_path / "models" / name).touch()
    program(tmp_path / "strata" / "strata-worker", json.dumps(STRATA_BENCH))
    program(tmp_path / "strata" / "strata-coordinator", "")
    program(tmp_path / "strata" / "strata", "")
    program(tmp_path / "llama" / "bin" / "llama-bench",
            LLAMA_BENCH % {"prompt": 0, "gen": 64, "on": "1"})
    program(tmp_path / "dllama" / "dllama", DLLAMA)
    return tmp_path


def run(places, *flags):
    compare_peers.main(["--models", str(places / "models"), "--strata", str(places / "strata"),
                        "--rows", "prompt,generation,batch,context", "--threads", "1",
                        "--rounds", "2", *flags])


def test_the_report_says_who_was_left_out_and_what_was_run(places, capsys):
    run(places, "--llama-cpp", str(places / "llama"), "--distributed-llama", str(places / "dllama"),
        "--commit", "distributed-llama=feed")
    out = capsys.readouterr().out
    assert "- ik_llama.cpp: no --ik-llama was given" in out
    assert "llama.cpp RPC: --llama-cpp" in out and "has no program ggml-rpc-server" in out
    assert "llama.cpp 0123abc" in out and "distributed-llama feed" in out
    assert "instruction set: avx512vnni" in out and "medians of 2 rounds" in out
    assert "- llama.cpp: llama-bench -m q8_0.gguf -t 1 -p 0 -n 64 -fa 0,1 -r 1 -o json" in out
    assert "--prompt aaa... --steps 528" not in out and "--prompt aaa... --steps 513" in out
    assert str(places) not in out.split("Command lines:")[1]
    assert "distributed-llama q40" in out and "met" in out


def test_the_report_says_how_peers_were_built_and_which_instructions_strata_was_given(
        places, capsys, monkeypatch):
    monkeypatch.setenv("STRATA_CPU_ISA", "avx2")
    (places / "llama" / "CMakeCache.txt").write_text(
        "CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_CXX_FLAGS:STRING=\n"
        "CMAKE_C_FLAGS:STRING=-mavx2 -O3\nCMAKE_C_FLAGS_RELEASE:STRING=-O2\n"
        "//ggml: enable AVX2\nGGML_AVX2:BOOL=ON\nGGML_AVX2-ADVANCED:INTERNAL=1\n"
        "GGML_AVX512_VNNI:BOOL=OFF\nGGML_BMI2:UNINITIALIZED=ON\nGGML_CUDA:BOOL=OFF\n")
    run(places, "--llama-cpp", str(places / "llama"), "--distributed-llama", str(places / "dllama"))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("Built with")] == [
        "Built with: llama.cpp: CMAKE_BUILD_TYPE=Release CMAKE_C_FLAGS='-mavx2 -O3' GGML_AVX2=ON "
        "GGML_AVX512_VNNI=OFF GGML_BMI2=ON"]
    ours = [line for line in lines if line.startswith("- Strata: ")]
    assert ours and all("- Strata: STRATA_CPU_ISA=avx2 strata-worker bench " in line
                        for line in ours)
    assert any(line.startswith("- llama.cpp: llama-bench ") for line in lines)


def test_the_processors_instructions_are_read(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A CPU\n"
                    "flags\t\t: fpu avx2 avx512f avx512_vnni\n\n"
                    "processor\t: 1\nmodel name\t: Another\nflags\t\t: fpu\n")
    assert report.cpu(file) == ("A CPU", ["avx2", "avx512f", "avx512_vnni"])
    file.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp\n")
    assert report.cpu(file)[1] == ["asimd", "asimddp"]
    assert report.cpu(tmp_path / "none")[1] == []


def test_json_has_every_sample(places, capsys):
    run(places, "--llama-cpp", str(places / "llama"), "--json")
    document = json.loads(capsys.readouterr().out)
    values = {(s["what"], s["weights"], s["who"], s["variant"]): (s["rounds"], s["values"])
              for s in document["samples"]}
    assert values["generation", "int8", "llama.cpp", "flash attention on"] == ([1, 2], [10.0, 10.0])
    assert values["batch8", "int8", "Strata", ""] == ([1, 2], [120.0, 120.0])
    assert values["context", "int8", "Strata", ""] == ([1, 2], [20.0, 20.0])
    assert {row["what"] for row in document["rows"]} >= {"bf16 generation", "int4 prompt of 512",
                                                         "int8 generation after 8192"}


def test_a_peer_that_fails_is_left_out_and_the_rest_goes_on(places, capsys):
    program(places / "llama" / "bin" / "llama-bench", "no such instruction", 4)
    run(places, "--llama-cpp", str(places / "llama"))
    out = capsys.readouterr().out
    assert ("- rounds 1, 2: llama.cpp ended with 4 for int8 generation and batch 8, 1 thread: "
            "no such instruct") in out
    assert "read bandwidth, 15.0 GB/s" in out


def test_the_clusters_row_against_the_bench_needs_no_other_rows(places, capsys, monkeypatch):
    strata = places / "strata" / "strata"
    program(strata, json.dumps({"requests": 2, "failed": 0, "generated_tokens_per_s": 60.0,
                                "inter_token_ms": {"p50": 50.0}}))
    cluster = types.SimpleNamespace(command=lambda *words: [str(strata), *map(str, words)])
    monkeypatch.setattr(clusters, "strata_cluster", lambda *_: contextlib.nullcontext(cluster))
    monkeypatch.setitem(sys.modules, "cluster", types.ModuleType("cluster"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("STRATA_BIN", "")
    run(places, "--rows", "cluster", "--generate", "48", "--json")
    document = json.loads(capsys.readouterr().out)
    (alone,) = (row for row in document["rows"] if row["what"] == "int8, one worker, 1 client")
    assert (alone["strata"], alone["theirs"], alone["met"]) == (20, 1000 / 49, True)
    (steps,) = (s for s in document["samples"] if s["what"] == "steps")
    assert steps["rounds"] == [1, 2]
    lines = [one["command"] for one in document["commands"]]
    assert ("strata bench shape --clients 1 --requests 2 --prompt-tokens 16 --max-tokens 48 --json"
            in lines)
    assert ("strata-worker bench --model hf --quantize int8 --threads 2 --prompt 16 --generate 48 "
            "--batch 1 --json") in lines
    assert not any("generation" in line for line in document["left_out"])


def test_stratas_failure_ends_the_run_with_what_there_is(places, capsys):
    program(places / "strata" / "strata-worker", "oh", 1)
    with pytest.raises(SystemExit, match="Strata ended with 1 for int8 prompt of 512, 1 thread: oh"):
        run(places)
    assert "Command lines:" in capsys.readouterr().out


@pytest.mark.parametrize("flags, message", [
    (["--llama-cpp", "/nowhere"], "has no program llama-bench: build llama.cpp's target"),
    (["--strata", "/nowhere"], "has no strata-worker: run ./dev build"),
    (["--models", "/nowhere"], "holds no weights: write them with tests/bench/make_shape.py"),
])
def test_what_is_missing_is_named_with_what_to_do(places, flags, message):
    with pytest.raises(SystemExit, match=message):
        run(places, *flags)


# ---- The weights


def test_the_same_seed_gives_the_same_checkpoint(tmp_path):
    files = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_shape.make("small", tmp_path / name, seed, ["hf"], lambda line: None)
        files.append((tmp_path / name / "hf" / "model.safetensors").read_bytes())
    assert files[0] == files[1] != files[2]
    (size,) = struct.unpack("<Q", files[0][:8])
    header = json.loads(files[0][8:8 + size])
    name, shape = "model.layers.1.self_attn.k_proj.weight", [128, 256]
    assert header[name]["shape"] == shape and header[name]["dtype"] == "BF16"
    begin, end = (8 + size + offset for offset in header[name]["data_offsets"])
    stored = np.frombuffer(files[0][begin:end], "<u2").astype(np.uint32) << 16
    assert np.array_equal(stored.view(np.float32).reshape(shape), make_shape.weights(1, name, shape))
    assert max(entry["data_offsets"][1] for entry in header.values() if "dtype" in entry) + 8 + size \
        == len(files[0])


def test_rotary_halves_become_neighbours():
    rows = np.arange(16, dtype=np.float32).reshape(16, 1)
    assert make_shape.permuted(rows, 2).ravel().tolist() == [
        0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


def test_a_folder_in_the_tree_is_refused():
    with pytest.raises(make_shape.Refused, match="name a folder outside"):
        make_shape.make("small", make_shape.TREE / "models", 1, ["hf"], lambda line: None)
