#!/usr/bin/env python3
"""Makes the seed corpora of the fuzz targets, tests/fuzz/corpus/TARGET, from tests/golden and from
the hostile cases below. What it writes is in the tree; run it again after a change here.
"""

import base64
import hashlib
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
GOLDEN = TOP / "tests/golden"
CORPUS = HERE / "corpus"
CUT = b"\n----\n"
HUGE = 2**64 - 1


def as_bytes(value):
    return value if isinstance(value, bytes) else value.encode()


def write(target, name, *sections):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    assert not path.exists(), path
    path.write_bytes(CUT.join(as_bytes(s) for s in sections))


def compact(value):
    return json.dumps(value, separators=(",", ":"))


# ---- checkpoints


def header_of(path):
    """The JSON of a safetensors file's header, and how many bytes of data follow."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    return content[8 : 8 + size].rstrip(b" "), len(content) - 8 - size


def models():
    return sorted(p for p in (GOLDEN / "models").iterdir() if p.is_dir())


def safetensors():
    def seed(name, header, data_bytes):
        text = header if isinstance(header, (bytes, str)) else compact(header)
        write("safetensors", name, struct.pack(">Q", data_bytes) + as_bytes(text))

    for model in models():
        for file in sorted(model.glob("model*.safetensors")):
            seed(f"golden-{model.name}-{file.stem}", *header_of(file))

    def tensor(shape, begin, end, dtype="F32"):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    seed("one", {"a": tensor([2, 2], 0, 16)}, 16)
    seed("empty-tensor", {"a": tensor([0], 0, 0), "b": tensor([], 0, 4)}, 4)
    seed("sub-byte", {"a": tensor([2, 10], 0, 10, "F4"), "b": tensor([4], 10, 13, "F6_E2M3")}, 13)
    seed("within-a-byte", {"a": tensor([3], 0, 2, "F4")}, 2)
    seed("overlap", {"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, 12)
    seed("hole", {"a": tensor([1], 0, 4), "b": tensor([1], 8, 12)}, 12)
    seed("past-the-end", {"a": tensor([4], 0, 16)}, 8)
    seed("backwards", {"a": tensor([1], 4, 0)}, 4)
    seed("shape-overflows", {"a": tensor([2**32, 2**32, 4], 0, 16)}, 16)
    seed("shape-overflows-to-zero", {"a": tensor([2**63, 2], 0, 0)}, 0)
    seed("offsets-overflow", {"a": tensor([1], HUGE - 3, HUGE)}, HUGE)
    seed("all-of-the-address-space", {"a": tensor([2**61 - 1], 0, 2**64 - 8, "F64")}, 2**64 - 8)
    seed("rank-33", {"a": tensor([1] * 33, 0, 4)}, 4)
    seed("negative", {"a": tensor([-1], 0, 4)}, 4)
    seed("fraction", {"a": tensor([1.5], 0, 6)}, 6)
    seed("dtypes", {"a": tensor([1], 0, 1, "F8_E4M3")}, 1)
    seed("unknown-dtype", {"a": tensor([1], 0, 1, "F999")}, 1)
    seed("name-twice", '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                       '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1)
    seed("metadata-nests", {"__metadata__": {"a": {"b": 1}}}, 0)
    seed("deep", '{"a":' * 5000, 0)
    seed("deep-arrays", '{"a":' + "[" * 5000, 0)
    seed("long-name", {"x" * 4000: tensor([1], 0, 4)}, 4)
    seed("control-characters", {"a\0\n\u202e": tensor([1], 0, 4)}, 4)
    seed("no-object", "[1,2]", 0)
    seed("truncated", '{"a":{"dtype":"F32","sha', 4)
    seed("not-utf8", b'{"\xff\xfe":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)


def gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + as_bytes(value)

    def u32(key, value):
        return text(key) + struct.pack("<II", 4, value)

    def f32(key, value):
        return text(key) + struct.pack("<If", 6, value)

    def string(key, value):
        return text(key) + struct.pack("<I", 8) + text(value)

    def strings(key, values):
        return text(key) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))

    def floats(key, values):
        return text(key) + struct.pack(f"<IIQ{len(values)}f", 9, 6, len(values), *values)

    def ints(key, values):
        return text(key) + struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)

    def tensor(name, shape, offset, kind=0):
        dims = list(reversed(shape))
        return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)

    def seed(name, values, tensors, zeros, tensor_count=None, value_count=None, version=3):
        counts = (len(tensors) if tensor_count is None else tensor_count,
                  len(values) if value_count is None else value_count)
        head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(values + tensors)
        head += bytes(-len(head) % 32)
        write("gguf", name, struct.pack(">Q", zeros) + head)

    tokenizers = (GOLDEN / "tokenizers" / "gguf_files").glob("*.gguf")
    for file in sorted((GOLDEN / "gguf").glob("*.gguf")) + sorted(tokenizers):
        content = file.read_bytes()
        cut = min(len(content), 16384)
        write("gguf", f"golden-{file.stem}", struct.pack(">Q", len(content) - cut) + content[:cut])

    values = [string("general.architecture", "llama"), u32("llama.block_count", 1),
              u32("llama.context_length", 128), u32("llama.embedding_length", 64),
              u32("llama.feed_forward_length", 96), u32("llama.attention.head_count", 2),
              f32("llama.attention.layer_norm_rms_epsilon", 1e-5)]
    shapes = {"token_embd": [8, 64], "output_norm": [64], "blk.0.attn_norm": [64],
              "blk.0.ffn_norm": [64], "blk.0.attn_q": [64, 64], "blk.0.attn_k": [64, 64],
              "blk.0.attn_v": [64, 64], "blk.0.attn_output": [64, 64],
              "blk.0.ffn_gate": [96, 64], "blk.0.ffn_up": [96, 64], "blk.0.ffn_down": [64, 96]}

    def tensors(kind):
        out, offset = [], 0
        for name, shape in shapes.items():
            own = kind if len(shape) == 2 else 0
            out.append(tensor(name + ".weight", shape, offset, own))
            count = shape[0] * (shape[1] if len(shape) == 2 else 1)
            size = {0: count * 4, 1: count * 2, 2: count // 32 * 18, 8: count // 32 * 34}[own]
            offset += size + -size % 32
        return out, offset

    for kind in (0, 1, 2, 8):
        seed(f"small-{kind}", values, *tensors(kind))
    small, size = tensors(8)
    words = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "\u2581ab"]
    llama = [string("tokenizer.ggml.model", "llama"), strings("tokenizer.ggml.tokens", words),
             floats("tokenizer.ggml.scores", [0, 0, 0, -4, -3, -2, -1, -0.5]),
             ints("tokenizer.ggml.token_type", [2, 3, 3, 1, 1, 1, 1, 1]),
             u32("tokenizer.ggml.bos_token_id", 1), u32("tokenizer.ggml.eos_token_id", 2),
             string("tokenizer.chat_template", "{{ messages[0].content }}")]
    seed("sentence-piece", values + llama, small, size)
    gpt2 = [string("tokenizer.ggml.model", "gpt2"), string("tokenizer.ggml.pre", "llama-bpe"),
            strings("tokenizer.ggml.tokens", words), strings("tokenizer.ggml.merges", ["a b"])]
    seed("byte-level", values + gpt2, small, size)
    seed("bytes-left-out", values, small, size - 32)
    seed("tensors-huge", values, [], 0, tensor_count=HUGE)
    seed("values-huge", [], [], 0, value_count=HUGE)
    seed("version-1", [], [], 0, version=1)
    seed("big-endian", [], [], 0, version=3 << 24)
    seed("list-huge", [text("k") + struct.pack("<IIQ", 9, 12, HUGE)], [], 0)
    seed("list-of-lists", [text("k") + struct.pack("<IIQ", 9, 9, 1)], [], 0)
    seed("strings-huge", [text("k") + struct.pack("<IIQ", 9, 8, 2**60)], [], 0)
    seed("string-huge", [text("k") + struct.pack("<IQ", 8, HUGE)], [], 0)
    seed("key-huge", [struct.pack("<Q", HUGE)], [], 0)
    seed("key-twice", [u32("k", 1), u32("k", 2)], [], 0)
    seed("alignment-0", [u32("general.alignment", 0)], [], 0)
    seed("alignment-huge", [u32("general.alignment", 2**31)], [], 0)
    seed("shape-overflows", values, [tensor("t", [2**32, 2**32], 0)], 0)
    seed("offset-huge", values, [tensor("t", [1], 2**64 - 32)], 64)
    seed("overlap", values, [tensor("t", [64], 0), tensor("u", [64], 32)], 1024)
    seed("rank-5", values, [tensor("t", [1] * 5, 0)], 32)
    seed("half-a-block", values, [tensor("t", [48], 0, 8)], 64)
    seed("type-unknown", values, [tensor("t", [1], 0, 99)], 64)
    seed("part", values + [u32("split.no", 1), u32("split.count", 3)], small, size)
    seed("tokens-twice", values + [string("tokenizer.ggml.model", "gpt2"),
                                   strings("tokenizer.ggml.tokens", ["a", "a"])], small, size)


def model_config():
    def seed(name, config, generation=""):
        texts = [t if isinstance(t, (bytes, str)) else compact(t) for t in (config, generation)]
        write("model_config", name, *texts)

    for model in models():
        seed(f"golden-{model.name}", (model / "config.json").read_bytes(),
             (model / "generation_config.json").read_bytes())
    base = json.loads((GOLDEN / "models/llama31/config.json").read_text())
    changes = {
        "layers-0": {"num_hidden_layers": 0},
        "layers-huge": {"num_hidden_layers": HUGE},
        "layers-most": {"num_hidden_layers": 4096},
        "heads-0": {"num_attention_heads": 0},
        "kv-heads-do-not-divide": {"num_key_value_heads": 3},
        "head-dim-odd": {"head_dim": 31},
        "hidden-huge": {"hidden_size": 2**31},
        "vocab-huge": {"vocab_size": 2**32},
        "context-huge": {"max_position_embeddings": 2**31},
        "theta-0": {"rope_theta": 0},
        "theta-huge": {"rope_theta": 1e308},
        "eps-tiny": {"rms_norm_eps": 1e-320},
        "rope-unknown": {"rope_scaling": {"rope_type": "none of them"}},
        "rope-factor-0": {"rope_scaling": base["rope_scaling"] | {"factor": 0}},
        "rope-equal-factors": {"rope_scaling": base["rope_scaling"] | {"high_freq_factor": 1.0}},
        "eos-many": {"eos_token_id": list(range(260))},
        "eos-out-of-range": {"eos_token_id": [260]},
        "window": {"sliding_window": 16, "use_sliding_window": True},
        "experts": {"num_experts": 8, "num_experts_per_tok": 2},
        "quantized": {"quantization_config": {"bits": 4}},
        "strings": {"hidden_size": "64", "tie_word_embeddings": "yes"},
        "model-type": {"model_type": "qwen3"},
        "nulls": {key: None for key in base},
    }
    for name, change in changes.items():
        seed(name, base | change)
    seed("deep", '{"a":' * 500)
    seed("key-twice", '{"model_type":"llama","model_type":"llama"}')
    seed("nan", '{"model_type":"llama","rope_theta":NaN}')
    seed("exponent", '{"model_type":"llama","rope_theta":1e999}')
    seed("none", "")
    for name, generation in {
        "temperature-negative": {"temperature": -1},
        "temperature-huge": {"temperature": 1e39},
        "top-k-negative": {"top_k": -1},
        "penalty-0": {"repetition_penalty": 0},
        "beams": {"num_beams": 4, "do_sample": False, "top_p": 2},
        "eos": {"eos_token_id": [1, 2, HUGE]},
    }.items():
        seed(f"generation-{name}", base, generation)


# ---- tokenizers


def small(tokenizer, merges=40):
    """The tokenizer with the bytes and its first merges, or the first of its tokens only."""
    model = tokenizer["model"]
    if isinstance(model["vocab"], list):
        return tokenizer | {"model": model | {"vocab": model["vocab"][:330]}}
    pairs = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    vocab = {t: i for t, i in model["vocab"].items()
             if len(t) == 1 or t == model.get("unk_token") or t[:3] in ("<0x",)}
    kept = []
    for a, b in pairs:
        if a in vocab and b in vocab and len(kept) < merges:
            kept.append([a, b])
            vocab[a + b] = model["vocab"][a + b]
    order = sorted(vocab, key=vocab.get)
    renumbered = {t: i for i, t in enumerate(order)}
    added = [dict(t, id=len(order) + i) for i, t in enumerate(tokenizer["added_tokens"][:4])]
    ids = {t["content"]: t["id"] for t in added}
    result = tokenizer | {"added_tokens": added, "model": model | {"vocab": renumbered,
                                                                   "merges": kept}}
    for processor in (result["post_processor"] or {}).get("processors", []) + [
            result["post_processor"] or {}]:
        for token in processor.get("special_tokens", {}).values():
            token["ids"] = [ids[t] for t in token["tokens"]]
    return result


TEXT = "Hello, world! 123 \u00e9\u4e16\U0001f30d don't\r\n\t  <|endoftext|> a\u0301 end"


def tokenizer():
    def seed(name, value, text=TEXT, *beside):
        body = value if isinstance(value, (bytes, str)) else compact(value)
        write("tokenizer", name, body, text, *(compact(file) for file in beside))

    kinds = "falcon gemma gpt2 llama2 llama3 metaspace_always unigram_nfkc".split()
    paths = {kind: GOLDEN / "tokenizers" / kind / "tokenizer.json" for kind in kinds}
    paths["recall"] = TOP / "models/recall/tokenizer.json"
    for name, path in paths.items():
        seed(f"golden-{name}", small(json.loads(path.read_text())))
    for name in ("llama", "unigram_bytes"):
        file = GOLDEN / "tokenizers/sentencepiece_files" / f"{name}.model"
        seed(f"golden-sentencepiece-{name}", file.read_bytes())
    # The rest is on few tokens, so that a fuzzer's changes meet what is not vocabulary.
    tiny = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120ab": 4},
                      "merges": [["a", "b"], ["\u0120", "ab"]]}}

    def model(**fields):
        return tiny | {"model": tiny["model"] | fields}

    def split(pattern, **fields):
        return tiny | {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern},
                                         "behavior": "Isolated", "invert": False} | fields}

    def added(**fields):
        token = {"id": 5, "content": "<x>", "special": False, "lstrip": False, "rstrip": False,
                 "single_word": False, "normalized": True}
        return tiny | {"added_tokens": [token | fields]}

    text = "ab ab  aab <x> b<x>a"
    seed("tiny", tiny, text)
    seed("added", added(), text)
    seed("added-strips", added(lstrip=True, rstrip=True), text)
    seed("added-word", added(single_word=True, special=True), text)
    seed("added-empty", added(content=""), text)
    seed("added-far", added(id=2**31), text)
    seed("added-is-a-token", added(content="ab", id=2), text)
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt",
                 "ByteLevel"):
        seed(f"normalizer-{form.lower()}", tiny | {"normalizer": {"type": form}},
             "\ufdfa\u0345\u1e9b\u0323" * 20)
    seed("normalizer-replace", tiny | {"normalizer": {
        "type": "Replace", "pattern": {"Regex": "a*"}, "content": "b" * 100}}, "a" * 50)
    seed("normalizer-grows", tiny | {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 9}}, "a" * 50)
    seed("normalizer-strips", tiny | {"normalizer": {
        "type": "Strip", "strip_left": True, "strip_right": True}}, " \u3000 ab \t")
    seed("pre-tokenizer-grows", tiny | {"pre_tokenizer": {
        "type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 40}}, TEXT)
    for name, units, replacements in (
            ("", {0x61: 0x61 | 1 << 8 | 0x100 << 10, 0x161: 0, 0xC3: 0xC3 | 0x200 << 10,
                  0x2A9: 0xA9 | 1 << 8 | 0x100 << 10, 0x3A9: 2}, b"b\0e\0"),
            ("-far", {0x61: 0x61 | 1 << 8 | 0x1FFFFF << 10, 0x62: 0x62 | 1 << 8 | 0x100 << 10,
                      0x162: 2**31 - 1}, "\u00e9".encode()),
            ("-long", {0x61: 0x61 | 1 << 8 | 0x100 << 10, 0x161: 0}, b"x" * 3000)):
        trie = b"".join(units.get(i, 0).to_bytes(4, "little") for i in range(max(units) + 1))
        charsmap = base64.b64encode(len(trie).to_bytes(4, "little") + trie + replacements).decode()
        seed(f"precompiled{name}", tiny | {"normalizer": {
            "type": "Precompiled", "precompiled_charsmap": charsmap}}, "ab \u00e9e\u0301\r\nba" * 9)
    for scheme in ("always", "first", "never"):
        seed(f"metaspace-{scheme}", tiny | {"pre_tokenizer": {
            "type": "Metaspace", "replacement": "\u0120", "prepend_scheme": scheme,
            "split": scheme < "g"}}, text)
    seed("normalizer-sequence", tiny | {"normalizer": {
        "type": "Sequence", "normalizers": [{"type": "NFC"}] * 20}}, text)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        seed(f"split-{behavior.lower()}", split("a", behavior=behavior, invert=behavior < "M"), text)
    seed("split-empty-matches", split("x*"), text)
    seed("split-lookahead", split(r"\s+(?!\S)|\s+|\p{N}{1,3}"), TEXT)
    seed("split-backtracks", split("(a+)+$"), "a" * 40 + "b")
    seed("split-backtracks-more", split("(a|a?)+c"), "a" * 60)
    seed("split-repeats", split("((a{1,100}){1,100}){1,100}"), "a" * 60)
    seed("split-deep", split("(" * 90 + "a" + ")" * 90), text)
    seed("split-case", split("(?i:'s|'t|\u017f|\u212a)"), "'S'T K")
    seed("split-unicode", split(r"\p{Han}|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*|[a-z&&[^b]]"), TEXT)
    seed("split-string", tiny | {"pre_tokenizer": {
        "type": "Split", "pattern": {"String": "ab"}, "behavior": "Isolated", "invert": True}}, text)
    seed("byte-fallback", model(byte_fallback=True, unk_token="a", vocab={
        "a": 0, "b": 1, **{f"<0x{i:02X}>": i + 2 for i in range(256)}}, merges=[]), TEXT)
    seed("ignore-merges", model(ignore_merges=True), text)
    seed("unk-fuse", model(unk_token="a", fuse_unk=True), TEXT)
    seed("prefix-suffix", model(continuing_subword_prefix="#", end_of_word_suffix="</w>"), text)
    seed("merge-unknown", model(merges=[["a", "zz"]]), text)
    seed("merge-loop", model(vocab={"a": 0, "aa": 1, "aaaa": 2}, merges=["a a", "aa aa"]), "a" * 2000)
    seed("vocab-far", model(vocab={"a": 0, "b": 2**24 - 1}, merges=[]), text)
    seed("vocab-id-twice", model(vocab={"a": 0, "b": 0}, merges=[]), text)
    seed("unigram", model(type="Unigram"), text)
    words = {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 3, "vocab": {"a": 0, "b": 1, "##b": 2, "##ab": 3}}
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": True, "lowercase": True}
    seed("wordpiece", tiny | {"model": words, "normalizer": bert,
                              "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {
                                  "type": "WordPiece", "prefix": "##", "cleanup": True}}, TEXT)
    seed("wordpiece-unknown", tiny | {"model": words | {"unk_token": "?"}}, "a ab abb c")
    seed("wordlevel", tiny | {"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}}, text)
    seed("fixed-length", tiny | {"pre_tokenizer": {"type": "FixedLength", "length": 2}}, TEXT)
    seed("word-ends", tiny | {"decoder": {"type": "BPEDecoder", "suffix": "b"}}, text)
    flags = {"lstrip": True, "rstrip": True, "single_word": True, "normalized": True, "special": False}
    seed("beside", added(), text, {
        "bos_token": "<s>", "pad_token": {"__type": "AddedToken", "content": "a"}, "image_token": "<i>",
        "added_tokens_decoder": {"5": flags | {"content": "<x>"}, "9": {"content": "b<"}},
        "extra_special_tokens": {"boi": "<y>"}, "additional_special_tokens": ["<z>"],
        "split_special_tokens": True, "clean_up_tokenization_spaces": True,
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True})
    seed("beside-older", added(), text, {"extra_special_tokens": ["<x>", {"content": "ab"}]}, {
        "bos_token": {"content": "<x>", "lstrip": True}, "eos_token": None, "x_token": "b"},
        {"<x>": 5, "aab": 7})

    def unigram(vocab, **fields):
        return tiny | {"model": {"type": "Unigram", "vocab": vocab} | fields}

    letters = [["<unk>", 0], ["a", -1.5], ["b", -2], ["ab", -2.5], ["a", -1]]
    seed("unigram-unknown", unigram(letters, unk_id=0), TEXT)
    seed("unigram-no-unknown", unigram(letters), TEXT)
    seed("unigram-unknown-far", unigram(letters, unk_id=9), text)
    seed("unigram-bytes", unigram(letters + [[f"<0x{i:02X}>", -9] for i in range(256)], unk_id=0,
                                  byte_fallback=True), TEXT)
    seed("unigram-runs", unigram([["a" * n, -n] for n in range(1, 60)], unk_id=0), "a" * 2000)
    seed("unigram-scores", unigram([["a", 1e308], ["b", -1e308], ["ab", 5e-324]], unk_id=0), text)
    seed("template", tiny | {"post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "b", "type_id": 0}}] * 50 +
                  [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"b": {"id": "b", "ids": [1] * 50, "tokens": ["b"] * 50}}}})
    seed("template-far", tiny | {"post_processor": {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "b", "type_id": 0}}],
        "pair": [], "special_tokens": {"b": {"id": "b", "ids": [HUGE], "tokens": ["b"]}}}})
    for decoder in ("Fuse", "ByteFallback", "Metaspace", "Strip", "Replace", "Sequence"):
        seed(f"decoder-{decoder.lower()}", tiny | {"decoder": {"type": decoder, "decoders": []}})
    steps = [{"type": "Replace", "pattern": {"String": "ab"}, "content": " "},
             {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Replace", "pattern": {"String": "aab"}, "content": ""},
             {"type": "Strip", "content": " ", "start": 1, "stop": 2},
             {"type": "Metaspace", "replacement": "\u0120"}, {"type": "ByteLevel"}]
    seed("decoder-steps", tiny | {"decoder": {"type": "Sequence", "decoders": steps}}, text * 9)
    seed("decoder-grows", tiny | {"decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 9}}, text)
    ranks = [bytes([i]) for i in range(256)] + [b"ab", b"aba", b" ab", b"a" * 300]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(ranks)]
    seed("tiktoken", "\n".join(lines), TEXT + text)
    seed("tiktoken-few", "\n".join(lines[97:99] + lines[-4:]), "abab" * 50)
    seed("tiktoken-far", "YQ== 0\nYg== 4294967296", text)
    seed("not-utf8-text", tiny, b"ab\xff\xc3")
    seed("deep", "[" * 3000)
    seed("truncated", compact(tiny)[:150])


# ---- chat templates


def chat_template():
    def seed(name, source, variables=None):
        body = b"" if variables is None else compact(variables).encode()
        write("chat_template", name, source, body)

    def lines(path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    for path in sorted((GOLDEN / "chat_templates/templates").glob("*.jinja")):
        cases = lines(GOLDEN / f"chat_templates/cases/{path.stem}.jsonl")
        case = min(cases, key=lambda c: abs(len(compact(c["input"])) - 1500))
        seed(f"golden-{path.stem}", path.read_text(), case["input"])
    plain = [s["source"] for s in lines(GOLDEN / "chat_templates/snippets.jsonl") if not s["input"]]
    for i in range(0, len(plain), 16):
        seed(f"snippets-{i:03}", "\n".join(plain[i : i + 16]))
    bad = lines(GOLDEN / "chat_templates/bad_templates.jsonl")
    for kind in ("syntax", "sandbox", "resource"):
        sources = [b["source"] for b in bad if b["kind"] == kind and len(b["source"]) < 7000]
        for i, source in enumerate(sources):
            if kind == "resource" or i % 4 == 0:
                seed(f"{kind}-{i:03}", source)


# ---- tool calls

def rows_of_formats():
    """Names of formats of tools and of thoughts, in the order of their tables."""
    source = (TOP / "text/tools/tool_formats.cc").read_text()
    tools, thoughts = source.split("ThoughtRows() {")
    return [re.findall(r'\.name = "(\w+)"', part) for part in (tools, thoughts)]


TOOL_ROWS, THOUGHT_ROWS = rows_of_formats()
TOKENS = 64 + 128  # Markup is special tokens.


def tool_calls():
    def seed(name, row, flags, answer):
        write("tool_calls", name, bytes([TOOL_ROWS.index(row) + 1, flags]) + answer.encode())
        # The other target's flags: special tokens by one bit, pieces of 7 bytes.
        special = 64 if flags & TOKENS else 0
        write("chat_answers", name, bytes([TOOL_ROWS.index(row), special + flags % 16, 6]) + answer.encode())

    def thought(row):  # In the lowest four bits; flags are 16, 32, ...
        return THOUGHT_ROWS.index(row) + 1 if row else 0

    longest = {}
    for line in (GOLDEN / "tools/calls.jsonl").read_text().splitlines():
        case = json.loads(line)
        if case["format"] and len(case["answer"]) > len(longest.get(case["format"], case)["answer"]) or (
                case["format"] and case["format"] not in longest):
            longest[case["format"]] = case
    for row, case in longest.items():
        answer = case["answer"].replace("get_weather", "f").replace("search-web.2", "f")
        for flags in (thought(case["reasoning"]), TOKENS + thought(case["reasoning"])):
            seed(f"golden-{row}-{flags}", row, flags, answer)
    call = '{"name": "f", "arguments": {"s": "a\\u00e9\\n", "n": 1, "o": {"x": [null, true, 2.5e-3]}}}'
    for name, answer in {
        "unknown": '<tool_call>{"name": "g", "arguments": {}}</tool_call>',
        "broken": '<tool_call>{"name": "f", "arguments": {"s": Bern}}</tool_call>',
        "cut": "<tool_call>" + call[:40],
        "twice": f"<tool_call><tool_call>{call}</tool_call>\n<tool_call>[{call}, {call}]</tool_call> done",
        "behind": '<tool_call>{"arguments": {"n": 1}, "name": "f"}</tool_call>',
        "in-text": '<tool_call>{"name": "f", "arguments": "{\\"n\\": 1}"}',
        "thoughts": f"<think>\nHm, </thi\n</think>\n\nWell.\n\n<tool_call>{call}</tool_call>",
        "line": '<tool_call>{"name": "f", "arguments": {"s": "a\nb\tc"}}',
    }.items():
        for flags in (thought("think"), TOKENS + 32 + thought("think"), 16 + thought("think")):
            seed(f"{name}-{flags}", "hermes", flags, answer)
    for row, answer in {
        "llama3_json": call.replace("arguments", "parameters") + "; " + call,
        "mistral": f"[TOOL_CALLS][{call}][TOOL_CALLS]f[CALL_ID]123456789[ARGS]" + '{"n": 1}[TOOL_CALLS]now{}',
        "granite": f"<|tool_call|>[{call}]",
        "minimax_m1": f"<tool_calls>\n{call}\n{call}\n</tool_calls>",
        "minimax_m2": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">a</parameter>\n</invoke>\n'
                      '<invoke name="now">\n</invoke></minimax:tool_call>',
        "kimi_k2": '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"n": 1}'
                   '<|tool_call_end|><|tool_calls_section_end|>',
        "deepseek_v32": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="s" string="true">a'
                        '</｜DSML｜parameter>\n<｜DSML｜parameter name="n" string="false">1</｜DSML｜parameter>\n'
                        '</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        "glm45": "<tool_call>f\n<arg_key>o</arg_key>\n<arg_value>{}</arg_value>\n</tool_call><tool_call>now</tool_call>",
    }.items():
        for flags in (0, TOKENS):
            seed(f"{row}-{flags}", row, flags, answer)


# ---- what answers are held to


def json_schema():
    """A schema or, behind a slash, a pattern; a text."""
    small = {"type": "integer", "minimum": -3, "exclusiveMaximum": 12.5}
    for name, schema, text in (
        ("object", {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"$ref": "#/$defs/n"}},
                    "required": ["a"], "additionalProperties": False, "$defs": {"n": small}}, '{"a":"x","b":-3}'),
        ("array", {"type": "array", "prefixItems": [{"const": 1}, {"enum": ["a", None]}], "items": {"multipleOf": 0.5},
                   "contains": {"minimum": 2}, "minContains": 2, "maxItems": 5}, '[1,"a",2.5,3]'),
        ("choice", {"oneOf": [{"type": "string", "pattern": "^a+b?$"}, {"type": ["integer", "string"], "minLength": 2}],
                    "not": {"const": "aa"}}, '"ab"'),
        ("const", {"const": {"a": [1, 0.1, "\u00e9\"", {}], "b": 1e2}}, '{"a":[1,1e-1,"\\u00e9\\"",{}],"b":100}'),
        ("if", {"type": "object", "if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["x"]},
                "else": {"dependentRequired": {"y": ["z"]}}, "minProperties": 1, "maxProperties": 3}, '{"k":1,"x":2}'),
        ("open", {"properties": {"foo": {"minimum": 3}}, "patternProperties": {"^f.*o$": {"type": "number"}},
                  "additionalProperties": {"type": "boolean"}, "propertyNames": {"maxLength": 5}}, '{"foo":4,"x":true}'),
        ("tree", {"$id": "http://h/t", "$anchor": "n", "type": "object", "properties": {
            "l": {"$ref": "#n"}, "r": {"anyOf": [{"$ref": "t"}, {"type": "null"}]}}, "unevaluatedProperties": False},
         '{"l":{},"r":null}'),
        ("uneval", {"allOf": [{"prefixItems": [True]}, {"anyOf": [{"items": {"type": "string"}}, True]}],
                    "unevaluatedItems": {"type": "null"}}, "[1,null]"),
        ("dynamic", {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}, "dependentSchemas": {"a": False}}, "[[]]"),
        ("unique", {"uniqueItems": True, "items": {"enum": ["a", "b", True]}, "minItems": 2}, '["b",true]'),
        ("loop", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "1"),
        ("far", {"minimum": 1e-300, "maximum": 1.7e308, "multipleOf": 1e-9}, "1e300"),
        ("escaped", {"type": "string", "pattern": "\\u{1F600}|[^\\x00-\\x7f]{3}", "minLength": 1}, '"\\ud83d\\ude00"'),
    ):
        write("json_schema", name, compact(schema), text)
    for name, pattern, text in (("pattern", r"^(?:[a-z]{2,5}|\d+\.\d*)$", "abc"), ("look", "a(?=b)", "ab"),
                                ("nested", "((a*)*)*b{0,300}", "aab"), ("classes", r"[\W\s-]|[^]|\cA|\u{10FFFF}", "-")):
        write("json_schema", name, "/" + pattern, text)
    write("json_schema", "deep", '{"not":' * 40 + "true" + "}" * 40, "1")


def ebnf():
    for name, rules, text in (
        ("arithmetic", 'root  ::= (expr "=" term "\\n")+\nexpr  ::= term ([-+*/] term)*\n'
                       'term  ::= num | "(" expr ")"\nnum   ::= [0-9]+', "1+(2*3)=7\n"),
        ("escapes", 'root ::= "a"{2,3} | b-1? . # c\nb-1 ::= [^\\n\\]\\x41-\\u00e9] root | "\\U0001F600"', "aa"),
        ("macro", 'root ::= root "x" | ("y" | "")+ TagDispatch()', "yx"),
        ("lark", 'start: "a" | /b+/\n%ignore WS', "a"),
        ("nothing", 'root ::= root "a"', "a"),
        ("counts", 'root ::= ("a"{0,50} | [b-]{3,}){,2} ""', "aab-b"),
    ):
        write("ebnf", name, rules, text)


# ---- manifests


def manifest():
    config = (GOLDEN / "models/llama31/config.json").read_text()
    header, _ = header_of(GOLDEN / "models/llama31/model.safetensors")
    names = {"F32": "F32", "BF16": "BF16"}
    start = 8 + len(header)
    tensors = []
    for name, entry in sorted(json.loads(header).items()):
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors.append({"name": name, "dtype": names[entry["dtype"]], "shape": entry["shape"],
                            "file": "model.safetensors", "offset": start + begin,
                            "bytes": end - begin,
                            "sha256": hashlib.sha256(name.encode()).hexdigest()})
    digest = hashlib.sha256()
    for t in tensors:
        shape = ",".join(map(str, t["shape"]))
        digest.update(f"{t['name']}\t{t['dtype']}\t{shape}\t{t['sha256']}\n".encode())
    whole = {"version": 1, "path": "/models/m", "weights_digest": digest.hexdigest(),
             "files": [{"name": "model.safetensors", "sha256": "0" * 64, "bytes": 2**20,
                        "modified_ns": 1, "device": 2, "inode": 3}],
             "tensors": tensors, "config_json": config, "generation_config_json": "",
             "has_tokenizer": True, "chat_template": "{{ messages }}", "bos_token": "<s>",
             "eos_token": "</s>", "notes": ["a note"]}

    def seed(name, value):
        write("manifest", name, value if isinstance(value, str) else compact(value))

    def tensor(**fields):
        return whole | {"tensors": [tensors[0] | fields] + tensors[1:]}

    seed("whole", whole)
    seed("version-2", whole | {"version": 2})
    seed("no-tensors", whole | {"tensors": []})
    seed("other-digest", whole | {"weights_digest": "0" * 64})
    seed("offset-huge", tensor(offset=HUGE))
    seed("bytes-huge", tensor(bytes=HUGE, offset=1))
    seed("shape-overflows", tensor(shape=[2**33, 2**33]))
    seed("shape-negative", tensor(shape=[-1]))
    seed("file-unknown", tensor(file="../model.safetensors"))
    seed("file-path", whole | {"files": [whole["files"][0] | {"name": "../../etc/passwd"}]})
    seed("out-of-order", whole | {"tensors": tensors[::-1]})
    seed("twice", whole | {"tensors": tensors[:1] * 2})
    seed("config-empty", whole | {"config_json": "{}"})
    seed("notes-are-no-texts", whole | {"notes": [1, None, {}]})
    seed("time-negative", whole | {"files": [whole["files"][0] | {"modified_ns": HUGE}]})
    seed("deep", '{"files":' + "[" * 200)
    seed("none", "")


def checkpoint():
    def weights(file):
        header, data_bytes = header_of(file)
        return b"%d %d" % (len(header), data_bytes) + header

    def seed(name, config, index=b"", tokenizer_config=b"", first=b"", second=b""):
        write("checkpoint", name, config, index, tokenizer_config, first, second)

    config = (GOLDEN / "models/llama31/config.json").read_bytes()
    one = weights(GOLDEN / "models/llama31/model.safetensors")
    seed("golden-one-file", config, first=one)
    for model in ("llama31-awq", "llama31-gptq4-actorder", "qwen3-packed4-zeros", "qwen3-fp8-block",
                  "llama31-fp8"):
        folder = GOLDEN / "models" / model
        seed(f"golden-{model}", (folder / "config.json").read_bytes(),
             first=weights(folder / "model.safetensors"))
    sharded = GOLDEN / "models/llama"
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    names = {"model-00001-of-00002.safetensors": "a.safetensors",
             "model-00002-of-00002.safetensors": "b.safetensors"}
    index["weight_map"] = {t: names[f] for t, f in index["weight_map"].items()}
    parts = [weights(sharded / file) for file in sorted(names)]
    config2 = (sharded / "config.json").read_bytes()
    seed("golden-two-files", config2, compact(index), b'{"chat_template":"{{ messages }}"}', *parts)
    template = {"chat_template": [{"name": "default", "template": "{{ 1 }}"},
                                  {"name": "other", "template": 2}], "bos_token": {"content": "<s>"}}
    seed("templates", config, tokenizer_config=compact(template), first=one)
    seed("templates-are-none", config, tokenizer_config='{"chat_template":[1],"bos_token":[]}',
         first=one)

    def indexed(name, **weight_map):
        seed(name, config2, compact({"weight_map": index["weight_map"] | weight_map}), b"", *parts)

    indexed("index-leaves-folder", x="../a.safetensors")
    indexed("index-absolute", x="/etc/a.safetensors")
    indexed("index-null-byte", x="a\0.safetensors")
    indexed("index-no-string", x=[1])
    indexed("index-missing-file", x="c.safetensors")
    indexed("index-missing-tensor", x="a.safetensors")
    indexed("index-other-file", **{next(iter(index["weight_map"])): "b.safetensors"})
    seed("index-empty", config2, '{"weight_map":{}}', b"", *parts)
    seed("index-deep", config2, '{"weight_map":' * 100, b"", *parts)
    seed("same-tensors-twice", config2, compact(index), b"", parts[0], parts[0])
    seed("header-length-0", config, first=b"0 0")
    seed("header-length-huge", config, first=b"18446744073709551615 100{}")
    seed("header-length-limit", config, first=b"100000001 200000000{}")
    seed("header-past-the-end", config, first=b"1000 0{}")
    seed("header-in-the-data", config, first=b"900 1000" + one[10:])
    seed("too-short", config, first=b"1")
    seed("no-weights", config)
    seed("no-config", b"", first=one)


# ---- what travels


def encode(message, text):
    return subprocess.run(
        ["protoc", f"--encode=strata.v1.{message}", "-I", TOP / "proto", "strata/v1/shard.proto",
         "strata/v1/inference.proto", "strata/v1/joining.proto"],
        input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame_parts():
    """A byte that says "raw", then parts, each after its size."""

    def part(data, **fields):
        values = {"epoch": 1, "step": 2, "index": 0, "count": 1, "header_bytes": len(data),
                  "total_bytes": len(data), "crc32c": crc32c(data)} | fields
        escaped = "".join(f"\\{b:03o}" for b in data)
        text = " ".join(f"{k}: {v}" for k, v in values.items())
        return encode("FramePart", f'{text} data: "{escaped}"')

    def seed(name, *parts):
        write("frame_parts", name,
              b"\1" + b"".join(struct.pack(">H", len(p)) + p for p in parts))

    header = encode("StepFrame", 'epoch: 1 step: 2 rows: 1 items { sequence { request_id: "r" '
                                 "generation: 1 } token_ids: [1, 2] }")
    result = encode("StepResult", 'epoch: 1 step: 2 items { sequence { request_id: "r" } }')
    whole = header + struct.pack("<2f", 1, 2)
    both = {"count": 2, "header_bytes": len(header), "total_bytes": len(whole),
            "crc32c": crc32c(whole)}
    seed("one", part(header))
    seed("result", part(result))
    seed("payload", part(whole, header_bytes=len(header)))
    seed("two-parts", part(whole[:7], **both), part(whole[7:], index=1, **both))
    seed("second-first", part(whole[7:], index=1, **both))
    seed("first-twice", part(whole[:7], **both), part(whole[:7], **both))
    seed("of-two-frames", part(whole[:7], **both), part(whole[7:], index=1, **both | {"step": 3}))
    seed("more-than-announced", part(whole, **both), part(whole, index=1, **both))
    seed("less-than-announced", part(header, total_bytes=len(header) + 1))
    seed("bad-crc", part(header, crc32c=1))
    seed("huge-total", part(header, total_bytes=HUGE))
    seed("huge-count", part(header, count=2**32 - 1))
    seed("huge-header", part(header, header_bytes=2**32 - 1))
    seed("header-into-payload", part(whole, header_bytes=len(header) + 3))
    seed("no-parts", part(header, count=0))
    seed("no-data", part(b""))
    seed("other-step-within", part(header, step=9))
    seed("half-a-float", part(whole[:-2], header_bytes=len(header)))
    drawn("frame_parts", 6, 400, b"\0")


def drawn(target, count, size, prefix=b""):
    """Seeds for targets that draw what they do from the bytes: any bytes are as good."""
    source = random.Random(target)
    for i in range(count):
        content = bytes(
            source.choice((source.randrange(256), source.randrange(8), 0xFF)) for _ in range(size))
        write(target, f"drawn-{i:02}", prefix + content)


def step_frames():
    drawn("step_frames", 40, 700)


def carried_kv():
    drawn("carried_kv", 24, 200)


def results():
    drawn("results", 40, 300)


def rank_frames():
    drawn("rank_frames", 20, 300)


def rank_calls():
    drawn("rank_calls", 20, 300)


def generate_request():
    """Which model, whether raw, and the request."""

    def seed(name, text):
        write("generate_request", name, b"\1\1" + encode("GenerateRequest", text))

    for name, sampling in {
        "nan": "temperature: nan", "infinite": "temperature: inf", "negative": "temperature: -1",
        "top-p": "top_p: 1.5", "typical-p-0": "typical_p: 0", "penalty-0": "repetition_penalty: 0",
        "penalty-nan": "frequency_penalty: nan", "top-k": "top_k: 4294967295",
        "bias-nan": "logit_bias { key: 1 value: nan }", "bias-far": "logit_bias { key: 97 value: 1 }",
        "bias-most": " ".join(f"logit_bias {{ key: {i} value: 1 }}" for i in range(4200)),
    }.items():
        seed(f"sampling-{name}", f'text: "ab" max_tokens: 2 sampling {{ {sampling} }}')
    for name, text in {
        "text": 'text: "ab abc" max_tokens: 4 stop: "x" sampling { temperature: 0 seed: 3 }',
        "tokens": "tokens { ids: [1, 2, 96] } max_tokens: 3 logprobs: 5 prompt_logprobs: 5",
        "chat": 'chat { messages { role: "user" content: "hi" } } return_logits: true',
        "no-prompt": 'model: "m"',
        "no-tokens": "tokens { }",
        "id-out-of-range": "tokens { ids: 97 }",
        "ids-huge": "tokens { ids: [4294967295, 4294967295] }",
        "prompt-too-long": "tokens { ids: [" + ", ".join(["1"] * 600) + "] }",
        "max-tokens-huge": "tokens { ids: 1 } max_tokens: 4294967295",
        "stops-17": 'text: "ab" ' + 'stop: "s" ' * 17,
        "stops-16-long": 'text: "ab" max_tokens: 9 ' + ('stop: "' + "s" * 1024 + '" ') * 16,
        "stop-empty": 'text: "ab" stop: ""',
        "stop-too-long": 'text: "ab" stop: "' + "s" * 1025 + '"',
        "logprobs-101": 'text: "ab" logprobs: 101',
        "id-control": 'text: "ab" request_id: "a\\nb"',
        "id-long": 'text: "ab" request_id: "' + "r" * 129 + '"',
        "text-long": 'text: "' + "ab " * 3000 + '"',
        "held-schema": 'text: "a" constraint { json_schema: "{\\"const\\": 1}" strict: true }',
        "held-regex": 'text: "a" constraint { regex: "a|b" }',
        "held-choices": 'text: "a" constraint { choices { texts: ["a", ""] } }',
        "held-grammar": 'text: "a" constraint { grammar: "root ::= [a]" }',
        "held-nothing": 'text: "a" constraint { json_object: false }',
        "called": 'chat { messages { role: "user" content: "a" } tools: \'{"type": "function", "function": {"name": "f"}}\' '
                  'tool_choice: "tool" tool_name: "f" thought_budget_tokens: 3 }',
        "text-invisible": 'text: "\\000\\177\\303\\251" max_tokens: 2',
    }.items():
        seed(name, text)
    drawn("generate_request", 12, 200, b"\1\0")


def http_body():
    """Which route (c: completions, d: chat, e: LoRAX's), and the body."""
    message = [{"role": "user", "content": "a"}]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b\U0001f600"}]
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0.10}}, "required": ["n"]}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "strict": True, "parameters": schema}}
    spellings = {
        "openai": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}},
        "object": {"response_format": {"type": "json_object"}},
        "tgi": {"response_format": {"type": "json_object", "value": schema}},
        "vllm": {"structured_outputs": {"json": schema, "disable_additional_properties": True}},
        "vllm-choice": {"structured_outputs": {"choice": ["a", "b"]}},
        "guided": {"guided_json": compact(schema)},
        "regex": {"guided_regex": "a+|\\d{2}"},
        "choice": {"guided_choice": ["a", "\u00e9"]},
        "grammar": {"guided_grammar": 'root ::= "a"+'},
        "sglang": {"json_schema": compact(schema), "regex": "", "ebnf": None},
        "llama-cpp": {"grammar": 'root ::= [ab]'},
        "two": {"guided_json_object": True, "regex": "a"},
    }
    for name, fields in {
        "all": {"prompt": "a", "max_tokens": 5, "temperature": 0.5, "top_p": 0.2, "top_k": -1,
                "seed": -9, "logit_bias": {"3": -100}, "stop": ["x", "y"], "logprobs": 2, "n": 2,
                "best_of": 3, "echo": True},
        "ids": {"prompt": [1, 2, 3], "stream": True, "stream_options": {"include_usage": True}},
        "lists": {"prompt": [[1], [2, 3]], "max_tokens": 0, "echo": True},
        "texts": {"prompt": ["a", "b\U0001f600"], "min_p": 1e-9, "ignore_eos": True},
        "unsupported": {"prompt": "a", "tools": [{}], "response_format": {"type": "json_object"}},
        "far": {"prompt": "a", "temperature": 1e308, "max_tokens": 1e15},
        "deep": {"prompt": json.loads("[" * 70 + "]" * 70)},
        **{f"held-{name}": {"prompt": "a", **held} for name, held in spellings.items()},
    }.items():
        write("http_body", f"completion-{name}", "c" + compact({"model": "m", **fields}))
    for name, fields in {
        "parts": {"messages": [{"role": "system", "content": "s"},
                               {"role": "user", "content": parts}],
                  "logprobs": True, "top_logprobs": 2},
        "stream": {"messages": message, "stream": True, "n": 3, "max_completion_tokens": 7,
                   "stop": "x"},
        "image": {"messages": [{"role": "user", "content": image}]},
        "tools": {"messages": [*message, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "f", "arguments": "{\"n\":1}"}}]}, {"role": "tool", "tool_call_id": "c", "content": parts}],
            "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "stream": True},
        "named": {"messages": message, "tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}},
                  "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}},
        "thoughts": {"messages": [*message, {"role": "assistant", "content": None, "reasoning_content": "r"}],
                     "continue_final_message": True, "add_generation_prompt": False, "thinking_token_budget": 5},
        **{f"held-{name}": {"messages": message, **held} for name, held in spellings.items()},
    }.items():
        write("http_body", f"chat-{name}", "d" + compact({"model": "m", **fields}))
    for name, fields in {
        "whole": {"parameters": {"max_new_tokens": 4, "temperature": 0.5, "details": True,
                                 "decoder_input_details": True, "return_k_alternatives": 2}},
        "stream": {"stream": True, "parameters": {"stop": ["b"], "do_sample": True}},
        "best": {"parameters": {"best_of": 3, "do_sample": True, "truncate": 2, "details": True}},
        "chat": {"inputs": compact(message), "parameters": {"apply_chat_template": True}},
        "schema": {"parameters": {"schema": compact(schema)}},
        "typed": {"parameters": {"response_format": {"type": "json_object", "schema": schema}}},
        "regex": {"parameters": {"grammar": {"type": "regex", "value": "a*"}}},
    }.items():
        write("http_body", f"lorax-{name}", "e" + compact({"inputs": "a", **fields}))
    write("http_body", "cut", 'd{"model":"m","messages":[{"role"')


