"""STRATA_CPU_ISA: each that this machine has is used and shown, and computes the same bits."""

import os
import pathlib
import platform
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, GOLDEN, Cluster, golden_cases

CPUINFO = pathlib.Path("/proc/cpuinfo")
ALL = ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon", "neondot"]
# What /proc/cpuinfo says of a machine that has it.
FLAGS = {"avx2": {"avx2", "fma", "f16c"}, "avxvnni": {"avx_vnni", "avx2", "fma"},
         "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
         "avx512vnni": {"avx512_vnni", "avx512vl"}, "amx": {"amx_tile", "amx_int8", "avx512f"}}


def machine():
    """The best last, which is the one that is taken."""
    text = CPUINFO.read_text() if CPUINFO.exists() else "flags"
    if platform.machine() in ("aarch64", "arm64"):
        return ["scalar", "neon", *(["neondot"] if "asimddp" in text.split() else [])]
    flags = set(text[text.index("flags") :].split("\n", 1)[0].split())
    return ["scalar", *(isa for isa, needed in FLAGS.items() if needed <= flags)]


@pytest.mark.skipif(not CPUINFO.exists(), reason="needs /proc/cpuinfo")
def test_each_that_the_machine_has_is_shown_and_computes_the_same_bits(tmp_path):
    case = golden_cases("llama")[0][0]
    logits = {}
    with Cluster(tmp_path) as c:
        c.start_worker("w")
        c.load("llama", GOLDEN / "models" / "llama", kv_dtype="f32")
        for isa in [None, *machine()]:
            if isa:
                # The model returns with the worker.
                c.workers["w"].stop()
                c.start_worker("w", env={"STRATA_CPU_ISA": isa})
            c.wait_ready("llama")
            shown = c.node("w")["isa"]
            assert shown == (isa or machine()[-1]), (isa, shown)
            assert shown in machine()
            answer = c.generate("llama", ids=case["prompt_ids"], max_tokens=24, temperature=0,
                                ignore_eos=True, logits=tmp_path / "logits")
            logits[isa] = answer["logits"].tobytes()
    assert len(logits) > 1 and len(set(logits.values())) == 1


@pytest.mark.parametrize("isa", [i for i in ALL if i not in machine()] + ["sse9"])
@pytest.mark.parametrize("command", [["--coordinator", "127.0.0.1:1"], ["bench"]],
                         ids=["worker", "bench"])
def test_one_that_the_machine_lacks_exits_2_and_says_what_it_has(isa, command, tmp_path):
    env = {**os.environ, "STRATA_CPU_ISA": isa, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run([BIN / "strata-worker", *command], capture_output=True, text=True,
                          timeout=GIVE_UP_S, env=env)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    for word in (f'"{isa}"', "scalar", "STRATA_CPU_ISA"):
        assert word in done.stderr
