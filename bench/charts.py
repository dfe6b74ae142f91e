#!/usr/bin/env python3
"""Draws the charts of docs/PERFORMANCE.md from the data files of bench/results, and lists those files in their
README.

charts.py           writes what has changed
charts.py --check   says what is not as the data files have it, and fails
"""

import pathlib
import sys
from html import escape

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import results  # noqa: E402
from results import number  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent
CHARTS = ROOT / "docs/charts"
COLORS = ("#2f6db5", "#c8862a", "#5a9e5f", "#8c6bb1")
BAR = 18
LABELS = 190
WIDTH = 760
MACHINES = {"Zen 4": "2026-11-24-peers-zen4", "Zen 5": "2026-11-28-peers-zen5", "Xeon with AMX": "2026-11-27-peers-amx"}


def bars(title, unit, series, groups, source, line=None):
    """Horizontal bars as SVG. series: names; groups: (label, a value or None for each series). `line`: (value, what
    it means), drawn through all of them."""
    top = 60
    scale = (WIDTH - LABELS - 70) / max(v for _, values in groups for v in values if v is not None)
    parts = [f'<text x="10" y="22" font-size="16" font-weight="bold">{escape(title)}</text>']
    x = 10
    for name, color in zip(series, COLORS):
        parts.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{color}"/>'
                     f'<text x="{x + 17}" y="45">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    y = top
    for label, values in groups:
        parts.append(f'<text x="{LABELS - 8}" y="{y + BAR * len(values) / 2 + 4:.0f}" text-anchor="end">'
                     f"{escape(label)}</text>")
        for value, color in zip(values, COLORS):
            if value is not None:
                parts.append(f'<rect x="{LABELS}" y="{y}" width="{value * scale:.1f}" height="{BAR - 3}" '
                             f'fill="{color}"/><text x="{LABELS + value * scale + 5:.1f}" y="{y + 12}">'
                             f"{value:g}{escape(unit)}</text>")
            y += BAR
        y += 10
    if line:
        at = LABELS + line[0] * scale
        parts.append(f'<path d="M{at:.1f} {top - 4}V{y - 6}" stroke="#444" stroke-dasharray="4 3"/>'
                     f'<text x="{at + 4:.1f}" y="{y + 4}">{escape(line[1])}</text>')
        y += 10
    for name in source:
        data = results.read(name).meta
        y += 16
        parts.append(f'<text x="10" y="{y}" fill="#666">{escape(name)}.csv: {escape(data.get("machine", "?"))}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" font-family="sans-serif" '
            f'font-size="12" fill="#222"><rect width="{WIDTH}" height="{y + 12}" fill="#fff"/>'
            + "\n".join(parts) + "</svg>\n")


def against(machine, row, engine, column="ratio"):
    """A cell of a table of other engines, of one thread."""
    data = results.read(MACHINES[machine])
    rows = [r for r in data.rows if r[0] == row and r[1] in ("1", "") and r[3].startswith(engine)]
    return number(rows[0][data.head.index(column)]) if rows else None


def peers(title, what, engines, line):
    groups = []
    for machine in MACHINES:
        for weights in ("int8", "int4"):
            groups.append((f"{machine}, {weights}", [against(machine, f"{weights} {what}", e) for e in engines]))
    return bars(title, "x", engines, groups, list(MACHINES.values()), line)


def prompts():
    return peers("Prompts of 512 tokens, one thread: Strata's speed over another engine's", "prompt of 512",
                 ("llama.cpp", "ik_llama.cpp"), (1, "as fast"))


def generation():
    return peers("Generation, one thread: Strata's speed over another engine's", "generation",
                 ("llama.cpp", "ik_llama.cpp"), (1, "as fast"))


def bandwidth():
    groups = [(machine, [against(machine, f"{w} generation", "read bandwidth") for w in ("int8", "int4", "bf16")])
              for machine in MACHINES]
    return bars("Generation, one thread: share of the memory's read bandwidth", " %", ("int8", "int4", "bf16"), groups,
                list(MACHINES.values()), (100, "all of it"))


def clients():
    name = "2026-11-25-clients-amx"
    data = results.read(name)
    ours, theirs = data.rows[0][1:], data.rows[1][1:]
    groups = [(f"{n} clients" if n != "1" else "1 client", [number(a), number(b)])
              for n, a, b in zip(data.head[1:], ours, theirs)]
    return bars("Two workers of one thread, prompts of 32 and answers of 64: tokens a second", "",
                ("Strata", "llama-server over RPC"), groups, [name])


def hop():
    name = "2026-11-22-hop"
    groups = [(f"{row[0]} stage" + ("s" if row[0] != "1" else ""), [number(row[2])]) for row in results.read(name).rows]
    return bars("What a hop between processes of one machine takes, the best of four runs", " us", ("a hop",), groups, [name])


def codes():
    name = "2026-11-28-codes"
    data = results.read(name)
    groups = [(row[0], [number(row[4]), number(row[6])]) for row in data.rows if row[4]]
    return bars("4-bit codes: speed over int4's, one thread", "x", ("generation", "prompt of 512"), groups, [name],
                (1, "as fast as int4"))


DRAWN = {"prompts": prompts, "generation": generation, "bandwidth": bandwidth, "clients": clients, "hop": hop,
         "codes": codes}
BEGIN = "| date | data | what | machine |\n|---|---|---|---|\n"


def listed():
    """bench/results/README.md with its table as the folder has it."""
    text = (results.FOLDER / "README.md").read_text()
    rows = "".join(f"| {r.meta.get('date', '?')} | [{r.path.stem[11:]}]({r.path.name}) | {r.meta.get('title', '?')} | "
                   f"{r.meta.get('machine', '?')} |\n" for r in results.all_results())
    return text.split(BEGIN)[0] + BEGIN + rows


def outputs():
    made = {CHARTS / f"{name}.svg": draw() for name, draw in DRAWN.items()}
    made[results.FOLDER / "README.md"] = listed()
    return made


def main():
    found = [c for r in results.all_results() for c in r.complaints()]
    for path, text in outputs().items():
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv:
            found.append(f"{path.relative_to(ROOT)} is not as the data files have it: run bench/charts.py")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print("wrote", path.relative_to(ROOT))
    for path in CHARTS.glob("*.svg"):
        if path.stem not in DRAWN:
            found.append(f"{path.relative_to(ROOT)} is drawn by nothing")
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