def http_connection():
    """Options, the size of pieces (a power of two), and what a client sends."""
    def ask(path, fields, version="1.1", headers=""):
        body = compact({"model": "m", **fields})
        return (f"POST {path} HTTP/{version}\r\nHost: x\r\n{headers}"
                f"Content-Length: {len(body)}\r\n\r\n{body}")

    text = {"prompt": "a", "inputs": "a", "messages": [{"role": "user", "content": "a"}]}
    stream = {**text, "stream": True}
    chunked = ("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
               "5;x=y\r\n{\"inp\r\nA\r\nuts\":\"abc\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n")
    gets = "".join(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n" for method, path in (
        ("GET", "/health"), ("HEAD", "/livez"), ("GET", "/v1/models"), ("GET", "/v1/models/m"),
        ("GET", "/info"), ("GET", "/metrics"), ("DELETE", "/v1/models"), ("GET", "/none?a=b")))
    for name, sent in {
        "completions": ask("/v1/completions", text) * 2,
        "chat-stream": ask("/v1/chat/completions", {**stream, "n": 2, "logprobs": True}),
        "lorax-stream": ask("/generate_stream", stream) + ask("/", {**text, "stream": False}),
        "lorax-best": ask("/generate", {**text, "parameters": {
            "best_of": 2, "do_sample": True, "details": True, "truncate": 1}}),
        "echo": ask("/v1/completions", {"prompt": ["ab", [1, 2]], "echo": True, "logprobs": 1}),
        "tokenize": ask("/tokenize", text) + ask("/detokenize", {"tokens": [1, 256]}),
        "headers": ask("/v1/completions", text, headers="X-Strata-Request-Id: mine\r\n"
                       "X-Strata-Deadline: 3s\r\nConnection: close\r\n"),
        "old": ask("/v1/completions", stream, version="1.0"),
        "expect": ask("/v1/completions", text, headers="Expect: 100-continue\r\n"),
        "chunked": chunked,
        "gets": gets,
        "header-long": "GET / HTTP/1.1\r\nA: " + "b" * 500 + "\r\n\r\n",
        "body-short": ask("/v1/completions", text)[:-7],
        "length-twice": ask("/v1/completions", text, headers="Content-Length: 3\r\n"),
        "length-huge": "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        "no-http": "\x16\x03\x01\x02\x00",
        "targets": "".join(f"{line}\r\nHost: localhost:80\r\n\r\n" for line in (
            "GET http://localhost/v1/models HTTP/1.1", "HEAD /v1/mode%6cs/m HTTP/1.1",
            "GET HTTPS://[::1]:8?model=%6d HTTP/1.1", "GET /tokenizer_info?model=%6d HTTP/1.1",
            "GET /%2Fa%zz HTTP/1.1")),
        "origins": "".join(f"{line}\r\nHost: localhost\r\n{more}\r\n\r\n" for line, more in (
            ("OPTIONS /generate HTTP/1.1",
             "Origin: http://localhost:3\r\nAccess-Control-Request-Method: POST"),
            ("GET /v1/models HTTP/1.1", "Origin: http://127.0.0.1"),
            ("GET /metrics HTTP/1.1", "Origin: http://evil.example"))),
        "host-foreign": "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "host-twice": "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "host-none": "GET /livez HTTP/1.1\r\n\r\n",
        "encoded": ask("/tokenize", text, headers="Content-Encoding: gzip\r\n"),
        "coding": "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                  "Transfer-Encoding: gzip\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        "chunk-bad": "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n3\r\n{}\r\n0\r\n\r\n",
        "expects": ask("/tokenize", text, headers="Expect: more\r\n"),
    }.items():
        for options in "\0\x08\x0f" if name in ("completions", "chunked", "gets") else "\x08":
            write("http_connection", f"{name}-{ord(options)}", options + "\x06" + sent)


