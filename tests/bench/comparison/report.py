"""What a run found out: as one document, and as text with a table."""
import contextlib
import dataclasses
import os
import pathlib

from .targets import rows_of

# In /proc/cpuinfo: what engines multiply with.
CPU_FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "neon", "asimd", "asimddp")


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown(head, lines):
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    out = [head, ["-" * width for width in widths], *lines]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        for line in out)


def table(rows):
    lines = []
    for r in rows:
        share = r["against"].startswith("read bandwidth")
        as_text = (lambda x: f"{100 * x:.0f} %") if share else (lambda x: f"{x:.2f}")
        lines.append([r["what"], str(r["threads"]), number(r["strata"]), r["against"],
                      number(r["theirs"]), "" if r["ratio"] is None else as_text(r["ratio"]),
                      "" if r["target"] is None else "≥ " + as_text(r["target"]),
                      {None: "", True: "met", False: "missed"}[r["met"]]])
    return markdown(["tokens/s", "threads", "Strata", "against", "theirs", "ratio", "target", ""],
                    lines)


def cpu(path="/proc/cpuinfo"):
    """The first core's name, and which of CPU_FLAGS it has."""
    fields = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", fields.get("Features", "")).split()
    return (fields.get("model name", os.uname().machine),
            [flag for flag in CPU_FLAGS if flag in flags])


def report(document):
    machine = document["machine"]
    flags = ", ".join(machine["cpu_flags"])
    text = [f"{machine['cpu']}, {machine['cores']} usable cores{flags and ' with ' + flags}; "
            f"Strata's instruction set: {machine['isa'] or 'not known'}; "
            f"shape {document['shape']}; medians of {document['rounds']} rounds, of speeds and of "
            "each round's ratios", "",
            table(document["rows"]), "",
            "Commits: " + ", ".join(f"{who} {commit or 'not known (name it with --commit)'}"
                                    for who, commit in document["commits"].items())]
    for who, settings in document["built"].items():
        if settings:
            text += ["", f"Built with: {who}: {settings}"]
    if document["left_out"]:
        text += ["", "Left out:"] + [f"- {line}" for line in document["left_out"]]
    text += ["", "Command lines:"]
    seen = set()
    for one in document["commands"]:
        line = f"- {one['who']}: {one['command']}"
        if line not in seen:
            text.append(line)
        seen.add(line)
    return "\n".join(text)


def document_of(peers, results, arguments):
    name, flags = cpu()
    return {
        "machine": {"cpu": name, "cpu_flags": flags, "cores": len(os.sched_getaffinity(0)),
                    "isa": results.isa},
        "shape": peers.shape["shape"], "rounds": arguments.rounds, "commits": results.commits,
        "built": results.built,
        "left_out": results.left_out + [
            f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, sorted(rounds)))}: {error}"
            for error, rounds in results.failures.items()],
        "rows": rows_of(results, arguments.threads, arguments.prompt, arguments.context),
        "commands": [{"title": title, "who": who, "command": command}
                     for (title, who), command in results.commands.items()],
        "samples": [{**dataclasses.asdict(key), "rounds": [number for number, _ in samples],
                     "values": [value for _, value in samples]}
                    for key, samples in results.samples.items()]}
