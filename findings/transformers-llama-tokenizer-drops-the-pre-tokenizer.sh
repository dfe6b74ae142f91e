#!/usr/bin/env bash
# A tokenizer.json has the whole pipeline. transformers 5.24 uses it only under a `tokenizer_class`
# without a pipeline of its own: with LlamaTokenizer it takes vocabulary and merges of the file and
# puts its own stages around them. The same file then cuts the same text otherwise, here the digits
# that its pre-tokenizer keeps apart, and the library that wrote it (tokenizers) disagrees.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check transformers==5.24.0 tokenizers==0.23.3
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import json
import pathlib
import tempfile

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

print("transformers", transformers.__version__)
folder = pathlib.Path(tempfile.mkdtemp())
tokens = ["<unk>", "<s>", "</s>", *"abc 123", "\u2581", "12", "\u2581a"]
tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)},
                                 [("1", "2"), ("\u2581", "a")], unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
tokenizer.save(str(folder / "tokenizer.json"))
print("tokenizers:", ascii(tokenizer.encode("a 12").tokens))
for name in ("PreTrainedTokenizerFast", "LlamaTokenizer"):
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": name, "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}))
    print(f"{name}:", ascii(transformers.AutoTokenizer.from_pretrained(folder).tokenize("a 12")))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
transformers 5.24.0
tokenizers: ['a', ' ', '1', '2']
PreTrainedTokenizerFast: ['a', ' ', '1', '2']
LlamaTokenizer: ['\u2581a', '\u2581', '12']
END
echo "as described"
