"""Messages: the API of Anthropic, version 2026-10-21 (what is used of it is the same in 2023-06-01).

Facts: the reference of the API, and the types of its SDK (2.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from toolgate.config.providers import Provider
from toolgate.core import jsonrpc
from toolgate.upstreams.providers import api
from toolgate.upstreams.providers.api import Prompt, Request, Said, Unusable

VERSION = "2026-10-21"
PATH = "/v1/messages"

# Why a model stopped, where its answer is not whole: what is said of that.
_STOPPED = {
    "max_tokens": api.CUT,
    "model_context_window_exceeded": "what the model was asked is longer than it can read",
    "refusal": api.REFUSED,
}


def request(provider: Provider, prompt: Prompt) -> Request:
    return asking(provider, prompt.system, [{"role": "user", "content": prompt.text}])


def asking(provider: Provider, system: str, messages: Sequence[Any], **more: Any) -> Request:
    asked = {"model": provider.model, "max_tokens": provider.max_tokens, "system": system, "messages": messages, **more}
    return Request(PATH, _headers(provider), jsonrpc.encode(asked))


def look(provider: Provider) -> Request:
    return Request(f"/v1/models/{quote(provider.model, safe='')}", _headers(provider))


def _headers(provider: Provider) -> dict[str, str]:
    key = {"x-api-key": provider.key} if provider.key else {}
    return {"anthropic-version": VERSION, **key}


class _Kind(msgspec.Struct):
    type: str
    text: str = ""


class Answer(msgspec.Struct):
    """`content` are blocks, each of which has a type."""

    content: list[Raw]
    model: object = None
    stop_reason: str | None = None
    usage: object = None
    container: object = None

    def said(self) -> Said:
        """Raises `Unusable` where it is not whole."""
        if why := _STOPPED.get(self.stop_reason or ""):
            raise Unusable(why)
        blocks = (api.read(bytes(each), _Kind) for each in self.content)
        text = "".join(block.text for block in blocks if block.type == "text")
        return Said(text, *api.beside(self.model, self.usage))


def said(body: bytes) -> Said:
    """Raises `Unusable`."""
    found = api.read(body, Answer).said()
    if not found.text.strip():
        raise Unusable(api.EMPTY)
    return found
