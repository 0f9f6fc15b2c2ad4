"""A large result is searched for secrets a stretch at a time, and says no more and no less than when searched whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import redaction
from toolgate.core.redaction import Redactor

SECRET, WIDE = "hunter2-hunter2", "schlüssel-schlüssel"
pieces = st.sampled_from([SECRET, WIDE, SECRET[:-1], SECRET[1:], "\\", '"', "\u00e9", "h", "x" * 30, "\n"])
texts = st.lists(pieces, max_size=8).map("".join)


@given(texts, st.booleans(), st.integers(1, 40))
def test_a_secret_is_found_wherever_a_stretch_ends(text: str, is_ascii: bool, stretch: int) -> None:
    secrets = Redactor([SECRET, WIDE]).of("server")
    body = json.dumps({"content": [{"type": "text", "text": text}]}, ensure_ascii=is_ascii).encode()
    whole = secrets.body(body)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redaction, "LOOKED_AT", stretch)
        assert secrets.body(body) == whole
        assert secrets.may_be_in(body) or whole is body
    if SECRET in text:
        assert SECRET.encode() not in whole


@pytest.mark.parametrize("cut", range(200))
def test_a_secret_is_found_at_every_cut(cut: int) -> None:
    secrets = Redactor([SECRET]).of("server")
    body = b'"%b%b%b"' % (b"a" * cut, SECRET.encode(), b"b" * (200 - cut))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redaction, "LOOKED_AT", 16)
        assert secrets.may_be_in(body)
        assert SECRET.encode() not in secrets.body(body)
        assert not secrets.may_be_in(body.replace(b"hunter2-h", b"hunter3-h"))
