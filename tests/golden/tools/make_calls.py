#!/usr/bin/env python3
"""Has published chat templates write answers with thoughts and tool calls: what a model of that family was trained to write.

    pip install transformers==5.24.0 jinja2==3.1.6
    git clone https://github.com/ikawrakow/ik_llama.cpp
    python make_calls.py ik_llama.cpp/models/templates
    python make_calls.py llama.cpp/models/templates google-gemma-4-31B-it.jinja    # These alone anew; ggml-org/llama.cpp has them.

Each answer is the end of a conversation that a template renders: what it adds to the same conversation's prompt. What was thought,
said and called is known, since the conversation was made here; so are the tools. Writes calls.jsonl beside this script, a line an answer:
{"source", "format", "marks", "prompt_end", "answer", "thought", "content", "calls": [{"name", "arguments"}]}.
`marks` is the markup that the template has, by which a format is chosen; `format` is what the list FORMATS below says of the family, from
its documentation. The templates themselves are not kept.
"""
import copy
import itertools
import json
import re
import sys
from pathlib import Path

from transformers.utils import chat_template_utils

# What writes which format, from the models' own documentation. (tools, thoughts); None: nothing of the kind.
FORMATS = {
    "Apriel-1.6-15b-Thinker-fixed.jinja": (None, None),
    "ByteDance-Seed-OSS.jinja": ("seed_oss", "seed"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja": ("command_r7b", "cohere"),
    "GLM-4.6.jinja": ("glm45", "think"),
    "GLM-4.7-Flash.jinja": ("glm45", "think"),
    "HuggingFaceTB-SmolLM3-3B.jinja": (None, "think"),
    "Kimi-K2-Instruct.jinja": ("kimi_k2", None),
    "Kimi-K2-Thinking.jinja": ("kimi_k2", "think"),
    "MiroThinker.jinja": (None, "think"),
    "Mistral-Small-3.2-24B-Instruct-2506.jinja": ("mistral", None),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja": ("qwen3_coder", "think"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja": ("hermes", None),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja": ("hermes", None),
    "Qwen-QwQ-32B.jinja": ("hermes", "think"),
    "Qwen-Qwen2.5-7B-Instruct.jinja": ("hermes", None),
    "Qwen-Qwen3-0.6B.jinja": ("hermes", "think"),
    "Qwen3-Coder.jinja": ("qwen3_coder", None),
    "Qwen3.5-4B.jinja": ("qwen3_coder", "think"),
    "StepFun3.5-Flash.jinja": ("qwen3_coder", "think"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja": ("deepseek_v3", "think"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja": ("deepseek_v3", "think"),
    "deepseek-ai-DeepSeek-V3.1.jinja": ("deepseek_v31", "think"),
    "deepseek-ai-DeepSeek-V3.2.jinja": ("deepseek_v32", "think"),
    "google-gemma-4-31B-it.jinja": ("gemma4", "gemma4"),
    "llama-cpp-deepseek-r1.jinja": ("deepseek_v3", "think"),
    "meta-llama-Llama-3.1-8B-Instruct.jinja": ("llama3_json", None),
    "meta-llama-Llama-3.2-3B-Instruct.jinja": ("llama3_json", None),
    "meta-llama-Llama-3.3-70B-Instruct.jinja": ("llama3_json", None),
    "mistralai-Ministral-3-14B-Reasoning-2512.jinja": ("mistral", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407.jinja": ("mistral", None),
    "openai-gpt-oss-120b.jinja": ("harmony", "harmony"),
    "stepfun-ai-Step-3.5-Flash.jinja": ("qwen3_coder", "think"),
    "unsloth-mistral-Devstral-Small-2507.jinja": ("mistral", None),
}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city.",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Its name."}, "days": {"type": "integer"},
            "units": {"type": "string", "enum": ["C", "F"]}, "exact": {"type": "boolean"},
            "places": {"type": "array", "items": {"type": "string"}}}}}},
    {"type": "function", "function": {
        "name": "search-web.2", "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {
            "query": {"type": "string"}, "options": {"type": "object"}, "limit": {"type": "number"}}}}},
    {"type": "function", "function": {"name": "now", "description": "The time.",
                                      "parameters": {"type": "object", "properties": {}}}},
]

