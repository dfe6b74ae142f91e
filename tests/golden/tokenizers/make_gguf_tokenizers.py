#!/usr/bin/env python3
"""What GGUF files' tokenizers must do, by public libraries.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf gguf==0.19.0 transformers==5.24.0
    python make_gguf_tokenizers.py

Writes gguf_files/:
- pieces.jsonl: `{"pre": [names], "texts": [...]}`, where a text is the bytes of each of its pieces
  as Hugging Face's tokenizers cuts it by the splits that each tokenizer.ggml.pre stands for: those
  of the published tokenizer.json files, and of llama.cpp's table. `texts` of texts.json, in order.
- spm.gguf, a vocabulary of SentencePiece's kind (that of sentencepiece_files/llama.model) with
  added tokens, and spm.jsonl: `{"text", "ids", "decoded"}` by SentencePiece itself, to which the
  added tokens are user-defined pieces. Where a text begins with one, the library puts a blank
  before it; transformers' reader of GGUF files, which finds it first, does not, and is taken.
"""
import json
import random
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer

import families
import nasty
import texts

HERE = Path(__file__).parent
OUT = HERE / "gguf_files"
ADDED = [("<|im_start|>", True), ("<|im_end|>", True), ("<tool>", False), ("[INST]", False)]

LLAMA3, QWEN2, O200K = families.LLAMA3, families.QWEN2, families.O200K
CONTRACTIONS, SPACES = families.CONTRACTIONS, r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MARKED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿ\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943")
EAST = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"


