"""The command lines of each engine, but for clusters, and how what they print is read."""
import dataclasses

from .outputs import parse_dllama, parse_json, parse_llama_bench
from .samples import DLLAMA, FORMATS, IK, LLAMA, STRATA, Key

SHORT_PROMPT = 16  # Before generation, so that it has hardly any context to read.


@dataclasses.dataclass
class Run:
    """One command of one engine, and how to read what it prints."""
    title: str
    who: str
    command: list
    parse: object  # (stdout, stderr) -> {Key: value}


def strata_run(peers, results, title, weights, threads, take, prompt, generate, batch="1"):
    """`take`: (parsed JSON) -> {(what): value} of what is wanted beside the bandwidth."""
    def parse(out, _):
        report = parse_json(out)
        results.isa = report["isa"]
        samples = {"bandwidth": report["read_bandwidth_bytes_per_s"], **take(report)}
        return {Key(what, weights, threads, STRATA): value for what, value in samples.items()}

    return Run(title, STRATA,
               [peers.strata / "strata-worker", "bench", "--model", peers.models / "hf",
                "--quantize", FORMATS[weights].quantize, "--threads", threads, "--prompt", prompt,
                "--generate", generate, "--batch", batch, "--json"], parse)


def llama_run(peers, results, title, who, what, weights, threads, prompt, generate):
    def parse(out, _):
        speeds, commit = parse_llama_bench(out, who)
        if commit and commit != "unknown" and not results.commits.get(who):
            results.commits[who] = commit
        return {Key(what, weights, threads, who,
                    f"flash attention {'on' if flash else 'off'}"): speed
                for (_, _, flash), speed in speeds.items()}

    command = [peers.programs[who], "-m", peers.models / FORMATS[weights].file, "-t", threads,
               "-p", prompt, "-n", generate, "-fa", "0,1", "-r", 1, "-o", "json"]
    return Run(title, who, command + (["-rtr", 1] if who == IK else []), parse)


def dllama_run(peers, title, what, threads, prompt, generate):
    """A character of the prompt is a token; <s> is one more, which generation begins with."""
    def parse(out, _):
        speeds = dict(zip(("prompt", "generation"), parse_dllama(out)))
        return {Key(what, "int4", threads, DLLAMA): speeds[what]}

    return Run(title, DLLAMA,
               [peers.programs[DLLAMA], "inference", "--model", peers.models / "q40.m",
                "--tokenizer", peers.models / "dllama.t", "--buffer-float-type", "q80",
                "--nthreads", threads, "--max-seq-len", prompt + generate + 8, "--prompt",
                "a" * prompt, "--steps", prompt + generate, "--temperature", 0, "--seed", 1], parse)


def generated(report):
    batches = {batch["batch"]: batch["generated_tokens_per_s"] for batch in report["batch"]}
    values = {"generation": report["generated_tokens_per_s"], "share": report["bandwidth_share"]}
    if 8 in batches:
        values["batch8"] = batches[8]
    return values


def groups_of(peers, results, arguments):
    """Lists of runs that are compared with each other, all but the cluster's."""
    groups = []
    for threads in arguments.threads:
        on = f"{threads} thread{'s' if threads > 1 else ''}"
        for weights in arguments.weights if "prompt" in arguments.rows else ():
            title = f"{weights} prompt of {arguments.prompt}, {on}"
            group = [strata_run(peers, results, title, weights, threads,
                                lambda report: {"prompt": report["prompt_tokens_per_s"]},
                                arguments.prompt, 1)]
            group += [llama_run(peers, results, title, who, "prompt", weights, threads,
                                arguments.prompt, 0)
                      for who in (LLAMA, IK) if who in peers.programs and
                      (who == LLAMA or weights != "bf16")]
            if weights == "int4" and DLLAMA in peers.programs:
                group.append(dllama_run(peers, title, "prompt", threads, arguments.prompt, 1))
            groups.append(group)
        rows = {"generation", "batch"} & set(arguments.rows)
        for weights in arguments.weights if rows else ():
            eight = weights == "int8" and "batch" in rows
            if not eight and "generation" not in rows:
                continue
            title = f"{weights} generation{' and batch 8' if eight else ''}, {on}"
            group = [strata_run(peers, results, title, weights, threads, generated, SHORT_PROMPT,
                                arguments.generate, "1,8" if eight else "1")]
            if "generation" in rows:
                group += [llama_run(peers, results, title, who, "generation", weights, threads, 0,
                                    arguments.generate)
                          for who in (LLAMA, IK) if who in peers.programs and
                          (who == LLAMA or weights != "bf16")]
                if weights == "int4" and DLLAMA in peers.programs:
                    group.append(dllama_run(peers, title, "generation", threads, SHORT_PROMPT,
                                            arguments.generate))
            groups.append(group)
        if "context" in arguments.rows and "int8" in arguments.weights:
            title = f"int8 generation after {arguments.context}, {on}"
            groups.append([strata_run(
                peers, results, title, "int8", threads,
                lambda report: {"context": report["generated_tokens_per_s"],
                                "context_share": report["bandwidth_share"]},
                arguments.context, min(arguments.generate, 32))])
    return groups
