"""What a draft model wins: the pair that make_guessers.py writes, with its guesses and without in turn."""
import contextlib
import random
import time

from make_guessers import following

from .clusters import started_workers
from .runner import say
from .samples import STRATA, Failed, Key

CONTEXT, PROMPT, ANSWER = 4096, 64, 192


@contextlib.contextmanager
def guessed_cluster(peers, shape, guessers, folder, workers, threads):
    say(f"starting a cluster of {workers} x {threads} threads with a draft model")
    with started_workers(peers, folder, workers, threads, shape["layers"]) as (cluster, cuts):
        common = {"quantize": "int8", "context": CONTEXT, "sessions": 4}
        cluster.load("guesser", guessers / "guesser", **common)
        cluster.load("model", guessers / "model", cuts=cuts, speculate="model=guesser", **common)
        cluster.wait_ready("guesser")
        yield cluster


def guessed_speed(cluster, vocab, drafts, seed):
    """Tokens/s of an answer behind a prompt that was computed before."""
    prompt = random.Random(seed).sample(range(3, vocab), PROMPT)

    def ask(tokens):
        return cluster.generate("model", ids=prompt, max_tokens=tokens, temperature=0, ignore_eos=True, speculate=drafts)

    ask(1)
    start = time.monotonic()
    answer = ask(ANSWER)["token_ids"]
    took = time.monotonic() - start
    token = prompt[-1]
    for said in answer:
        token = int(following(token, vocab))
        if said != token:
            raise Failed("the model does not say what follows: write it again with tests/bench/make_guessers.py")
    if len(answer) != ANSWER:
        raise Failed(f"{STRATA} answered with {len(answer)} tokens for {ANSWER}")
    return ANSWER / took


def guesses_asked(peers, shape, guessers, folder, stack, seeds):
    """[(title, key, what to call)] of one worker of two threads, and of two of one."""
    for what, workers, threads in (("guess1", 1, 2), ("guess1x2", 2, 1)):
        cluster = stack.enter_context(guessed_cluster(peers, shape, guessers, folder / what, workers, threads))
        who = f"{'one worker' if workers == 1 else 'two workers'}, 1 client"
        for drafts in ("off", "auto"):
            yield (f"a draft model, {who}, drafts {drafts}", Key(what, "int8", threads, STRATA, drafts),
                   lambda cluster=cluster, drafts=drafts: guessed_speed(cluster, shape["vocab"], drafts, seeds.take(1)))
