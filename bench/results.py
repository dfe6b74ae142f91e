"""Reads the data files of bench/results: `# key: value` lines, then CSV."""

import csv
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent / "results"
KEYS = ("title", "date", "machine", "commits", "command")


class Results:
    """One data file. `meta` has KEYS and `note`, `rows` are lists of cells, `head` names their columns."""

    def __init__(self, path):
        self.path = path
        self.meta = {"note": ""}
        lines = path.read_text().splitlines()
        while lines and lines[0].startswith("# "):
            key, _, value = lines.pop(0)[2:].partition(": ")
            self.meta[key] = f"{self.meta['note']} {value}".strip() if key == "note" else value
        self.head, *self.rows = csv.reader(lines)

    def complaints(self):
        for key in KEYS:
            if not self.meta.get(key):
                yield f"{self.path.name}: no «# {key}: …»"
        if not self.path.name.startswith(self.meta.get("date", "?") + "-"):
            yield f"{self.path.name}: its name does not begin with its date"
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.head):
                yield f"{self.path.name}: row {number} has {len(row)} cells, not {len(self.head)}"

    def cell(self, column, **where):
        """The cell of `column` in the one row whose other columns are as `where` says (a column's name, or its
        number as c0)."""
        found = [row for row in self.rows
                 if all(row[self._index(name)] == value for name, value in where.items())]
        if len(found) != 1:
            raise KeyError(f"{self.path.name}: {len(found)} rows are {where}")
        return found[0][self._index(column)]

    def _index(self, name):
        return int(name[1:]) if re.fullmatch(r"c\d+", name) else self.head.index(name)


def number(cell):
    """The first number of a cell: 93 of «93 %», 1.2 of «1.2»."""
    return float(re.search(r"-?\d+(?:\.\d+)?", cell.replace(",", "")).group())


def read(name):
    return Results(FOLDER / f"{name}.csv")


def all_results():
    return [Results(path) for path in sorted(FOLDER.glob("*.csv"))]
