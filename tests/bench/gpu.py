#!/usr/bin/env python3
"""What a GPU computes, and how fast (`./dev gpu`): first the bits, then a table.

    gpu.py BUILD [--shape l318b] [--layers 0-31]

BUILD is a build folder with the CUDA backend (`./dev build --cuda`). First the conformance suite runs on the GPU: the digests of
tests/golden/bits.json and the contract of the seam; then, where compute-sanitizer is installed, the suite's smallest models under it; then
`strata-worker bench --backend cuda` for int8 and int4. Shares are of the read bandwidth that the worker measures on the same GPU. The
exit status is 1 where something computed wrongly; speed fails nothing. The table is JSON, too, in BUILD/gpu.json.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

# By quantization: the share of the read bandwidth wanted at one row and at 64.
WANTED = {"int8": (0.75, 0.60), "int4": (0.60, 0.35)}
PROMPT = 2048
SMALL = "Models/GoldenBits.Digests*/cuda_llama31:Models/GoldenBits.Digests*/cuda_mixtral"


def bench(build, quantize, args):
    command = [build / "bin/strata-worker", "bench", "--backend", "cuda", "--shape", args.shape, "--quantize", quantize,
               "--prompt", str(PROMPT), "--generate", "64", "--batch", "1,8,64", "--json"]
    if args.layers:
        command += ["--layers", args.layers]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gpu.py: {done.stderr}")
    return json.loads(done.stdout)


def conformance(build, *prefix, filter):
    test = build / "tests/backend_conformance_test"
    listed = subprocess.run([test, f"--gtest_filter={filter}", "--gtest_list_tests"], capture_output=True, text=True).stdout
    if "cuda" not in listed:
        sys.exit("gpu.py: the conformance suite has no CUDA backend: there is no GPU that it can open, or the build is not by "
                 "./dev build --cuda; strata-worker bench --backend cuda says which")
    return subprocess.run([*prefix, test, f"--gtest_filter={filter}", "--gtest_brief=1"]).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--shape", default="l318b")
    parser.add_argument("--layers", default="")
    args = parser.parse_args()
    print("== the bits of the CPU, by the GPU", flush=True)
    right = conformance(args.build, filter="*cuda*")
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer:
        print("== the same of small models, under compute-sanitizer", flush=True)
        for tool in ("memcheck", "racecheck"):
            right &= conformance(args.build, sanitizer, "--tool", tool, "--error-exitcode", "1", filter=SMALL)
    else:
        print("== no compute-sanitizer is installed: it was not run", flush=True)
    print(f"== the speed of {args.shape}", flush=True)
    reports = {}
    for quantize, wanted in WANTED.items():
        reports[quantize] = report = bench(args.build, quantize, args)
        by_rows = {b["batch"]: b for b in report["batch"]}
        print(f"{quantize}: load {report['load_s']:.1f} s, prompt of {PROMPT} {report['prompt_tokens_per_s']:.0f} tokens/s")
        for rows, b in by_rows.items():
            target = {1: wanted[0], 64: wanted[1]}.get(rows)
            print(f"  {rows:3} rows {b['generated_tokens_per_s']:9.1f} tokens/s, step {b['step_ms']:.2f} ms, "
                  f"{100 * b['bandwidth_share']:.0f} % of {report['read_bandwidth_bytes_per_s'] / 1e9:.0f} GB/s"
                  + (f" ({100 * target:.0f} wanted)" if target else ""), flush=True)
    (args.build / "gpu.json").write_text(json.dumps(reports, indent=1) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
