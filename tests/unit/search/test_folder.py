"""A folder with a model of embeddings: what it makes of texts, and what is told of one that is none."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import small_model

from toolgate.search.folder import LocalModel, NoModel, mark
from toolgate.search.semantic import likeness


@pytest.mark.parametrize(
    "shape",
    [{}, {"within": "onnx"}, {"is_pooled": True, "outputs": "sentence_embedding"}],
    ids=["tokens", "in a folder of its own", "texts"],
)
def test_words_of_one_meaning_are_one_direction(tmp_path: Path, shape: dict[str, str]) -> None:
    model = LocalModel(small_model.made(tmp_path, **shape))  # type: ignore[arg-type]
    picture, photograph, money = model.embed(["a picture", "the photograph", "money"])
    assert likeness(picture, photograph) > 0.99 > 0.2 > likeness(picture, money)
    assert all(math.isclose(likeness(each, each), 1, rel_tol=1e-5) for each in (picture, photograph, money))


def test_a_text_has_the_same_vector_alone_and_beside_longer_ones(tmp_path: Path) -> None:
    model = LocalModel(small_model.made(tmp_path))
    alone, beside = model.embed(["money"])[0], model.embed(["money", "a picture of rows and rows and rows"])[0]
    assert likeness(alone, beside) == pytest.approx(1, abs=1e-4)


def test_an_empty_text_and_a_very_long_one_have_vectors(tmp_path: Path) -> None:
    model = LocalModel(small_model.made(tmp_path))
    assert [len(each) for each in model.embed(["", "money " * 10_000])] == [small_model.SIZE] * 2


def test_a_folder_without_a_model_is_told_with_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(NoModel, match=r"has no model\.onnx: name a folder"):
        LocalModel(tmp_path / "nowhere")
    (small_model.made(tmp_path) / "tokenizer.json").unlink()
    with pytest.raises(NoModel, match=r"has no tokenizer\.json"):
        LocalModel(tmp_path)


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_file_that_is_something_else_is_told(tmp_path: Path, file: str) -> None:
    (small_model.made(tmp_path) / file).write_bytes(b"something else")
    with pytest.raises(NoModel, match="cannot be loaded"):
        LocalModel(tmp_path)


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(NoModel, match=r"pip install 'toolgate\[semantic\]'"):
        LocalModel(small_model.made(tmp_path))


def test_another_file_in_the_folder_makes_another_mark(tmp_path: Path) -> None:
    before = mark(small_model.made(tmp_path))
    assert mark(tmp_path) == before
    with (tmp_path / "model.onnx").open("ab") as file:
        file.write(b"\0")
    assert mark(tmp_path) != before
