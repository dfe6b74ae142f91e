"""What GET /metrics says, as numbers."""

import collections
import contextlib
import http.client
import re

from cluster import GIVE_UP_S


def scrape_text(address):
    """(the text of the process at this address, its content type)"""
    connection = http.client.HTTPConnection(address, timeout=GIVE_UP_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text
        return text, response.headers["Content-Type"]


def scrape(address):
    """{(name, ((label, value), ...)): number}; fails on a line that is not of the format."""
    out = {}
    for line in scrape_text(address)[0].splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            continue
        if line.startswith("exposer_"):  # The library's own, of a worker.
            continue
        name, labels, value = re.fullmatch(r"([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)",
                                           line).groups()
        key = (name, tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels or ""))))
        assert key not in out, line
        out[key] = float(value)
    return out


def total(samples, name, **labels):
    found = [v for (n, ls), v in samples.items() if n == name and set(labels.items()) <= set(ls)]
    assert found, (name, labels)
    return sum(found)


def quantile(samples, name, share, **labels):
    """The end of the histogram's bucket below which `share` of its values lie."""
    buckets = collections.Counter()
    for (n, ls), v in samples.items():
        if n == f"{name}_bucket" and set(labels.items()) <= set(ls):
            buckets[float(dict(ls)["le"].replace("+Inf", "inf"))] += v
    most = buckets[float("inf")]
    return next((end for end in sorted(buckets) if buckets[end] >= share * most), None)
