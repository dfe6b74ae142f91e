"""What formats.py makes of its samples, and the weights that are made for it and for mixtures."""

import json
import pathlib
import struct
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import formats  # noqa: E402
import make_mixture  # noqa: E402
import make_shape  # noqa: E402


def document(generation, prompt):
    return {"generated_tokens_per_s": generation, "prompt_tokens_per_s": prompt,
            "memory_bytes": 1, "bandwidth_share": 0.5}


def test_a_ratio_is_of_runs_of_one_round_and_the_median_counts():
    samples = {("int8", 1): [document(10, 100), document(20, 100), document(40, 100)],
               ("Q6_K", 1): [document(9, 90), document(10, 70), document(36, 60)]}
    own, blocks = formats.rows_of(samples)
    assert own["generation"] == 20 and "generation_ratio" not in own
    assert blocks["generation_ratio"] == 0.9 and blocks["prompt_ratio"] == 0.7
    table = formats.markdown([own, blocks]).splitlines()
    assert "| Q6_K against int8 | 1 | 10.0 | 50% | 0.90 | 70 | 0.70 | missed |" in table
    assert "| int8 | 1 | 20.0 | 50% |  | 100 |  |  |" in table


@pytest.mark.parametrize("kind", make_shape.RANDOM_BLOCKS)
def test_random_blocks_have_small_finite_scales(kind):
    blocks = make_shape.random_blocks(kind, "x", [3, 512])
    weights_of, block_bytes, scales = make_shape.RANDOM_BLOCKS[kind]
    assert blocks.dtype == np.uint8 and blocks.shape == (3, 512 // weights_of * block_bytes)
    for at in scales:
        found = blocks.reshape(-1, block_bytes)[:, at:at + 2].copy().view(np.float16)
        assert np.all(np.isfinite(found)) and np.all(found > 0) and np.all(found < 1e-3)
    assert not np.array_equal(blocks, make_shape.random_blocks(kind, "y", [3, 512]))


def test_codes_meet_their_target_by_generation_alone():
    samples = {("int4", 1): [document(100, 1000)], ("nf4", 1): [document(86, 100)],
               ("MXFP4", 1): [document(84, 2000)]}
    table = formats.markdown(formats.rows_of(samples))
    assert "| nf4 against int4 | 1 | 86.0 | 50% | 0.86 | 100 | 0.10 | met |" in table
    assert "| MXFP4 against int4 | 1 | 84.0 | 50% | 0.84 | 2000 | 2.00 | missed |" in table


@pytest.mark.parametrize("kind", make_shape.CodesWriter.CONFIG)
def test_random_codes_fill_what_their_header_says(kind, tmp_path):
    shape = make_shape.SHAPES["small"]
    tensors = [("model.embed_tokens.weight", [512, 256]),
               ("model.layers.0.mlp.up_proj.weight", [512, 256]), ("model.norm.weight", [256])]
    writer = make_shape.CodesWriter(tmp_path / kind, shape, kind, tensors)
    for name, size in tensors:
        writer.write(name, make_shape.weights(1, name, size))
    writer.close()
    data = (tmp_path / kind / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - length
    bits = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in header.items()
               if ".layers." in name and not name.endswith(("quant_map", "nf4"))) * 8
    assert bits / (512 * 256) == 4.5


@pytest.mark.parametrize("shape", make_mixture.CONFIGS)
def test_a_mixture_is_a_checkpoint_of_its_configs_shapes(shape, tmp_path, monkeypatch):
    small = {**make_mixture.CONFIGS[shape], "hidden_size": 32, "vocab_size": 64,
             "intermediate_size": 32, "moe_intermediate_size": 16, "num_hidden_layers": 2}
    monkeypatch.setitem(make_mixture.CONFIGS, shape, small)
    make_mixture.make(shape, tmp_path / "m", 1, lambda line: None)
    data = (tmp_path / "m" / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    experts = [name for name in header if ".mlp.experts." in name and "layers.1." in name]
    assert len(experts) == 3 * small.get("num_experts", small.get("n_routed_experts"))
    assert header["model.layers.1.mlp.experts.3.down_proj.weight"]["shape"] == [32, 16]
    assert json.loads((tmp_path / "m" / "config.json").read_text()) == small
    with pytest.raises(make_shape.Refused, match="name a folder outside"):
        make_mixture.make(shape, make_shape.TREE / "x", 1, lambda line: None)
