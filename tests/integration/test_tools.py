"""Tools and thoughts on real processes. The model is a script: each answer is one token, which a bias makes
the only one, and whose text is all that it says."""

import json
import shutil
from pathlib import Path

import pytest

from client_environment import OPENAI, environment, run
from cluster import RECALL, Cluster, Failed, cut
from http_client import post, request, stream

CLIENTS = Path(__file__).parent / "clients"
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ 'Tools: ' + (tools | tojson) + ' Use <tool_call></tool_call>.' }}{% endif %}"
    "{% for m in messages %}{{ '[' + m.role + ']' }}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Z\u00fcrich", "days": 2}}\n</tool_call>'
SCRIPTS = {  # By what it says.
    "call": CALL,
    "thought": f"<think>\nHm.\n</think>\n\nLet me look.\n\n{CALL}",
    "unknown": CALL.replace("weather", "whether"),
    "answer": "It is 9 degrees.",
    "thinks": "<think>So",
    "calls": f"{CALL}\n{CALL}",
}
IDS = {name: 1013 + i for i, name in enumerate(SCRIPTS)}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]
QUESTION = [{"role": "user", "content": "How is it in Z\u00fcrich?"}]


def make_scripted(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(Path(RECALL) / name, folder)
    tokenizer = json.loads((Path(RECALL) / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [
        {"id": IDS[name], "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": False} for name, text in SCRIPTS.items()]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("tools")) as c:
        c.start_workers(2)
        folder = make_scripted(tmp_path_factory.mktemp("model") / "scripted")
        c.load("scripted", folder, cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=1024, sessions=2)
        yield c


def chat(script, tokens=1, **fields):
    return {"messages": QUESTION, "temperature": 0, "max_tokens": tokens, "tools": TOOLS,
            "logit_bias": {str(IDS[script]): 100}, **fields}


def ask(cluster, *args, **fields):
    return post(cluster, "/v1/chat/completions", chat(*args, **fields))


def streamed(cluster, *args, **fields):
    """The message that the deltas of a stream make."""
    message = {"content": "", "reasoning_content": "", "tool_calls": []}
    for event in stream(cluster, "/v1/chat/completions", chat(*args, **fields, stream=True)):
        for choice in event["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls", ()):
                if piece["index"] == len(message["tool_calls"]):
                    assert piece["id"] and piece["type"] == "function"
                    message["tool_calls"].append([piece["function"]["name"], ""])
                message["tool_calls"][piece["index"]][1] += piece["function"]["arguments"]
            message["finish_reason"] = choice["finish_reason"]
    return message


def test_a_tool_loop(cluster):
    answer = ask(cluster, "call", tokens=8, parallel_tool_calls=False)
    assert answer["model"] == "scripted"
    (choice,) = answer["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == (None, "tool_calls")
    (call,) = message["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Z\u00fcrich", "days": 2}
    assert answer["usage"]["completion_tokens"] == 1  # The first call ended it.
    history = [*QUESTION, message, {"role": "tool", "tool_call_id": call["id"],
                                    "content": [{"type": "text", "text": "9 degrees"}]}]
    for tools in (TOOLS, None):
        answer = ask(cluster, "answer", messages=history, tools=tools)
        assert answer["choices"][0]["message"]["content"] == SCRIPTS["answer"]
    again = ask(cluster, "call", messages=history)
    assert again["choices"][0]["message"]["tool_calls"][0]["id"] != call["id"]


def test_a_stream_says_the_same(cluster):
    for script in SCRIPTS:
        whole = ask(cluster, script, tokens=2)["choices"][0]
        said = streamed(cluster, script, tokens=2)
        message = whole["message"]
        assert said["content"] == (message["content"] or "")
        assert said["reasoning_content"] == message.get("reasoning_content", "")
        assert said["tool_calls"] == [[c["function"]["name"], c["function"]["arguments"]]
                                      for c in message.get("tool_calls", ())]
        assert said["finish_reason"] == whole["finish_reason"] == "length"


def test_a_chunk_has_pieces_of_one_call_at_most(cluster):
    """There are clients that read no more of it."""
    deltas = [choice["delta"] for event in stream(cluster, "/v1/chat/completions", chat("calls", stream=True))
              for choice in event["choices"]]
    assert [[call["index"] for call in d.get("tool_calls", ())] for d in deltas] == [[0], [1], []]
    assert deltas[-1] == {}  # A text that is empty would be another answer than null.


def test_thoughts_are_apart_and_counted(cluster):
    answer = ask(cluster, "thinks", tokens=3, speculate="off")
    assert answer["choices"][0]["message"]["content"] is None
    assert answer["choices"][0]["message"]["reasoning_content"].startswith("So")
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    message = ask(cluster, "thought")["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm."
    assert message["content"] == "Let me look."
    assert len(message["tool_calls"]) == 1


def test_what_only_looks_like_a_call_is_text(cluster):
    for fields in ({"tools": TOOLS}, {"tools": None}):
        message = ask(cluster, "unknown", **fields)["choices"][0]["message"]
        assert message["content"] == SCRIPTS["unknown"] and "tool_calls" not in message
    for fields in ({"tool_choice": "none"}, {"tools": None, "tool_choice": "auto"}):
        message = ask(cluster, "call", **fields)["choices"][0]["message"]
        assert message["content"] == SCRIPTS["call"] and "tool_calls" not in message


def test_it_goes_together_with_logprobs_stop_and_usage(cluster):
    answer = ask(cluster, "call", logprobs=True, stop=["never"])
    assert len(answer["choices"][0]["logprobs"]["content"]) == 1
    assert len(answer["choices"][0]["message"]["tool_calls"]) == 1
    *chunks, last = stream(cluster, "/v1/chat/completions", chat(
        "call", tokens=3, stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True}))
    made = [c["usage"]["completion_tokens"] for c in chunks]
    assert made == sorted(made) and made[-1] == last["usage"]["completion_tokens"] == 3


NAMED = {"type": "function", "function": {"name": "ping"}}
BOUNDED = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Bern", "Z\u00fcrich"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"], "additionalProperties": False}}},
           {"type": "function", "function": {"name": "ping"}}]


