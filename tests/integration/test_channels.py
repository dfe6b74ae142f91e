"""Answers whose messages have channels (harmony), on real processes: a random model with a vocabulary of bytes, so
that nothing but the masks makes messages of what it says."""

import json

import pytest
from checkpoints import make_checkpoint
from cluster import Cluster, cut
from http_client import post, request
from test_constraints import LAYERS, make_tokenizer

TOKENS = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]
TEMPLATE = (
    "{# <|channel|>analysis #}{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|start|>assistant{% endif %}")
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["days"]}}}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "channels"
    make_checkpoint(folder, layers=LAYERS, hidden=64, ffn=96, vocab=304, heads=2, kv_heads=2, context=2048)
    assert make_tokenizer(folder, TOKENS) <= 304
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))
    with Cluster(tmp_path_factory.mktemp("cluster")) as c:
        c.start_workers(2)
        c.load("channels", folder, cuts=cut(["w0", "w1"], LAYERS), context=2048, sessions=8)
        yield c


def ask(cluster, seed, **fields):
    answer = post(cluster, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": f"Well {seed}?"}], "seed": seed, "temperature": 1.5, "max_tokens": 300,
        "max_thinking_tokens": 6, **fields})
    return answer["choices"][0], answer["usage"]["completion_tokens_details"]["reasoning_tokens"]


def test_the_final_message_is_held_behind_a_thought_or_without_one(cluster):
    thoughts = set()
    for seed in range(16):
        choice, _ = ask(cluster, seed, guided_choice=["yes", "no"])
        message = choice["message"]
        assert message["content"] in ("yes", "no") and choice["finish_reason"] == "stop", choice
        thoughts.add(message.get("reasoning_content") is not None)
    assert thoughts == {True, False}


def test_a_budget_of_nothing_leaves_no_thought(cluster):
    for seed in range(6):
        choice, thought = ask(cluster, seed, guided_json={"type": "boolean"}, max_thinking_tokens=0)
        assert choice["message"]["content"] in ("true", "false") and thought == 0, choice
        assert "reasoning_content" not in choice["message"]


def test_calls_are_held_and_so_is_a_text_beside_them(cluster):
    for choice_of_tool in ("required", {"type": "function", "function": {"name": "weather"}}):
        for seed in range(4):
            choice, _ = ask(cluster, seed, tools=TOOLS, tool_choice=choice_of_tool)
            (call,) = choice["message"]["tool_calls"]
            assert 1 <= json.loads(call["function"]["arguments"])["days"] <= 9
            assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    seen = set()
    for seed in range(16):
        message = ask(cluster, seed, tools=TOOLS, guided_choice=["yes", "no"])[0]["message"]
        seen.add("call" if message.get("tool_calls") else message["content"])
    assert "call" in seen and seen <= {"call", "yes", "no"} and len(seen) > 1, seen


def test_a_message_that_the_prompt_has_begun_goes_on_as_it_is_held(cluster):
    messages = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "It is "}]
    choice, _ = ask(cluster, 1, messages=messages, add_generation_prompt=False, continue_final_message=True,
                    guided_choice=["yes", "no"], max_thinking_tokens=None)
    assert choice["message"]["content"] in ("yes", "no"), choice


def test_thoughts_in_channels_and_calls_otherwise_are_refused_by_name(cluster):
    cluster.run("model", "unload", "channels")
    cluster.load("channels", cuts=cut(["w0", "w1"], LAYERS), context=2048, sessions=8, tool_format="hermes")
    status, _, answer = request(cluster, "POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Well?"}], "tools": TOOLS, "tool_choice": "required"})
    assert (status, answer["error"]["code"]) == (400, "not_supported"), answer
