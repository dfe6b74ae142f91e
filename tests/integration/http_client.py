"""A plain HTTP client for tests: whole answers, server-sent events, and connections that end."""

import http.client
import json

from cluster import GIVE_UP_S


def connect(cluster):
    return http.client.HTTPConnection(cluster.http, timeout=GIVE_UP_S)


def request(cluster, method, path, body=None, headers=None):
    """(status, headers, parsed JSON)."""
    connection = connect(cluster)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read()
        return response.status, response.headers, json.loads(text) if text else None
    finally:
        connection.close()


def post(cluster, path, body, **headers):
    """The parsed JSON of a 200. `headers` with _ for -."""
    status, _, answer = request(cluster, "POST", path, body,
                                {k.replace("_", "-"): v for k, v in headers.items()})
    assert status == 200, answer
    return answer


def begin(cluster, path, body, **headers):
    """(connection, response) of a stream that has begun."""
    connection = connect(cluster)
    connection.request("POST", path, json.dumps(body),
                       {k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["Content-Type"] == "text/event-stream"
    return connection, response


def events(response):
    """The data of each event, as text; comments are left out."""
    for line in response:
        line = line.decode().rstrip("\n")
        if line and not line.startswith(":"):
            assert line.startswith("data:"), line
            yield line[len("data:"):].strip()


def stream(cluster, path, body, **headers):
    """Every event of a stream, parsed; without [DONE], which OpenAI's routes end with."""
    connection, response = begin(cluster, path, body, **headers)
    try:
        all_of_it = list(events(response))
    finally:
        connection.close()
    if path.startswith("/v1/"):
        assert all_of_it.pop() == "[DONE]"
    return [json.loads(event) for event in all_of_it]
