"""lm-evaluation-harness, unmodified: a cluster scores as Hugging Face's transformers do."""

import json
import os
import subprocess

import pytest

from client_environment import environment, example
from cluster import GIVE_UP_S, GOLDEN, RECALL, SOURCE, Cluster, cut

HARNESS = "lm-eval[api]==0.4.13"
TASKS = GOLDEN / "lm_eval"
EXPECTED = json.loads((TASKS / "expected.json").read_text())
# A logit may be off by 5e-4 (tests/golden/README.md), the logprob of one token so by twice that. It is
# asked of whole answers and texts, whose tokens' errors hardly add up: 1e-4 was seen.
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("lm_eval")) as c:
        c.load("recall", RECALL, cuts=cut(c.start_workers(2), 8), kv_dtype="f32", context=512)
        yield c


def evaluate(cluster, folder, tasks, *flags, packages=(), route="completions", **model):
    """{task: what expected.json has of it}, by the harness's client of this route."""
    name = "-".join(["lm-eval", *(p.split("=")[0] for p in packages)])
    python = environment(name, HARNESS, *packages)
    kind = "local-chat-completions" if route == "chat/completions" else "local-completions"
    model = {"model": "recall", "base_url": f"http://{cluster.http}/v1/{route}",
             "max_length": 512, **model}
    done = subprocess.run(
        [python.parent / "lm-eval", "run", "--model", kind,
         "--model_args", ",".join(f"{k}={v}" for k, v in model.items()), "--tasks", *tasks,
         "--include_path", TASKS, "--output_path", folder, "--log_samples", *flags],
        cwd=TASKS, capture_output=True, text=True, timeout=GIVE_UP_S,
        env={**os.environ, "HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (results,) = folder.glob("*/results_*.json")
    scores = json.loads(results.read_text())["results"]
    return {task: {"scores": {measure: scores[task][f"{measure},none"]
                              for measure in EXPECTED[task]["scores"]},
                   "answers": answers_of(folder, task)} for task in tasks}


def answers_of(folder, task):
    (path,) = folder.glob(f"*/samples_{task}_*.jsonl")
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    samples.sort(key=lambda s: s["doc_id"])
    return [[r[0] for r in s["resps"]] for s in samples]


def agree(task, found):
    expected = EXPECTED[task]
    if task == "recall_text":
        assert found["scores"] == pytest.approx(expected["scores"], rel=1e-5)
    else:
        assert found["scores"] == expected["scores"]
        assert all(0 < score < 1 for score in found["scores"].values())
    assert len(found["answers"]) == len(expected["answers"])
    for got, want in zip(found["answers"], expected["answers"]):
        if task == "recall_choice":
            assert [greedy for _, greedy in got] == [greedy for _, greedy in want]
            got, want = ([total for total, _ in answer] for answer in (got, want))
        elif task != "recall_text":
            assert got == want
            continue
        assert list(map(float, got)) == pytest.approx(list(map(float, want)), abs=TOLERANCE)


def test_scores_of_completions_are_hugging_faces(cluster, tmp_path):
    """With the cluster's tokenizer: the harness has none of its own."""
    tasks = ["recall_choice", "recall_text", "recall_complete"]
    found = evaluate(cluster, tmp_path, tasks)
    for task in tasks:
        agree(task, found[task])


def test_scores_of_chats_are_hugging_faces(cluster, tmp_path):
    found = evaluate(cluster, tmp_path, ["recall_answer"], "--apply_chat_template",
                     route="chat/completions", num_concurrent=4)
    agree("recall_answer", found["recall_answer"])


def test_the_documents_example(cluster, tmp_path):
    install, *command = example(cluster, "sh", "pip install").splitlines()
    assert install == 'pip install "lm-eval[api]"'
    python = environment("lm-eval", HARNESS)
    done = subprocess.run(["sh", "-ec", "\n".join(command)], cwd=SOURCE, capture_output=True,
                          text=True, timeout=GIVE_UP_S, env={
        **os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "HF_HOME": str(tmp_path)})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{EXPECTED['recall_choice']['scores']['acc']:.4f}" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("model", [
    {"num_concurrent": 8}, {"tokenizer_backend": "huggingface", "tokenizer": RECALL}])
def test_scores_are_the_same_however_the_requests_are_made(cluster, tmp_path, model):
    tasks = ["recall_choice", "recall_text", "recall_complete"]
    packages = ["transformers==5.24.0"] if "tokenizer" in model else []
    found = evaluate(cluster, tmp_path, tasks, "--batch_size", "5", packages=packages, **model)
    for task in tasks:
        agree(task, found[task])
