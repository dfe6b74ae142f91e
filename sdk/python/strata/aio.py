"""The asyncio client: Client with awaits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
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


class AsyncGenerateStream(AsyncIterator[Piece]):
    """One completion as it is made: GenerateStream for `async for` and `async with`.

    The request is sent when the iteration begins, or `async with` does. Cancelling the task that
    iterates cancels the request.
    """

    def __init__(self, client: AsyncClient, answer: Answer) -> None:
        self._client = client
        self._answer = answer
        self._cancelled = False
        self._done = False
        self._call: Any = None
        self._messages: Any = None
        self._failure: StrataError | None = None

    @property
    def result(self) -> Generation:
        """Everything so far, without logits. What was delivered before an error stays in it."""
        return self._answer.result

    def cancel(self) -> None:
        """The iteration ends with strata.CancelledError, unless the answer is complete. Called on
        the loop's own thread."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> Self:
        if self._call is None:
            self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        call = getattr(self, "_call", None)
        if call is not None and not call.done():
            with contextlib.suppress(RuntimeError):  # The loop has ended, and the call with it.
                call.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        if self._failure is not None:
            raise self._failure
        while not self._done:
            try:
                piece = await self._next()
            except StrataError as error:
                self._failure = error
                self.cancel()
                raise
            if piece is not None:
                return piece
        raise StopAsyncIteration

    async def _next(self) -> Piece | None:
        if self._call is None:
            self._open()
        end = None
        try:
            return self._answer.take(await self._messages.__anext__())
        except StopAsyncIteration:
            pass
        except grpc.aio.AioRpcError as error:
            end = CallEnd.of(error)
        except asyncio.CancelledError:
            if not self._cancelled and not self._client.closed:
                raise  # The task's.
            self._cancelled = True
        self._call = None
        if not self._answer.end_attempt(end, self._cancelled):
            self._done = True
            return None
        await asyncio.sleep(self._answer.pause_before_replay())
        return None

    def _open(self) -> None:
        timeout = self._answer.begin_attempt()
        if self._cancelled or self._client.closed:
            raise cancelled_error()
        connection, stub = self._client._connected()
        self._call = stub.Generate(self._answer.wire, timeout=timeout,
                                   metadata=connection.metadata)
        self._messages = self._call.__aiter__()


class AsyncClient:
    """A connection to one coordinator, for one event loop; the parameters are Client's. Made
    anywhere, used on one loop, closed by `async with` or close()."""

    def __init__(self, coordinator: str | None = None, *,
                 tls_dir: str | os.PathLike[str] | None = None, api_key: str | None = None,
                 connect_timeout: float = 1.5, resume_timeout: float = 30.0) -> None:
        self._connection = Connection(coordinator, tls_dir, api_key, connect_timeout)
        self._resume_timeout = resume_timeout
        self.closed = False
        self._channel: grpc.aio.Channel | None = None
        self._inference: Any = None
        self._admin: Any = None

    def _connected(self) -> tuple[Connection, Any]:
        """The channel belongs to the loop that runs when it is made."""
        if self._channel is None:
            where, options = self._connection.target, self._connection.options
            self._channel = (
                grpc.aio.insecure_channel(where, options=options)
                if self._connection.credentials is None else
                grpc.aio.secure_channel(where, self._connection.credentials, options=options))
            self._inference = inference_pb2_grpc.InferenceServiceStub(self._channel)
            self._admin = admin_pb2_grpc.AdminServiceStub(self._channel)
        return self._connection, self._inference

    async def close(self) -> None:
        """Ends the calls that still run."""
        self.closed = True
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    # --- Completions ---

    def stream(self, model: str, prompt: Prompt,
               **options: Unpack[GenerateOptions]) -> AsyncGenerateStream:
        """The answer's pieces as they are made: `async for piece in client.stream(...)`."""
        wire = _wire.generate_request(model, prompt, options)
        answer = Answer(self._connection, wire, options.get("timeout"), self._resume_timeout)
        return AsyncGenerateStream(self, answer)

    async def generate(self, model: str, prompt: Prompt,
                       **options: Unpack[GenerateOptions]) -> Generation:
        """The whole answer."""
        logits = array("f")
        async with self.stream(model, prompt, **options) as stream:
            async for piece in stream:
                logits.extend(piece.logits)
            stream.result.logits = logits
            return stream.result

    async def chat(self, model: str, message: str | Sequence[ChatMessage], *,
                   system: str | None = None, **options: Unpack[GenerateOptions]) -> Generation:
        """The answer to a message, or to the last one of a conversation. stream() and generate()
        take a conversation too."""
        return await self.generate(model, _wire.conversation(message, system), **options)

    async def tokenize(self, model: str, text: str | Sequence[ChatMessage], *,
                       add_special_tokens: bool = True,
                       timeout: float | None = None) -> TokenizedPrompt:
        """The ids of a text, or of what the chat template makes of a conversation."""
        wire = _wire.tokenize_request(model, text, add_special_tokens)
        response = await self._call("_inference", "Tokenize", wire, timeout)
        return TokenizedPrompt(list(response.ids), response.prompt)

    async def detokenize(self, model: str, ids: Sequence[int], *, skip_special_tokens: bool = True,
                         timeout: float | None = None) -> str:
        wire = inference_pb2.DetokenizeRequest(model=model, ids=ids,
                                               skip_special_tokens=skip_special_tokens)
        return str((await self._call("_inference", "Detokenize", wire, timeout)).text)

    # --- The cluster ---

    async def status(self, *, timeout: float | None = None) -> ClusterStatus:
        """Nodes, models, requests in flight, KV use, and what is wrong."""
        request = admin_pb2.GetStatusRequest()
        return _wire.cluster_status(await self._call("_admin", "GetStatus", request, timeout))

    async def nodes(self, *, timeout: float | None = None) -> list[Node]:
        request = admin_pb2.ListNodesRequest()
        response = await self._call("_admin", "ListNodes", request, timeout)
        return [_wire.node(n) for n in response.nodes]

    async def models(self, *, timeout: float | None = None) -> list[Model]:
        request = admin_pb2.ListModelsRequest()
        response = await self._call("_admin", "ListModels", request, timeout)
        return [_wire.model(m) for m in response.models]

    async def model(self, name: str, *, timeout: float | None = None) -> Model:
        request = admin_pb2.GetModelRequest(name=name)
        return _wire.model(await self._call("_admin", "GetModel", request, timeout))

    async def sessions(self, *, timeout: float | None = None) -> list[Session]:
        """The requests in flight; with an API key that is no admin key, its own."""
        request = admin_pb2.ListSessionsRequest()
        response = await self._call("_admin", "ListSessions", request, timeout)
        return [_wire.session(s) for s in response.sessions]

    async def cancel(self, request_id: str, *, key: str | None = None,
                     timeout: float | None = None) -> None:
        """Ends a request in flight; its answer's finish_reason is "cancelled". With an API key that
        is no admin key, one of its own; else that of the key whose id is `key`, where several have
        one of this id ("": sent without a key).
        """
        request = admin_pb2.CancelSessionRequest(request_id=request_id, key=key)
        await self._call("_admin", "CancelSession", request, timeout)

    async def _call(self, service: str, method: str, request: Any, timeout: float | None) -> Any:
        if self.closed:
            raise cancelled_error()
        self._connected()
        call: Callable[..., Any] = getattr(getattr(self, service), method)
        try:
            return await call(request, timeout=UNARY_TIMEOUT_S if timeout is None else timeout,
                              metadata=self._connection.metadata)
        except grpc.aio.AioRpcError as error:
            raise self._connection.error(CallEnd.of(error)) from None
