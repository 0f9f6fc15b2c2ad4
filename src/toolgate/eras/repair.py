"""Small writers that make a value fit its reader, to be put together into tables.

The rule this file keeps: what fits already stays the same object, so that its bytes are never written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Raw

from toolgate.core import jsonrpc

Repair: TypeAlias = Callable[[Raw], Raw]
"""The value as its reader's revision allows it, the same object where nothing is to be done; `NOTHING` leaves it out.
Raises `jsonrpc.UNREADABLE` where nobody could make it fit."""


def of_type(kind: Any) -> Repair:
    """What a decoder takes for this type, as it is; all else is unreadable."""
    decode = jsonrpc.Decoder(kind).decode

    def repair(raw: Raw) -> Raw:
        decode(raw)
        return raw

    return repair


def optional(repair: Repair) -> Repair:
    """A value that can be left out: it is, where it cannot be repaired."""

    def repair_or_leave_out(raw: Raw) -> Raw:
        try:
            return repair(raw)
        except jsonrpc.UNREADABLE:
            return jsonrpc.NOTHING

    return repair_or_leave_out


def kept(repair: Repair) -> Repair:
    """A value that passes as it is where it cannot be repaired: it is out of shape for everybody."""

    def repair_or_keep(raw: Raw) -> Raw:
        try:
            return repair(raw)
        except jsonrpc.UNREADABLE:
            return raw

    return repair_or_keep


def each_of(repair: Repair) -> Repair:
    """A list, each item repaired; those that are left out are left out."""

    def repair_each(raw: Raw) -> Raw:
        old = jsonrpc.items(raw)
        new = [repair(item) for item in old]
        return rewritten(raw, [item for item in new if item], is_same(old, new))

    return repair_each


def object_of(members: Mapping[str, Repair], *, any_other: Repair | None = None) -> Repair:
    """An object, each of these members that it has repaired; all others by `any_other`, or as they are."""

    def repair_members(raw: Raw) -> Raw:
        old = jsonrpc.members(raw)
        named = jsonrpc.few(old) if any_other else old.keys() & members.keys()
        new = {name: members.get(name, any_other or unseen)(old[name]) for name in named}
        if all(old[name] is value for name, value in new.items()):
            return raw
        old.update(new)
        for name in [name for name, value in new.items() if not value]:
            del old[name]
        return Raw(jsonrpc.encode(old))

    return repair_members


def options(**members: Repair) -> Repair:
    """An object that can do without any of these."""
    return object_of({name: optional(repair) for name, repair in members.items()})


def unseen(raw: Raw) -> Raw:
    return raw


def is_same(old: Any, new: Any) -> bool:
    """Whether each value is the very object that it was."""
    return all(before is after for before, after in zip(old, new, strict=True))


def rewritten(raw: Raw, new: Any, is_untouched: bool) -> Raw:
    return raw if is_untouched else Raw(jsonrpc.encode(new))


TEXT, FLAG, NUMBER = of_type(str), of_type(bool), of_type(float)
ANY_OBJECT = of_type(dict[str, Raw])
