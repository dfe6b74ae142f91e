#!/usr/bin/env bash
# A tokenizer.json says the id of each added token. tokenizers 0.23.3 takes that id only if the
# model's vocabulary has the token under it; others are numbered on from the vocabulary's end, in
# the order of the file, whatever the file says. A file whose vocabulary ends in a gap, as when the
# embedding was padded, so gives ids of other rows than were trained, without a warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import json

import tokenizers
from tokenizers import Tokenizer, models

print("tokenizers", tokenizers.__version__)
plain = json.loads(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).to_str())
flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
plain["added_tokens"] = [dict(id=8, content="<x>", **flags), dict(id=9, content="<y>", **flags)]
tokenizer = Tokenizer.from_str(json.dumps(plain))
for token in plain["added_tokens"]:
    content = token["content"]
    print(content, "in the file:", token["id"], "in use:", tokenizer.token_to_id(content))
print("saved again:", [t["id"] for t in json.loads(tokenizer.to_str())["added_tokens"]])
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
tokenizers 0.23.3
<x> in the file: 8 in use: 2
<y> in the file: 9 in use: 3
saved again: [2, 3]
END
echo "as described"
