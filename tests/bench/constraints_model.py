"""The random model of constraints.py: a Llama in bfloat16, a tokenizer of words and signs, and both as GGUF."""
import json
import random
import sys

import numpy as np

from comparison.programs import TREE
from make_shape import GgufWriter, load_gguf, permuted, tensors_of

sys.path.insert(0, str(TREE / "tests" / "integration"))
from checkpoints import make_checkpoint  # noqa: E402
from test_constraints import byte_characters  # noqa: E402

SPECIAL = ["<unk>", "<s>", "</s>"]
CONTEXT = 4096


def words(vocab):
    """Byte-level: all bytes, words of lower-case letters with and without a blank before, some with a sign behind."""
    draw = random.Random(1)
    found = dict.fromkeys(byte_characters().values())
    while len(found) < vocab - len(SPECIAL):
        word = "".join(draw.choices("etaoinshrdlucmfwyp", k=draw.randint(2, 8)))
        kind = draw.random()
        found["\u0120" + word if kind < 0.5 else word + draw.choice("\",:;.}{][") if kind < 0.6 else word] = None
    return [*SPECIAL, *found]


def make_tokenizer(folder, vocab):
    tokenizer = {
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(SPECIAL)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {word: i for i, word in enumerate(words(vocab))}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def make_model(folder, shape):
    folder.parent.mkdir(parents=True, exist_ok=True)
    make_checkpoint(folder, layers=shape["layers"], hidden=shape["hidden"], ffn=shape["ffn"], vocab=shape["vocab"],
                    heads=shape["heads"], kv_heads=shape["kv_heads"], context=CONTEXT, stored="bf16")
    make_tokenizer(folder, shape["vocab"])


class ByteLevelGguf(GgufWriter):
    def _describe_tokenizer(self):
        tokens = words(self.shape["vocab"])
        kinds = self.gguf.TokenType
        self.writer.add_tokenizer_model("gpt2")
        self.writer.add_tokenizer_pre("gpt-2")
        self.writer.add_token_list(tokens)
        self.writer.add_token_types([int(kinds.CONTROL if t in SPECIAL else kinds.NORMAL) for t in tokens])
        # llama.cpp wants one at least.
        pair = next(t for t in tokens[len(SPECIAL):] if len(t) == 2)
        self.writer.add_token_merges([f"{pair[0]} {pair[1]}"])


def make_gguf(model, path, shape):
    """The weights of the folder `model`, in Q8_0."""
    shape = {**shape, "head_dim": shape["hidden"] // shape["heads"]}
    tensors = tensors_of(shape)
    (file,) = model.glob("*.safetensors")
    data = np.memmap(file, np.uint8, "r")
    header_bytes = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:8 + header_bytes]))
    unfinished = path.with_suffix(".part")
    writer = ByteLevelGguf(unfinished, shape, tensors, load_gguf(), "Q8_0")
    for name, _, size in tensors:
        begin, end = (8 + header_bytes + at for at in header[name]["data_offsets"])
        values = (data[begin:end].view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
        writer.write(name, values.reshape(size))
    writer.close()
    unfinished.rename(path)
