#!/usr/bin/env bash
# Jinja looks like Python, and its powers do not: they group to the left, and a minus in front binds
# tighter. A chat template that is tried as Python first, or an engine of templates that is written
# by Python's grammar, computes other numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check jinja2==3.1.6
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import jinja2

print("jinja2", jinja2.__version__)
for expression in ("2 ** 3 ** 2", "-2 ** 2", "2 ** -1 ** 2"):
    rendered = jinja2.Environment().from_string("{{ %s }}" % expression).render()
    print(expression, "in Jinja:", rendered, "in Python:", eval(expression))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
jinja2 3.1.6
2 ** 3 ** 2 in Jinja: 64 in Python: 512
-2 ** 2 in Jinja: 4 in Python: -4
2 ** -1 ** 2 in Jinja: 0.25 in Python: 0.5
END
echo "as described"
