"""Code that Anthropic runs in a container of its own, by the tool `code_execution` of its Messages API.

A model stands in between: it is told to run the code as it is, and what it really ran is told with the result, so that
nobody takes one for the other. A turn that the API pauses is taken up again in the same container; no container serves
two runs.

Facts: the tool's version 20250825 (bash and files; no beta header is needed any more), and the types of the SDK (2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolgate.config.providers import Provider
from toolgate.upstreams.providers import anthropic, api
from toolgate.upstreams.providers.api import Prompt, Request, Unusable

TOOL = {"type": "code_execution_20250825", "name": "code_execution"}
ENGINE = f"Anthropic {TOOL['type']}"
MOST_TURNS = 4  # requests of one run


class Executed(msgspec.Struct, frozen=True):
    """What was run in a container, in its order, and what the last of it did. `failure` is why it did not end, in the
    API's word; empty where it did."""

    ran: Sequence[str]
    stdout: str
    stderr: str
    status: int
    failure: str
    model: str
    sent: int = 0
    written: int = 0


class _Output(msgspec.Struct):
    type: str
    stdout: str = ""
    stderr: str = ""
    return_code: int = 0
    error_code: str = ""


class _Input(msgspec.Struct):
    command: str = ""
    code: str = ""  # of the version before
    path: str = ""
    file_text: str | None = None


class _Block(msgspec.Struct):
    type: str
    name: str = ""
    input: Raw = Raw(b"{}")
    content: Raw = Raw(b"{}")


_RESULTS = ("bash_code_execution_tool_result", "code_execution_tool_result")
_FILES = "text_editor_code_execution_tool_result"


class Run:
    """One run: requests, until an answer ends it. Without I/O."""

    def __init__(self, provider: Provider, prompt: Prompt) -> None:
        self._provider = provider
        self._system = prompt.system
        self._messages: list[Any] = [{"role": "user", "content": prompt.text}]
        self._container = ""
        self._turns = 0
        self._ran: list[str] = []
        self._last: _Output | None = None
        self._sent = self._written = 0

    def request(self) -> Request:
        more: dict[str, Any] = {"container": self._container} if self._container else {}
        self._turns += 1
        return anthropic.asking(self._provider, self._system, self._messages, tools=[TOOL], **more)

    def heard(self, body: bytes) -> Executed | None:
        """The end of it, or None where there is another request to be made. Raises `Unusable`."""
        answer = api.read(body, anthropic.Answer)
        told = answer.said()
        self._sent, self._written = self._sent + told.sent, self._written + told.written
        for raw in answer.content:
            self._block(api.read(bytes(raw), _Block))
        if answer.stop_reason == "pause_turn":
            if self._turns >= MOST_TURNS:
                raise Unusable(f"the run was paused more than {MOST_TURNS - 1} times")
            self._messages.append({"role": "assistant", "content": answer.content})
            self._container = _id(answer.container) or self._container
            return None
        if not self._last:
            raise Unusable("the model ran nothing")
        last = self._last
        return Executed(
            tuple(self._ran),
            *(last.stdout, last.stderr, last.return_code, last.error_code),
            *(told.model, self._sent, self._written),
        )

    def _block(self, block: _Block) -> None:
        if block.type == "server_tool_use":
            self._ran.append(_shown(api.read(bytes(block.input), _Input)))
        elif block.type in _RESULTS:
            self._last = api.read(bytes(block.content), _Output)
            if self._last.type.endswith("_error"):
                self._last.error_code = self._last.error_code or "unknown"
        elif block.type == _FILES and (found := api.read(bytes(block.content), _Output)).type.endswith("_error"):
            found.error_code = found.error_code or "unknown"
            self._last = found


def _id(container: object) -> str:
    found = cast("dict[str, object]", container).get("id") if isinstance(container, dict) else None
    return found if isinstance(found, str) else ""


def _shown(used: _Input) -> str:
    """What was run, or written into a file."""
    if used.file_text is not None:
        return f"# {used.path}\n{used.file_text}"
    return used.command or used.code or used.path