def split(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def digits(individual):
    return pre_tokenizers.Digits(individual_digits=individual)


# Names that stand for the same cuts, and these.
PRE = [
    (["", "default"], split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    (["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], split(LLAMA3)),
    (["minicpm5"], split(r"\p{N}{1,3}", CONTRACTIONS + "|" + WORD + r"|\p{N}+|" + families.TAIL)),
    (["jais-2"], split(CONTRACTIONS + "|" + WORD + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                       + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
                       + r"|\s{1}")),
    (["qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "kormo", "f2llmv2",
      "solar-open", "grok-2"], split(QWEN2)),
    (["laguna"], split(r"[^\n]+|[\n]+", QWEN2)),
    (["qwen35"], split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                       r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES)),
    (["ufakzeka"], split(WORD + r"|\p{N}|" + families.TAIL)),
    (["seed-coder"], split(CONTRACTIONS + "|" + WORD + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES)),
    (["exaone-moe"], split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                           r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")),
    (["bailingmoe", "bailingmoe2", "llada-moe"],
     split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
           r"|\s*[\r\n]|\s+(?!\S)|\s+")),
    (["tekken"], split(families.TEKKEN)),
    (["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], split(O200K)),
    (["tiny_aya", "cohere2moe"], split(r"\d{1,3}(?=(?:\d{3})*\b)", O200K)),
    (["youtu"], split("[\uac00-\ud7a3\u3131-\u318e]+|[！…“”‘’—：；，、-\u303f\ufe30-\ufe4f]+"
                      "|[\u3105-\u312f]+|" + CJK, O200K.replace("{1,3}", ""))),
    (["kimi-k2"], split(families.KIMI)),
    (["deepseek-llm"], [*split(r"[\r\n]", rf"\s?[{CASED_LETTERS}]+",
                               "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", EAST),
                        digits(True)]),
    (["deepseek-coder"], [*split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST), digits(True)]),
    (["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], split(*families.DEEPSEEK)),
    (["spark2_5"], split(r"\p{N}{1,3}", CJK,
                         MARKED + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")),
    (["afmoe"], split(r"\p{N}+", r"(?=(\p{N}{3})+(?!\p{N}))",
                      "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
                      "\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
                      "\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
                      MARKED + r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES)),
    (["superbpe"], split(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    (["falcon"], [pre_tokenizers.Punctuation("contiguous"), *split(GPT2), digits(False),
                  *split("[0-9][0-9][0-9]")]),
    (["bloom", "gpt3-finnish", "poro-chat"], split(" ?[^(\\s|.,!?…。，、।۔،)]+")),
    (["viking"], [*split(" ?[^(\\s|.,!?…。，、।۔،)]+"), digits(True)]),
    (["smollm", "refact", "starcoder", "codeshell", "exaone", "minerva-7b", "mellum2", "command-r"],
     [digits(True), *split(GPT2)]),
    (["gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "jais", "trillion", "exaone4",
      "granite-docling", "mpt", "olmo"], split(GPT2)),
]
TEXTS = [
    "I've it's WE'LL 'tis O'Neil's x'T, $12.50+3=15.5^2 ~7|8 `tick`; a_b-c... ?!",
    "1 12 123 1234 12345 1234567 12345678901 1,234,567.89 3.14 \u0661\u0662\u0663\u0664 \u00bd\u00b2 a1b22c333d4444",
    "getUserName iPhone HELLO World helloWORLD \u01c5 \u00c9tat \u00e9TAT na\u00efve cafe\u0301s",
    "  two\t\ttabs \n\n  lines\r\n \r\n\u00a0x\u3000y   end   ", "\n\n\n", "   ", "a \nb  \n  c",
    "def f(x):\n\t\tif x: # comment\n        return {\"k\": [1, 2]}\n\n\n/* c */ //x\n",
    "\u4e2d\u6587abc\u4e2d\u6587123 \u65e5\u672c\u8a9e\u3068English\u306e\u6df7\u5728\u3002\uff0c\uff01 \u30ab\u30bf\u30ab\u30ca \uff76\uff85 \uc548\ub155 \uc138\uacc4",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u03ba\u03cc\u03c3\u03bc\u03b5 \u1f08\u03c1\u03c7\u1f74 \u1fbc \u0535\u0580\u0587\u0561\u0576 \u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8 \u13e3\u13b3 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u212aelvin \u2126hm \u2102 \uff21\uff22 \ufb01 \u2018q\u2019 \u201cQ\u201d \u3001\u3002 \uff1f\u2026\u2014 \u1780\u17b6 \u1019\u103c \u0e94 \U00010400\U00010428",
    "\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f \U0001f468\u200d\U0001f469\u200d\U0001f467 a\U0001f600b \u2705 1\ufe0f\u20e3",
    "12ab 34 56th 2026-11-28T12:34:56Z v1.2.3 0x1F600 1_000 100% 1234567th " + " " * 9 + "x" + " " * 21,
]


def pieces_of(pipeline, text):
    """The bytes of each."""
    sequence = pre_tokenizers.Sequence(pipeline)
    return [len(piece.encode()) for piece, _ in sequence.pre_tokenize_str(text)]


def write_spm():
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((HERE / "sentencepiece_files/llama.model").read_bytes())
    for text, _ in ADDED:
        proto.pieces.add(piece=text, score=0.0, type=proto.SentencePiece.USER_DEFINED)
    library = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    kinds = gguf.TokenType
    tokens, scores, types = [], [], []
    special = {text for text, is_special in ADDED if is_special}
    for i, piece in enumerate(proto.pieces):
        added = piece.type == proto.SentencePiece.USER_DEFINED
        tokens.append(piece.piece)
        scores.append(-1000.0 if added else piece.score)
        types.append(kinds.CONTROL if library.IsControl(i) or piece.piece in special
                     else kinds.UNKNOWN if library.IsUnknown(i) else kinds.BYTE if library.IsByte(i)
                     else kinds.USER_DEFINED if added else kinds.NORMAL)
    writer = gguf.GGUFWriter(OUT / "spm.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return library


def spm_texts():
    words = ["the", " the", "  the ", "machines", "\n", "it's", " ", "caf\u00e9", "\U0001f600", "x", "."]
    added = [text for text, _ in ADDED]
    rng = random.Random(20261128)
    cases = ["the<tool>the", "the<tool> the", "the <tool>  the", "<|im_start|>user\nthe machines<|im_end|>\n",
             " the", "  the", "<tool>", "<tool> ", " <tool>", "[INST] the[INST]the", "a<tool><tool>b"]
    for _ in range(60):
        cases.append("".join(rng.choice(words if rng.random() < 0.7 else added)
                             for _ in range(rng.randrange(1, 8))))
    sentences = [s for part in texts.PROSE.values() for s in part][::6]
    return list(dict.fromkeys([*cases, *sentences, *nasty.EDGES[31:60]]))


def main():
    OUT.mkdir(exist_ok=True)
    (OUT / "texts.json").write_text(json.dumps(TEXTS) + "\n")
    with open(OUT / "pieces.jsonl", "w") as out:
        for names, pipeline in PRE:
            cut = [pieces_of(pipeline, text) for text in TEXTS]
            out.write(json.dumps({"pre": names, "texts": cut}, separators=(",", ":")) + "\n")
    library = write_spm()
    theirs = AutoTokenizer.from_pretrained(OUT, gguf_file="spm.gguf")
    kept, first = [], 0
    for text in spm_texts():
        if any(c in text for c in ("<s>", "</s>", "<unk>", "\0")):
            continue
        ids = library.encode(text)
        other = theirs.encode(text, add_special_tokens=False)
        if text.startswith(tuple(t for t, _ in ADDED)):
            ids, first = other, first + 1
        # transformers takes a blank that a text begins with for the one that SentencePiece adds.
        assert text.startswith((" ", "\u2581")) or ids == other, (text, ids, other)
        kept.append({"text": text, "ids": ids, "decoded": library.decode(ids)})
    (OUT / "spm.jsonl").write_text("".join(json.dumps(c) + "\n" for c in kept))
    print(len(kept), "texts,", first, "by transformers")


if __name__ == "__main__":
    main()
