#!/usr/bin/env python3
"""One worker on MLX beside mlx_lm on the same version of MLX, both with float32 activations.

    mlx.py --python PYTHON [--folder DIR] [--shapes SHAPE,…] [--rounds N] [--json]

PYTHON is that of an environment with mlx_lm, and with MLX of the version that the worker was built with:

    python3 -m venv DIR && DIR/bin/pip install mlx-lm 'mlx[cpu]==VERSION'

It makes a Llama of random weights in 4 bits (groups of 64) for each shape, which both read. Each round measures
both once, the next round backwards; a ratio is of two runs of the same round, and the median of all rounds counts.

    stream    tokens a second of one answer behind a prompt of 64: `strata-worker bench`, which has KV pages, sampling
              and the step protocol's checks, and mlx_lm's generate_step. Wanted: 0.9 of it.
    step      milliseconds of a step of one token: the worker's, and those of evaluating mlx_lm's model alone, without
              its generation around it. Wanted: 1.1 of it at most.
    clients   tokens a second of eight answers together, against one. Wanted: 1 at least.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[2]

# hidden, layers, heads, kv_heads, ffn, vocab.
FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
SHAPES = {"tiny": (256, 4, 4, 2, 512, 512), "small": (1024, 8, 16, 4, 2816, 8000)}
PROMPT = 64
CLIENTS = 8
TARGETS = {"stream": 0.9, "step": 1.1, "clients": 1.0}

# Run by PYTHON: [make FOLDER CONFIG] or [measure FOLDER PROMPT TOKENS].
PEER = """
import json, pathlib, statistics, sys, time
import mlx.core as mx, mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.models import cache, llama

what, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if what == "make":
    config = json.loads(sys.argv[3])
    mx.random.seed(1)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    nn.quantize(model, group_size=64, bits=4)
    model.set_dtype(mx.float16)
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (folder / "config.json").write_text(json.dumps(config))
else:
    config = json.loads((folder / "config.json").read_text())
    model = llama.Model(llama.ModelArgs.from_dict(config))
    nn.quantize(model, group_size=64, bits=4)
    model.load_weights(str(folder / "model.safetensors"))
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    prompt, tokens = int(sys.argv[3]), int(sys.argv[4])
    ids = mx.array([(7 * i * i + 5) % config["vocab_size"] for i in range(prompt)])
    came = []
    for _ in generate_step(ids, model, max_tokens=tokens + 1):
        came.append(time.perf_counter())
    stream = tokens / (came[tokens] - came[0])
    kept = cache.make_prompt_cache(model)
    mx.eval(model(ids[None], cache=kept))
    steps = []
    for i in range(tokens):
        begin = time.perf_counter()
        mx.eval(model(ids[None, i % prompt:i % prompt + 1], cache=kept))
        steps.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"mlx": mx.__version__, "stream": stream, "step": statistics.median(steps)}))
"""


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"mlx.py: {' '.join(map(str, command[:2]))} …:\n{done.stdout}{done.stderr}")
    return done.stdout


def peer(arguments, *what):
    return run([arguments.python, "-c", PEER, *what])


def make_model(arguments, shape):
    folder = arguments.folder / f"mlx4-{shape}"
    if not folder.exists():
        sizes = dict(zip(FIELDS, SHAPES[shape]))
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                  "max_position_embeddings": 4096, "tie_word_embeddings": False, "hidden_act": "silu",
                  "quantization": {"group_size": 64, "bits": 4}}
        peer(arguments, "make", folder, json.dumps(config))
    return folder


def ours(arguments, model):
    document = json.loads(run([arguments.strata / "strata-worker", "bench", "--backend", "mlx", "--model", model, "--prompt", PROMPT,
                               "--generate", arguments.generate, "--batch", f"1,{CLIENTS}", "--json"]))
    batches = {entry["batch"]: entry for entry in document["batch"]}
    return {"stream": batches[1]["generated_tokens_per_s"], "step": batches[1]["step_ms"],
            "clients": batches[CLIENTS]["generated_tokens_per_s"]}


def measure(arguments):
    """{shape: [(ours, theirs), one a round]}"""
    samples = {}
    for round_ in range(arguments.rounds):
        for shape in arguments.shapes if round_ % 2 == 0 else arguments.shapes[::-1]:
            model = make_model(arguments, shape)
            runs = [lambda: ours(arguments, model),
                    lambda: json.loads(peer(arguments, "measure", model, PROMPT, arguments.generate))]
            first, second = (runs if round_ % 2 == 0 else runs[::-1])
            pair = first(), second()
            pair = pair if round_ % 2 == 0 else pair[::-1]
            samples.setdefault(shape, []).append(pair)
            print(f"round {round_ + 1}: {shape}: {pair[0]['stream']:.1f} tokens/s, mlx_lm {pair[1]['stream']:.1f}", file=sys.stderr, flush=True)
    return samples


def rows_of(samples):
    rows = []
    for shape, pairs in samples.items():
        ratios = {"stream": [a["stream"] / b["stream"] for a, b in pairs], "step": [a["step"] / b["step"] for a, b in pairs],
                  "clients": [a["clients"] / a["stream"] for a, _ in pairs]}
        for what, values in ratios.items():
            own = statistics.median(a[what] for a, _ in pairs)
            other = statistics.median(b[what] if what in b else a["stream"] for a, b in pairs)
            ratio = statistics.median(values)
            met = ratio <= TARGETS[what] if what == "step" else ratio >= TARGETS[what]
            rows.append({"shape": shape, "what": what, "strata": own, "beside": other, "ratio": ratio, "met": met})
    return rows


def markdown(rows):
    lines = ["| shape | | Strata | beside | ratio | |", "|---|---|---|---|---|---|"]
    for row in rows:
        unit = "ms" if row["what"] == "step" else "tokens/s"
        lines.append(f"| {row['shape']} | {row['what']}, {unit} | {row['strata']:.2f} | {row['beside']:.2f} | {row['ratio']:.2f} | "
                     f"{'met' if row['met'] else 'missed'} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="of an environment with mlx_lm")
    parser.add_argument("--folder", type=pathlib.Path, help="where models are made and kept (default: a temporary one)")
    parser.add_argument("--strata", type=pathlib.Path, default=pathlib.Path(os.environ.get("STRATA_BIN", TREE / "build/bin")),
                        help="where strata-worker is (default: this tree's build)")
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=list(SHAPES), help=",".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--generate", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--json", action="store_true", help="every row as JSON")
    arguments = parser.parse_args()
    if unknown := [shape for shape in arguments.shapes if shape not in SHAPES]:
        parser.error(f"--shapes: {unknown[0]} is none of {', '.join(SHAPES)}")
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = arguments.folder or pathlib.Path(folder)
        rows = rows_of(measure(arguments))
    print(json.dumps(rows, indent=1) if arguments.json else markdown(rows))


if __name__ == "__main__":
    main()