THOUGHT = "The user asks for <b>two</b> things.\n\nBoth need {a tool}."
CONTENT = "Let me look that up, \u00e9mile."
WEATHER = ("get_weather", {"city": "Z\u00fcrich \"West\"\nno. 7 <&> {x} </param>", "days": 3, "units": "C", "exact": True,
                           "places": ["a", "b, c"]})
SEARCH = ("search-web.2", {"query": "007", "options": {"deep": {"er": [1, 2.5, None]}}, "limit": -1.5})
NOW = ("now", {})

ANSWERS = [
    ("", "", [WEATHER]), ("", "", [NOW]), (THOUGHT, "", [SEARCH]), ("", CONTENT, [WEATHER, SEARCH]),
    (THOUGHT, CONTENT, [NOW, WEATHER, SEARCH]), (THOUGHT, CONTENT, []), ("", CONTENT, []),
]


def render(template, messages, prompt, variables):
    return template.render(messages=copy.deepcopy(messages), tools=copy.deepcopy(TOOLS), documents=None,
                           add_generation_prompt=prompt, bos_token="<BOS>", eos_token="<EOS>", **variables)


def messages_of(thought, content, calls, as_text, without_content, kimi):
    message = {"role": "assistant", "content": None if without_content else content}
    if thought:
        message.update(reasoning_content=thought, thinking=thought)
    if calls:
        message["tool_calls"] = [
            {"type": "function", "id": f"functions.{name}:{i}" if kimi else f"call{i:05}", "function": {
                "name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments}}
            for i, (name, arguments) in enumerate(calls)]
    return [{"role": "user", "content": "Well?"}, message]


def answers(name, source):
    template = chat_template_utils._compile_jinja_template(source)
    tools, thoughts = FORMATS[name]
    marks = sorted(set(re.findall(r"<[^<>\s{}']{1,60}>|<[a-z_]+=|\[/?[A-Z_]{3,}\]|```json|\"parameters\"", source)))
    for thought, content, calls in ANSWERS:
        if (calls and not tools) or (thought and not thoughts):
            continue
        for variables in ({}, {"enable_thinking": False, "thinking": False}) if thoughts and not thought else ({},):
            if tools == "gemma4":  # Else the prompt has a thought of nothing.
                variables = {**variables, "enable_thinking": True}
            for as_text, without_content in itertools.product((False, True), (False, True)):
                if not calls and (as_text or without_content) or content and without_content:
                    continue
                try:
                    messages = messages_of(thought, content, calls, as_text, without_content, tools == "kimi_k2")
                    prompt = render(template, messages[:1], True, variables)
                    whole = render(template, messages, False, variables)
                except Exception:  # It wants the arguments the other way, or no two calls, ...
                    continue
                # Some open a thought for the answer, and leave thoughts out of what was said before.
                if not whole.startswith(prompt) and not thought:
                    prompt = prompt.rstrip("\n").removesuffix("<think>")
                if not whole.startswith(prompt):
                    continue
                answer = whole[len(prompt):]
                if answer.startswith("</think>"):
                    continue  # The end of a thought that no prompt opened so.
                if any(n not in answer for n, _ in calls) or content not in answer or thought not in answer or any(t in answer for t in ("{'", "['", '"{\\"', json.dumps("{}"))):
                    continue  # It leaves something out, or does not write arguments as JSON.
                yield {"source": name, "format": tools, "reasoning": thoughts, "marks": marks,
                       "prompt_end": prompt[-40:], "answer": answer, "thought": thought, "content": content,
                       "calls": [{"name": n, "arguments": dict(sorted(a.items())) if tools == "gemma4" else a} for n, a in calls]}  # It sorts them.
                break


def main():
    folder = Path(sys.argv[1])
    here = Path(__file__).parent
    (here / "offered.json").write_text(json.dumps(TOOLS, indent=1) + "\n")
    anew = sys.argv[2:] or sorted(FORMATS)
    kept = [] if not sys.argv[2:] else [json.loads(line) for line in (here / "calls.jsonl").read_text().splitlines()]
    lines = [answer for answer in kept if answer["source"] not in anew]
    for name in anew:
        made = list(answers(name, (folder / name).read_text()))
        print(f"{name}: {len(made)}")
        lines += made
    with open(here / "calls.jsonl", "w") as out:
        for answer in sorted(lines, key=lambda answer: answer["source"]):
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
