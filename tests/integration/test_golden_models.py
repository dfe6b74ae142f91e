"""The golden models through real processes, cut in every way."""

import concurrent.futures
import hashlib
import json
import re
import struct

import numpy as np
import pytest

from cluster import GOLDEN, SOURCE, Cluster, cut, golden_cases, served_cases

REFERENCES = {name: {} for name in (
    "llama", "llama31", "llama2-mha-f32", "mistral", "qwen2", "qwen3", "smollm3", "granite",
    "olmo2", "phi3", "phi3-longrope", "phi4-mini", "gemma", "gemma2", "gemma3",
    "mixtral", "qwen3-moe", "qwen3-moe-nonorm", "gpt-oss", "minicpm-o",
    "deepseek-v2", "deepseek-v3", "kimi-k2", "qwen2-vl", "qwen25-vl", "qwen3-vl",
    "qwen3-vl-moe", "mistral3", "ministral3",
    "devstral", "olmo3", "seed-oss", "glm", "glm4", "glm4-moe", "glm4-moe-lite", "minimax-m2",
    "minimax-m2-fused")}
REFERENCES |= {name: {"activations": "f32"} for name in (
    "llama31-mlx4", "llama31-mlx8", "qwen3-mlx4", "qwen3-mlx4-g32", "mixtral-mlx4",
    "mixtral-mlx4-mixed", "gpt-oss-mxfp4", "llama31-awq", "phi3-awq",
    "qwen2-gptq4", "qwen3-gptq4-v2", "llama31-gptq4-sym", "llama31-gptq8",
    "llama31-gptq4-actorder", "qwen2-packed4", "qwen3-packed4-zeros", "llama31-packed8",
    "llama31-packed8-zeros", "qwen3-packed4-actorder", "mixtral-awq", "qwen3-moe-awq",
    "mixtral-gptq4", "mixtral-gptq4-actorder", "qwen3-moe-gptq4", "qwen3-moe-gptq8",
    "mixtral-packed8", "qwen3-moe-packed4", "deepseek-v2-awq", "deepseek-v2-packed4")}
REFERENCES |= {name: {} for name in ("llama31-fp8", "qwen2-fp8-channel", "qwen3-fp8-block",
                                    "deepseek-v3-fp8")}
# Numerics classes of their own, which no reference has numbers for.
QUANTIZED = [("llama", {"quantize": "int8"}), ("llama", {"quantize": "int4"}),
             ("llama31", {"quantize": "int8", "activations": "f32"}), ("llama31-mlx4", {}),
             ("phi3", {"quantize": "int8"}), ("gemma3", {"quantize": "int4"}),
             ("mixtral", {"quantize": "int8"}), ("mixtral-mlx4", {}),
             ("qwen3-moe", {"quantize": "int4"}), ("gpt-oss", {"quantize": "int8"}),
             ("gpt-oss-mxfp4", {}), ("deepseek-v3", {"quantize": "int8"}),
             ("phi3-awq", {}), ("qwen2-gptq4", {}), ("llama31-gptq8", {}),
             ("llama31-gptq4-actorder", {"quantize": "int8"}), ("qwen3-packed4-zeros", {}),
             ("qwen3-fp8-block", {"quantize": "int4"}),
             ("deepseek-v3-fp8", {"quantize": "int8"}), ("mixtral-awq", {}),
              ("qwen3-moe-gptq4", {}), ("mixtral-packed8", {}), ("deepseek-v2-awq", {}),
              ("mixtral-gptq4-actorder", {"quantize": "int4"})]
# All other families; each in both formats and on every instruction set: tests/worker/backend.
QUANTIZED += [pytest.param(name, {"quantize": quantize}, marks=pytest.mark.long)
              for name in ("mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2",
                           "phi3-longrope", "phi4-mini", "gemma2", "minicpm-o", "deepseek-v2",
                           "kimi-k2", "qwen25-vl", "qwen3-vl", "mistral3", "ministral3",
                           "devstral", "olmo3", "seed-oss", "glm4", "glm4-moe", "glm4-moe-lite",
                           "minimax-m2")
              for quantize in ("int8", "int4")]
QUANTIZED += [pytest.param("mixtral", {"quantize": "int4"}, marks=pytest.mark.long)]
STORED = {"gpt-oss-mxfp4": "bf16+mxfp4", "phi3-awq": "awq4g32+bf16", "qwen2-gptq4": "gptq4g32",
          "llama31-gptq8": "gptq8", "qwen3-packed4-zeros": "packed4g64",
          "mixtral-awq": "awq4g64", "qwen3-moe-gptq4": "gptq4g32", "mixtral-packed8": "packed8",
          "deepseek-v2-awq": "awq4g32"}
