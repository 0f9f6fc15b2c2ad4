"""What a user does with a browser to sign in: read the gateway's page, press its button, be led away and back."""

from __future__ import annotations

import html
import re
import urllib.error
import urllib.parse
import urllib.request

PAGE = re.compile(r"https?://[^\s\"\\]+/connect/[\w-]{40,}")


class NoPage(Exception):
    """There is nothing to sign in at, or it did not end well."""


def sign_in(page: str, patience: float = 20.0) -> str:
    """The last page."""
    browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
    try:
        with browser.open(page, timeout=patience) as shown:
            form = re.search(r'name="confirm" value="([^"]+)"', shown.read().decode())
        if not form:
            raise NoPage(f"no form at {page}")
        body = urllib.parse.urlencode({"confirm": html.unescape(form[1])}).encode()
        origin = {"Origin": "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(page))}
        with browser.open(urllib.request.Request(page, body, origin), timeout=patience) as done:
            said = done.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            raise NoPage(f"{error.url} answered {error.status}: {error.read()[-200:]!r}") from None
    if "Signed in" not in said:
        raise NoPage("the last page does not say that it went well")
    return said