def bounded(**fields):
    """A request that no script answers, and whose answers end."""
    return {"messages": QUESTION, "temperature": 1.5, "max_tokens": 400, "max_thinking_tokens": 0, "tools": BOUNDED,
            **fields}


def check_calls(calls):
    for call in calls:
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "ping":
            assert arguments == {}
        else:
            assert arguments["city"] in ("Bern", "Z\u00fcrich") and arguments["days"] in (1, 2, 3) and len(arguments) == 2


def test_an_answer_that_has_to_be_a_call_is_one(cluster):
    names = set()
    for seed in range(6):
        (choice,) = post(cluster, "/v1/chat/completions",
                         bounded(tool_choice="required", parallel_tool_calls=False, seed=seed))["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        check_calls([call])
        names.add(call["function"]["name"])
    assert names == {"weather", "ping"}
    many = post(cluster, "/v1/chat/completions", bounded(tool_choice="required", seed=3, stop=["Bern"]))["choices"][0]
    check_calls(many["message"]["tool_calls"])
    for stream_too in (False, True):
        body = bounded(tool_choice=NAMED, stream=stream_too)
        if stream_too:
            deltas = [c["delta"] for e in stream(cluster, "/v1/chat/completions", body) for c in e["choices"]]
            (name,) = [p["function"]["name"] for d in deltas for p in d.get("tool_calls", ()) if "name" in p["function"]]
        else:
            (call,) = post(cluster, "/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"]
            name = call["function"]["name"]
        assert name == "ping"


def test_a_strict_tool_holds_its_calls_where_the_model_decides(cluster):
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Bern"]}}, "required": ["city"]}}}]
    # What the script would call is not as the schema says, so that this token never comes.
    answer = ask(cluster, "call", tokens=4, tools=strict)["choices"][0]["message"]
    assert "tool_calls" not in answer
    assert ask(cluster, "answer", tools=strict)["choices"][0]["message"]["content"] == SCRIPTS["answer"]
    strict[0]["function"]["parameters"] = {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    (call,) = ask(cluster, "call", tokens=4, tools=strict, parallel_tool_calls=False)["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["days"] == 2


def test_stop_strings_look_at_the_text_before_a_strict_call_alone(cluster):
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]
    choice = ask(cluster, "call", tokens=4, tools=strict, parallel_tool_calls=False, stop=["}", '"', "city"])["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and json.loads(call["function"]["arguments"])["days"] == 2
    choice = ask(cluster, "call", tools=strict, stop=["tool"])["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == "<"
    choice = ask(cluster, "answer", tools=strict, stop=[" is"])["choices"][0]
    assert choice["finish_reason"] == "stop" and SCRIPTS["answer"].startswith(choice["message"]["content"] + " is")


def test_beside_a_constraint_the_answer_is_calls_or_keeps_to_it(cluster):
    held = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}
    seen = set()
    for seed in range(12):
        message = post(cluster, "/v1/chat/completions",
                       bounded(response_format=held, seed=seed))["choices"][0]["message"]
        check_calls(message.get("tool_calls", ()))
        seen.add(message["content"])
    assert seen <= {None, '"yes"', '"no"'} and len(seen) > 1, seen


def test_what_cannot_be_held_to_is_refused_by_name(cluster):
    unheld = [{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}}]
    for fields, code, param in (
            ({"tool_choice": "required", "tools": None}, "bad_field", "tool_choice"),
            ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "bad_field", "tool_choice"),
            ({"tool_choice": {"type": "custom"}}, "not_supported", "tool_choice.type"),
            ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "nobody"}]}},
             "bad_field", "tool_choice.tools"),
            ({"tool_choice": "required", "tools": unheld}, "schema_unsupported", None),
            ({"tools": [{"type": "function"}]}, "bad_field", "tools[0].function"),
            ({"max_thinking_tokens": 2 << 20}, "bad_field", "max_thinking_tokens")):
        status, _, answer = request(cluster, "POST", "/v1/chat/completions", chat("call", **fields))
        error = answer["error"]
        assert (status, error["code"], error["param"]) == (400, code, param), error


