"""Runs commands in turn, and gathers what they measured."""
import os
import pathlib
import re
import shlex
import subprocess
import sys

from .samples import STRATA, Failed


def say(line):
    print(line, file=sys.stderr, flush=True)


def shown(command):
    """A command line without this machine's folders."""
    words = []
    for word in command:
        if isinstance(word, pathlib.Path):
            word = word.name
        words.append("aaa..." if re.fullmatch("aaaa+", str(word)) else str(word))
    return " ".join(shlex.quote(word) for word in words)


def execute(run, results, timeout_s):
    isa = os.environ.get("STRATA_CPU_ISA") if run.who == STRATA else None
    results.commands.setdefault(
        (run.title, run.who),
        (f"STRATA_CPU_ISA={shlex.quote(isa)} " if isa else "") + shown(run.command))
    command = [str(word) for word in run.command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{run.who} took more than {timeout_s} s for {run.title}: raise --timeout, or "
                     f"choose other --rows; it was {shlex.join(command)}") from None
    except OSError as error:
        raise Failed(f"{run.who} cannot be run: {error}; build it for this machine") from None
    if done.returncode != 0:
        raise Failed(f"{run.who} ended with {done.returncode} for {run.title}: "
                     f"{(done.stderr or done.stdout).strip()[-500:]}; it was {shlex.join(command)}")
    return run.parse(done.stdout, done.stderr)


def measure(groups, results, rounds, run_one):
    """A peer that fails is left out of that round; Strata's failure ends the run."""
    for number in range(1, rounds + 1):
        for group in groups:
            for run in group if number % 2 else reversed(group):
                try:
                    samples = run_one(run)
                except Failed as error:
                    if run.who == STRATA:
                        raise
                    results.failures[str(error)].add(number)
                    say(f"round {number}/{rounds}: left out: {error}")
                    continue
                results.add(number, samples)
                values = ", ".join(f"{key.variant or key.what} {value:.4g}"
                                   for key, value in samples.items() if key.what != "bandwidth")
                say(f"round {number}/{rounds}: {run.title}: {run.who}: {values}")
