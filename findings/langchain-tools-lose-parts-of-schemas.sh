#!/usr/bin/env bash
# langchain makes a tool of a Pydantic model for bind_tools, and for with_structured_output by
# function_calling. Two parts of a model's schema are lost on the way, in silence. References are
# written out where they stand, and one that leads back to its own model becomes {}: items of a
# recursive list may be anything. With strict=True every object is closed, one without named members
# too: of a dictionary nothing is left but the empty one. So an answer that keeps to the schema that
# the server is sent is refused by the model, or is always empty.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check langchain-core==1.8.3 pydantic==2.14.4 jsonschema==4.26.0
"$folder/venv/bin/python" - >"$folder/seen" <<'END'
import importlib.metadata

import jsonschema
import pydantic
from langchain_core.utils.function_calling import convert_to_openai_tool


class Tree(pydantic.BaseModel):
    """A tree."""
    value: int
    children: list["Tree"]


class Prices(pydantic.BaseModel):
    """Prices by name."""
    prices: dict[str, int]


def takes(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


print("langchain-core", importlib.metadata.version("langchain-core"))
wrong = {"value": 1, "children": ["no tree"]}
sent = convert_to_openai_tool(Tree)["function"]["parameters"]
print("Tree's schema, the tool's:", takes(Tree.model_json_schema(), wrong), takes(sent, wrong))
print("children:", sent["properties"]["children"])
some = {"prices": {"tea": 3}}
for strict in (None, True):
    sent = convert_to_openai_tool(Prices, strict=strict)["function"]["parameters"]
    print(f"Prices' schema, the tool's with strict={strict}:", takes(Prices.model_json_schema(), some), takes(sent, some))
print("prices:", sent["properties"]["prices"])
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
langchain-core 1.8.3
Tree's schema, the tool's: False True
children: {'items': {}, 'type': 'array'}
Prices' schema, the tool's with strict=None: True True
Prices' schema, the tool's with strict=True: True False
prices: {'additionalProperties': False, 'type': 'object'}
END
echo "as described"