@pytest.mark.parametrize("budget", [0, 1, 6])
def test_a_budget_ends_the_thought_and_what_follows_is_held(cluster, budget):
    opened = [*QUESTION, {"role": "assistant", "content": "<think>"}]
    body = {"messages": opened, "continue_final_message": True, "temperature": 1, "seed": 3, "max_tokens": 60,
            "max_thinking_tokens": budget, "logit_bias": {str(id): -100 for id in IDS.values()}}
    for fields in ({}, {"guided_choice": ["yes", "no"]}, {"guided_json": {"type": "boolean"}}):
        answer = post(cluster, "/v1/chat/completions", body | fields)
        choice = answer["choices"][0]
        thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert budget <= thought <= budget + 10, answer  # And its end, which is several tokens.
        assert "</think>" not in choice["message"]["content"]
        if fields:
            assert choice["message"]["content"] in ("yes", "no", "true", "false"), answer
            assert choice["finish_reason"] == "stop"


def test_a_thought_of_an_answers_own_comes_before_what_is_held(cluster):
    body = {"messages": QUESTION, "temperature": 1, "max_tokens": 200, "guided_choice": ["yes", "no"], "max_thinking_tokens": 5}
    contents = set()
    for seed in range(8):
        choice = post(cluster, "/v1/chat/completions", body | {"seed": seed})["choices"][0]
        contents.add(choice["message"]["content"])
        assert choice["finish_reason"] == "stop"
    assert contents <= {"yes", "no"}


def test_a_missing_model_or_dummy_is_the_one_that_is_loaded(cluster):
    for model in (None, "dummy", "scripted"):
        assert ask(cluster, "answer", model=model)["model"] == "scripted"
    status, _, answer = request(cluster, "POST", "/v1/chat/completions", chat("answer", model="other"))
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


def test_an_answer_goes_on_with_the_last_message(cluster):
    messages = [*QUESTION, {"role": "assistant", "content": "I think that"}]
    tokens = {}
    for goes_on in (False, True):
        body = {"messages": messages, "add_generation_prompt": False, "continue_final_message": goes_on}
        tokens[goes_on] = post(cluster, "/tokenize", body)["tokens"]
    assert tokens[True] == tokens[False]  # The template writes nothing behind a content.
    assert ask(cluster, "answer", messages=messages, add_generation_prompt=False,
               continue_final_message=True)["choices"][0]["message"]["content"] == SCRIPTS["answer"]


def test_openais_client_has_its_loop(cluster):
    run(environment("openai", *OPENAI), CLIENTS / "openai_tool_checks.py", cluster.http, json.dumps(IDS))


def test_the_command_line_has_them(cluster, tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    said = cluster.json("chat", "scripted", "How is it?", "--tools", tools, "--temperature", "0",
                        "--max-tokens", "1", "--logit-bias", f"{IDS['thought']}:100")
    (call,) = said["tool_calls"]
    assert call["name"] == "weather" and json.loads(call["arguments"])["days"] == 2
    assert (said["thought"], said["text"]) == ("Hm.", "Let me look.")


def test_formats_are_chosen_at_load(cluster):
    with pytest.raises(Failed, match="hermes, mistral"):
        cluster.run("model", "load", "scripted", "--tool-format", "hermess")
