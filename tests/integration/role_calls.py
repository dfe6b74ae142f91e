"""Makes each call with each role's certificate; runs where grpcio is, as the Python SDK has it.

    role_calls.py < {"folders": {role: folder for --tls-dir}, "calls": [[address, service, method, takes a stream, gives one]]}

Prints {role: [whether the call was refused for the role, ...]}.
"""

import json
import pathlib
import sys

import grpc

# The first message of a stream that is judged by it: LinkPart with an empty LinkOpen.
FIRST = {"/strata.v1.ShardService/Link": b"\x0a\x00"}


def refused(channel, service, method, takes, gives):
    path = f"/strata.v1.{service}/{method}"
    kind = {(False, False): channel.unary_unary, (False, True): channel.unary_stream,
            (True, False): channel.stream_unary, (True, True): channel.stream_stream}[takes, gives]
    message = FIRST.get(path, b"")
    try:
        answer = kind(path)(iter([message]) if takes else message, timeout=60)
        if gives:
            next(iter(answer), None)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            raise
        detail = b"".join(value if isinstance(value, bytes) else value.encode()
                          for _, value in error.trailing_metadata() or ())
        return error.code() == grpc.StatusCode.PERMISSION_DENIED and b"ROLE_MAY_NOT" in detail
    return False


def main():
    wanted = json.load(sys.stdin)
    results = {}
    for role, folder in wanted["folders"].items():
        ca, cert, key = ((pathlib.Path(folder) / name).read_bytes() for name in ("ca.pem", "cert.pem", "key.pem"))
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        results[role] = []
        for address, *call in wanted["calls"]:
            with grpc.secure_channel(address, credentials) as channel:
                results[role].append(refused(channel, *call))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
