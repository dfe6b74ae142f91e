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
# Drafts against none: with instructions for int8 dot products, and without; where nothing is to be found; and against
# llama.cpp's own.
EDIT_TARGETS = {"edit1": (3.0, 1.7), "edit1x2": (3.0, 1.7), "edit4": (1.5, 1.0)}
PROSE_TARGET = 0.98
OWN_TARGET = 2.0
# A draft model of a tenth of the size whose guesses are right seven times of ten.
GUESS_TARGETS = {"guess1": 1.5, "guess1x2": 1.6}


def row(what, threads, strata, against, theirs, ratio, target, unit="tokens/s"):
    return {"what": what, "threads": threads, "strata": strata, "unit": unit, "against": against,
            "theirs": theirs, "ratio": ratio, "target": target,
            "met": None if None in (ratio, target) else ratio >= target}


def ratio_row(results, what, threads, ours, against, theirs, target):
    return row(what, threads, results.median(ours), against, results.median(theirs),
               results.ratio(ours, theirs), target)


def share_row(results, what, weights, threads, strata, share, target):
    bandwidth = results.median(Key("bandwidth", weights, threads, STRATA))
    return row(what, threads, strata, f"read bandwidth, {bandwidth / 1e9:.1f} GB/s", None, share,
               target)


def speed_rows(results, what, weights, threads, targets):
    """Strata's speed at `what` against each peer that was measured."""
    name = f"{weights} {what}"
    ours = Key(what, weights, threads, STRATA)
    rows, best = [], None
    for who in (LLAMA, IK, DLLAMA):
        theirs = results.best(what, weights, threads, who)
        if theirs is None:
            continue
        kind = "q40" if who == DLLAMA else FORMATS[weights].theirs
        against = f"{who} {kind}" + (f", {theirs.variant}" if theirs.variant else "")
        rows.append(ratio_row(results, name, threads, ours, against, theirs, targets.get(who)))
        if who in (LLAMA, IK) and (best is None or rows[-1]["theirs"] > best["theirs"]):
            best = rows[-1]
    if "best" in targets and best is not None:
        rows.append(row(name, threads, best["strata"], f"the better: {best['against']}",
                        best["theirs"], best["ratio"], targets["best"]))
    return rows or [row(name, threads, results.median(ours), "", None, None, None)]


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
            rows.append(ratio_row(results, "int8 generation, batch of 8", threads,
                                  Key("batch8", "int8", threads, STRATA), "its own batch of 1",
                                  Key("generation", "int8", threads, STRATA),
                                  BATCH_TARGET if dot else BATCH_TARGET_NO_DOT))
    for threads in threads_list:
        if median("context", "int8", threads) is not None:
            rows.append(share_row(results, f"int8 generation after {context}", "int8", threads,
                                  median("context", "int8", threads),
                                  median("context_share", "int8", threads), CONTEXT_TARGET))
    return rows + cluster_rows(results) + speculation_rows(results, dot)


def cluster_rows(results):
    rows = []

    def compare(what, threads, ours, against, theirs, target):
        if None not in (results.median(ours), results.median(theirs)):
            rows.append(ratio_row(results, what, threads, ours, against, theirs, target))

    name, on = "int8, two workers, 8 clients", "2 x 1"
    two, one, alone = (Key(f"cluster{clients}", "int8", 2, STRATA) for clients in (8, 4, 1))
    theirs = results.best("cluster8", "int8", 2, LLAMA)
    if theirs:
        compare(name, on, two, f"{LLAMA} Q8_0, RPC layer split, {theirs.variant}", theirs,
                RPC_TARGET)
    compare(name, on, two, "one worker x 2 threads, 4 clients", one, ONE_WORKER_TARGET)
    compare("int8, one worker, 1 client", 2, alone, "strata-worker bench, by the median step",
            Key("steps", "int8", 2, STRATA), ALONE_TARGET)
    return rows


def speculation_rows(results, dot):
    rows = []

    def compare(what, threads, key, against, theirs, target):
        if None not in (results.median(key), results.median(theirs)):
            rows.append(ratio_row(results, what, threads, key, against, theirs, target))

    def ours(what, threads, drafts):
        return Key(what, "int8", threads, STRATA, drafts)

    for what, name, threads, on in (("edit1", "a file edited, one worker, 1 client", 2, 2),
                                    ("edit1x2", "a file edited, two workers, 1 client", 1, "2 x 1"),
                                    ("edit4", "a file edited, one worker, 4 clients", 2, 2)):
        compare(name, on, ours(what, threads, "auto"), "without drafts", ours(what, threads, "off"),
                EDIT_TARGETS[what][0 if dot else 1])
    for clients in (1, 8, 32):
        compare(f"prose, one worker, {clients} client{'s' if clients > 1 else ''}", 2, ours(f"prose{clients}", 2, "auto"),
                "without drafts", ours(f"prose{clients}", 2, "off"), PROSE_TARGET)
    for what, name, threads, on in (("guess1", "a draft model, one worker, 1 client", 2, 2),
                                    ("guess1x2", "a draft model, two workers, 1 client", 1, "2 x 1")):
        compare(name, on, ours(what, threads, "auto"), "without drafts", ours(what, threads, "off"), GUESS_TARGETS[what])
    theirs = results.best("edit1", "int8", 2, LLAMA)
    if theirs:
        compare("a file edited, one worker, 1 client", 2, ours("edit1", 2, "auto"), f"{LLAMA} Q8_0, {theirs.variant}",
                theirs, OWN_TARGET)
    return rows
