#!/usr/bin/env python3
"""conversations.jsonl: what `apply_chat_template` of transformers hands to a template: a model's named tokens, and messages without
null fields and with what the assistant thought under each of its names.

    make_conversations.py     # transformers 5.24.0, tokenizers 0.23.3

A line: {"template", "config": tokenizer_config.json without its template, "input": the variables of a caller, "output"}.
"""
import json
import os
import tempfile
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

# Everything that a template can see of messages, and of tokens.
SHOW = ("{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ add_generation_prompt }} "
        "{% for t in [bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token, image_token, boi] %}"
        "[{{ t if t is defined else 'undefined' }}]{% endfor %}")
THINK = ("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
         "{% endif %}{% if m.content is defined %}{{ m.content }}{% endif %}{{ eos_token }}{% endfor %}{{ pad_token }}{{ image_token }}")
CONFIGS = [
    {},
    {"bos_token": "<s>", "eos_token": "</s>"},
    {"pad_token": "<pad>", "unk_token": {"__type": "AddedToken", "content": "<unk>"}, "sep_token": "<sep>", "cls_token": "<cls>",
     "mask_token": "<mask>", "bos_token": None, "image_token": "<image>"},
    {"eos_token": "</s>", "extra_special_tokens": {"boi": "<boi>", "image_token": "<i>"}},
    {"extra_special_tokens": ["<a>", "<b>"], "additional_special_tokens": ["<c>"], "image_token_id": 7},
]
USER = {"role": "user", "content": "Why?"}
MESSAGES = [
    [USER],
    [USER, {"role": "assistant", "content": "So.", "reasoning_content": "Hm"}],
    [USER, {"role": "assistant", "content": "So.", "thinking": "Hm"}],
    [USER, {"role": "assistant", "content": "So.", "reasoning": "Hm"}],
    [USER, {"reasoning": "third", "role": "assistant", "thinking": "second", "content": None, "reasoning_content": None}],
    [USER, {"reasoning_content": "first", "role": "assistant", "thinking": "second", "reasoning": "third"}],
    [USER, {"role": "assistant", "content": None, "tool_calls": None, "name": None, "reasoning": ""}],
    [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": None, "function": {"name": "f", "arguments": None}}]}],
    [{"role": "user", "content": [{"type": "text", "text": "a", "cache": None}]}, {"role": "assistant", "thinking": {"a": [1, None]}}],
]


def main():
    with (Path(__file__).parent / "conversations.jsonl").open("w") as out:
        for template in (SHOW, THINK):
            for config in CONFIGS:
                folder = Path(tempfile.mkdtemp())
                Tokenizer(models.BPE()).save(str(folder / "tokenizer.json"))
                (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
                tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
                for messages in MESSAGES if config in CONFIGS[1:3] else MESSAGES[:1]:
                    for extra in ({}, {"bos_token": "mine", "add_generation_prompt": True}) if messages == MESSAGES[0] else ({},):
                        given = {"messages": messages, **extra}
                        output = tokenizer.apply_chat_template(json.loads(json.dumps(messages)), tokenize=False, **extra)
                        out.write(json.dumps({"template": template, "config": config, "input": given, "output": output},
                                             ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