WORKERS = [f"w{i}" for i in range(7)]
LLAMA_LAYERS = 3
TOLERANCE = 5e-4  # tests/golden/README.md


# Rows that no golden model has, and what reads them.
NO_GOLDEN = {"gemma3": "gemma3_text within a model with eyes: tests/common/checkpoint/dense_families_test.cc"}


# Rows whose fields make_config_fields.py cannot ask transformers about.
WITHIN = "make_config_fields.py changes no text_config"
NO_FIELDS = {"minicpmo": "transformers has no class of it", "kimi_k2": "transformers has no class of it",
             "gemma3": WITHIN, "mistral3": WITHIN, "qwen2_vl": WITHIN, "qwen2_vl_text": WITHIN,
             "qwen2_5_vl": WITHIN, "qwen2_5_vl_text": WITHIN, "qwen3_vl": WITHIN, "qwen3_vl_text": WITHIN,
             "qwen3_vl_moe": WITHIN, "qwen3_vl_moe_text": WITHIN}


def family_rows():
    table = (SOURCE / "common/checkpoint/family_table.cc").read_text().split("{.model_type = ")[1:]
    rows = {row.split('"')[1]: row for row in table}
    assert len(rows) > 20
    return rows


def test_each_familys_fields_were_tried_in_the_reference():
    tried = {json.loads((GOLDEN / "models" / name / "config.json").read_text())["model_type"]
             for name in json.loads((GOLDEN / "config_fields.json").read_text())}
    missing = sorted(family_rows().keys() - tried - NO_FIELDS.keys())
    assert not missing, (f"tests/golden/config_fields.json has no model with the model_type {missing}: name one in MODELS "
                         "of make_config_fields.py, and run it with --only (docs/HACKING.md, Add a model family)")


def test_each_family_has_a_golden_model_that_is_run():
    rows = family_rows()
    configs = [json.loads((GOLDEN / "models" / name / "config.json").read_text()) for name in REFERENCES]
    kinds = {kind for config in configs
             for kind in (config["model_type"], config.get("text_config", {}).get("model_type"))}
    # What such a model's text is where it does not say so.
    kinds |= {kind for row in rows if row in kinds for kind in re.findall(r'\.text_type = "(\w+)"', rows[row])}
    missing = sorted(rows.keys() - kinds - NO_GOLDEN.keys())
    assert not missing, (f"family_table.cc has {missing}, and no model of REFERENCES here has that model_type: "
                         "tests/golden/make_models.py makes one (docs/HACKING.md, Add a model family)")


def test_each_golden_model_is_computed_on_every_instruction_set():
    listed = (SOURCE / "tests/worker/backend/models/golden_model.cc").read_text().split("GoldenModelNames() {")[1].split("};")[0]
    made = {path.name for path in (GOLDEN / "models").iterdir()}
    missing = sorted(made - set(re.findall(r'"([^"]+)"', listed)))
    assert not missing, f"GoldenModelNames in tests/worker/backend/models/golden_model.cc lacks {missing}"


def test_each_golden_case_has_its_digest():
    bits = json.loads((GOLDEN / "bits.json").read_text())
    pinned = {case for cases in bits.values() for case in cases}
    # An embed_scale pins what the reference computes by another setting, which is not ours.
    made = {f"{path.parent.name}/{case['name']}" for path in (GOLDEN / "models").glob("*/cases.json")
            for case in json.loads(path.read_text()) if "embed_scale" not in case}
    made |= {f"gguf/{path.name.removesuffix('.cases.json')}/{case['name']}"
             for path in (GOLDEN / "gguf").glob("*.cases.json") for case in json.loads(path.read_text())}
    missing = sorted(made - pinned)
    assert not missing, (f"tests/golden/bits.json has no digest of {missing}: STRATA_UPDATE_BITS=1 STRATA_SOURCE=. "
                         "build/tests/cpu_backend_test --gtest_filter='Bits*' adds them")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("golden")) as c:
        c.start_workers(len(WORKERS))
        for model in REFERENCES:
            c.run("model", "add", GOLDEN / "models" / model)
        yield c


def cuts_of(model, stages):
    """So many stages, or one a layer."""
    config = json.loads((GOLDEN / "models" / model / "config.json").read_text())
    layers = config.get("text_config", config)["num_hidden_layers"]
    return cut(WORKERS[:stages or layers], layers)


