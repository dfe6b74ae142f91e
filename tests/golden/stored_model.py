"""A model whose weights are stored in another way than its source's: its folder, with one case."""

import json
import shutil

import safetensors.torch

import reference
from pieces import Case, Model

PROMPT_LENGTH = 12


def stable_case(hf, facts, rng):
    """A prompt that the model continues without coming near a tie."""
    while True:
        case = Case(f"p{PROMPT_LENGTH}", facts.prompt(rng, PROMPT_LENGTH))
        clear = reference.extend_greedily(lambda ids: reference.logits_of(hf, case, ids), case,
                                          facts.special_ids())
        if clear and reference.is_stable(hf, case, rng):
            return case


def write(path, source, stored, values, quantization, rng):
    """Makes the folder `path` anew: the configuration of the folder `source` with
    `quantization_config`, if there is one, the tensors `stored`, and what transformers computes with `values`, the
    float32 weights that they say. Returns the smallest gap between two logits."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    config = json.loads((source / "config.json").read_text())
    generation = json.loads((source / "generation_config.json").read_text())
    added = {} if quantization is None else {"quantization_config": quantization}
    text = json.dumps(config | added, indent=2)
    (path / "config.json").write_text(text + "\n")
    shutil.copy(source / "generation_config.json", path)
    safetensors.torch.save_file(stored, path / "model.safetensors", {"format": "pt"})
    hf = reference.load_tensors(config, values)
    case = stable_case(hf, Model(source.name, config, generation, None), rng)
    logits = reference.logits_of(hf, case, case.prompt_ids + case.greedy_ids[:-1])
    reference.write_results([case], {f"{case.name}.logits": logits}, path / "cases.json",
                            path / "expected.safetensors")
    return reference.check_steps(logits, case)