def http_streams():
    """What happens: see http_streams_fuzz.cc."""
    ask, read, pause = b"\0\0\1\xff\0\0\0\1", b"\7\0\x13", b"\6"
    start, speak, stop = b"\1\0", b"\2\0\x0c\x0f" + b"a" * 15, b"\4\0\1\0"
    for name, steps in {
        "read": ask + start + (speak + read) * 4 + stop + read,
        "never-read": ask + start + speak * 30,
        "read-late": ask + start + speak * 30 + read * 9,
        "pauses": ask + pause * 2 + start + pause + speak + pause + read + stop,
        "goes": ask + start + speak + b"\5\0\0" + speak * 3,
        "ends": ask + start + b"\5\0\1" + speak * 3 + read,
        "garbage": ask + start + b"\5\0\2\xff" + speak + read + stop + read * 3,
        "ahead": (ask * 6 + start + speak + stop + read) * 3,
        "fails": ask + start + speak + b"\4\0\0\x0c" + read,
        "fails-first": ask + b"\4\0\0\7" + read,
        "several": (ask + speak) * 4 + read * 4,
        "chat": b"\0\1\1\x20\2\1\1\1" + start + speak * 2 + read,
        "lorax": b"\0\2\1\x20\0\0\1\1" + start + speak * 2 + stop + read,
        "whole": b"\0\0\0\x20\2\1\1\1" + start + speak * 2 + stop + read,
        "old": b"\0\0\1\x20\0\1\1\0" + start + speak * 2 + stop + read,
    }.items():
        for options in b"\0\x08\x0f":
            write("http_streams", f"{name}-{options}", bytes([options]) + steps)


