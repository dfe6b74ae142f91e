"""What is held against what, and by which targets."""
from .samples import DLLAMA, FORMATS, IK, LLAMA, STRATA, Key

# Least ratios of Strata's speed to theirs, and least shares of the read bandwidth.
GENERATION_TARGETS = {"int8": {LLAMA: 1.8, IK: 1.25, "share": 0.88},
                      "int4": {LLAMA: 1.75, IK: 1.35, "share": 0.75},
                      "bf16": {LLAMA: 1.06, "share": 0.90}}
# With instructions for int8 dot products; without, against the better of the two.
PROMPT_TARGETS = {"int8": {LLAMA: 3.0, IK: 1.5}, "int4": {LLAMA: 2.2, IK: 1.5}, "bf16": {}}
PROMPT_TARGET_NO_DOT = 1.3
DOT_ISAS = ("avxvnni", "avx512vnni", "amx", "neondot")
BATCH_TARGET, BATCH_TARGET_NO_DOT = 5.5, 4.0
CONTEXT_TARGET = 1 / 1.15  # Within 15 % of the bytes over the bandwidth.
RPC_TARGET = 5.0
ONE_WORKER_TARGET = 0.9
ALONE_TARGET = 0.95


def row(what, threads, strata, against, theirs, ratio, target, unit="tokens/s"):
    return {"what": what, "threads": threads, "strata": strata, "unit": unit, "against": against,
            "theirs": theirs, "ratio": ratio, "target": target,
            "met": None if target is None else ratio >= target}


def share_row(results, what, weights, threads, strata, share, target):
    bandwidth = results.median(Key("bandwidth", weights, threads, STRATA))
    return row(what, threads, strata, f"read bandwidth, {bandwidth / 1e9:.1f} GB/s", None, share,
               target)


def speed_rows(results, what, weights, threads, targets):
    """Strata's speed at `what` against each peer that was measured."""
    name = f"{weights} {what}"
    strata = results.median(Key(what, weights, threads, STRATA))
    rows, best = [], (None, None)
    for who in (LLAMA, IK, DLLAMA):
        theirs, variant = results.best(what, weights, threads, who)
        if theirs is None:
            continue
        kind = "q40" if who == DLLAMA else FORMATS[weights].theirs
        against = f"{who} {kind}" + (f", {variant}" if variant else "")
        rows.append(row(name, threads, strata, against, theirs, strata / theirs, targets.get(who)))
        if who in (LLAMA, IK) and (best[0] is None or theirs > best[0]):
            best = (theirs, against)
    if "best" in targets and best[0] is not None:
        rows.append(row(name, threads, strata, f"the better: {best[1]}", best[0], strata / best[0],
                        targets["best"]))
    return rows or [row(name, threads, strata, "", None, None, None)]


def rows_of(results, threads_list, prompt, context):
    dot = results.isa in DOT_ISAS
    rows = []

    def median(what, weights, threads):
        return results.median(Key(what, weights, threads, STRATA))

    for weights in FORMATS:
        for threads in threads_list:
            generation = median("generation", weights, threads)
            if generation is None:
                continue
            rows += [r for r in speed_rows(results, "generation", weights, threads,
                                           GENERATION_TARGETS[weights]) if r["against"]]
            rows.append(share_row(results, f"{weights} generation", weights, threads, generation,
                                  median("share", weights, threads),
                                  GENERATION_TARGETS[weights]["share"]))
    for weights in FORMATS:
        for threads in threads_list:
            if median("prompt", weights, threads) is None:
                continue
            targets = PROMPT_TARGETS[weights]
            if targets and not dot:
                targets = {"best": PROMPT_TARGET_NO_DOT}
            rows += [{**r, "what": f"{r['what']} of {prompt}"}
                     for r in speed_rows(results, "prompt", weights, threads, targets)]
    for threads in threads_list:
        if median("batch8", "int8", threads) is not None:
            rows.append(row("int8 generation, batch of 8", threads,
                            median("batch8", "int8", threads), "its own batch of 1",
                            median("generation", "int8", threads),
                            median("batch8_ratio", "int8", threads),
                            BATCH_TARGET if dot else BATCH_TARGET_NO_DOT))
    for threads in threads_list:
        if median("context", "int8", threads) is not None:
            rows.append(share_row(results, f"int8 generation after {context}", "int8", threads,
                                  median("context", "int8", threads),
                                  median("context_share", "int8", threads), CONTEXT_TARGET))
    return rows + cluster_rows(results)


def cluster_rows(results):
    def clients(count):
        return results.median(Key(f"cluster{count}", "int8", 2, STRATA))

    name, on = "int8, two workers, 8 clients", "2 x 1"
    two, one, alone = clients(8), clients(4), clients(1)
    rows = []
    theirs, variant = results.best("cluster8", "int8", 2, LLAMA)
    if None not in (two, theirs):
        rows.append(row(name, on, two, f"{LLAMA} Q8_0, RPC layer split, {variant}", theirs,
                        two / theirs, RPC_TARGET))
    if None not in (two, one):
        rows.append(row(name, on, two, "one worker x 2 threads, 4 clients", one, two / one,
                        ONE_WORKER_TARGET))
    steps = results.median(Key("steps", "int8", 2, STRATA))
    if None not in (alone, steps):
        rows.append(row("int8, one worker, 1 client", 2, alone,
                        "strata-worker bench, by the median step", steps, alone / steps,
                        ALONE_TARGET))
    return rows
