"""The programs that are there to be compared, and their model files."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess

from .samples import DLLAMA, FORMATS, IK, LLAMA, STRATA, Failed

TREE = pathlib.Path(__file__).resolve().parents[3]
# Of CMakeCache.txt, where they are not empty.
BUILT_WITH = re.compile(r"^(CMAKE_BUILD_TYPE|CMAKE_C(?:XX)?_FLAGS|"
                        r"GGML_(?:NATIVE|AVX\w*|FMA|F16C|BMI2|AMX\w*|RPC)):\w+= *(\S.*)$", re.M)


def find_program(folder, names, who, flag):
    for name in names:
        for place in ("", "bin", "build/bin", "build"):
            path = pathlib.Path(folder) / place / name
            if path.is_file() and os.access(path, os.X_OK):
                return path.resolve()
    raise Failed(f"{flag} {folder} has no program {names[0]}: build {who}'s target {names[0]} "
                 f"there, or leave {flag} out")


def git_commit(folder, ours=False):
    """Of the checkout that `folder` is in; "" if none, or if it is this one and not `ours`."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True,
                              text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    top = git("rev-parse", "--show-toplevel")
    if not top or (pathlib.Path(top) == TREE and not ours):
        return ""
    return git("rev-parse", "--short=9", "HEAD")


def built_with(program):
    """What its build folder's CMakeCache.txt says of instruction sets; "" without one."""
    for folder in program.parents[:2]:
        with contextlib.suppress(OSError):
            cache = (folder / "CMakeCache.txt").read_text(errors="replace")
            return " ".join(f"{name}={shlex.quote(value)}"
                            for name, value in BUILT_WITH.findall(cache))
    return ""


class Peers:
    """The programs to run, and their model files."""

    def __init__(self, arguments, results):
        self.models = arguments.models
        self.strata = pathlib.Path(arguments.strata).resolve()
        self.programs = {}
        self.rpc_server = self.batched_bench = self.llama_server = None
        self.guessers = self.guessers_shape = None
        self._shape()
        for name in ("strata-worker", "strata-coordinator", "strata"):
            if not os.access(self.strata / name, os.X_OK):
                raise Failed(f"--strata {self.strata} has no {name}: run ./dev build")
        results.commits[STRATA] = git_commit(self.strata, ours=True)
        for who, flag, folder, names in (
                (LLAMA, "--llama-cpp", arguments.llama_cpp,
                 ["llama-server" if self._only_speculation(arguments) else "llama-bench"]),
                (IK, "--ik-llama", arguments.ik_llama, ["llama-bench"]),
                (DLLAMA, "--distributed-llama", arguments.distributed_llama, ["dllama"])):
            if who != LLAMA and self._only_speculation(arguments):
                continue
            if not folder:
                results.left_out.append(f"{who}: no {flag} was given")
                continue
            self.programs[who] = find_program(folder, names, who, flag)
            results.commits[who] = git_commit(folder)
            results.built[who] = built_with(self.programs[who])
        if LLAMA in self.programs and "speculation" in arguments.rows:
            self.llama_server = find_program(arguments.llama_cpp, ["llama-server"], LLAMA, "--llama-cpp")
        if LLAMA in self.programs and not self._only_speculation(arguments):
            self._find_rpc(arguments.llama_cpp, results)
        self._check_files(arguments)
        if "speculation" in arguments.rows:
            self._find_guessers(arguments, results)
        results.commits.update(arguments.commit)

    @staticmethod
    def _only_speculation(arguments):
        return arguments.rows == ["speculation"]

    def _shape(self):
        try:
            self.shape = json.loads((self.models / "shape.json").read_text())
        except (OSError, ValueError):
            raise Failed(f"--models {self.models} holds no weights: write them with "
                         f"tests/bench/make_shape.py tiny11 {self.models}") from None

    def _find_rpc(self, folder, results):
        try:
            self.rpc_server = find_program(folder, ["ggml-rpc-server", "rpc-server"], LLAMA,
                                           "--llama-cpp")
            self.batched_bench = find_program(folder, ["llama-batched-bench"], LLAMA, "--llama-cpp")
        except Failed as error:
            self.rpc_server = self.batched_bench = None
            results.left_out.append(f"{LLAMA} RPC: {error}")

    def _check_files(self, arguments):
        if "speculation" in arguments.rows:
            self._check_copier()
        if self._only_speculation(arguments):
            return
        needed = [("hf/config.json", "hf")]
        if LLAMA in self.programs or IK in self.programs:
            needed += [(FORMATS[weights].file, "gguf") for weights in arguments.weights]
        if DLLAMA in self.programs:
            needed += [("q40.m", "dllama"), ("dllama.t", "dllama")]
        for name, kind in needed:
            if not (self.models / name).exists():
                raise Failed(f"--models {self.models} has no {name}: write it with "
                             f"tests/bench/make_shape.py {self.shape['shape']} {self.models}, "
                             f"--formats {kind} among others")

    def _check_copier(self):
        for name in ["hf/tokenizer.json"] + (["q8_0.gguf"] if self.llama_server else []):
            if "copies" not in self.shape or not (self.models / name).exists():
                raise Failed(f"--models {self.models} is no model that copies with {name}: write it with "
                             f"tests/bench/make_copier.py {self.models}, or leave speculation out of --rows")

    def _find_guessers(self, arguments, results):
        if arguments.guessers is None:
            if "guesses" in arguments.speculation:
                results.left_out.append("a draft model: no --guessers was given")
            return
        try:
            self.guessers_shape = json.loads((arguments.guessers / "shape.json").read_text())
        except (OSError, ValueError):
            raise Failed(f"--guessers {arguments.guessers} holds no models: write them with "
                         f"tests/bench/make_guessers.py {arguments.guessers}") from None
        self.guessers = arguments.guessers
