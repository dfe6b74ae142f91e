"""What the package lorax-client makes of a cluster's answers: CHECK ADDRESS CASE."""

import json
import sys

from lorax import Client
from lorax.errors import ValidationError

check, address, case_path = sys.argv[1:]
case = json.load(open(case_path))
client = Client(f"http://{address}")


def generate():
    answer = client.generate(case["prompt"], max_new_tokens=96)
    assert answer.generated_text == case["text"]
    assert [t.id for t in answer.details.tokens] == case["greedy_ids"]
    assert answer.details.finish_reason.value == "eos_token"
    full = client.generate(case["prompt"], max_new_tokens=96, return_full_text=True,
                           decoder_input_details=True)
    assert full.generated_text == case["prompt"] + case["text"]
    assert len(full.details.prefill) == full.details.prompt_tokens
    sampled = [client.generate(case["prompt"], max_new_tokens=20, do_sample=True, temperature=1.5,
                               seed=3).generated_text for _ in range(2)]
    assert sampled[0] == sampled[1]
    best = client.generate(case["prompt"], max_new_tokens=20, do_sample=True, temperature=1.5,
                           best_of=3)
    assert len(best.details.best_of_sequences) == 2
    short = client.generate(case["prompt"], max_new_tokens=2, truncate=5)
    assert short.details.prompt_tokens == 5


def stream():
    events = list(client.generate_stream(case["prompt"], max_new_tokens=96))
    assert [e.token.id for e in events] == case["greedy_ids"]
    assert events[-1].generated_text == case["text"]
    assert events[-1].details.finish_reason.value == "eos_token"
    assert "".join(e.token.text for e in events if not e.token.special) == case["text"]


def errors():
    schema = {"type": "json_object", "schema": {"type": "object"}}
    for name, value in (("adapter_id", "someone/else"), ("response_format", schema),
                        ("watermark", True)):
        for act in (lambda **f: client.generate(case["prompt"], **f),
                    lambda **f: list(client.generate_stream(case["prompt"], **f))):
            try:
                act(**{name: value})
            except ValidationError as error:
                assert f"parameters.{name} is not supported" in str(error), error
                continue
            raise AssertionError(f"{name} was accepted")


globals()[check]()
