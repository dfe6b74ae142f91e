"""One completion over as many connections as it takes: what was delivered, what of a new message
is new, and whether a call that ended is to be made again. Does no I/O: both clients drive it."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Iterable

import grpc

from strata._connection import CallEnd, Connection
from strata._wire import token_logprob
from strata.errors import StrataError, cancelled_error, deadline_error, make_error
from strata.types import Generation, NumericsChange, Piece, TokenLogprob, ToolCall, ToolCallPiece
from strata.v1 import inference_pb2, types_pb2

_RETRY_PAUSE_S = 0.2


class Answer:
    def __init__(self, connection: Connection, wire: inference_pb2.GenerateRequest,
                 timeout: float | None, resume_timeout: float) -> None:
        self.wire = wire
        self.result = Generation(request_id=wire.request_id)
        self.finished = False
        self._connection = connection
        self._resume_timeout = resume_timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._last_progress = time.monotonic()
        self._ever_started = False
        self._replaying = False
        self._logits_rows = 0  # Delivered.
        self._calls_done: set[int] = set()  # Likewise.
        self._reset_attempt()

    def _reset_attempt(self) -> None:
        """What this sending of the request has brought, so that a replay knows what was delivered
        before."""
        self._tokens = 0
        self._text = 0
        self._thought = 0
        self._arguments: list[int] = []  # Characters, by call.
        self._logprobs = 0
        self._prompt_logprobs = 0
        self._rows = 0

    def begin_attempt(self) -> float | None:
        """The timeout of the call to make now, in seconds."""
        self._reset_attempt()
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise deadline_error()
        return left

    def pause_before_replay(self) -> float:
        """Seconds to wait between end_attempt() and begin_attempt()."""
        if self._deadline is None:
            return _RETRY_PAUSE_S
        return max(0.0, min(_RETRY_PAUSE_S, self._deadline - time.monotonic()))

    def end_attempt(self, end: CallEnd | None, cancelled: bool) -> bool:
        """The call ended, `end` is None if well. True: make it again after a pause. False: the
        answer is complete. Raises what ends the stream."""
        if self.finished:
            return False  # Whatever became of the connection after the last message.
        if cancelled:
            raise cancelled_error()
        if end is None:
            raise make_error(grpc.StatusCode.INTERNAL, "ANSWER_INCOMPLETE",
                             "the coordinator ended the answer without saying why",
                             request_id=self.wire.request_id)
        if end.never_connected and not self._replaying:
            raise self._connection.error(end)
        if end.never_connected and self.result.replays > 0:
            self.result.replays -= 1  # It was not sent.
        # A coordinator that has just come back needs a while until its workers have joined.
        not_yet = self._replaying and end.code is grpc.StatusCode.UNAVAILABLE
        if self._resume_timeout <= 0 or not (end.connection_lost or not_yet):
            raise self._connection.error(end)
        if time.monotonic() + _RETRY_PAUSE_S >= self._last_progress + self._resume_timeout:
            raise self._connection.error(end) if end.detail else self._connection.lost(end)
        # Without a first message nothing was delivered, and any seed will do.
        self.wire.replace = True
        if self._ever_started:
            self.wire.sampling.seed = self.result.seed
            self.wire.max_tokens = self.result.max_tokens
        self._replaying = True
        self.result.replays += 1
        return True

    def take(self, response: inference_pb2.GenerateResponse) -> Piece | None:
        """What of `response` is new; None if nothing is. AbortedError on a difference."""
        piece = Piece()
        if response.HasField("started"):
            self._take_started(response)
        self._take_tokens(response, piece)
        piece.text, self._text = self._take_text(response.text, self.result.text, self._text)
        self.result.text += piece.text
        piece.thought, self._thought = self._take_text(response.thought, self.result.thought,
                                                       self._thought)
        self.result.thought += piece.thought
        for call in response.tool_calls:
            self._take_call(call, piece)
        if response.HasField("logits"):
            self._take_logits(response.logits, piece)
        if response.HasField("finish"):
            self._take_finish(response.finish)
        if not (piece.token_ids or piece.text or piece.thought or piece.tool_calls
                or piece.prompt_logprobs or piece.logits):
            return None
        self._last_progress = time.monotonic()
        return piece

    def _take_started(self, response: inference_pb2.GenerateResponse) -> None:
        started, result = response.started, self.result
        if self._ever_started and started.numerics_class != result.numerics_class:
            raise self._diverged(f"the model now runs as {started.numerics_class}, it was "
                                 f"{result.numerics_class}")
        if self._ever_started and (started.seed, started.prompt_tokens) != (
                result.seed, result.prompt_tokens):
            raise self._diverged("seed or prompt length changed")
        self._ever_started = True
        if response.request_id:
            result.request_id = self.wire.request_id = response.request_id
        result.seed = started.seed
        result.numerics_class = started.numerics_class
        result.plan_epoch = started.plan_epoch
        result.prompt_tokens = started.prompt_tokens
        result.max_tokens = started.max_tokens

    def _take_tokens(self, response: inference_pb2.GenerateResponse, piece: Piece) -> None:
        delivered = self.result.token_ids
        if response.numerics_class and self._tokens >= len(delivered):
            self.result.numerics_changes.append(
                NumericsChange(self._tokens, response.numerics_class))
        for token in response.token_ids:
            if self._tokens == len(delivered):
                delivered.append(token)
                piece.token_ids.append(token)
            elif delivered[self._tokens] != token:
                raise self._diverged(f"token {self._tokens} is {token}, it was "
                                     f"{delivered[self._tokens]}")
            self._tokens += 1
        self._logprobs = self._take_logprobs(response.logprobs, self._logprobs,
                                             self.result.logprobs, piece.logprobs)
        self._prompt_logprobs = self._take_logprobs(
            response.prompt_logprobs, self._prompt_logprobs, self.result.prompt_logprobs,
            piece.prompt_logprobs)

    def _take_logprobs(self, wire: Iterable[types_pb2.TokenLogprob], seen: int,
                       delivered: list[TokenLogprob], piece: list[TokenLogprob]) -> int:
        """Skips what `delivered` holds from entry `seen` on; gives what was seen then."""
        for entry in wire:
            if seen == len(delivered):
                delivered.append(token_logprob(entry))
                piece.append(delivered[-1])
            # Bit for bit: the same numerics class gives the same values.
            elif (delivered[seen].token_id, delivered[seen].logprob) != (entry.token_id,
                                                                         entry.logprob):
                raise self._diverged("log-probabilities differ")
            seen += 1
        return seen

    def _take_text(self, text: str, delivered: str, seen: int) -> tuple[str, int]:
        """What of `text` is new, and how much was seen then; `delivered` holds what was before."""
        known = min(len(text), len(delivered) - seen)
        if delivered[seen:seen + known] != text[:known]:
            raise self._diverged("the text differs")
        return text[known:], seen + len(text)

    def _take_call(self, wire: inference_pb2.ToolCallPiece, piece: Piece) -> None:
        calls = self.result.tool_calls
        fresh = ToolCallPiece(wire.index)
        if wire.index == len(calls):
            fresh.id, fresh.name = wire.id, wire.name
            calls.append(ToolCall(wire.id, wire.name, ""))
        call = calls[wire.index]
        if wire.id and (wire.id, wire.name) != (call.id, call.name):
            raise self._diverged("a call of a tool differs")
        while len(self._arguments) <= wire.index:
            self._arguments.append(0)
        fresh.arguments, self._arguments[wire.index] = self._take_text(
            wire.arguments, call.arguments, self._arguments[wire.index])
        calls[wire.index] = ToolCall(call.id, call.name, call.arguments + fresh.arguments)
        fresh.done = wire.done and wire.index not in self._calls_done
        if wire.done:
            self._calls_done.add(wire.index)
        if fresh.id or fresh.arguments or fresh.done:
            piece.tool_calls.append(fresh)

    def _take_logits(self, rows: types_pb2.FloatRows, piece: Piece) -> None:
        if len(rows.values) != rows.rows * rows.columns * 4 or (
                self.result.logits_columns not in (0, rows.columns)):
            raise make_error(grpc.StatusCode.INTERNAL, "BAD_LOGITS",
                             "the coordinator sent logits whose size is not rows x columns",
                             request_id=self.wire.request_id)
        self.result.logits_columns = piece.logits_columns = rows.columns
        known = min(rows.rows, self._logits_rows - self._rows)
        piece.logits = array("f", rows.values[known * rows.columns * 4:])
        if sys.byteorder == "big":
            piece.logits.byteswap()
        self._rows += rows.rows
        self._logits_rows += rows.rows - known

    def _take_finish(self, finish: inference_pb2.Finish) -> None:
        result = self.result
        arguments = self._arguments + [0] * (len(result.tool_calls) - len(self._arguments))
        if self._tokens < len(result.token_ids) or (
                self._text < len(result.text) or self._thought < len(result.thought)) or any(
                    seen < len(call.arguments)
                    for seen, call in zip(arguments, result.tool_calls)):
            raise self._diverged("it is shorter than what was delivered")
        self.finished = True
        result.finish_reason = finish.reason
        result.prompt_tokens = finish.prompt_tokens
        result.cached_tokens = finish.cached_tokens
        result.reasoning_tokens = finish.reasoning_tokens
        result.drafted_tokens = finish.drafted_tokens
        result.accepted_tokens = finish.accepted_tokens
        result.queue_ms = finish.queue_ms
        result.ttft_ms = finish.ttft_ms
        result.total_ms = finish.total_ms

    def _diverged(self, what: str) -> StrataError:
        return make_error(grpc.StatusCode.ABORTED, "REPLAY_DIVERGED",
                          f"after a lost connection the answer could not be resumed: {what}",
                          request_id=self.wire.request_id, hint="send the request again")
