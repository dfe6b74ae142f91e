#!/usr/bin/env python3
"""Small models of SentencePiece's, and what its library does with them.

    pip install sentencepiece==0.2.3
    python make_sentencepiece.py

Writes sentencepiece_files/NAME.model and NAME.jsonl: `{"text", "ids", "decoded"}`. Texts come from
nasty.py; those with a control piece's text in them, which Strata takes as that piece, are left out.
"""
import io
import json
import random
from pathlib import Path

import sentencepiece

import nasty
import texts

HERE = Path(__file__).parent
SPACES = ["\u2581" * n for n in range(2, 6)]
# A few replacements, some of several characters: shorter ones begin longer ones.
RULES = ("FF21\t41\nFB03\t66 66 69\n00BD\t31 2F 32\n0065 0301\tE9\n0065 0301 0327\t229\n"
         "3000\t20\n00A0\t20\n000A\t20\n0009\t20 20\n00AD\t\n")
# NAME: what differs from the trainer's defaults.
MODELS = {
    "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, split_digits=True,
                  allow_whitespace_only_pieces=True),
    "gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, add_dummy_prefix=False,
                  allow_whitespace_only_pieces=True,
                  user_defined_symbols=["<start_of_turn>", "\n", "\n\n", "\t", *SPACES, "the", "<b>"]),
    "bpe": dict(model_type="bpe", user_defined_symbols=["<sep>", "é", "a b"],
                normalization_rule_name="nfkc_cf"),
    "unigram": dict(model_type="unigram", user_defined_symbols=["<sep>", "x y"]),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True, rules=True,
                          remove_extra_whitespaces=False, unk_surface="[?]"),
}
VOCABULARY = 1100
CONTROL = ["<s>", "</s>"]


def train(name, settings, lines):
    settings = dict(settings)
    if settings.pop("rules", False):
        rules = HERE / "sentencepiece_files" / "rules.tsv"
        rules.write_text(RULES)
        settings["normalization_rule_tsv"] = str(rules)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=VOCABULARY, num_threads=1,
        character_coverage=0.985, hard_vocab_limit=False, minloglevel=2, **settings)
    if "normalization_rule_tsv" in settings:
        Path(settings["normalization_rule_tsv"]).unlink()
    return model.getvalue()


def main():
    out = HERE / "sentencepiece_files"
    out.mkdir(exist_ok=True)
    sentences = [s for part in texts.PROSE.values() for s in part] + texts.CODE + texts.MISC
    lines = [line for s in sentences for line in s.split("\n") if line]
    for name, settings in MODELS.items():
        content = train(name, settings, lines)
        (out / f"{name}.model").write_bytes(content)
        library = sentencepiece.SentencePieceProcessor(model_proto=content)
        tokens = settings.get("user_defined_symbols", []) + ["<unk>", "<0x41>", "\u2581"]
        rng = random.Random(name)
        cases = list(dict.fromkeys(["", " ", "  a  b ", " a", "a ", *tokens,
                                    *nasty.texts(rng, sentences, tokens)]))
        kept = []
        for text in cases:
            if any(c in text for c in CONTROL) or "\0" in text:
                continue
            ids = library.encode(text)
            kept.append({"text": text, "ids": ids, "decoded": library.decode(ids)})
        # Ids that no text gives.
        for _ in range(60):
            ids = [rng.randrange(3, len(library)) for _ in range(rng.randrange(1, 9))]
            ids += [rng.randrange(3, 259) for _ in range(rng.randrange(4))]
            kept.append({"ids": ids, "decoded": library.decode(ids)})
        (out / f"{name}.jsonl").write_text("".join(json.dumps(c) + "\n" for c in kept))
        print(name, len(library), "pieces", len(content), "bytes", len(kept), "cases")


if __name__ == "__main__":
    main()
