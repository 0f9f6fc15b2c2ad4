"""What is asked of a model and what it answers, whatever API it is behind; and what an answer that is none says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec

from toolgate.config.providers import Provider
from toolgate.core import jsonrpc

MOST_TOKENS_TOLD = 1 << 31  # an API's count that is larger is none
LONGEST_NAME = 200  # characters of a model's

T = TypeVar("T")


class Prompt(msgspec.Struct, frozen=True):
    """`system` are our instructions, `text` is what they are about: strangers may have written it."""

    system: str
    text: str


class Request(msgspec.Struct, frozen=True):
    """A POST, or a GET where there is no body. `path` stands behind the provider's base URL."""

    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class Said(msgspec.Struct, frozen=True):
    """What a model answered. `model` is what its API calls it, `sent` and `written` are tokens."""

    text: str
    model: str
    sent: int = 0
    written: int = 0


class Unusable(Exception):
    """An answer with status 200 that is none. `str()` says why, and quotes nothing of it."""


class Api(msgspec.Struct, frozen=True):
    """`request` asks; `said` reads what came, and raises `Unusable`. `look` asks for nothing but whether the key and
    the model are good."""

    request: Callable[[Provider, Prompt], Request]
    said: Callable[[bytes], Said]
    look: Callable[[Provider], Request]


CUT = "the model's answer was longer than `max_tokens`"
REFUSED = "the model refused to answer"
EMPTY = "the model's answer has no text"


def read(body: bytes, type: type[T]) -> T:
    """Raises `Unusable`."""
    try:
        return jsonrpc.read(body, type)
    except jsonrpc.UNREADABLE:
        raise Unusable("the answer is not what this API promises") from None


class _Tokens(msgspec.Struct):
    """By the words of either API."""

    prompt_tokens: object = 0
    input_tokens: object = 0
    completion_tokens: object = 0
    output_tokens: object = 0


def beside(model: object, usage: object) -> tuple[str, int, int]:
    """What stands beside an answer, as far as it can be read: the model's name, the tokens of the question and those of
    the answer. Whatever is wrong with that, the answer is one."""
    found = msgspec.convert(usage, _Tokens) if isinstance(usage, dict) else _Tokens()
    sent, written = found.prompt_tokens or found.input_tokens, found.completion_tokens or found.output_tokens
    return model[:LONGEST_NAME] if isinstance(model, str) else "", _count(sent), _count(written)


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and 0 <= tokens < MOST_TOKENS_TOLD else 0


class _Error(msgspec.Struct):
    type: object = None
    code: object = None
    message: object = None
    details: object = None


class _Refusal(msgspec.Struct):
    error: _Error | str | None = None


_word = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def refusal(body: bytes) -> tuple[str, str]:
    """Of an answer with another status than 200 the word for its error, which anybody may see, and the message, which
    may quote a key or an account."""
    try:
        error = jsonrpc.read(body, _Refusal).error
    except jsonrpc.UNREADABLE:
        return "", ""
    if not isinstance(error, _Error):
        return "", error or ""
    details: object = error.details
    closer = cast("dict[str, object]", details).get("error_code") if isinstance(details, dict) else None
    words = (each for each in (closer, error.code, error.type) if isinstance(each, str) and _word.fullmatch(each))
    return next(words, ""), error.message if isinstance(error.message, str) else ""
