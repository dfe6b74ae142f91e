#!/usr/bin/env bash
# A gpt-oss config.json with `"rope_scaling": null` says that positions are not scaled, as it does
# for every other family. transformers 5.24 reads it as YaRN by a factor of 32, the same as if the
# field were absent, and saves it so; only {"rope_type": "default"} turns the scaling off.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check transformers==5.24.0
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import transformers

print(f"transformers {transformers.__version__}")


def rope(cls, **fields):
    config = cls.from_dict(dict(rope_theta=10000.0, max_position_embeddings=4096, **fields))
    return {k: v for k, v in sorted(config.rope_parameters.items()) if k in ("rope_type", "factor")}


print("llama, null:", rope(transformers.LlamaConfig, rope_scaling=None))
print("gpt-oss, null:", rope(transformers.GptOssConfig, rope_scaling=None))
print("gpt-oss, absent:", rope(transformers.GptOssConfig))
print("gpt-oss, default:", rope(transformers.GptOssConfig, rope_scaling={"rope_type": "default"}))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
transformers 5.24.0
llama, null: {'rope_type': 'default'}
gpt-oss, null: {'factor': 32.0, 'rope_type': 'yarn'}
gpt-oss, absent: {'factor': 32.0, 'rope_type': 'yarn'}
gpt-oss, default: {'rope_type': 'default'}
END
echo "as described"