def held_weights():
    def text(value):
        return bytes([len(value)]) + value

    def record(name, value):
        write("held_weights", f"record-{name}", b"\1" + value)

    digest = b"0123456789abcdef" * 4
    head = b"strata-layer 1 cpu avx2\n"
    record("whole", head + b"packed " + digest + b" 12\nblob " + digest + b" 0\nend\n")
    record("empty", head + b"end\n")
    record("other-layout", b"strata-layer 1 cpu avx512\nend\n")
    record("no-end", head + b"blob " + digest + b" 1\n")
    record("short-digest", head + b"blob 0123 1\nend\n")
    record("huge", head + b"blob " + digest + b" 99999999999999999999\nend\n")
    right = text(b"weights")
    # How many sources, which and in which life; then pieces and the end of the answer.
    for name, steps in {
        "coordinator": b"\0",
        "gives": b"\1\0\0" + b"\1\7weights\4",
        "lies": b"\1\0\0" + b"\1\7weighty\4" + b"\0",
        "ends-early": b"\1\0\0" + b"\1\2we\4" + b"\1\1\0" + b"\1\5ights\4",
        "too-much": b"\1\0\0" + b"\1\x0fweights and more\4",
        "on-its-way": b"\1\0\0" + b"\0\1\1\x35" + b"\1\7weights\4",
        "breaks": b"\2\0\0\1\0" + b"\1\3wei\3\4gone" + b"\1\4ghts\4",
    }.items():
        write("held_weights", f"fetch-{name}", b"\0" + right + steps)
    field = lambda number, value: bytes([number << 3 | 2, len(value)]) + value
    digests = struct.pack("<2Q", 5, HUGE)
    contents = b"\x08\1" + field(2, digests) + field(4, digests)
    kept = b"\x08\x15\x10\3\x18" + b"\xff" * 9 + b"\1"
    write("held_weights", "contents", b"\2" + text(field(11, contents)) + b"\0" * 7 + b"\5" +
          text(field(11, field(3, digests))) + b"\0" * 8)
    write("held_weights", "kept", b"\2" + text(field(12, kept)) + b"\0" * 8)


