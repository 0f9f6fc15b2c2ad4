"""Chat Completions: the API of OpenAI, which most servers of models speak as well.

Facts: the reference of the API, and the types of its SDK (3.57). Only what all of them know is sent: two messages, a
model and a bound."""

from __future__ import annotations

import msgspec

from toolgate.config.providers import Provider
from toolgate.core import jsonrpc
from toolgate.upstreams.providers import api
from toolgate.upstreams.providers.api import Prompt, Request, Said, Unusable

_NEW_WORD = ("openai.com", "openai.azure.com")  # hosts that refuse `max_tokens` with their newer models


def request(provider: Provider, prompt: Prompt) -> Request:
    host = provider.host.partition(":")[0].lower()
    is_new = any(host == each or host.endswith(f".{each}") for each in _NEW_WORD)
    asked = {
        "model": provider.model,
        "messages": [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.text},
        ],
        "max_completion_tokens" if is_new else "max_tokens": provider.max_tokens,
    }
    return Request("/chat/completions", _headers(provider), jsonrpc.encode(asked))


def look(provider: Provider) -> Request:
    return Request("/models", _headers(provider))


def _headers(provider: Provider) -> dict[str, str]:
    return {"Authorization": f"Bearer {provider.key}"} if provider.key else {}


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: object = None
    usage: object = None


def said(body: bytes) -> Said:
    """Raises `Unusable`."""
    found = api.read(body, _Completion)
    if not found.choices:
        raise Unusable(api.EMPTY)
    choice = found.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise Unusable(api.REFUSED)
    if choice.finish_reason == "length":
        raise Unusable(api.CUT)
    if not (choice.message.content or "").strip():
        raise Unusable(api.EMPTY)
    return Said(choice.message.content or "", *api.beside(found.model, found.usage))


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def missing(body: bytes, model: str) -> str:
    """Whether a list of models lacks one: what is said of that. Some servers serve models that they do not list."""
    try:
        listed = [each.id for each in api.read(body, _Models).data]
    except Unusable:
        return ""
    return f"it does not list the model {model}" if listed and model not in listed else ""
