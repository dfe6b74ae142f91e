"""What goes into the calls and comes out of them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from typing_extensions import TypedDict


@dataclass(frozen=True)
class ToolCall:
    """What an assistant called."""

    id: str
    name: str
    arguments: str  # A JSON object, as text.


@dataclass(frozen=True)
class ChatMessage:
    role: str  # "system", "user", "assistant", "tool".
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # An assistant's.
    tool_call_id: str = ""  # A tool's: what its content is the result of.
    thought: str = ""  # An assistant's, before its content.


# Text, token ids, or a conversation that the model's chat template makes a prompt of.
Prompt = Union[str, Sequence[int], Sequence[ChatMessage]]


class GenerateOptions(TypedDict, total=False):
    """How to answer. Sampling that is not given: the model's generation_config, then temperature 1
    and no filters. None is the same as not given."""

    max_tokens: int | None  # Not given: 512, capped by what is left of the context.
    # Rows that replace the embeddings of prompt tokens, by position in the prompt: as many floats
    # each as the model's hidden size, at most 3.5 MiB in all.
    input_embeddings: Mapping[int, Sequence[float]] | None
    # No end token and no stop string ends the answer before it has so many tokens.
    min_tokens: int | None
    temperature: float | None  # >= 0; 0 is greedy.
    top_k: int | None  # 0 is off.
    top_p: float | None  # [0, 1]
    min_p: float | None  # [0, 1]
    typical_p: float | None  # (0, 1]
    repetition_penalty: float | None  # > 0
    frequency_penalty: float | None  # [-2, 2]
    presence_penalty: float | None  # [-2, 2]
    logit_bias: Mapping[int, float] | None  # By token id.
    seed: int | None  # Drawn and reported when not given.
    stop: Sequence[str] | None  # At most 16; not part of the answer.
    ignore_eos: bool
    # What the answer is held to, one of these: it ends where that is complete, and only max_tokens
    # cuts it.
    json_schema: Mapping[str, Any] | bool | str | None  # Of draft 2020-12; a str is its text.
    json_object: bool  # Any object of JSON.
    regex: str | None  # ECMA-262; the whole text matches it.
    choices: Sequence[str] | None  # One of these texts.
    grammar: str | None  # A text of the rule `root` of this EBNF.
    strict: bool  # Of json_schema: objects with `properties` have no others.
    logprobs: int | None  # Most probable alternatives reported for each token, 0..100.
    prompt_logprobs: int | None
    return_logits: bool  # Raw logits of every position but the last generated one.
    request_id: str  # 1..128 printable ASCII characters; not given: the library makes one.
    replace: bool  # Cancel a running request of the same id and take its place.
    # Higher ones are admitted first, and take KV memory that they come to need from lower ones.
    # Any whole number of 32 bits; not given: 0.
    priority: int | None
    # Of conversations: what the model may call, as OpenAI's API has it.
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | None  # "auto", "none", "required", or "tool" with tool_name.
    tool_name: str | None
    thought_budget_tokens: int | None  # Tokens of a thought, behind which its end is forced.
    one_tool_call: bool  # The answer ends with its first call.
    template_arguments: Mapping[str, Any] | None  # More variables for the chat template.
    continue_final_message: bool  # The answer goes on with the last message.
    guaranteed: bool  # Start only with KV memory for prompt + max_tokens; never preempted.
    # What drafts tokens, which changes none: "auto", "off" or "lookup"; not given: as the model was
    # loaded.
    speculate: str
    # Seconds for the whole call, replays included; past it the call ends with
    # DeadlineExceededError, and the request is released on every worker. Not given: no limit.
    timeout: float | None


@dataclass(frozen=True)
class TokenLogprob:
    """Natural logarithms of the raw logits' softmax."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), descending.


def _no_logits() -> array[float]:
    return array("f")


@dataclass
class ToolCallPiece:
    """A part of one call, in order."""

    index: int  # Of the call in the answer.
    id: str = ""  # In the first piece of a call, and so is the name.
    name: str = ""
    arguments: str = ""  # More of its JSON.
    done: bool = False  # The arguments are a whole JSON object.


@dataclass
class Piece:
    """What arrives at a time."""

    token_ids: list[int] = field(default_factory=list)
    # Never half a character, never a stop string. May lag behind token_ids.
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)  # Of token_ids, when asked for.
    # Of the prompt's tokens from the second on.
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    # float32 [rows, logits_columns], when asked for; numpy.asarray() takes it as it is.
    logits: array[float] = field(default_factory=_no_logits)
    logits_columns: int = 0
    # Of answers to conversations: what the model thinks, which is no part of text, and its calls.
    thought: str = ""
    tool_calls: list[ToolCallPiece] = field(default_factory=list)


@dataclass(frozen=True)
class NumericsChange:
    token: int  # Of token_ids: the first one that is computed so.
    numerics_class: str


@dataclass
class Generation:
    request_id: str = ""
    text: str = ""
    thought: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    # "stop", "tool_calls", "length" or "cancelled"; empty before the end.
    finish_reason: str = ""
    reasoning_tokens: int = 0  # Of token_ids, what was thought.
    drafted_tokens: int = 0  # That were drafted and computed,
    accepted_tokens: int = 0  # and those of them that the answer has.
    prompt_tokens: int = 0
    cached_tokens: int = 0  # Prompt tokens taken from the prefix cache.
    max_tokens: int = 0  # After defaults and caps.
    seed: int = 0  # The one used.
    numerics_class: str = ""
    # Classes in which the answer went on: the model had moved to nodes that compute otherwise.
    numerics_changes: list[NumericsChange] = field(default_factory=list)
    plan_epoch: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    logits: array[float] = field(default_factory=_no_logits)  # Only in what generate() gives.
    logits_columns: int = 0
    # As the coordinator measured them.
    queue_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    replays: int = 0  # Times that the request was sent again after a lost connection.


@dataclass(frozen=True)
class TokenizedPrompt:
    ids: list[int]
    prompt: str  # What the chat template made, for a conversation.


@dataclass(frozen=True)
class Node:
    name: str
    state: str  # "ready", "loading", "serving", "draining", "unreachable", "lost".
    address: str
    memory_bytes: int
    used_bytes: int
    backend: str
    isa: str
    threads: int
    version: str
    platform: str
    models: tuple[str, ...]  # With layers here: "NAME layers a-b".


@dataclass(frozen=True)
class Model:
    name: str
    state: str  # "registered", "loading", "ready", "waiting", "failed".
    family: str
    digest: str  # SHA-256 of the weights, hex.
    path: str
    weight_bytes: int
    layers: int
    hidden_size: int
    vocab_size: int
    context: int  # The model's own limit, tokens.
    dtype: str
    has_tokenizer: bool
    has_chat_template: bool
    problem: str  # Why state is "waiting" or "failed".


@dataclass(frozen=True)
class Session:
    request_id: str
    model: str
    state: str  # "queued", "prefill", "decode", "replaying", "paused", "preempted".
    prompt_tokens: int
    generated_tokens: int
    max_tokens: int
    age_ms: float
    key: str = ""  # The id of the API key that sent it; "": none did.
    key_name: str = ""
    drafted_tokens: int = 0  # That were drafted and computed,
    accepted_tokens: int = 0  # and those of them that the answer has.


@dataclass(frozen=True)
class KvUse:
    """Pages of 16 tokens of one stage and KV group."""

    model: str
    stage: int
    group: str
    total: int
    free: int
    live: int
    cached: int
    fenced: int


@dataclass(frozen=True)
class Problem:
    what: str
    do: str  # The command or action that mends it.


@dataclass(frozen=True)
class ClusterStatus:
    version: str
    uptime_s: float
    http_address: str
    nodes: list[Node]
    models: list[Model]
    sessions: list[Session]
    kv: list[KvUse]
    problems: list[Problem]
