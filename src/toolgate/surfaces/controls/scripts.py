"""Calls that a script makes, which a control tool runs: each is a call of that tool which forwards.

The rule this file keeps: such a call is resolved, judged and noted like one that the script's caller makes through a
control tool. A script gets a server's own result, or a fault that it can catch."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp, names, surrogates
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.surfaces.controls import base
from toolgate.surfaces.controls.base import Control, Family, Forward, Given, Object


def _wrap(given: Given, call: Call, raw: Raw | bytes) -> Object:
    """The server's own result, as it is."""
    return jsonrpc.members(raw)


def _fail(control: Control, given: Given, fault: object) -> None:
    """A fault stays one: the script may catch it."""


def _say(said: object) -> Object:
    raise NotImplementedError("a call of a script forwards")


class _Call(msgspec.Struct):
    server: str
    tool: str
    arguments: Raw


_call: jsonrpc.Decoder[_Call] = jsonrpc.Decoder(_Call)


def _read(arguments: Raw) -> Given:
    """Those of `call_of`."""
    found = _call.decode(arguments)
    return {"server": found.server, "tool": found.tool, "arguments": found.arguments}


def from_scripts(name: str) -> Control:
    """How what runs scripts stands for the calls that they make."""
    parameters = {"server": {"type": "string"}, "tool": {"type": "string"}, "arguments": {"type": "object"}}
    return Control(
        name,
        Family(_wrap, _fail, _say),
        "",
        parameters,
        ("server", "tool"),
        forward=Forward("server", "tool", "arguments"),
        reads=_read,
    )


def call_of(script: Call, server: str, tool: str, arguments: Raw) -> Call:
    """A call that the script of this call makes."""
    given = jsonrpc.encode({"server": server, "tool": tool, "arguments": arguments})
    return Call(
        mcp.CALL,
        names.SCRIPTS + names.SEPARATOR + script.target if script.server == names.SCRIPTS else script.target,
        script.client,
        Raw(given),
        passed_on=script.passed_on,
        can_ask=script.can_ask,
        by_script=True,
        is_by_admin=script.is_by_admin,
        folder=script.folder,
    )


def value_of(body: Raw | bytes, has_output: bool) -> bytes:
    """What a script gets of a tool's result, as JSON: its structured content; else its text, read as JSON where it is
    that and the tool has promised nothing else (`has_output`); else its content. Raises `Fault` where the tool
    failed, or the result is out of shape."""
    try:
        found = base.take_apart(body)
    except jsonrpc.UNREADABLE as error:
        raise Fault("UPSTREAM_ERROR", f"The result is malformed: {error}", reach="executed") from None
    if found.is_error:
        raise Fault("UPSTREAM_ERROR", found.text or "The tool failed and does not say why", reach="executed")
    if found.structured is not None:
        return bytes(found.structured)
    if found.others or not found.texts:
        return bytes(jsonrpc.members(body).get("content", b"")) or b"null"
    if len(found.texts) == 1 and not has_output and (read := _as_json(found.text)):
        return read
    return jsonrpc.encode(found.text)


def _as_json(text: str) -> bytes:
    """A text that is JSON, in one line; empty where it is none."""
    try:
        return jsonrpc.one_line(bytes(jsonrpc.read(surrogates.escaped(text.strip()), Raw)))
    except jsonrpc.UNREADABLE:
        return b""
