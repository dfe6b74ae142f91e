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
    what: str     # prompt, generation, steps, share, batch8, bandwidth, ...
    weights: str  # of FORMATS
    threads: int
    who: str
    variant: str = ""


class Results:
    """Samples, and what is known about who gave them."""

    def __init__(self):
        self.samples = collections.defaultdict(list)  # Key: [(round, value)]
        self.commands = {}  # (title, who): command line
        self.commits = {}
        self.built = {}  # who: CMake's settings
        self.isa = ""
        self.left_out = []
        self.failures = collections.defaultdict(set)  # What a peer failed with: rounds

    def add(self, number, samples):
        """What one run of round `number` measured."""
        for key, value in samples.items():
            self.samples[key].append((number, value))

    def median(self, key):
        values = [value for _, value in self.samples.get(key, ())]
        return statistics.median(values) if values else None

    def ratio(self, ours, theirs):
        """Median of the ratios within each round that measured both; None without one. The speeds'
        medians may be of rounds in which memory was not equally fast."""
        other = dict(self.samples.get(theirs, ()))
        ratios = [value / other[number] for number, value in self.samples.get(ours, ())
                  if number in other]
        return statistics.median(ratios) if ratios else None

    def best(self, what, weights, threads, who):
        """The key of the variant with the highest median; None without samples."""
        found = [key for key in self.samples
                 if (key.what, key.weights, key.threads, key.who) == (what, weights, threads, who)]
        return max(found, key=lambda key: (self.median(key), key.variant), default=None)
