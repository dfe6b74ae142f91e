#!/usr/bin/env python3
"""Tasks for lm-evaluation-harness, and what it scores the bundled model with Hugging Face.

    pip install "lm-eval[hf]==0.4.13" torch==2.15.0 transformers==5.23.0
    make_lm_eval.py           # writes choice.json, answer.json, text.json and expected.json

The documents are drawn by the generators of the model's training text, with a seed of their own.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECALL = HERE.parents[2] / "models" / "recall"
sys.path.insert(0, str(RECALL))

import train  # noqa: E402

CANDIDATES, CHOICES, ANSWERS, TEXTS = 40, 32, 24, 8


def write(name, documents):
    lines = ",\n".join(json.dumps(d, ensure_ascii=False) for d in documents)
    (HERE / name).write_text(f"[\n{lines}\n]\n")


def choice():
    """Facts of a kind, and a question about one; four answers, some with what no fact says."""
    kind, facts = train.R.randrange(3), train.R.choice([1, 2, 3])
    if kind == 0:
        subjects, values = train.R.sample(train.THINGS, facts), train.R.sample(train.PLACES, 4)
        fact, ask = "The {} is in the {}.", "Where is the {}?"
    elif kind == 1:
        subjects = train.distinct(train.name, facts)
        values = [f"{c} {t}" for c, t in zip(train.R.choices(train.COLORS, k=4),
                                             train.R.sample(train.THINGS, 4))]
        fact, ask = "{} has {}.", "What does {} have?"
        values = [train.an(v) for v in values]
    else:
        subjects = train.R.sample(train.PLACES, facts)
        values = train.distinct(lambda: train.digits(4), 4)
        fact, ask = "The code for the {} is {}.", "What is the code for the {}?"
    said = " ".join(fact.format(s, v) for s, v in zip(subjects, values))
    asked = train.R.randrange(facts)
    order = train.R.sample(range(4), 4)
    return {"question": f"{said} {ask.format(subjects[asked])}",
            "choices": [fact.format(subjects[asked], values[i]) for i in order],
            "right": order.index(asked)}


def answer():
    turn = train.R.choice([train.world_turn, train.repeat_turn,
                           lambda: train.recall_turns()[0]])()
    return {"question": turn[0], "answer": turn[1]}


def text():
    return {"text": train.R.choice([train.story_turn()[1], " ".join(train.mixed_facts(5)[0])])}


def evaluate(tasks, folder, *flags):
    """({task: scores}, {task: samples in order}) by lm-eval's own model of transformers."""
    model = f"pretrained={RECALL},dtype=float32,attn_implementation=eager,add_bos_token=False"
    subprocess.run(
        [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args", model,
         "--tasks", *tasks, "--include_path", HERE, "--device", "cpu", "--batch_size", "1",
         "--output_path", folder, "--log_samples", *flags], check=True, cwd=HERE,
        env={**os.environ, "HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1",
             "OMP_NUM_THREADS": "1"})
    (results,) = folder.glob("*/results_*.json")
    scores = json.loads(results.read_text())["results"]
    samples = {}
    for task in tasks:
        (path,) = folder.glob(f"*/samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        samples[task] = sorted(lines, key=lambda s: s["doc_id"])
    return scores, samples


def clear(sample):
    """Whether no rounding could change which choice wins, by total or by byte."""
    totals = sorted(float(r[0][0]) for r in sample["resps"])
    by_byte = sorted(float(r[0][0]) / len(c.encode())
                     for r, c in zip(sample["resps"], sample["doc"]["choices"]))
    return totals[-1] - totals[-2] > 0.02 and by_byte[-1] - by_byte[-2] > 0.001


def essence(scores, samples):
    """What a server must give too: scores, and each document's answers."""
    kept = {name.split(",")[0]: value for name, value in scores.items()
            if name.endswith(",none") and "stderr" not in name}
    return {"scores": kept, "answers": [[r[0] for r in s["resps"]] for s in samples]}


def write_expected(expected):
    """A line for each document."""
    tasks = []
    for task, found in expected.items():
        answers = ",\n".join("  " + json.dumps(a, ensure_ascii=False) for a in found["answers"])
        tasks.append(f'"{task}": {{"scores": {json.dumps(found["scores"])}, "answers": [\n'
                     f"{answers}\n ]}}")
    (HERE / "expected.json").write_text("{\n " + ",\n ".join(tasks) + "\n}\n")


def main():
    train.R = random.Random(20261122)
    candidates = [choice() for _ in range(CANDIDATES)]
    write("answer.json", [answer() for _ in range(ANSWERS)])
    write("text.json", [text() for _ in range(TEXTS)])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write("choice.json", candidates)
        _, samples = evaluate(["recall_choice"], folder / "candidates")
        kept = [c for c, s in zip(candidates, samples["recall_choice"]) if clear(s)][:CHOICES]
        assert len(kept) == CHOICES
        write("choice.json", kept)
        scores, samples = evaluate(["recall_choice", "recall_text", "recall_complete"],
                                   folder / "plain")
        chat_scores, chat_samples = evaluate(["recall_answer"], folder / "chat",
                                             "--apply_chat_template")
    scores |= chat_scores
    samples |= chat_samples
    expected = {task: essence(scores[task], samples[task]) for task in sorted(samples)}
    write_expected(expected)
    print(json.dumps({task: e["scores"] for task, e in expected.items()}, indent=1))


if __name__ == "__main__":
    main()
