"""Strategies: what a server of a revision may list, answer and ask by its own official schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from properties.material import values

MODERN = "2026-07-28"
text = st.text(max_size=6)
of_one = st.text(min_size=1, max_size=6)  # what has an empty name is left out
meta = st.dictionaries(text, values, max_size=2)
others = st.dictionaries(st.sampled_from(["x", "vendor/y", "ttl"]), values, max_size=2)
uris = st.sampled_from(["file:///a", "https://example.com/b?c=1", "data:image/png;base64,AA==", "x:y"])
data = st.sampled_from(["", "AA==", "aGVsbG8="])

icon = st.fixed_dictionaries(
    {"src": uris},
    optional={"mimeType": text, "sizes": st.lists(text, max_size=2), "theme": st.sampled_from(["dark", "light"])},
)
hints = st.fixed_dictionaries(
    {}, optional={"title": text, "readOnlyHint": st.booleans(), "idempotentHint": st.booleans(), "x": values}
)
roles = st.sampled_from(["user", "assistant"])


@st.composite
def shaped(draw: st.DrawFn, revision: str, required: dict[str, Any], optional: dict[str, tuple[str, Any]]) -> Any:
    """An object of a revision, perhaps with unknown members. `optional`: since when each is known, and what it is."""
    known = {name: what for name, (since, what) in optional.items() if since <= revision}
    return {**draw(others), **draw(st.fixed_dictionaries(required, optional=known))}


def annotations(revision: str) -> Any:
    known = {"audience": ("", st.lists(roles, max_size=2)), "priority": ("", st.floats(0, 1))}
    moments = st.datetimes().map(lambda moment: f"{moment.isoformat()}Z")  # what all clients can read of ISO 8601
    return shaped(revision, {}, {**known, "lastModified": ("2025-06-18", moments)})


def named(revision: str, required: dict[str, Any], **more: tuple[str, Any]) -> Any:
    known = {
        "title": ("2025-06-18", text),
        "description": ("", text),
        "_meta": ("2025-06-18", meta),
        "icons": ("2025-11-25", st.lists(icon, max_size=2)),
    }
    return shaped(revision, {"name": text, **required}, {**known, **more})


def schema(revision: str) -> Any:
    subschema = st.sampled_from([{}, {"type": "string"}, {"anyOf": [{"type": "null"}, True]}])
    if revision == MODERN:
        subschema |= st.booleans()
    known = {
        "properties": ("", st.dictionaries(text, subschema, max_size=3)),
        "required": ("", st.lists(text, max_size=2)),
        "additionalProperties": ("", st.booleans()),
        "$schema": ("2025-11-25", text),
    }
    return shaped(revision, {"type": st.just("object")}, known)


def any_schema(revision: str) -> Any:
    other = st.sampled_from([{}, {"type": "array", "items": True}, {"anyOf": [{"type": "object"}]}, {"type": "string"}])
    return schema(revision) | other if revision == MODERN else schema(revision)


def tool(revision: str) -> Any:
    return named(
        revision,
        {"inputSchema": schema(revision)},
        annotations=("2025-03-26", hints),
        outputSchema=("2025-06-18", any_schema(revision)),
        execution=("2025-11-25", st.sampled_from([{}, {"taskSupport": "optional"}])),
    )


def resource(revision: str, key: str, uri: Any) -> Any:
    return named(revision, {key: uri}, mimeType=("", text), annotations=("", annotations(revision)))


def prompt(revision: str) -> Any:
    known = {"title": ("2025-06-18", text), "description": ("", text), "required": ("", st.booleans())}
    return named(revision, {}, arguments=("", st.lists(shaped(revision, {"name": of_one}, known), max_size=2)))


ITEMS = {
    "tools": tool,
    "resources": lambda revision: resource(revision, "uri", uris),
    "resourceTemplates": lambda revision: resource(revision, "uriTemplate", st.just("file:///{path}")),
    "prompts": prompt,
}


def contents(revision: str) -> Any:
    known = {"mimeType": ("", text), "_meta": ("2025-06-18", meta)}
    return shaped(revision, {"uri": uris, "text": text}, known) | shaped(revision, {"uri": uris, "blob": data}, known)


def block(revision: str, *kinds: str) -> Any:
    known = {"annotations": ("", annotations(revision)), "_meta": ("2025-06-18", meta)}
    found = {
        "text": ("", {"text": text}),
        "image": ("", {"data": data, "mimeType": text}),
        "audio": ("2025-03-26", {"data": data, "mimeType": text}),
        "resource": ("", {"resource": contents(revision)}),
        "resource_link": ("2025-06-18", {"uri": uris, "name": text}),
        "tool_use": ("2025-11-25", {"id": text, "name": text, "input": meta}),
        "tool_result": ("2025-11-25", {"toolUseId": text, "content": st.just([{"type": "text", "text": "5"}])}),
    }
    if revision == MODERN:
        found["tool_result"][1]["structuredContent"] = values
    chosen = [(kind, members) for kind, (since, members) in found.items() if kind in kinds and since <= revision]
    return st.one_of([shaped(revision, {"type": st.just(kind), **members}, known) for kind, members in chosen])


SHOWN = ("text", "image", "audio", "resource", "resource_link")
SAMPLED = ("text", "image", "audio", "tool_use", "tool_result")


def complete(revision: str) -> dict[str, Any]:
    return {"resultType": st.just("complete")} if revision == MODERN else {}


def tool_result(revision: str) -> Any:
    structured = values if revision == MODERN else meta
    return shaped(
        revision,
        {"content": st.lists(block(revision, *SHOWN), max_size=3), **complete(revision)},
        {"structuredContent": ("2025-06-18", structured), "isError": ("", st.booleans()), "_meta": ("", meta)},
    )


def prompt_result(revision: str) -> Any:
    message = shaped(revision, {"role": roles, "content": block(revision, *SHOWN)}, {})
    known = {"description": ("", text), "_meta": ("", meta)}
    return shaped(revision, {"messages": st.lists(message, max_size=3), **complete(revision)}, known)


def read_result(revision: str) -> Any:
    hints = {"ttlMs": st.integers(0, 9), "cacheScope": st.sampled_from(["private", "public"])}
    required = {"contents": st.lists(contents(revision), max_size=2), **complete(revision)}
    return shaped(revision, {**required, **(hints if revision == MODERN else {})}, {"_meta": ("", meta)})


RESULTS = {"tools/call": tool_result, "prompts/get": prompt_result, "resources/read": read_result}


def field(revision: str) -> Any:
    words, now = st.lists(text, max_size=3), "2025-11-25"
    about = {"title": ("", text), "description": ("", text)}
    option = st.fixed_dictionaries({"const": text, "title": text})
    several = {**about, "default": (now, words), "minItems": ("", st.integers(0, 2))}

    def of_type(*types: str, default: Any, since: str = now, **members: Any) -> Any:
        return shaped(revision, {"type": st.sampled_from(types), **members}, {**about, "default": (since, default)})

    found = [
        of_type("string", default=text),
        of_type("number", "integer", default=st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
        of_type("boolean", default=st.booleans(), since=""),
        of_type("string", default=text, enum=words),
        of_type("string", default=text, enum=words, enumNames=words),
    ]
    if revision >= now:
        titled = st.fixed_dictionaries({"anyOf": st.lists(option, max_size=2)})
        untitled = st.fixed_dictionaries({"type": st.just("string"), "enum": words})
        found += [
            of_type("string", default=text, oneOf=st.lists(option, max_size=2)),
            shaped(revision, {"type": st.just("array"), "items": titled | untitled}, several),
        ]
    return st.one_of(found)


def elicitation(revision: str) -> Any:
    form = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(text, field(revision), max_size=3)},
        optional={"required": st.lists(text, max_size=2)},
    )
    required = {"message": text, "requestedSchema": form}
    return shaped(revision, required, {"mode": ("2025-11-25", st.just("form"))})


def sampling(revision: str) -> Any:
    one = block(revision, *SAMPLED)
    content = st.lists(one, max_size=3) | one if revision >= "2025-11-25" else one
    message = shaped(revision, {"role": roles, "content": content}, {"_meta": ("2025-11-25", meta)})
    known = {"systemPrompt": ("", text), "tools": ("2025-11-25", st.lists(tool(revision), max_size=2))}
    required = {"messages": st.lists(message, min_size=1, max_size=2), "maxTokens": st.integers(1, 9)}
    return shaped(revision, required, {**known, "toolChoice": ("2025-11-25", st.just({"mode": "auto"}))})


QUESTIONS = {"elicitation/create": elicitation, "sampling/createMessage": sampling}
