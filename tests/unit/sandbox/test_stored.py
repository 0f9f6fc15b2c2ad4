"""Stored scripts are served as they are kept."""

from __future__ import annotations

from inmemory import UnreadStore
from virtualtime import FakeClock

from toolgate.sandbox import stored
from toolgate.sandbox.stored import StoredScripts

TEXT = """// /// toolgate
// name = "hello"
// description = "Says hello."
// ///
return "hello";
"""


async def test_scripts_that_cannot_be_read_for_a_moment_are_there_still() -> None:
    store = UnreadStore(FakeClock())
    scripts = StoredScripts(store, "")
    await scripts.approve(stored.read(TEXT), None, 0.0, "me")
    assert list(scripts.all()) == ["hello"]
    store.is_unread = True
    assert list(scripts.all()) == ["hello"]
    store.is_unread = False
    await scripts.remove("hello")
    assert not scripts.all()
