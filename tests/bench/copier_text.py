"""What the model of make_copier.py reads and writes, and its tokenizer: a program of 300 lines whose end is to be
written again with other comments and another name, and prose in which nothing stands twice but by chance."""
import random
import re

SPECIAL = ["<unk>", "<s>", "</s>"]
# How far back the model copies from, in tokens: the end of a prompt is that of what is written again.
DISTANCE = 512
ASKED = "\n# The same once more, in English, for a client:\n"
LINES = 300
TAIL_LINES = 80  # More than are written again.
ANSWER = 448  # Tokens of them at least.

# GPT-2's division of text, of ASCII.
CHUNK = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")

RENAMED = ("customer", "client")
NAMES = ["customer", "order", "total", "price", "item", "count", "limit", "items", "entry", "amount", "account", "rate",
         "result", "index", "balance", "day", "value", "stock", "range", "size", "key", "table", "state", "queue"]
FIELDS = ["name", "price", "update", "balance", "append", "lines", "total", "remove", "open", "size", "find", "date"]
SIGNS = ["+", "-", "*", "/", "%"]
COMPARED = ["<", ">", "==", "!=", "<=", ">="]
OLD_WORDS = """ruft zuerst alle offenen posten auf und prueft ob der kunde zahlen kann dann wird die summe neu berechnet
ohne rabatt falls kein lager mehr frei ist bricht es hier ab sonst geht es weiter mit dem rest vom tag bis zum
letzten eintrag""".split()
NEW_WORDS = """calls first each pending position again then checks whether that buyer could pay afterwards sum gets
computed without rebate unless some warehouse still stays vacant it stops here otherwise goes further along what
remains until the final record has been seen too""".split()


def distinct(words):
    return list(dict.fromkeys(words))


NEW = distinct(NEW_WORDS)
OLD = distinct(OLD_WORDS)[:len(NEW)]
TRANSLATED = dict(zip(OLD, NEW))


def prose_words(count=200):
    draw = random.Random(3)
    known = {*NAMES, *FIELDS, *OLD, *NEW, *RENAMED}
    found = {}
    while len(found) < count:
        word = "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 4)))
        if word not in known:
            found[word] = None
    return list(found)


PROSE = prose_words()
# The n-th word is this likely behind any other.
PROSE_WEIGHTS = [1 / (i + 1) for i in range(len(PROSE))]


def chunks(text):
    return CHUNK.findall(text)


def tokens_of(text):
    """How many tokens the tokenizer makes of it: each chunk is one."""
    return len(chunks(text))


def name(draw):
    # The first is the one that is renamed.
    return draw.choices(NAMES, [1.2] + [3 / (2 + i) for i in range(len(NAMES) - 1)])[0]


def comment(draw, words):
    return "    # " + " ".join(draw.choices(OLD, k=words))


def statement(draw):
    a, b, c = (name(draw) for _ in range(3))
    f, g = draw.choices(FIELDS, k=2)
    kind = draw.randrange(6)
    if kind == 0:
        return [f"    {a} = {b} {draw.choice(SIGNS)} {c}"]
    if kind == 1:
        return [f"    {a}.{f} = {b}.{g}({c})"]
    if kind == 2:
        return [f"    if {a} {draw.choice(COMPARED)} {b}:", f"        return {c}.{f}"]
    if kind == 3:
        return [f"    for {a} in {b}.{f}:", f"        {c}.{g}({a})"]
    if kind == 4:
        return [f"    {a}.{f}({b}, {c})"]
    return [f"    {a} = {b}.{f}[{c}]"]


def function(draw):
    head = f"def {draw.choice(FIELDS)}_{name(draw)}({name(draw)}, {name(draw)}):"
    lines = [head, comment(draw, draw.randint(6, 8))]
    while len(lines) < 9:
        lines += statement(draw)
    return [*lines, f"    return {name(draw)}", ""]


def program_lines(draw, count):
    lines = []
    while len(lines) < count:
        lines += function(draw)
    return lines[:count]


def tail(seed):
    """The part that is written again: of exactly as many tokens as the model goes back, with what asks for it."""
    draw = random.Random(1000 + seed)
    wanted = DISTANCE - tokens_of(ASKED)
    lines = program_lines(draw, TAIL_LINES)
    while tokens_of("\n".join(lines)) > wanted - 5:
        lines.pop()
    text = "\n".join(lines)
    # A last line that makes it come out even: a name and what is added to it.
    missing = wanted - tokens_of(text)
    words = ["    total", "="] + ["size", "+"] * missing
    for count in range(1, len(words) + 1):
        more = text + "\n" + " ".join(words[:count])
        if tokens_of(more) == wanted:
            return more
    raise AssertionError(f"no line has {missing} tokens")


def prompt(seed):
    """A file of LINES lines, of which all prompts have the beginning, and what asks for its end once more."""
    end = tail(seed)
    head = program_lines(random.Random(1), LINES - end.count("\n") - 1)
    return "\n".join(head) + "\n" + end + ASKED


def edited(text):
    """What the model makes of it."""
    def change(chunk):
        word = chunk.strip()
        return chunk.replace(word, {**TRANSLATED, RENAMED[0]: RENAMED[1]}.get(word, word)) if word else chunk

    return "".join(map(change, chunks(text)))


def answer(seed, tokens=ANSWER):
    return "".join(chunks(edited(tail(seed)))[:tokens])


def kept_share(seed, tokens=ANSWER):
    """Of the answer's tokens the share that stands in the prompt, one behind the other."""
    before, after = chunks(tail(seed))[:tokens], chunks(answer(seed, tokens))
    return sum(a == b for a, b in zip(before, after)) / tokens


def prose(seed, words=32):
    draw = random.Random(seed)
    return "".join(" " + word for word in draw.choices(PROSE, PROSE_WEIGHTS, k=words))


def all_chunks():
    """Each of them is a token of its own."""
    code = [*NAMES, *FIELDS, *OLD, *NEW, *RENAMED, "def", "if", "for", "in", "return"]
    found = dict.fromkeys(["\n\n   ", *code, *(" " + word for word in [*code, *PROSE, *SIGNS, *COMPARED, "#", "="])])
    for text in (ASKED, prompt(0), *("\n".join(program_lines(random.Random(5000 + i), LINES)) for i in range(80))):
        found.update(dict.fromkeys(chunks(text)))
    return list(found)


def byte_characters():
    """GPT-2's: the character that stands for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def vocabulary(size):
    """(tokens, merges) of a byte-level BPE that makes one token of each chunk. The rest of the tokens are never seen."""
    characters = byte_characters()
    words = [[characters[b] for b in chunk.encode()] for chunk in all_chunks()]
    tokens = dict.fromkeys([*SPECIAL, *characters.values()])
    merges = []
    while True:
        pairs = {}
        for word in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        tokens["".join(best)] = None
        for i, word in enumerate(words):
            if best[0] in word:
                words[i] = merged(word, best)
    if len(tokens) > size:
        raise ValueError(f"{size} tokens are too few: there have to be {len(tokens)}")
    return [*tokens, *(f"<filler{i}>" for i in range(size - len(tokens)))], merges


def merged(word, pair):
    out, i = [], 0
    while i < len(word):
        if tuple(word[i:i + 2]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out
