"""A model of embeddings in a folder of this machine, which makes texts vectors in this process: the extra `semantic`.

The rule this file keeps: nothing is fetched. The folder is as Hugging Face has one for `sentence-transformers`: the
model as ONNX, its tokenizer beside it.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODELS = ("model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx", "model_quantized.onnx")
TOKENIZER = "tokenizer.json"
MOST_TOKENS = 256  # of a text; what comes later is not looked at
_POOLED = "sentence_embedding"  # an output that is one vector for each text


class NoModel(Exception):
    """The folder has none that can be used, or the extra is not installed. `str()` says what to do."""


def mark(folder: Path) -> str:
    """What a model in this folder is known by: another file there makes another mark. Looks at the folder alone."""
    file = _file(folder)
    found = file.stat() if file else None
    return f"{file} {found.st_size} {found.st_mtime_ns}" if found else str(folder)


def _file(folder: Path) -> Path | None:
    return next((folder / each for each in MODELS if (folder / each).is_file()), None)


class LocalModel:
    """Loaded when it is made, which takes about half a second. Raises `NoModel`."""

    def __init__(self, folder: Path) -> None:
        file = _file(folder)
        if not file or not (folder / TOKENIZER).is_file():
            lacks = TOKENIZER if file else "model.onnx"
            raise NoModel(f"{folder} has no {lacks}: name a folder that has a model as ONNX and its tokenizer.json")
        try:
            runtime: Any = importlib.import_module("onnxruntime")
            tokenizers: Any = importlib.import_module("tokenizers")
            self._numpy: Any = importlib.import_module("numpy")
        except ImportError:
            raise NoModel("the model needs the extra `semantic`: pip install 'toolgate[semantic]'") from None
        try:
            options = runtime.SessionOptions()
            options.intra_op_num_threads = 1  # the other cores are for calls
            options.log_severity_level = 4  # what goes wrong is raised
            self._session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
            self._tokenizer.enable_truncation(MOST_TOKENS)
            self._tokenizer.enable_padding()
            self._wanted = {each.name for each in self._session.get_inputs()}
            outputs = [each.name for each in self._session.get_outputs()]
        except Exception as error:  # the rescue: either library raises what it likes
            raise NoModel(f"the model in {folder} cannot be loaded: {type(error).__name__}") from error
        self._output = _POOLED if _POOLED in outputs else outputs[0]

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """Each as a vector of length 1. Raises `NoModel` where it is no model of embeddings."""
        numpy = self._numpy
        read = self._tokenizer.encode_batch(list(texts))
        mask = numpy.array([each.attention_mask for each in read], dtype=numpy.int64)
        given = {
            "input_ids": numpy.array([each.ids for each in read], dtype=numpy.int64),
            "attention_mask": mask,
            "token_type_ids": numpy.array([each.type_ids for each in read], dtype=numpy.int64),
        }
        try:
            (found,) = self._session.run(
                [self._output], {name: value for name, value in given.items() if name in self._wanted}
            )
        except Exception as error:  # the rescue: the same
            raise NoModel(f"the model cannot be run: {type(error).__name__}") from error
        if found.ndim == 3:  # one for each token: their mean
            held = mask[:, :, None].astype(found.dtype)
            found = (found * held).sum(axis=1) / numpy.maximum(held.sum(axis=1), 1)
        lengths = numpy.sqrt((found * found).sum(axis=-1, keepdims=True))
        if found.ndim != 2 or not numpy.isfinite(lengths).all():
            raise NoModel("the model makes no embeddings: its first output is no vector for each text or token")
        found = (found / numpy.maximum(lengths, 1e-12)).astype(numpy.float32)
        return [array("f", row.tobytes()) for row in found]
