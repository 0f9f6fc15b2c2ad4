"""A registry of MCP servers, one of npm and one of PyPI, on loopback, as well behaved as a test wants.

`Registry` answers `/v0.1/servers` (or `/v0/servers` as in its first months), `/npm/NAME` and `/simple/NAME/`, with the
files of packages. What it says can be made wrong: see its attributes. `npm_package` and `wheel` make packages.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from toolgate.app import App
from toolgate.auth.safe_net import USUAL, Bounds, Fetched, SafeNet
from toolgate.core.fault import Fault
from toolgate.provision.packages import Packages

Json = dict[str, Any]
OFFICIAL = "io.modelcontextprotocol.registry/official"
LONG_AGO = "2025-01-02T03:04:05Z"


def item(name: str = "io.github.ann/notes", **more: Any) -> Json:
    """An item of a page. What stands in `more` is of the server; `status` and the like are the registry's."""
    of_list = {"status": "active", "publishedAt": LONG_AGO, "updatedAt": LONG_AGO, "isLatest": True}
    for key in ("status", "statusMessage", "isLatest"):
        if key in more:
            of_list[key] = more.pop(key)
    server = {"name": name, "description": "Keeps notes", "version": "1.0.0", **more}
    return {"server": server, "_meta": {OFFICIAL: of_list}}


def npm(identifier: str = "@ann/notes", version: str = "1.0.0", **more: Any) -> Json:
    return {"registryType": "npm", "identifier": identifier, "version": version, "transport": {"type": "stdio"}, **more}


def pypi(identifier: str = "ann-notes", version: str = "1.0.0", **more: Any) -> Json:
    return {
        "registryType": "pypi",
        "identifier": identifier,
        "version": version,
        "transport": {"type": "stdio"},
        **more,
    }