def check(cluster, model, folder):
    """Runs every case; the SHA-256 of the logits of each."""
    cases, expected = served_cases(model)
    digests = {}
    for case in cases:
        # Qwen2's generation_config.json asks for a penalty, which the reference has not.
        answer = cluster.generate(model, ids=case["prompt_ids"], max_tokens=24, temperature=0,
                                  repetition_penalty=1, ignore_eos=True,
                                  logits=folder / f"{case['name']}.safetensors")
        assert answer["token_ids"] == case["greedy_ids"], case["name"]
        assert answer["finish_reason"] == "length"
        assert answer["usage"] == {"prompt_tokens": len(case["prompt_ids"]),
                                   "completion_tokens": 24, "cached_tokens": 0}
        want = expected[f"{case['name']}.logits"]
        assert answer["logits"].shape == want.shape
        assert np.abs(answer["logits"] - want).max() <= TOLERANCE, case["name"]
        digests[f"{model}/{case['name']}"] = hashlib.sha256(
            answer["logits"].tobytes()).hexdigest()
    return answer["numerics_class"], digests


PENALIZED = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1}


def drafted(cluster, model, speculate):
    """Answers that want no logits; the second time with the same answers to draft from, which are right, and with each other's,
    which are mostly wrong."""
    case = max(served_cases(model)[0], key=lambda c: len(c["prompt_ids"]))
    said = []
    for _ in range(1 if speculate == "off" else 2):
        for seed in (None, 1):
            sampling = {"temperature": 0, "repetition_penalty": 1} if seed is None else {**PENALIZED, "seed": seed}
            answer = cluster.generate(model, ids=case["prompt_ids"], max_tokens=24, ignore_eos=True, logprobs=2,
                                      speculate=speculate, **sampling)
            said.append((answer["token_ids"], answer["logprobs"]))
    assert said[0][0] == case["greedy_ids"]
    return said


@pytest.mark.parametrize("model", REFERENCES)
def test_logits_are_right_and_the_same_bits_for_every_partition(cluster, model, tmp_path):
    bits = json.loads((GOLDEN / "bits.json").read_text())
    without = None
    for stages in (1, 2, None):
        cuts = cuts_of(model, stages)
        cluster.load(model, cuts=cuts, kv_dtype="f32", **REFERENCES[model])
        numerics_class, digests = check(cluster, model, tmp_path)
        for case, digest in digests.items():
            assert bits[numerics_class][case] == digest, (case, stages)
        without = without or drafted(cluster, model, "off")
        assert drafted(cluster, model, "auto") == 2 * without, stages
        plan = cluster.json("model", "show", model)["plan"]
        assert len(plan["stages"]) == len(cuts)
        cluster.run("model", "unload", model)


def write_embeddings(path, positions, rows):
    tensors = [("embeddings", "F32", rows.astype("<f4")),
               ("positions", "I64", np.array(positions, "<i8"))]
    header, offset = {}, 0
    for name, dtype, array in tensors:
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     b"".join(array.tobytes() for _, _, array in tensors))


def test_input_embeddings_give_the_references_logits_on_every_partition(cluster, tmp_path):
    cases, expected = golden_cases("minicpm-o")
    cases = [case for case in cases if "embed_positions" in case]
    assert cases
    bits = set()
    for stages in (1, 2, None):
        cluster.load("minicpm-o", cuts=cuts_of("minicpm-o", stages), kv_dtype="f32")
        for case in cases:
            rows = tmp_path / "rows.safetensors"
            write_embeddings(rows, case["embed_positions"],
                             expected[f"{case['name']}.input_embeds"])
            answer = cluster.generate("minicpm-o", ids=case["prompt_ids"], input_embeds=rows,
                                      max_tokens=24, temperature=0, repetition_penalty=1,
                                      ignore_eos=True, logits=tmp_path / "logits.safetensors")
            assert answer["token_ids"] == case["greedy_ids"], case["name"]
            want = expected[f"{case['name']}.logits"]
            assert np.abs(answer["logits"] - want).max() <= TOLERANCE, case["name"]
            bits.add((case["name"], answer["logits"].tobytes()))
            # The same ids without them are another prompt, whatever is cached.
            without = cluster.generate("minicpm-o", ids=case["prompt_ids"], max_tokens=24,
                                       temperature=0, repetition_penalty=1, ignore_eos=True)
            assert without["token_ids"] != case["greedy_ids"]
        wrong = tmp_path / "wrong.safetensors"
        write_embeddings(wrong, [0], np.zeros((1, 3)))
        _, said, status = cluster.run("generate", "minicpm-o", "--token-ids", "1,2",
                                      "--input-embeds", wrong, check=False)
        assert status == 1 and "float32 [" in said, said
        cluster.run("model", "unload", "minicpm-o")
    assert len(bits) == len(cases)


