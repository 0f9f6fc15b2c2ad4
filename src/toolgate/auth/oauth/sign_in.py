"""A sign-in: how a user is asked for it, where its browser goes, and what must come back.

The rules this file keeps: what a browser gets has a proof that only this gateway can complete (PKCE); and of an answer
that is another issuer's, by its own word or by where it came, nothing more is looked at.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from urllib.parse import urlencode

from msgspec import Raw

from toolgate.auth.oauth.base import SignIn
from toolgate.config import Server, ServerAuth
from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault

OFFLINE = "offline_access"


def authorize(found: SignIn, state: str, verifier: str) -> str:
    """Where the browser goes."""
    digest = hashlib.sha256(verifier.encode()).digest()
    plan = found.plan
    query = {
        "response_type": "code",
        "client_id": plan.client.client_id,
        "redirect_uri": found.redirect_uri,
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        "resource": plan.resource,
    } | ({"scope": " ".join(plan.asked)} if plan.asked else {})
    if OFFLINE in plan.asked:
        query["prompt"] = "consent"  # OpenID Connect Core 11: without it there is no offline access
    url = found.authority.authorization_endpoint
    return url + ("&" if "?" in url else "?") + urlencode(query)


def check_issuer(found: SignIn, answer: Mapping[str, str], path: str) -> None:
    """RFC 9700 4.4.2 and RFC 9207, letter by letter. What else the answer says is not looked at where this fails."""
    said = answer.get("iss")
    is_named = said is not None or found.authority.authorization_response_iss_parameter_supported
    if not found.redirect_uri.endswith(path) or (is_named and said != found.plan.issuer):
        raise Fault(
            "INVALID_STATE",
            f"The answer is not from {found.plan.issuer}, where this sign-in was started",
            reach="not_sent",
        )


def asked_to_sign_in(server: Server, auth: ServerAuth, url: str, link: str) -> Fault:
    """The question of a page (2025-11-25 client/elicitation, "URL Elicitation Required Error"), in the words of an
    error, which each client gets in its own way. What all share is for the operator to sign in at."""
    if auth.shared:
        return Fault(
            "SIGN_IN_REQUIRED",
            f"{server.name} requires the operator to sign in: run `toolgate connect {server.id}`",
            server=server.id,
            reach="not_sent",
        )
    message = f"{server.name} requires you to sign in"
    page = {"mode": "url", "message": message, "url": url, "elicitationId": hashed(link)[:32]}
    text = f"{message}: open {url}"
    error = jsonrpc.RpcError(mcp.URL_ELICITATION_REQUIRED, text, Raw(jsonrpc.encode({"elicitations": [page]})))
    return Fault("SIGN_IN_REQUIRED", text, server=server.id, reach="not_sent", upstream=error)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
