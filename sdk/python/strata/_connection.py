"""How a coordinator is reached, and what a failed call says. Shared by both clients."""

from __future__ import annotations

import ipaddress
import os
import pathlib
import re
from dataclasses import dataclass
from typing import Any

import grpc

from strata._tls import TlsFiles
from strata.errors import StrataError, cancelled_error, deadline_error, make_error
from strata.v1 import types_pb2

DEFAULT_COORDINATOR = "127.0.0.1:7070"
UNARY_TIMEOUT_S = 60.0
_MAX_MESSAGE_BYTES = 4 << 20  # As everywhere in Strata.

# What gRPC says of a connection that could not be made, and what it means.
_NEVER_CONNECTED = ("failed to connect to all addresses", "DNS resolution failed",
                    "errors resolving", "address lookup failed")
_CAUSES = (
    ("Connection refused", "connection refused"),
    ("DNS resolution failed", "the name does not resolve"),
    ("errors resolving", "the name does not resolve"),
    ("address lookup failed", "the name does not resolve"),
    ("before receiving SETTINGS", "it takes the connection but says nothing"),
    ("handshaker shutdown", "it takes the connection but says nothing"),
    ("Failed parsing HTTP/2", "what listens there speaks no gRPC"),
    ("http1.x", "what listens there speaks no gRPC"),
    ("Connection timed out", "connection timed out"),
    ("Timeout occurred", "connection timed out"),
    ("Network is unreachable", "the network is unreachable"),
    ("No route to host", "no route to the host"),
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not yet valid, or a clock is wrong"),
    ("ertificate verify failed", "its certificate is not of the CA in tls_dir"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not of the CA in tls_dir"),
    ("is not in peer certificate", "its certificate does not have this address"),
    ("Peer name", "its certificate does not have this address"),
    ("ostname Verification", "its certificate does not have this address"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("wrong version number", "it does not speak TLS"),
    ("andshake read failed", "it does not speak TLS, or ended the handshake"),
    ("Socket closed", "it closes the connection"),
    ("Connection reset", "it closes the connection"),
)


def _cause(message: str) -> str:
    for mark, cause in _CAUSES:
        if mark in message:
            return cause
    return message.rpartition("last error: ")[2]


def _detail_in(code: grpc.StatusCode, text: str) -> bytes:
    """The ErrorDetail that a text has which names a reason: of a coordinator that refused the
    certificate of an open connection. Else empty."""
    said = re.fullmatch(r"([^\n]*)\nreason: ([A-Z0-9_]{1,64})(?:\nhint: ([^\n]*))?", text)
    if not said:
        return b""
    return types_pb2.ErrorDetail(code=code.value[0], message=said[1], reason=said[2],
                                 hint=said[3] or "").SerializeToString()


@dataclass(frozen=True)
class CallEnd:
    """How a call failed, as gRPC tells it."""

    code: grpc.StatusCode
    message: str
    detail: bytes  # A strata.v1.ErrorDetail; empty: not the coordinator's answer.

    @staticmethod
    def of(error: Any) -> CallEnd:
        """From the exception of a failed call, of either kind of channel."""
        detail = b""
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                detail = value
        detail = detail or _detail_in(error.code(), error.details() or "")
        return CallEnd(error.code(), error.details() or "", detail)

    @property
    def never_connected(self) -> bool:
        """The request was not sent."""
        return (not self.detail and self.code is grpc.StatusCode.UNAVAILABLE
                and any(mark in self.message for mark in _NEVER_CONNECTED))

    @property
    def connection_lost(self) -> bool:
        # A server that is shut down ends its calls with CANCELLED.
        return not self.detail and self.code in (grpc.StatusCode.UNAVAILABLE,
                                                 grpc.StatusCode.CANCELLED)


class Connection:
    """Where the coordinator is and who is trusted; checked when made, used by each channel."""

    def __init__(self, coordinator: str | None, tls_dir: str | os.PathLike[str] | None,
                 api_key: str | None, connect_timeout: float) -> None:
        self.coordinator = (coordinator or os.environ.get("STRATA_COORDINATOR")
                            or DEFAULT_COORDINATOR)
        self.target = f"dns:///{_checked(self.coordinator)}"
        key = api_key if api_key is not None else os.environ.get("STRATA_API_KEY", "")
        self.metadata = (("authorization", f"Bearer {key}"),) if key else ()
        folder = tls_dir if tls_dir is not None else os.environ.get("STRATA_TLS_DIR", "")
        self.tls = TlsFiles(pathlib.Path(folder)) if str(folder) else None
        self.credentials = self.tls.credentials() if self.tls else None
        self.options = _channel_options(int(connect_timeout * 1000))

    def error(self, end: CallEnd) -> StrataError:
        """Untyped failures of the transport get a reason and a hint."""
        detail = types_pb2.ErrorDetail()
        if end.detail and _parses(detail, end.detail) and detail.code == end.code.value[0]:
            return make_error(end.code, detail.reason, detail.message, node=detail.node,
                              limit=detail.limit, hint=detail.hint, request_id=detail.request_id,
                              facts=detail.facts)
        if end.never_connected:
            return self._unreachable(end.message)
        if end.code is grpc.StatusCode.CANCELLED:
            return cancelled_error()
        if end.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return deadline_error()
        if end.code is grpc.StatusCode.UNAVAILABLE:
            return self.lost(end)
        if end.code is grpc.StatusCode.UNIMPLEMENTED:
            return make_error(
                end.code, "UNKNOWN_CALL",
                f"what listens at {self.coordinator} does not know this call",
                hint="give the address of a strata-coordinator of this version")
        return make_error(end.code, end.code.name, end.message)

    def lost(self, end: CallEnd) -> StrataError:
        if end.never_connected:
            return self._unreachable(end.message)
        return make_error(
            grpc.StatusCode.UNAVAILABLE, "CONNECTION_LOST",
            f"lost the connection to the coordinator at {self.coordinator} "
            f"({_cause(end.message)})", hint="see whether it still runs, then try again")

    def _unreachable(self, message: str) -> StrataError:
        cause = _cause(message)
        hint = ("start strata-coordinator there, or give the right address (HOST:PORT) to the "
                "client or in STRATA_COORDINATOR")
        if self.tls is None and cause == "it closes the connection":
            cause += "; does it want tls_dir?"
        elif self.tls is not None and any(word in cause for word in ("certificate", "closes",
                                                                     "handshake")):
            cause, hint = self.tls.why_not(self.coordinator, cause)
        return make_error(
            grpc.StatusCode.UNAVAILABLE, "COORDINATOR_UNREACHABLE",
            f"no coordinator answers at {self.coordinator} ({cause})", hint=hint)


def _parses(detail: types_pb2.ErrorDetail, data: bytes) -> bool:
    try:
        detail.ParseFromString(data)
    except Exception:  # protobuf's DecodeError is not in its stubs everywhere.
        return False
    return True


def _channel_options(connect_ms: int) -> list[tuple[str, int]]:
    """As Strata's own channels: a connection of its own, keepalive pings, no retries, no proxy."""
    return [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # Despite its name what an attempt has to connect and shake hands.
        ("grpc.min_reconnect_backoff_ms", max(connect_ms, 1)),
        ("grpc.dns_ares_query_timeout", max(connect_ms, 1)),
    ]


def _checked(address: str) -> str:
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    good = (colon and port.isascii() and port.isdigit() and 0 < int(port) <= 65535
            and 0 < len(bare) <= 253 and (bare != host) == (":" in bare)
            and not any(c <= " " or c in "/?#@\\\x7f" for c in bare))
    if good and ":" in bare:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError:
            good = False
    if not good:
        raise make_error(
            grpc.StatusCode.INVALID_ARGUMENT, "BAD_ADDRESS", f'"{address}" is no address',
            hint="write HOST:PORT, for example 192.168.1.10:7070 or [::1]:7070")
    return address
