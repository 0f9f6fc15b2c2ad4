"""Where requests and their answers end, of bytes that are passed on as they are.

The rule this file keeps: who passes bytes on reads them as who gets them does, by the same parser; and of what is more
than requests and their answers (another protocol, what is no HTTP) nobody says again that it has ended.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser

_CONTINUE, _OK = 100, 200


class _Requests:
    def __init__(self, framing: Framing) -> None:
        self._framing = framing

    def on_message_begin(self) -> None:
        self._framing.asked += 1
        self._framing.is_in_request = True

    def on_headers_complete(self) -> None:
        self._framing.has_head()

    def on_message_complete(self) -> None:
        self._framing.is_in_request = False


class _Answers:
    def __init__(self, framing: Framing) -> None:
        self._framing = framing

    def on_message_complete(self) -> None:
        self._framing.has_answered()


class Framing:
    """That of one connection: how many requests have begun, and how many were answered."""

    def __init__(self) -> None:
        self.asked = self.answered = 0
        self.is_in_request = False
        self.is_endless = False
        self.status = 0  # of the last answer
        self._requests = HttpRequestParser(_Requests(self))
        self._answers = HttpResponseParser(_Answers(self))

    @property
    def is_between(self) -> bool:
        """Whether every request was answered, and none has begun."""
        return not self.is_endless and not self.is_in_request and self.answered == self.asked

    def sent(self, data: bytes) -> None:
        """By the client."""
        if self.is_endless:
            return
        try:
            self._requests.feed_data(data)
        except (HttpParserUpgrade, HttpParserError):
            self.is_endless = True

    def returned(self, data: bytes) -> None:
        """By who answers."""
        if self.is_endless:
            return
        try:
            self._answers.feed_data(data)
        except (HttpParserUpgrade, HttpParserError):
            self.is_endless = True

    def has_head(self) -> None:
        if self._requests.get_method() in (b"HEAD", b"CONNECT"):  # whose answers are framed in another way
            self.is_endless = True

    def has_answered(self) -> None:
        self.status = self._answers.get_status_code()
        if self.status >= _OK:
            self.answered += 1
        elif self.status != _CONTINUE:
            self.is_endless = True