def join_token():
    """A token, and a request for a certificate; openssl's keys and signatures are others each time."""
    def openssl(*words):
        return subprocess.run(["openssl", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout

    def token(role, address="10.0.0.1:7070", secret="s" * 16):
        message = encode("JoinToken", f'join_address: "10.0.0.1:7071" address: "{address}" authority_sha256: "{"d" * 32}" '
                                      f'secret: "{secret}" role: {role}')
        return b"strata-join-1." + base64.urlsafe_b64encode(message).rstrip(b"=")

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null"]
    request = openssl("req", "-new", *key, "-subj", "/CN=box")
    write("join_token", "worker", token("CERTIFICATE_ROLE_WORKER"), request)
    write("join_token", "names", token("CERTIFICATE_ROLE_OPERATOR"),
          openssl("req", "-new", *key, "-subj", "/O=a/OU=worker/OU=operator/CN=b/CN=c", "-addext", "subjectAltName=IP:10.0.0.9,DNS:x"))
    write("join_token", "rsa", token("CERTIFICATE_ROLE_CLIENT", "[fd00::1]:7070"),
          openssl("req", "-new", "-newkey", "rsa:1024", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=box"))
    write("join_token", "certificate", token("CERTIFICATE_ROLE_WORKER"),
          openssl("req", "-x509", *key, "-subj", "/O=a/OU=worker/CN=b", "-addext", "subjectAltName=IP:10.0.0.9,DNS:x"))
    write("join_token", "secret", token("CERTIFICATE_ROLE_WORKER", secret="short"), b"")
    write("join_token", "version", b"strata-join-2.AA")
    write("join_token", "padding", token("CERTIFICATE_ROLE_WORKER") + b"==", request.replace(b"REQUEST", b"CERTIFICATE"))


def found_coordinators():
    """As avahi-browse 0.8 writes what it finds."""
    def line(name, address, facts, kind="=", port=7069):
        return f"{kind};e0;IPv4;{name};_strata._tcp;local" + (f";va.local;{address};{port};{facts}\n" if kind == "=" else "\n")

    facts = f'"port=7070" "ca={"a" * 64}"'
    write("found_coordinators", "one", line("home\\032on\\032va", "", "", "+") + line("home\\032on\\032va", "10.9.0.1", facts))
    write("found_coordinators", "several", line("a", "10.9.0.1", facts) + line("a", "fd00::1", facts) + line("a", "fe80::1", facts)
          + line("b", "127.0.0.1", facts.replace("a" * 64, "b" * 64), port=65535))
    write("found_coordinators", "escapes", line("a\\034\\059\\;\\\\b", "10.9.0.1", '"x=\\195\\169\\"\\\\;" ' + facts))
    write("found_coordinators", "nul", line("a", "fd00::1\0x", facts))
    write("found_coordinators", "cut", line("a", "10.9.0.1", facts)[:-10])


def main():
    shutil.rmtree(CORPUS, ignore_errors=True)
    for target in (safetensors, gguf, model_config, tokenizer, chat_template, tool_calls, json_schema, ebnf, manifest, checkpoint,
                   frame_parts, step_frames, carried_kv, held_weights, results, generate_request, http_body,
                   http_connection, http_streams, found_coordinators, join_token, rank_frames, rank_calls):
        target()
    files = [p for p in CORPUS.rglob("*") if p.is_file()]
    print(f"{len(files)} seeds, {sum(p.stat().st_size for p in files)} bytes")


if __name__ == "__main__":
    main()
