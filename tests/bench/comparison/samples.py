"""Who is compared, in which weight formats, and what was measured of them."""
import collections
import dataclasses
import statistics

STRATA, LLAMA, IK, DLLAMA = "Strata", "llama.cpp", "ik_llama.cpp", "distributed-llama"


@dataclasses.dataclass(frozen=True)
class Format:
    quantize: str  # strata-worker bench --quantize
    file: str      # GGUF
    theirs: str


FORMATS = {"int8": Format("int8", "q8_0.gguf", "Q8_0"),
           "int4": Format("int4", "q4_0.gguf", "Q4_0"),
           "bf16": Format("none", "f16.gguf", "F16")}


class Failed(Exception):
    """One sentence for the user: what went wrong with what, and what to do."""


@dataclasses.dataclass(frozen=True)
class Key:
    """What a sample is of."""
    what: str     # prompt, generation, steps, share, batch8, batch8_ratio, bandwidth, ...
    weights: str  # of FORMATS
    threads: int
    who: str
    variant: str = ""


class Results:
    """Samples, and what is known about who gave them."""

    def __init__(self):
        self.samples = collections.defaultdict(list)
        self.commands = {}  # (title, who): command line
        self.commits = {}
        self.isa = ""
        self.left_out = []

    def add(self, samples):
        for key, value in samples.items():
            self.samples[key].append(value)

    def median(self, key):
        values = self.samples.get(key)
        return statistics.median(values) if values else None

    def best(self, what, weights, threads, who):
        """(median, variant) of the variant with the highest median; (None, "") without samples."""
        found = [(self.median(key), key.variant) for key in list(self.samples)
                 if (key.what, key.weights, key.threads, key.who) == (what, weights, threads, who)]
        return max(found, default=(None, ""))
