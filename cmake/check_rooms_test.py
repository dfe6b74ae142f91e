#!/usr/bin/env python3
"""What check_rooms.py finds, and what it lets pass."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_rooms.py")
TABLE = """# Rooms

| room | owns | may include | libraries |
|---|---|---|---|
| `common` | what all share | | |
| `coordinator/engine` | sessions | `common` | protobuf |
"""


def check(sources, table=TABLE):
    """What is printed for a tree of these files, none if nothing is wrong."""
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        files = {"common/status.h": "", "docs/ROOMS.md": table,
                 "coordinator/engine/engine.h":
                     '#include <vector>\n#include "common/status.h"\n#include "strata/v1/plan.pb.h"\n'}
        for path, text in {**files, **sources}.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, tree], capture_output=True, text=True)
        return done.stdout if done.returncode else ""


class CheckRooms(unittest.TestCase):
    def test_lets_pass_what_the_table_allows(self):
        self.assertEqual(check({}), "")

    def test_finds_a_room_that_is_not_allowed(self):
        said = check({"common/low.cc": '#include "coordinator/engine/engine.h"\n'})
        self.assertIn("common/low.cc includes coordinator/engine/engine.h", said)
        self.assertIn("`coordinator/engine`", said)

    def test_finds_a_library_that_is_not_allowed(self):
        for header, library in (("grpcpp/grpcpp.h", "gRPC"), ("strata/v1/shard.grpc.pb.h", "gRPC"),
                                ("sys/socket.h", "system"), ("sqlite3.h", "SQLite")):
            said = check({"coordinator/engine/steps.cc": f"#include <{header}>\n"})
            self.assertIn(f"does not allow `coordinator/engine` {library}", said)

    def test_finds_a_library_that_is_not_known(self):
        self.assertIn("knows", check({"common/low.cc": "#include <zmq/zmq.h>\n"}))

    def test_finds_a_room_that_the_table_has_not(self):
        self.assertIn("no room `worker`", check({"worker/main.cc": "int main() {}\n"}))

    def test_finds_what_the_table_allows_and_nobody_uses(self):
        self.assertIn("`common` does not include gRPC",
                      check({}, TABLE.replace("what all share | | |", "what all share | | gRPC |")))
        self.assertIn("no folder worker/runner", check({}, TABLE + "| `worker/runner` | steps | | |\n"))

    def test_finds_rooms_in_a_circle(self):
        said = check({"common/low.cc": '#include "coordinator/engine/engine.h"\n'},
                     TABLE.replace("what all share | | |", "what all share | `coordinator/engine` | |"))
        self.assertIn("in a circle: common -> coordinator/engine -> common", said)


if __name__ == "__main__":
    unittest.main()
