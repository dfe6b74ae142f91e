"""The client library of Strata.

    import strata

    with strata.Client("127.0.0.1:7070") as client:
        answer = client.generate("recall", "What is the capital of France?", max_tokens=20)
        print(answer.text)

Every failure is a `StrataError`: `str()` gives one line for people, `reason` the stable word that
programs switch on. A completion whose connection is lost goes on by itself: the request is sent
again with the same id and seed, and what was already delivered is checked and dropped.
"""

from strata.aio import AsyncClient, AsyncGenerateStream
from strata.client import Client, GenerateStream
from strata.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from strata.types import (
    ChatMessage,
    ClusterStatus,
    GenerateOptions,
    Generation,
    KvUse,
    Model,
    Node,
    NumericsChange,
    Piece,
    Problem,
    Prompt,
    Session,
    TokenizedPrompt,
    ToolCall,
    ToolCallPiece,
    TokenLogprob,
)

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "AsyncClient",
    "AsyncGenerateStream",
    "CancelledError",
    "ChatMessage",
    "Client",
    "ClusterStatus",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "GenerateOptions",
    "GenerateStream",
    "Generation",
    "InternalError",
    "InvalidArgumentError",
    "KvUse",
    "Model",
    "Node",
    "NotFoundError",
    "NumericsChange",
    "PermissionDeniedError",
    "Piece",
    "Problem",
    "Prompt",
    "ResourceExhaustedError",
    "Session",
    "StrataError",
    "TokenLogprob",
    "TokenizedPrompt",
    "ToolCall",
    "ToolCallPiece",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]
