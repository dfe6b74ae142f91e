"""A model that calls the tool `weather` when it is asked with tools, twice where the question has "both", and answers
once it has a result. It is made, not trained: the next token depends on the last one alone. The chat template ends a prompt with a token that says
what comes next. Where an answer is held to a grammar, it takes the shortest way to its end."""

import json
import shutil
import struct
from pathlib import Path

from cluster import RECALL

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
BOTH = CALL + "\n" + CALL.replace("Bern", "Rome")
ANSWER = "It is 9 degrees."
CONTEXT = 16384  # Agents say much.
END = 1012  # <|eot_id|>
ADDED = {"\u27e6call\u27e7": 1013, CALL: 1014, "\u27e6answer\u27e7": 1015, ANSWER: 1016, "\u27e6both\u27e7": 1017, BOTH: 1018}
NEXT = {1013: 1014, 1014: END, 1015: 1016, 1016: END, 1017: 1018, 1018: END}
# Of what a grammar lets come: what ends values first.
LIKED = {'"': 14, "}": 12, "]": 10, ",": 6, "1": 4, "{": 2}
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ (tools | tojson) + '<tool_call></tool_call>' }}{% endif %}"
    "{% for m in messages %}{{ '[' + m.role + ']' + (m.content or '') }}{% for c in m.tool_calls or [] %}"
    "{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{% if tools and messages[-1].role == 'user' "
    "and messages | selectattr('role', 'equalto', 'tool') | list | length == 0 %}"
    "{{ '\u27e6both\u27e7' if 'both' in messages[-1].content else '\u27e6call\u27e7' }}"
    "{% else %}{{ '\u27e6answer\u27e7' }}{% endif %}{% endif %}")


def bfloat16(value):
    return struct.pack("<f", value)[2:]


def make_caller(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(Path(RECALL) / "generation_config.json", folder)  # It is greedy.
    config = json.loads((Path(RECALL) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    tokenizer = json.loads((Path(RECALL) / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": False} for text, number in ADDED.items()]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": TEMPLATE}))
    data = bytearray((Path(RECALL) / "model.safetensors").read_bytes())
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])

    def fill(name, rows):
        """Zeros but for {(row, column): value}."""
        begin, end = (8 + size + at for at in header[name]["data_offsets"])
        data[begin:end] = bytes(end - begin)
        for (row, column), value in rows.items():
            at = begin + 2 * (row * header[name]["shape"][-1] + column)
            data[at:at + 2] = bfloat16(value)

    vocabulary = tokenizer["model"]["vocab"]
    for name, tensor in header.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            fill(name, {})
        elif name.endswith("norm.weight"):
            fill(name, {(0, column): 1 for column in range(tensor["shape"][0])})
    columns = {token: 1 + i for i, token in enumerate(NEXT)}
    fill("model.embed_tokens.weight", {
        **{(token, 0): 1 for token in range(1024)}, **{(token, column): 1 for token, column in columns.items()}})
    fill("lm_head.weight", {
        **{(vocabulary[text], 0): value for text, value in LIKED.items()}, (END, 0): 16,
        **{(then, columns[token]): 64 for token, then in NEXT.items()}})
    (folder / "model.safetensors").write_bytes(data)
    return folder
