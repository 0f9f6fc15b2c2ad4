"""A model of embeddings that is made here: words of one meaning are one direction, as a network that Hugging Face's
libraries read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

MEANINGS = (
    ("picture", "screenshot", "image", "photograph"),
    ("money", "invoice", "payment", "bill"),
    ("row", "rows", "line"),
)
SIZE = 8


def made(folder: Path, *, is_pooled: bool = False, outputs: str = "last_hidden_state", within: str = "") -> Path:
    """`is_pooled`: it makes one vector of each text itself. `within`: the folder in it where the network is."""
    words = {word: at for at, word in enumerate(["[PAD]", "[UNK]", *(word for each in MEANINGS for word in each)])}
    vectors = numpy.full((len(words), SIZE), 0.01, dtype=numpy.float32)
    for direction, each in enumerate(MEANINGS):
        for word in each:
            vectors[words[word], direction] = 1.0
    (folder / within).mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(words)))
    (folder / within / "model.onnx").write_bytes(_network(vectors, is_pooled, outputs).SerializeToString())
    return folder


def _network(vectors: numpy.ndarray, is_pooled: bool, output: str) -> onnx.ModelProto:
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], ["found"])]
    shape: Sequence[str | int] = ("texts", "tokens", SIZE)
    if is_pooled:
        nodes.append(helper.make_node("ReduceMax", ["found"], [output], axes=[1], keepdims=0))
        shape = ("texts", SIZE)
    else:
        nodes.append(helper.make_node("Identity", ["found"], [output]))
    names = ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ("texts", "tokens")) for name in names]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "small", inputs, outputs, [numpy_helper.from_array(vectors, "vectors")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _tokenizer(words: dict[str, int]) -> dict[str, object]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }
