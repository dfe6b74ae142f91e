"""Generates the modules of strata.v1 from proto/strata/v1 when the package is built."""

import importlib.metadata
import pathlib
import shutil

import setuptools
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
# In Strata's source tree, or in a source distribution.
PROTO = next((p for p in (HERE.parents[1] / "proto", HERE / "proto") if p.is_dir()), None)
MESSAGES = ("types", "inference", "admin")  # What clients use.


def generate(folder: pathlib.Path) -> None:
    from grpc_tools import protoc

    if PROTO is None:
        raise SystemExit("strata-sdk: proto/strata/v1 is neither here nor two folders up")
    include = pathlib.Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO}", f"-I{include}", f"--python_out={folder}",
                 f"--pyi_out={folder}", f"--grpc_python_out={folder}"]
    arguments += [str(PROTO / "strata" / "v1" / f"{name}.proto") for name in MESSAGES]
    if protoc.main(arguments) != 0:
        raise SystemExit("strata-sdk: protoc failed; what it said is above")


class BuildWithStubs(build_py):
    def run(self) -> None:
        super().run()
        generate(HERE if self.editable_mode else pathlib.Path(self.build_lib))


class SdistWithProto(sdist):
    def make_release_tree(self, base_dir, files) -> None:
        super().make_release_tree(base_dir, files)
        target = pathlib.Path(base_dir) / "proto" / "strata" / "v1"
        target.mkdir(parents=True, exist_ok=True)
        for name in MESSAGES:
            shutil.copy(PROTO / "strata" / "v1" / f"{name}.proto", target)


def dependencies() -> list:
    """Generated modules refuse a grpcio or protobuf older than their generator's."""
    version = importlib.metadata.version("grpcio-tools")
    protobuf = [r for r in importlib.metadata.requires("grpcio-tools") or []
                if r.startswith("protobuf")]
    return [f"grpcio>={version}", *protobuf, "typing-extensions>=4.12"]


setuptools.setup(
    install_requires=dependencies(),
    cmdclass={"build_py": BuildWithStubs, "sdist": SdistWithProto},
)
