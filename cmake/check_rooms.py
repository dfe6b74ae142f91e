#!/usr/bin/env python3
"""Each source includes what docs/ROOMS.md allows the room that it lies in, and nothing else.

usage: check_rooms.py [TREE]

A room is a folder with sources. The table names for each one the other rooms whose headers it may
include, and the libraries outside of Strata; the standard library and Abseil are free. What a room
may include and does not is a fault of the table; so is a circle of rooms.
"""
import pathlib
import re
import sys

TABLE = "docs/ROOMS.md"
TOPS = ("cli", "common", "coordinator", "sdk/cpp", "tests/worker/backend/conformance", "tests/worker/backend/models", "text",
        "worker")
ROW = re.compile(r"^\| `([\w/]+)` \|(.*)\|(.*)\|(.*)\|$", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)

# Which library a header is of; the first that fits. Empty: free.
LIBRARIES = [(re.compile(pattern), name) for pattern, name in (
    (r"^strata/v1/.*\.grpc\.pb\.h$", "gRPC"),
    (r"^strata/v1/|^google/protobuf/", "protobuf"),
    (r"^grpc(pp)?/", "gRPC"),
    (r"^boost/", "Boost"),
    (r"^CLI/", "CLI11"),
    (r"^cuda_runtime(_api)?\.h$", "CUDA"),
    (r"^curl/", "curl"),
    (r"^g(mock|test)/", "GoogleTest"),
    (r"^hwy/", "Highway"),
    (r"^mlx/", "MLX"),
    (r"^nlohmann/", "JSON"),
    (r"^openssl/", "OpenSSL"),
    (r"^pcre2\.h$", "PCRE2"),
    (r"^prometheus/", "Prometheus"),
    (r"^spdlog/", "spdlog"),
    (r"^sqlite3\.h$", "SQLite"),
    (r"^systemd/", "systemd"),
    (r"^toml\+\+/", "toml++"),
    (r"^utf8proc\.h$", "utf8proc"),
    (r"^(dlpack|xgrammar)/", "XGrammar"),
    (r"^(arm_neon|cpuid|immintrin|nmmintrin|xmmintrin)\.h$", "processor"),
    (r"^(arpa|asm|linux|net|netinet|sys)/|^(dirent|dlfcn|fcntl|grp|ifaddrs|malloc|netdb|poll|pthread|pwd|sched|signal|spawn|ucontext|unistd)\.h$",
     "system"),
    (r"^absl/|^[a-z_]+$", ""),
)]


def listed(cell):
    return {entry.strip().strip("`") for entry in cell.split(",") if entry.strip()}


def rooms_of(text):
    """{room: (rooms, libraries)} of the table; the third cell from the end says what a room owns."""
    return {match[1]: (listed(match[3]), listed(match[4])) for match in ROW.finditer(text)}


def library_of(header):
    """None: it is of none that is known."""
    return next((name for pattern, name in LIBRARIES if pattern.search(header)), None)


def circles(rooms):
    """Rooms that include each other, as one line for each circle that is found."""
    found, done = [], set()

    def visit(room, path):
        if room in path:
            found.append(" -> ".join([*path[path.index(room):], room]))
        elif room not in done:
            for other in sorted(rooms.get(room, (set(), set()))[0]):
                visit(other, [*path, room])
            done.add(room)

    for room in sorted(rooms):
        visit(room, [])
    return found


def problems_of(tree):
    rooms = rooms_of((tree / TABLE).read_text())
    used = {room: (set(), set()) for room in rooms}
    problems = []
    for top in TOPS:
        for source in sorted((tree / top).rglob("*")):
            if source.suffix not in (".cc", ".h"):
                continue
            room = source.parent.relative_to(tree).as_posix()
            name = source.relative_to(tree).as_posix()
            if room not in rooms:
                problems.append(f"{name}: {TABLE} has no room `{room}`")
                continue
            for header in INCLUDE.findall(source.read_text()):
                if (tree / header).exists():
                    other = pathlib.PurePath(header).parent.as_posix()
                    if other == room:
                        continue
                    used[room][0].add(other)
                    if other not in rooms[room][0]:
                        problems.append(f"{name} includes {header}, and {TABLE} does not allow `{room}` "
                                        f"what is in `{other}`")
                    continue
                library = library_of(header)
                if library is None:
                    problems.append(f"{name} includes {header}, which is of no library that {pathlib.Path(__file__).name} knows")
                elif library:
                    used[room][1].add(library)
                    if library not in rooms[room][1]:
                        problems.append(f"{name} includes {header}, and {TABLE} does not allow `{room}` {library}")
    for room, (others, libraries) in rooms.items():
        if not (tree / room).is_dir():
            problems.append(f"{TABLE}: there is no folder {room}")
            continue
        for name in sorted(others - used[room][0]) + sorted(libraries - used[room][1]):
            problems.append(f"{TABLE}: `{room}` does not include {name}")
    return problems + [f"{TABLE}: rooms in a circle: {circle}" for circle in circles(rooms)]


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    tree = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else pathlib.Path(__file__).resolve().parents[1]
    problems = problems_of(tree)
    print("\n".join(problems) or "each room includes what it may")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
