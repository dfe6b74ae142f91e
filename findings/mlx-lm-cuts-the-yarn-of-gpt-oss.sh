#!/usr/bin/env bash
# YaRN's ramp begins and ends between pairs of dimensions. Most code cuts both to whole pairs;
# gpt-oss' published configuration says `"truncate": false`, as its own code does not. mlx-lm 0.32.2
# takes the field and cuts all the same: nine of 32 pairs turn otherwise than they were trained, one
# by three quarters, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  "mlx[cpu]==0.32.4" mlx-lm==0.32.2 transformers==5.24.0
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import math

import mlx_lm
from mlx_lm.models import rope_utils

print("mlx-lm", mlx_lm.__version__)
DIMS, BASE, CONTEXT, FACTOR = 64, 150000.0, 4096, 32.0
scaling = {"rope_type": "yarn", "factor": FACTOR, "beta_fast": 32.0, "beta_slow": 1.0,
           "original_max_position_embeddings": CONTEXT}


def of_library(truncate):
    rope = rope_utils.initialize_rope(DIMS, BASE, False, dict(scaling, truncate=truncate), 131072)
    return [float(1 / f) for f in rope._freqs]


def of_paper(truncate):
    """YaRN's frequencies; with `truncate` the ramp begins and ends at whole pairs."""
    ends = [DIMS * math.log(CONTEXT / (turns * 2 * math.pi)) / (2 * math.log(BASE))
            for turns in (32.0, 1.0)]
    low, high = (math.floor(ends[0]), math.ceil(ends[1])) if truncate else ends
    out = []
    for pair in range(DIMS // 2):
        frequency = BASE ** (-2 * pair / DIMS)
        ramp = min(max((pair - low) / (high - low), 0), 1)
        out.append(frequency / FACTOR * ramp + frequency * (1 - ramp))
    return out


def furthest(a, b):
    return max(abs(x / y - 1) for x, y in zip(a, b))


for truncate in (True, False):
    off = furthest(of_library(truncate), of_paper(truncate))
    print(f"truncate {str(truncate).lower()}: frequencies differ by {100 * off:.0f} % at most")
print("the two settings differ:", of_library(True) != of_library(False))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
mlx-lm 0.32.2
truncate true: frequencies differ by 0 % at most
truncate false: frequencies differ by 76 % at most
the two settings differ: False
END
echo "as described"
