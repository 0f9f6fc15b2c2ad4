"""Small writers that make a value fit its reader, to be put together into tables.

The rule this file keeps: what fits already stays the same object, so that its bytes are never written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Raw

from toolgate.core import jsonrpc

Mend: TypeAlias = Callable[[Raw], Raw]
"""The value as its reader's revision allows it, the same object where nothing is to be done; `NOTHING` leaves it out.
Raises `jsonrpc.UNREADABLE` where nobody could make it fit."""


def of_type(kind: Any) -> Mend:
    """What a decoder takes for this type, as it is; all else is unreadable."""
    decode = jsonrpc.Decoder(kind).decode

    def mend(raw: Raw) -> Raw:
        decode(raw)
        return raw

    return mend


def optional(mend: Mend) -> Mend:
    """A value that can be left out: it is, where it cannot be mended."""

    def mend_or_leave_out(raw: Raw) -> Raw:
        try:
            return mend(raw)
        except jsonrpc.UNREADABLE:
            return jsonrpc.NOTHING

    return mend_or_leave_out


def kept(mend: Mend) -> Mend:
    """A value that passes as it is where it cannot be mended: it is out of shape for everybody."""

    def mend_or_keep(raw: Raw) -> Raw:
        try:
            return mend(raw)
        except jsonrpc.UNREADABLE:
            return raw

    return mend_or_keep


def each_of(mend: Mend) -> Mend:
    """A list, each item mended; those that are left out are left out."""

    def mend_each(raw: Raw) -> Raw:
        old = jsonrpc.read(raw, type=list[Raw])
        new = [mend(item) for item in old]
        return rewritten(raw, [item for item in new if item], is_same(old, new))

    return mend_each


def object_of(members: Mapping[str, Mend], *, any_other: Mend | None = None) -> Mend:
    """An object, each member that it has mended by its name; all others by `any_other`, or as they are."""

    def mend_members(raw: Raw) -> Raw:
        old = jsonrpc.members(raw)
        keep = any_other or unseen
        new = {name: members.get(name, keep)(value) for name, value in old.items()}
        return rewritten(
            raw, {name: value for name, value in new.items() if value}, is_same(old.values(), new.values())
        )

    return mend_members


def options(**members: Mend) -> Mend:
    """An object that can do without any of these."""
    return object_of({name: optional(mend) for name, mend in members.items()})


def unseen(raw: Raw) -> Raw:
    return raw


def is_same(old: Any, new: Any) -> bool:
    """Whether each value is the very object that it was."""
    return all(before is after for before, after in zip(old, new, strict=True))


def rewritten(raw: Raw, new: Any, is_untouched: bool) -> Raw:
    return raw if is_untouched else Raw(jsonrpc.encode(new))


TEXT, FLAG, NUMBER = of_type(str), of_type(bool), of_type(float)
ANY_OBJECT = of_type(dict[str, Raw])
