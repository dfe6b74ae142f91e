#!/usr/bin/env python3
"""How long a server takes to refuse what it cannot serve, as a client sees it.

    refusals.py HOST:PORT MODEL        # until its input ends; then a line of JSON

Twice a second it sends a request that can never fit, and takes the time from its last byte to the
first byte of the answer: with what the server's own clock does not see, the request's wait in the
socket and for the thread that reads it. Small and alone in its process, so that little of that time
is its own; on a machine without a free core some is all the same.
"""
import http.client
import json
import select
import socket
import sys
import time

PAUSE_S = 0.5
PROMPT = [(7 * i) % 900 for i in range(750)]  # The mean of load.py's.


def message(model):
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 10**6}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)) + body


def ask(connection, asked):
    """(seconds, status) of one refusal."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(asked[:-1])
    time.sleep(0.01)  # The rest is read: it is the last byte that is waited for.
    begin = time.perf_counter()
    connection.sendall(asked[-1:])
    select.select([connection], [], [])
    took = time.perf_counter() - begin
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return took, response.status


def main(address, model):
    host, port = address.rsplit(":", 1)
    asked = message(model)
    seconds, wrong = [], []
    while True:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                break
            took, status = ask(connection, asked)
        seconds.append(took)
        if status != 400:
            wrong.append(status)
    print(json.dumps({"seconds": seconds, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
