"""What somebody does with a browser on the operator's pages, without one: follow links, fill in forms, read.

It reads HTML as browsers do, so that markup which a stranger could bring onto a page would be found here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urlsplit

from inmemory import THE_SOCKET, Response, Visitor

from toolgate.app import App

ORIGIN = "http://127.0.0.1:8765"
ALONE = {"meta", "link", "input", "br", "hr", "img"}


class Document(HTMLParser):
    """A page: its text, and the attributes of each element in order, with its name as `""`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[dict[str, str]] = []
        self.areas: dict[str, str] = {}
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append({"": tag, **{name: value or "" for name, value in attrs}})
        if tag not in ALONE:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self._texts.append(data)
        if self._open and self._open[-1] == "textarea":
            name = self.all("textarea")[-1]["name"]
            self.areas[name] = self.areas.get(name, "") + data

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self._texts))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [each for each in self.elements if each[""] == tag]

    @property
    def hidden(self) -> dict[str, str]:
        return {each["name"]: each.get("value", "") for each in self.all("input") if each.get("type") == "hidden"}

    def value(self, name: str) -> str:
        """What is written in a textarea. Browsers drop the line end that it begins with."""
        assert name in self.areas, self.areas
        return self.areas[name].removeprefix("\n")

    def check_harmless(self) -> None:
        """No script but ours, no handler, nothing from elsewhere, and all is closed that was opened."""
        assert [each.get("src") for each in self.all("script")] == ["/ui/static/ui.js"]
        for each in self.elements:
            assert each[""] not in {"iframe", "object", "embed", "img", "svg", "style", "base", "math"}, each
            assert not [name for name in each if name.startswith("on") or name == "style"], each
            for name in ("href", "src", "action", "formaction"):
                assert re.match(r"/ui(/|$)|#main$", each.get(name, "/ui")), each


class Reader:
    """A browser with one session. It keeps the cookie, and sends what browsers send of a form's origin."""

    def __init__(self, app: App, **headers: str) -> None:
        self.visitor = Visitor(app)
        self.headers = headers
        self.cookie = ""
        self.page = Document("")

    async def send(self, method: str, path: str, form: Mapping[str, str] = {}, **headers: str | None) -> Response:
        sent: dict[str, str | None] = {"accept": "text/html", "content-type": None, "cookie": self.cookie or None}
        if method == "POST":
            sent |= {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
            sent |= {"content-type": "application/x-www-form-urlencoded"}
        sent |= self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        where = urlsplit(path)
        response = await self.visitor.begin(
            method, urlencode(form).encode(), path=where.path, query_string=where.query.encode(), headers=sent
        ).response()
        if given := response.headers.get("set-cookie"):
            self.cookie = given.partition(";")[0]
        return response

    async def open(self, path: str, status: int = 200) -> Document:
        """A page that is read, behind where it leads."""
        response = await self.send("GET", path)
        return await self._shown(response, status)

    async def press(self, path: str, status: int = 200, **form: str) -> Document:
        """Send the form to that path which stands on the page that is open."""
        actions = [each["action"] for each in self.page.all("form")]
        assert path in actions, actions
        return await self._shown(await self.send("POST", path, {**self.page.hidden, **form}), status)

    async def _shown(self, response: Response, status: int) -> Document:
        while response.status == 303:
            response = await self.send("GET", response.headers["location"])
        assert response.status == status, response.body
        self.page = Document(response.body.decode())
        self.page.check_harmless()
        return self.page

    async def sign_in(self) -> Document:
        """By a link that the operator has made."""
        path = await link(self.visitor.app)
        await self.open(path)
        return await self.press(path)


async def link(app: App) -> str:
    """The path of one that the operator has made."""
    app.port = app.port or 8765  # as if it listened
    made = await Visitor(app).begin("POST", b"", path="/admin/links", client=THE_SOCKET).response()
    assert made.status == 201 and made.last["seconds"] == 300
    return urlsplit(made.last["url"]).path


async def signed_in(app: App, **headers: str) -> Reader:
    reader = Reader(app, **headers)
    await reader.sign_in()
    return reader
