"""What older versions know of the messages stays: every field, value and call of proto/released.txt is there with its
number and type. After a release: /usr/bin/python3 tests/integration/test_wire.py >proto/released.txt
"""

import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RELEASED = SOURCE / "proto/released.txt"


def parse(lines):
    """{name: [value, ...]} of a block of protobuf's text format; a value is a string or a block."""
    block = {}
    for line in lines:
        line = line.strip()
        if line == "}":
            break
        if line.endswith(" {"):
            block.setdefault(line[:-2], []).append(parse(lines))
        else:
            name, value = line.split(": ", 1)
            block.setdefault(name, []).append(value.strip('"'))
    return block


def one(block, name, default=""):
    return block.get(name, [default])[0]


def of_enum(enum, above):
    for value in enum.get("value", []):
        yield f"{above}.{one(enum, 'name')}.{one(value, 'name')} = {one(value, 'number')}"


def of_message(message, above):
    name = f"{above}.{one(message, 'name')}"
    for field in message.get("field", []):
        kind = one(field, "type_name") or one(field, "type").removeprefix("TYPE_").lower()
        many = "repeated " if one(field, "label") == "LABEL_REPEATED" else ""
        yield f"{name}.{one(field, 'name')} = {one(field, 'number')} {many}{kind}"
    for nested in message.get("nested_type", []):
        yield from of_message(nested, name)
    for enum in message.get("enum_type", []):
        yield from of_enum(enum, name)


def of_service(service, above):
    for method in service.get("method", []):
        streams = ["stream " if one(method, f"{side}_streaming") == "true" else "" for side in ("client", "server")]
        yield (f"{above}.{one(service, 'name')}/{one(method, 'name')} {streams[0]}{one(method, 'input_type')} -> "
               f"{streams[1]}{one(method, 'output_type')}")


def names(folder):
    """A line for each field, value of an enumeration, and call of the .proto files of a folder."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
    described = subprocess.run(["protoc", f"-I{folder}", "--descriptor_set_out=/dev/stdout", *files], capture_output=True,
                               check=True).stdout
    text = subprocess.run(["protoc", "--decode=google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto"],
                          input=described, capture_output=True, check=True).stdout.decode()
    found = set()
    for file in parse(iter(text.splitlines()))["file"]:
        package = "." + one(file, "package")
        for message in file.get("message_type", []):
            found.update(of_message(message, package))
        for enum in file.get("enum_type", []):
            found.update(of_enum(enum, package))
        for service in file.get("service", []):
            found.update(of_service(service, package))
    return found


def test_what_was_released_stays():
    released = RELEASED.read_text().splitlines()
    assert len(released) > 100
    gone = sorted(set(released) - names(SOURCE / "proto"))
    assert not gone, "older versions still send or expect:\n" + "\n".join(gone)


def test_a_change_is_seen(tmp_path):
    (tmp_path / "m.proto").write_text(
        'syntax = "proto3"; package p; message M { repeated int32 a = 1; N n = 2; enum E { X = 0; } message N {} }\n'
        "service S { rpc Do(M) returns (stream M.N); }\n")
    assert names(tmp_path) == {".p.M.a = 1 repeated int32", ".p.M.n = 2 .p.M.N", ".p.M.E.X = 0",
                               ".p.S/Do .p.M -> stream .p.M.N"}


if __name__ == "__main__":
    print("\n".join(sorted(names(SOURCE / "proto"))))
