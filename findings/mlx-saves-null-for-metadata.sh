#!/usr/bin/env bash
# MLX 0.32.4's `save_safetensors` writes `"__metadata__": null` into the header of a file that is
# given no metadata, where the format has an object of strings or nothing. Hugging Face's library
# reads it as none; a reader that holds to the format's description refuses the file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check "mlx[cpu]==0.32.4" safetensors==0.8.0 numpy==2.4.6
"$folder/venv/bin/python" - "$folder" >"$folder/seen" <<'END'
import json
import sys
import mlx.core as mx
import safetensors

def header_of(path):
    data = open(path, "rb").read()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])

path = sys.argv[1] + "/a.safetensors"
mx.save_safetensors(path, {"a": mx.ones(4)})
print("mlx", mx.__version__, "safetensors", safetensors.__version__)
print("saved without:", json.dumps({"__metadata__": header_of(path)["__metadata__"]}))
print("safetensors reads:", safetensors.safe_open(path, "np").metadata())
mx.save_safetensors(path, {"a": mx.ones(4)}, metadata={"format": "mlx"})
print("saved with:", json.dumps({"__metadata__": header_of(path)["__metadata__"]}))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
mlx 0.32.4 safetensors 0.8.0
saved without: {"__metadata__": null}
safetensors reads: None
saved with: {"__metadata__": {"format": "mlx"}}
END
echo "as described"
