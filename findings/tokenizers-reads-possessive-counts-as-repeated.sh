#!/usr/bin/env bash
# In most dialects of regular expressions `\d{1,3}+` is possessive: one to three digits, never given
# back. In the patterns of a tokenizer.json it is `(?:\d{1,3})+`, any number of digits, since they
# are Oniguruma's with Ruby's syntax, while `\d++` is possessive there too. A split pattern that is
# copied from a tokenizer of another library so cuts numbers otherwise, in silence.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3 regex==2026.11.19
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import regex
import tokenizers
from tokenizers import Regex, pre_tokenizers

print("tokenizers", tokenizers.__version__)
for pattern in (r"\d{1,3}+", r"\d{1,3}", r"\d++"):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    print(pattern, "tokenizers:", [piece for piece, _ in split.pre_tokenize_str("1234567")],
          "regex:", regex.findall(pattern, "1234567"))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
tokenizers 0.23.3
\d{1,3}+ tokenizers: ['1234567'] regex: ['123', '456', '7']
\d{1,3} tokenizers: ['123', '456', '7'] regex: ['123', '456', '7']
\d++ tokenizers: ['1234567'] regex: ['1234567']
END
echo "as described"
