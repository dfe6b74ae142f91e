"""The library's plain types <-> the messages on the wire."""

from __future__ import annotations

import json
import secrets
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from strata.types import (
    ChatMessage,
    ClusterStatus,
    GenerateOptions,
    KvUse,
    Model,
    Node,
    Problem,
    Prompt,
    Session,
    TokenLogprob,
)
from strata.v1 import admin_pb2, inference_pb2, types_pb2

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
             "frequency_penalty", "presence_penalty", "seed")
_OTHERS = ("max_tokens", "min_tokens", "ignore_eos", "logprobs", "prompt_logprobs",
           "return_logits", "request_id", "replace", "priority", "guaranteed", "speculate")

_CHAT = ("tool_choice", "tool_name", "one_tool_call", "continue_final_message",
         "thought_budget_tokens")
_HELD = ("json_schema", "json_object", "regex", "choices", "grammar")


def make_request_id() -> str:
    return f"sdk-{secrets.token_hex(12)}"


def chat_input(messages: Sequence[ChatMessage]) -> inference_pb2.ChatInput:
    wire = inference_pb2.ChatInput()
    for m in messages:
        message = wire.messages.add(role=m.role, content=m.content,
                                    without_content=bool(m.tool_calls) and not m.content)
        for call in m.tool_calls:
            message.tool_calls.add(id=call.id, name=call.name, arguments=call.arguments)
        if m.tool_call_id:
            message.tool_call_id = m.tool_call_id
        if m.thought:
            message.reasoning_content = m.thought
    return wire


def is_chat(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], ChatMessage)


def conversation(message: str | Sequence[ChatMessage], system: str | None) -> list[ChatMessage]:
    """What `chat` sends."""
    before = [] if system is None else [ChatMessage("system", system)]
    if isinstance(message, str):
        return [*before, ChatMessage("user", message)]
    return [*before, *message]


def constraint(given: dict[str, Any], wire: inference_pb2.GenerateRequest) -> None:
    """Takes what an answer is held to out of `given`."""
    held = {name: given.pop(name) for name in _HELD if name in given}
    held = {name: value for name, value in held.items() if value is not False or name == "json_schema"}
    strict = given.pop("strict", False)
    if len(held) > 1:
        raise TypeError(f"an answer is held to one of {', '.join(held)}")
    if strict and "json_schema" not in held:
        raise TypeError("strict is for json_schema")
    for name, value in held.items():
        if name == "json_schema":
            schema = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            wire.constraint.json_schema = schema
            wire.constraint.strict = strict
        elif name == "choices":
            if isinstance(value, str):
                raise TypeError("choices is a list of strings, not one string")
            wire.constraint.choices.texts.extend(value)
        else:
            setattr(wire.constraint, name, value)


def generate_request(model: str, prompt: Prompt,
                     options: GenerateOptions) -> inference_pb2.GenerateRequest:
    """TypeError for an option that does not exist or has the wrong type; ValueError for a number
    that the message cannot hold."""
    wire = inference_pb2.GenerateRequest(model=model)
    if isinstance(prompt, str):
        wire.text = prompt
    elif is_chat(prompt):
        wire.chat.CopyFrom(chat_input(prompt))  # type: ignore[arg-type]
    else:
        wire.tokens.SetInParent()
        wire.tokens.ids.extend(prompt)  # type: ignore[arg-type]
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    given.pop("timeout", None)
    stop = given.pop("stop", ())
    if isinstance(stop, str):
        raise TypeError("stop is a list of strings, not one string")
    wire.stop.extend(stop)
    bias: Mapping[int, float] = given.pop("logit_bias", {})
    for token, value in bias.items():
        wire.sampling.logit_bias[token] = value
    rows: Mapping[int, Sequence[float]] = given.pop("input_embeddings", {})
    for position in sorted(rows):
        values = array("f", rows[position])
        if sys.byteorder == "big":
            values.byteswap()
        wire.input_embeddings.add(position=position, values=values.tobytes())
    constraint(given, wire)
    tools = given.pop("tools", ())
    arguments = given.pop("template_arguments", {})
    chat = {name: given.pop(name) for name in _CHAT if name in given}
    if is_chat(prompt):
        wire.chat.tools.extend(json.dumps(tool, ensure_ascii=False) for tool in tools)
        if arguments:
            wire.chat.template_arguments = json.dumps(arguments, ensure_ascii=False)
        for name, value in chat.items():
            setattr(wire.chat, name, value)
    elif tools or arguments or chat:
        raise TypeError("tools and what chat templates read are for conversations")
    for name, value in given.items():
        if name in _SAMPLING:
            setattr(wire.sampling, name, value)
        elif name in _OTHERS:
            setattr(wire, name, value)
        else:
            raise TypeError(f"there is no option {name!r}; see strata.GenerateOptions")
    if not wire.request_id:
        wire.request_id = make_request_id()
    return wire


def tokenize_request(model: str, text: str | Sequence[ChatMessage],
                     add_special_tokens: bool) -> inference_pb2.TokenizeRequest:
    wire = inference_pb2.TokenizeRequest(model=model, add_special_tokens=add_special_tokens)
    if isinstance(text, str):
        wire.text = text
    else:
        wire.chat.CopyFrom(chat_input(text))
    return wire


def token_logprob(wire: types_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(wire.token_id, wire.logprob,
                        tuple((top.token_id, top.logprob) for top in wire.top))


def node(wire: admin_pb2.Node) -> Node:
    return Node(name=wire.name, state=wire.state, address=wire.address,
                memory_bytes=wire.memory_bytes, used_bytes=wire.used_bytes, backend=wire.backend,
                isa=wire.isa, threads=wire.threads, version=wire.version, platform=wire.platform,
                models=tuple(wire.models))


def model(wire: admin_pb2.Model) -> Model:
    return Model(name=wire.name, state=wire.state, family=wire.family, digest=wire.digest,
                 path=wire.path, weight_bytes=wire.weight_bytes, layers=wire.layers,
                 hidden_size=wire.hidden_size, vocab_size=wire.vocab_size, context=wire.context,
                 dtype=wire.dtype, has_tokenizer=wire.has_tokenizer,
                 has_chat_template=wire.has_chat_template, problem=wire.problem)


def session(wire: admin_pb2.Session) -> Session:
    return Session(request_id=wire.request_id, model=wire.model, state=wire.state,
                   prompt_tokens=wire.prompt_tokens, generated_tokens=wire.generated_tokens,
                   max_tokens=wire.max_tokens, age_ms=wire.age_ms, key=wire.key,
                   key_name=wire.key_name, drafted_tokens=wire.drafted_tokens,
                   accepted_tokens=wire.accepted_tokens)


def cluster_status(wire: admin_pb2.GetStatusResponse) -> ClusterStatus:
    return ClusterStatus(
        version=wire.version, uptime_s=wire.uptime_s, http_address=wire.http_address,
        nodes=[node(n) for n in wire.nodes], models=[model(m) for m in wire.models],
        sessions=[session(s) for s in wire.sessions],
        kv=[KvUse(model=k.model, stage=k.stage, group=k.group, total=k.total, free=k.free,
                  live=k.live, cached=k.cached, fenced=k.fenced) for k in wire.kv],
        problems=[Problem(what=p.what, do=p.do) for p in wire.problems])
