"""What a fault cost, by the coordinator's log and by what clients saw; and the table of many."""

import csv
import datetime
import math
import re

COLUMNS = ("number", "kind", "where", "away_s", "sign_s", "verdict_s", "moved", "first_token_s", "all_tokens_s", "silence_s",
           "pause_s", "waiting", "tokens_again", "back_s", "lost", "wrong", "load_average")
# What says that the coordinator has noticed something.
SIGNS = re.compile(r"a node is lost|a node reports a fault|^fence |requests wait for")
MOVES = re.compile(r"the model moves to other nodes")
LINE = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) \w (.*)$")


def log_times(lines):
    """(when, what) of each line that has a time."""
    for line in lines:
        match = LINE.match(line)
        if match:
            when = datetime.datetime.fromisoformat(match.group(1)).replace(tzinfo=datetime.timezone.utc)
            yield when.timestamp(), match.group(2)


def silence(seen, begin, end):
    """(begin, end) of the longest time, between these, within which no client got a token; `seen`: what each one saw."""
    times = {when for one in seen for what, when, _ in one if what == "token"} | {begin, end}
    times = sorted(when for when in times if begin <= when <= end)
    return max(zip(times, times[1:]), key=lambda both: both[1] - both[0])


def longest_pause(one, begin, end):
    """The longest time that a client waited for a token, its request's first one included, that ended within."""
    pauses = [b[1] - a[1] for a, b in zip(one, one[1:]) if b[0] == "token" and begin <= b[1] <= end]
    return max(pauses, default=0.0)


def measure(log, seen, begin, end):
    """The row of a fault between `begin` and `end` (times of day), as {column: value}; None where nothing of the kind
    was. `log`: lines of the coordinator's."""
    quiet_from, quiet_to = silence(seen, begin, end)
    events = [(when, what) for when, what in log_times(log) if begin <= when <= end]
    signs = [when for when, what in events if SIGNS.search(what)]
    moves = [when for when, what in events if MOVES.search(what)]
    row = {"silence_s": quiet_to - quiet_from, "pause_s": max(longest_pause(one, begin, end) for one in seen),
           "moved": len(moves), "sign_s": signs[0] - begin if signs else None}
    verdict = moves[0] if moves else signs[0] if signs else None
    row["verdict_s"] = verdict - begin if verdict is not None else None
    row["first_token_s"] = row["all_tokens_s"] = None
    row["waiting"] = row["tokens_again"] = 0
    # Where nothing moved, a silence is of the fault only if it had begun.
    if verdict is not None and verdict < quiet_to < end and (moves or quiet_from <= verdict):
        row["first_token_s"] = quiet_to - verdict
        # Those with a request when the silence ended go on at different times.
        resumed = []
        for one in seen:
            before = [entry for entry in one if entry[1] < quiet_to]
            first = next((when for what, when, _ in one if what == "token" and when >= quiet_to), None)
            if before and first is not None:
                row["waiting"] += 1
                resumed.append(first)
                if moves:
                    row["tokens_again"] += before[-1][2]
        row["all_tokens_s"] = max(resumed) - verdict if resumed else None
    return row


def quantile(values, q):
    """The nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None


def text(value):
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def write(path, head, rows):
    with open(path, "w", newline="") as file:
        for key, value in head:
            file.write(f"# {key}: {value}\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for row in rows:
            out.writerow([text(row.get(column)) for column in COLUMNS])


def read(path):
    lines = [line for line in open(path, newline="") if not line.startswith("# ")]
    return list(csv.DictReader(lines))


def _numbers(rows, column):
    return [float(row[column]) for row in rows if row[column] not in ("", None)]


def _cells(values, digits=2):
    """Median and 95th percentile."""
    return " | ".join("" if not values else f"{quantile(values, q):.{digits}f}" for q in (0.5, 0.95))


def recovery(row):
    """Seconds from the verdict until all clients that waited had a token; from the end of a fault of the coordinator's own, if
    that is later, since nothing can be recovered before."""
    verdict = float(row["verdict_s"])
    begin = max(verdict, float(row["away_s"])) if row["kind"].startswith("coordinator") else verdict
    return verdict + float(row["all_tokens_s"]) - begin


def table(rows):
    """Lines of Markdown of rows as read() gives them. Verdict and recovery are of faults for which the model moved: of
    the others a recovery is the fault's own end."""
    yield ("| kind | faults | model moved | verdict, s | p95 | all clients go on, s later | p95 | longest pause of a client, s | p95 "
           "| tokens computed again | requests lost |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    kinds = sorted({row["kind"] for row in rows})
    for kind, chosen in [*((kind, [row for row in rows if row["kind"] == kind]) for kind in kinds), ("**all**", rows)]:
        moved = [row for row in chosen if int(row["moved"]) > 0]
        resumed = [recovery(row) for row in moved if row["all_tokens_s"] not in ("", None)]
        yield (f"| {kind} | {len(chosen)} | {len(moved)} | {_cells(_numbers(moved, 'verdict_s'))} "
               f"| {_cells(resumed)} | {_cells(_numbers(chosen, 'pause_s'), 1)} "
               f"| {sum(int(row['tokens_again'] or 0) for row in chosen):,} "
               f"| {sum(int(row['lost']) + int(row['wrong']) for row in chosen)} |")
