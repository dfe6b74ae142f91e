"""The synchronous client."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
from typing_extensions import Self, Unpack

from strata import _wire
from strata._answer import Answer
from strata._connection import UNARY_TIMEOUT_S, CallEnd, Connection
from strata.errors import StrataError, cancelled_error
from strata.types import (
    ChatMessage,
    ClusterStatus,
    GenerateOptions,
    Generation,
    Model,
    Node,
    Piece,
    Prompt,
    Session,
    TokenizedPrompt,
)
from strata.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

_T = TypeVar("_T")


class GenerateStream(Iterator[Piece]):
    """One completion as it is made. Iterated by one thread; cancel() by any.

    Leaving it cancels the request on every worker: by `with`, close(), or when nothing refers to
    it any more.

    When the connection is lost, the request is sent again (same id with `replace`, the seed and
    max_tokens that were reported), for up to the client's resume_timeout since the last new token.
    The pieces go on where they stopped. AbortedError, reason REPLAY_DIVERGED, if the new answer
    does not begin with what was delivered, or has another numerics class.
    """

    def __init__(self, stub: inference_pb2_grpc.InferenceServiceStub, connection: Connection,
                 answer: Answer) -> None:
        self._stub = stub
        self._connection = connection
        self._answer = answer
        self._cancelled = threading.Event()
        self._lock = threading.Lock()  # Of _call, against cancel().
        self._call: Any = None
        self._failure: StrataError | None = None
        self._open()

    @property
    def result(self) -> Generation:
        """Everything so far, without logits. What was delivered before an error stays in it."""
        return self._answer.result

    def cancel(self) -> None:
        """The iteration ends with CancelledError, unless the answer is complete."""
        self._cancelled.set()
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    close = cancel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_call", None) is not None:
            self._call.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        if self._failure is not None:
            raise self._failure
        while not self._answer.finished or self._call is not None:
            try:
                piece = self._next()
            except StrataError as error:
                self._failure = error
                self.cancel()
                raise
            if piece is not None:
                return piece
        raise StopIteration

    def _next(self) -> Piece | None:
        end = None
        try:
            return self._answer.take(next(self._call))
        except StopIteration:
            pass
        except grpc.RpcError as error:
            end = CallEnd.of(error)
        again = self._answer.end_attempt(end, self._cancelled.is_set())
        self._call = None
        if again:
            self._cancelled.wait(self._answer.pause_before_replay())
            self._open()
        return None

    def _open(self) -> None:
        timeout = self._answer.begin_attempt()
        with self._lock:
            if self._cancelled.is_set():
                raise cancelled_error()
            try:
                self._call = self._stub.Generate(self._answer.wire, timeout=timeout,
                                                 metadata=self._connection.metadata)
            except ValueError:  # The client was closed.
                raise cancelled_error() from None


class Client:
    """A connection to one coordinator, made at the first call and again when needed. Any thread.

    coordinator      HOST:PORT; else STRATA_COORDINATOR, else 127.0.0.1:7070
    tls_dir          folder with ca.pem, cert.pem and key.pem; else STRATA_TLS_DIR, else plain text
    api_key          sent with every call; else STRATA_API_KEY, else none
    connect_timeout  a coordinator that cannot be reached for this many seconds is an error
    resume_timeout   seconds that a completion tries to go on after a lost connection; 0: not at all

    Every call but stream(), generate() and chat() ends after 60 s unless `timeout` says otherwise.
    """

    def __init__(self, coordinator: str | None = None, *,
                 tls_dir: str | os.PathLike[str] | None = None, api_key: str | None = None,
                 connect_timeout: float = 1.5, resume_timeout: float = 30.0) -> None:
        self._connection = Connection(coordinator, tls_dir, api_key, connect_timeout)
        self._resume_timeout = resume_timeout
        self._channel = (
            grpc.insecure_channel(self._connection.target, options=self._connection.options)
            if self._connection.credentials is None else
            grpc.secure_channel(self._connection.target, self._connection.credentials,
                                options=self._connection.options))
        self._inference = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._admin = admin_pb2_grpc.AdminServiceStub(self._channel)

    def close(self) -> None:
        """Ends the calls that still run."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    # --- Completions ---

    def stream(self, model: str, prompt: Prompt,
               **options: Unpack[GenerateOptions]) -> GenerateStream:
        """Sends the request and gives the answer's pieces as they are made."""
        wire = _wire.generate_request(model, prompt, options)
        answer = Answer(self._connection, wire, options.get("timeout"), self._resume_timeout)
        return GenerateStream(self._inference, self._connection, answer)

    def generate(self, model: str, prompt: Prompt,
                 **options: Unpack[GenerateOptions]) -> Generation:
        """The whole answer."""
        logits = array("f")
        with self.stream(model, prompt, **options) as stream:
            for piece in stream:
                logits.extend(piece.logits)
            stream.result.logits = logits
            return stream.result

    def chat(self, model: str, message: str | Sequence[ChatMessage], *, system: str | None = None,
             **options: Unpack[GenerateOptions]) -> Generation:
        """The answer to a message, or to the last one of a conversation. stream() and generate()
        take a conversation too."""
        return self.generate(model, _wire.conversation(message, system), **options)

    def tokenize(self, model: str, text: str | Sequence[ChatMessage], *,
                 add_special_tokens: bool = True, timeout: float | None = None) -> TokenizedPrompt:
        """The ids of a text, or of what the chat template makes of a conversation."""
        wire = _wire.tokenize_request(model, text, add_special_tokens)
        response = self._call(self._inference.Tokenize, wire, timeout)
        return TokenizedPrompt(list(response.ids), response.prompt)

    def detokenize(self, model: str, ids: Sequence[int], *, skip_special_tokens: bool = True,
                   timeout: float | None = None) -> str:
        wire = inference_pb2.DetokenizeRequest(model=model, ids=ids,
                                               skip_special_tokens=skip_special_tokens)
        return str(self._call(self._inference.Detokenize, wire, timeout).text)

    # --- The cluster ---

    def status(self, *, timeout: float | None = None) -> ClusterStatus:
        """Nodes, models, requests in flight, KV use, and what is wrong."""
        return _wire.cluster_status(
            self._call(self._admin.GetStatus, admin_pb2.GetStatusRequest(), timeout))

    def nodes(self, *, timeout: float | None = None) -> list[Node]:
        response = self._call(self._admin.ListNodes, admin_pb2.ListNodesRequest(), timeout)
        return [_wire.node(n) for n in response.nodes]

    def models(self, *, timeout: float | None = None) -> list[Model]:
        response = self._call(self._admin.ListModels, admin_pb2.ListModelsRequest(), timeout)
        return [_wire.model(m) for m in response.models]

    def model(self, name: str, *, timeout: float | None = None) -> Model:
        return _wire.model(
            self._call(self._admin.GetModel, admin_pb2.GetModelRequest(name=name), timeout))

    def sessions(self, *, timeout: float | None = None) -> list[Session]:
        """The requests in flight; with an API key that is no admin key, its own."""
        response = self._call(self._admin.ListSessions, admin_pb2.ListSessionsRequest(), timeout)
        return [_wire.session(s) for s in response.sessions]

    def cancel(self, request_id: str, *, key: str | None = None,
               timeout: float | None = None) -> None:
        """Ends a request in flight; its answer's finish_reason is "cancelled". With an API key that
        is no admin key, one of its own; else that of the key whose id is `key`, where several have
        one of this id ("": sent without a key).
        """
        self._call(self._admin.CancelSession,
                   admin_pb2.CancelSessionRequest(request_id=request_id, key=key), timeout)

    def _call(self, method: Callable[..., _T], request: Any, timeout: float | None) -> Any:
        try:
            return method(request, timeout=UNARY_TIMEOUT_S if timeout is None else timeout,
                          metadata=self._connection.metadata)
        except grpc.RpcError as error:
            raise self._connection.error(CallEnd.of(error)) from None
        except ValueError:  # The client was closed.
            raise cancelled_error() from None