class Registry:
    """`items` are what it lists, `page` how many at once. `era`: `v0.1`, or `v0` with its keys in snake_case.
    `answers` are by path what is said instead: a status, bytes, or `...` for an answer that never ends, or None for one
    that never comes. `asked` is what it was asked, path and query."""

    def __init__(self, *items: Json, page: int = 100, era: str = "v0.1") -> None:
        self.items = list(items)
        self.page = page
        self.era = era
        self.answers: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.packages: dict[str, Any] = {}  # answers of npm and PyPI, by path
        self.url = ""

    def answer(self, target: str) -> Any:
        parts = urlsplit(target)
        path, query = unquote(parts.path), {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.asked.append((path, query))
        if path in self.answers:
            return self.answers[path]
        if path == f"/{self.era}/servers":
            return json.dumps(self._listed(query)).encode()
        return self.packages.get(path, 404)

    def _listed(self, query: Mapping[str, str]) -> Json:
        items = self.items
        if "updated_since" in query:
            items = [each for each in items if each["_meta"][OFFICIAL]["updatedAt"] >= query["updated_since"]]
        if query.get("include_deleted") != "true":
            items = [each for each in items if each["_meta"][OFFICIAL]["status"] != "deleted"]
        begin = int(query.get("cursor", "0"))
        shown, end = items[begin : begin + self.page], begin + self.page
        if self.era == "v0":
            cursor = {"next_cursor": str(end)} if end < len(items) else {}
            return {"servers": list(map(_of_2025, shown)), "metadata": {"count": len(shown), **cursor}}
        cursor = {"nextCursor": str(end)} if end < len(items) else {}
        return {"servers": shown, "metadata": {"count": len(shown), **cursor}}

    # Packages.

    def add_npm(
        self, name: str, version: str, mcp_name: str = "", *, hashed: bytes | None = None, **more: Any
    ) -> bytes:
        """`hashed`: the hash that is stated is that of other bytes."""
        packed = more.pop("packed", None) or npm_package(name, version, mcp_name)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(hashed or packed).digest()).decode()
        file = f"/npm/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        about = {
            "name": name,
            "version": version,
            "dist": {"integrity": integrity, "tarball": self.url + file, "shasum": hashlib.sha1(packed).hexdigest()},
            **({"mcpName": mcp_name} if mcp_name else {}),
            "bin": {name.rpartition("/")[2]: "index.js"},
            **{key: each for key, each in more.items() if key != "published"},
        }
        whole: Json = {
            "name": name,
            "dist-tags": {"latest": version},
            "versions": {version: about},
            "time": {version: more.get("published", LONG_AGO)},
        }
        self.packages |= {f"/npm/{name}": json.dumps(whole).encode(), file: packed}
        return packed

    def add_pypi(
        self, name: str, version: str, mcp_name: str = "", *, hashed: bytes | None = None, **more: Any
    ) -> bytes:
        packed = more.pop("packed", None) or wheel(name, version, mcp_name)
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        sha256 = hashlib.sha256(hashed or packed).hexdigest()
        file = {
            "filename": filename,
            "url": f"/files/{filename}",
            "hashes": {"sha256": sha256},
            "size": len(packed),
            "upload-time": more.pop("published", LONG_AGO),
            "yanked": False,
            **more,
        }
        listed = {"meta": {"api-version": "1.1"}, "name": name, "versions": [version], "files": [file]}
        self.packages |= {f"/simple/{name}/": json.dumps(listed).encode(), f"/files/{filename}": packed}
        return packed

    # On loopback.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            said = self.answer(head.split(b" ", 2)[1].decode())
            if said is None:
                await reader.read()  # until its client goes away
                return
            if said is ...:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    writer.write(b"x" * 65536)
                    await writer.drain()
            status, body = (said, b"{}") if isinstance(said, int) else (200, said)
            extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            kind = "application/vnd.pypi.simple.v1+json" if b'"api-version"' in body[:80] else "application/json"
            writer.write(
                f"HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
                f"connection: close\r\n{extra}\r\n".encode()
                + body
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class RegistryNet(SafeNet):
    """The way to a registry in this process, without sockets: `http://127.0.0.1/…`, and nothing else is there."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry
        registry.url = "http://127.0.0.1"

    async def fetch(self, url: str, method: Any = "GET", *, asker: str, bounds: Bounds = USUAL, **_: Any) -> Fetched:
        if urlsplit(url).netloc != "127.0.0.1":
            raise Fault("UPSTREAM_ERROR", f"{url} cannot be fetched", reach="not_sent")
        said = self._registry.answer(url.removeprefix("http://127.0.0.1"))
        if said is None or said is ...:
            raise Fault("UPSTREAM_ERROR", f"{url} cannot be fetched: TimeoutError", reach="not_sent")
        status, body = (said, b"{}") if isinstance(said, int) else (200, said)
        if len(body) > bounds.longest:
            raise Fault("UPSTREAM_ERROR", f"{url} cannot be fetched: sent more than {bounds.longest} bytes")
        return Fetched(status, {}, body, url)


async def where(kind: str, _package: str) -> str:
    """What the clients of packages say."""
    return "http://127.0.0.1/npm" if kind == "npm" else "http://127.0.0.1/simple"


URL = "http://127.0.0.1"  # in `provision.registries`


def reach(app: App, registry: Registry, net: RegistryNet | None = None) -> None:
    """Have a gateway in this process ask this registry and no other, for servers and for packages, without sockets."""
    net = net or RegistryNet(registry)
    app.provisioning.registries._net = net
    app.provisioning.packages = Packages(net, where)


@asynccontextmanager
async def listening(registry: Registry) -> AsyncGenerator[Registry]:
    server = await asyncio.start_server(registry._serve, "127.0.0.1", 0)
    registry.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield registry
    finally:
        server.close()


def _of_2025(each: Json) -> Json:
    """As registries wrote an item in summer 2025: in snake_case, and with the status in the server."""
    server, of_list = dict(each["server"]), each["_meta"][OFFICIAL]
    packages = [{_snake(key): value for key, value in package.items()} for package in server.pop("packages", [])]
    for package in packages:
        for variable in package.get("environment_variables", []):
            variable |= {_snake(key): variable.pop(key) for key in list(variable)}
    meta = {OFFICIAL: {"id": "0", "published_at": of_list["publishedAt"], "is_latest": of_list["isLatest"]}}
    return {**server, "status": of_list["status"], "packages": packages, "_meta": meta}


def _snake(key: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in key)


# Packages that are MCP servers of one tool.

SERVER_JS = """#!/usr/bin/env node
const out = (id, result) => process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, result}) + "\\n");
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method, params} = JSON.parse(line);
  if (method === "initialize") out(id, {protocolVersion: params.protocolVersion, capabilities: {tools: {}},
    serverInfo: {name: "notes", version: "1.0.0"}});
  else if (method === "tools/list") out(id, {tools: [{name: "note", description: "Keep a note",
    inputSchema: {type: "object"}}]});
  else if (method === "tools/call") out(id, {content: [{type: "text", text: "noted by node"}]});
  else if (id !== undefined) process.stdout.write(JSON.stringify({jsonrpc: "2.0", id,
    error: {code: -32601, message: "no"}}) + "\\n");
});
"""
SERVER_PY = """import json, sys
def main():
    for line in sys.stdin:
        asked = json.loads(line)
        method, id = asked.get("method"), asked.get("id")
        said = {
            "initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"),
                           "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1.0.0"}},
            "tools/list": {"tools": [{"name": "note", "description": "Keep", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "noted by python"}]},
        }.get(method)
        if id is not None:
            answer = {"result": said} if said else {"error": {"code": -32601, "message": "no"}}
            print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
"""


def npm_package(name: str, version: str, mcp_name: str = "", index: str = SERVER_JS, **more: Any) -> bytes:
    about: Json = {"name": name, "version": version, "bin": {name.rpartition("/")[2]: "index.js"}, **more}
    about |= {"mcpName": mcp_name} if mcp_name else {}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for path, text in (("package/package.json", json.dumps(about)), ("package/index.js", index)):
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(text.encode()), 0o755
            packed.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def wheel(name: str, version: str, mcp_name: str = "", needs: str = "", **more: str) -> bytes:
    """`needs` is what it depends on; `more` are further files of it, by their paths."""
    module = name.replace("-", "_")
    described = f"\n\nNotes.\n\n<!-- mcp-name: {mcp_name} -->\n" if mcp_name else "\n\nNotes.\n"
    files = {
        f"{module}.py": SERVER_PY,
        f"{module}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"
        f"{needs and f'{chr(10)}Requires-Dist: {needs}'}{described}",
        **more,
        f"{module}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{module}-{version}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
    }
    records = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{module}-{version}.dist-info/RECORD"] = "\n".join([*records, f"{module}-{version}.dist-info/RECORD,,", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
    return buffer.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
