"""An authorization server, and the metadata of the server that it guards: what OAuth clients meet, in memory.

`answer` takes one request and gives its answer, whatever carries them; `authorize` is what a user's browser does there.
What stands in `metadata`, `resource` and `gives` can be made otherwise than it should be.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from toolgate.auth.safe_net import Fetched, SafeNet

Json = dict[str, Any]
Answer = tuple[int, Json]


class Authority:
    """`issuer` and `server` are URLs: of the authorization server, and of the MCP server that takes its tokens."""

    def __init__(self, issuer: str = "https://as.example", server: str = "https://mcp.example/mcp") -> None:
        self.issuer = issuer
        self.server = server
        self.metadata: Json = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.resource: Json = {"resource": server, "authorization_servers": [issuer]}
        self.described = [urlsplit(server).path]  # paths of the resources that have such metadata
        self.gives: Json = {"expires_in": 3600}  # beside the token
        self.grants: list[str] = []  # scopes that it grants, whatever is asked for; empty: what is asked for
        self.requests: list[tuple[str, str, Json]] = []  # method, path, parameters
        self.clients: dict[str, str] = {}  # secrets by id
        self.registered: Json = {}  # what else it answers to a registration
        self.tokens: dict[str, list[str]] = {}  # scopes by token that is good now
        self.refreshes: set[str] = set()  # good now: each is, once
        self._codes: dict[str, Json] = {}
        self._number = itertools.count(1)

    def asked(self, path: str) -> list[Json]:
        return [told for _, at, told in self.requests if at == path]

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = urlsplit(url)
        path = parts.path
        told: Json = json.loads(body) if body.startswith(b"{") else dict(parse_qsl(body.decode()))
        self.requests.append((method, path, told))
        issuer_path = urlsplit(self.issuer).path
        if path.removeprefix("/.well-known/oauth-protected-resource") in self.described:
            return 200, self.resource
        if path == "/.well-known/oauth-authorization-server" + issuer_path:
            return 200, self.metadata
        if path == issuer_path + "/register":
            id, secret = self._named("client"), self._named("secret")
            self.clients[id] = secret
            return 201, {"client_id": id, "client_secret": secret} | self.registered
        if path == issuer_path + "/token":
            return self._token(told, {name.lower(): value for name, value in headers.items()})
        return 404, {}

    def authorize(self, url: str, **changed: str | None) -> dict[str, str]:
        """The user agrees: the parameters of the way back. None in `changed` takes one out."""
        asked = dict(parse_qsl(urlsplit(url).query))
        self.requests.append(("GET", urlsplit(url).path, asked))
        code = self._named("code")
        self._codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.issuer} | changed
        return {name: value for name, value in answer.items() if value is not None}

    def _named(self, what: str) -> str:
        return f"{what}-{next(self._number)}-of-{urlsplit(self.issuer).netloc}"

    def end(self, *tokens: str) -> None:
        """These are good no more."""
        for token in tokens or list(self.tokens):
            self.tokens.pop(token, None)

    def _token(self, told: Json, headers: Mapping[str, str]) -> Answer:
        client, refusal = self._client(told, headers)
        if refusal:
            return 401, {"error": "invalid_client"}
        if told.get("resource") != self.resource["resource"]:
            return 400, {"error": "invalid_target"}
        if told["grant_type"] == "authorization_code":
            asked = self._codes.pop(told["code"], {})
            digest = base64.urlsafe_b64encode(hashlib.sha256(told["code_verifier"].encode()).digest()).decode()
            is_sound = (asked.get("code_challenge"), asked.get("code_challenge_method")) == (digest.rstrip("="), "S256")
            same = all(asked.get(name) == told.get(name) for name in ("redirect_uri", "resource"))
            if not asked or not is_sound or not same or asked["client_id"] != client:
                return 400, {"error": "invalid_grant"}
            return self._granted(asked.get("scope", ""))
        if told["grant_type"] == "refresh_token":
            if told["refresh_token"] not in self.refreshes:
                return 400, {"error": "invalid_grant"}
            self.refreshes.discard(told["refresh_token"])
            return self._granted("")
        return self._granted(told.get("scope", ""))

    def _client(self, told: Json, headers: Mapping[str, str]) -> tuple[str, bool]:
        written = headers.get("authorization", "")
        if written.startswith("Basic "):
            pair = base64.b64decode(written.removeprefix("Basic ")).decode()
            id, secret = (unquote(each) for each in pair.split(":"))  # RFC 6749 2.3.1
        else:
            id, secret = told.get("client_id", ""), told.get("client_secret", "")
        return id, self.clients.get(id, secret) != secret

    def _granted(self, scope: str) -> Answer:
        token, refresh = self._named("token"), self._named("refresh")
        scopes = self.grants or scope.split()
        self.tokens[token] = scopes
        self.refreshes.add(refresh)
        given = {"access_token": token, "token_type": "Bearer", "refresh_token": refresh}
        return 200, given | ({"scope": " ".join(scopes)} if scopes else {}) | self.gives


class Reached(SafeNet):
    """An `SafeNet` in which there are these authorities, by the hosts of their URLs, and nothing else."""

    def __init__(self, *authorities: Authority) -> None:
        super().__init__()
        self.authorities = list(authorities)

    async def fetch(
        self,
        url: str,
        method: Literal["GET", "POST"] = "GET",
        *,
        asker: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        trusted: Iterable[str] = (),
        follow: bool = True,
    ) -> Fetched:
        self.check(url, trusted)
        host = urlsplit(url).netloc
        for authority in self.authorities:
            if host in (urlsplit(authority.issuer).netloc, urlsplit(authority.server).netloc):
                status, said = authority.answer(method, url, headers or {}, body)
                if status != 404:
                    return Fetched(status, {}, json.dumps(said).encode(), url)
        return Fetched(404, {}, b"", url)


def challenge(**parameters: str) -> str:
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items())