@pytest.mark.parametrize("model,options", QUANTIZED)
def test_quantized_weights_give_the_same_bits_for_every_partition(cluster, model, options,
                                                                  tmp_path):
    case = max(golden_cases(model)[0], key=lambda c: len(c["prompt_ids"]))
    answers = []
    for stages in (1, 2, None):
        cluster.load(model, cuts=cuts_of(model, stages), **options)
        answers.append(cluster.generate(model, ids=case["prompt_ids"], max_tokens=24,
                                        temperature=0, ignore_eos=True,
                                        logits=tmp_path / "logits.safetensors"))
        cluster.run("model", "unload", model)
    weights = options.get("quantize", STORED.get(model, "affine4g64"))
    activations = options.get("activations", "int8")
    assert f"/w={weights}," in answers[0]["numerics_class"]
    assert f",act={activations}/" in answers[0]["numerics_class"]
    for answer in answers[1:]:
        assert answer["numerics_class"] == answers[0]["numerics_class"]
        assert answer["token_ids"] == answers[0]["token_ids"]
        assert answer["logits"].tobytes() == answers[0]["logits"].tobytes()


def test_formats_that_do_not_fit_are_refused_with_what_would(cluster):
    for arguments, mends in [(("llama31-mlx4", "--quantize", "int8"), "--quantize none"),
                             (("llama", "--activations", "int8"), "--quantize int8")]:
        _, said, status = cluster.run("model", "load", *arguments, check=False)
        assert status == 1 and mends in said, said


def test_quantized_weights_take_less_memory(cluster):
    def weights(*options):
        plan = cluster.json("plan", "llama", "--nodes", "w0", *options)
        return sum(stage["weight_bytes"] for stage in plan["stages"])

    # Groups of 128 inputs hardly fit 64 of them: 8 bits and half a scale.
    assert weights("--quantize", "int8") < 0.6 * weights()
    assert weights("--quantize", "int4") < 0.45 * weights()


def test_prompt_and_generated_logprobs_are_the_logits_log_softmax(cluster, tmp_path):
    cluster.load("llama", cuts=cut(["w0", "w1"], LLAMA_LAYERS), kv_dtype="f32")
    cases, expected = golden_cases("llama")
    case = next(c for c in cases if c["name"] == "p39")
    answer = cluster.generate("llama", ids=case["prompt_ids"], max_tokens=24, temperature=0,
                              ignore_eos=True, logprobs=3, prompt_logprobs=2)
    cluster.run("model", "unload", "llama")
    logits = expected["p39.logits"].astype(np.float64)
    want = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) \
        - logits.max(-1, keepdims=True)
    ids = case["prompt_ids"] + case["greedy_ids"]
    prompt = len(case["prompt_ids"])
    assert answer["prompt_logprobs"][0] is None
    assert len(answer["prompt_logprobs"]) == prompt
    assert len(answer["logprobs"]) == 24
    for position in range(1, len(ids)):
        entry = (answer["prompt_logprobs"][position] if position < prompt
                 else answer["logprobs"][position - prompt])
        row = want[position - 1]
        assert entry["token_id"] == ids[position]
        assert abs(entry["logprob"] - row[ids[position]]) < 1e-3
        top = entry["top"]
        assert [t[0] for t in top] == list(np.argsort(-row, kind="stable")[: len(top)])
        assert len(top) == (2 if position < prompt else 3)


def test_short_and_long_rotations_at_once_are_each_as_alone(cluster, tmp_path):
    cluster.load("phi3-longrope", cuts=cuts_of("phi3-longrope", 2), kv_dtype="f32")
    cases = served_cases("phi3-longrope")[0]

    def answer(case, folder):
        folder.mkdir(exist_ok=True)
        got = cluster.generate("phi3-longrope", ids=case["prompt_ids"], max_tokens=24,
                               temperature=0, ignore_eos=True,
                               logits=folder / f"{case['name']}.safetensors")
        return got["token_ids"], got["logits"].tobytes()

    alone = [answer(case, tmp_path / "alone") for case in cases]
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        together = list(pool.map(lambda case: answer(case, tmp_path / "together"), cases))
    assert together == alone
    # Without max_tokens an answer ends where the short factors do.
    short = next(case for case in cases if len(case["prompt_ids"]) == 39)
    got = cluster.generate("phi3-longrope", ids=short["prompt_ids"], temperature=0,
                           ignore_eos=True)
    cluster.run("model", "unload", "phi3-longrope")
    assert got["token_ids"][:24] == short["greedy_ids"]
    assert got["usage"]["completion_tokens"] == 64 - 39
