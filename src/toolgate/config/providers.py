"""The section `providers` of the configuration: models behind HTTP APIs that toolgate may ask.

The rule this file keeps: what is asked of a model goes to another machine encrypted, unless the operator says otherwise
for that provider.
"""

# No annotation is deferred here: `fields.rows` reads them. A kind has another name than each field of its struct.

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from toolgate.config import access_shapes, allowing, fields, private, shapes, values
from toolgate.config.fields import Key
from toolgate.config.shapes import Rate
from toolgate.config.values import Finding, Kind, Wrong, choice, duration, filled, flag, kind, many, whole, wrong
from toolgate.core.addresses import LOOPBACK, counted

URLS: Mapping[str, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""By type, where requests go if the configuration does not say so."""

USES = ("datasets", "context", "summaries", "execution", "recommendations", "embeddings")
"""What a model may be asked for. `execution` takes an API that runs code."""

_written_url = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://|\$\{")  # a variable may hold it all
_of_the_carrier = re.compile(r"host|content-.*|transfer-encoding|connection|accept-encoding|expect|te", re.IGNORECASE)
_name = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@kind({"type": "string", "pattern": f"^{_written_url.pattern}"})
def _url(value: object) -> str:
    if not _written_url.match(values.filled(value)):
        raise wrong("must be a URL that starts with https:// (or http:// on this machine)")
    return values.text(value)


class Provider(msgspec.Struct, frozen=True):
    """A model behind an API. `timeout` in seconds. `problem` says why it cannot be asked, where a variable or a secret
    is missing; empty where it can."""

    type: Annotated[
        Literal["openai", "anthropic"],
        Key(
            choice(*URLS),
            'the API: `"openai"` (Chat Completions, which many others speak too) or `"anthropic"` (Messages)',
            needed='add `type = "openai"` or `type = "anthropic"`',
        ),
        allowing.TOLD,
    ]
    model: Annotated[str, Key(filled, "the name of the model", needed="name a model of this provider"), allowing.TOLD]
    url: Annotated[
        str,
        Key(
            _url,
            "the base URL: what stands before `/chat/completions` or `/v1/messages`",
            default="that of OpenAI or Anthropic",
            secret=private.URL,
        ),
        allowing.TOLD,
    ] = ""
    key: Annotated[
        str,
        Key(filled, "the API key, such as `${secret:NAME}`", default="none is sent", secret=private.TEXT),
        allowing.TOLD,
    ] = ""
    headers: Annotated[
        Mapping[str, str], Key(values.headers, "further headers of requests", secret=private.HEADERS), allowing.TOLD
    ] = {}
    uses: Annotated[
        tuple[str, ...],
        Key(
            many(choice(*USES)),
            'what it is asked for ([providers.md](providers.md)): `"datasets"`, `"context"`, `"summaries"`, '
            '`"execution"`, `"recommendations"`, `"embeddings"`',
        ),
        allowing.TOLD,
    ] = ("datasets", "context")
    samples: Annotated[
        Literal["masked", "plain", "none"],
        Key(
            choice("masked", "plain", "none"),
            'what it sees of the values in a dataset: of three rows `"masked"` ones (letters and digits replaced), '
            '`"plain"` ones, or `"none"`',
        ),
        allowing.TOLD,
    ] = "masked"
    max_tokens: Annotated[int, Key(whole(16, 200_000), "the maximum length of an answer, in tokens"), allowing.PACE] = (
        8192
    )
    timeout: Annotated[float, Key(duration, "how long an answer may take"), allowing.PACE] = 120.0
    concurrency: Annotated[int, Key(whole(1, 64), "the maximum number of requests at the same time"), allowing.PACE] = 4
    rate: Annotated[
        Rate, Key(shapes.rate, "the maximum rate of requests for each principal", default='`"20/m"`'), allowing.PACE
    ] = Rate(20, 60.0)
    allow_http: Annotated[
        bool, Key(flag, "`true`: its `url` may be plain `http` to another machine"), allowing.TOLD
    ] = False
    problem: Annotated[str, allowing.MADE] = ""

    def __repr__(self) -> str:
        """Without the key; another one makes another text."""
        mark = hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]
        return f"<Provider {self.type} {self.model} at {self.host}, {mark}>"

    @property
    def base(self) -> str:
        return (self.url or URLS[self.type]).rstrip("/")

    @property
    def host(self) -> str:
        """The host that requests go to, with its port if it has one of its own; for people."""
        return urlsplit(self.base).netloc.rpartition("@")[2]


def check(provider: Provider) -> None:
    """What must hold once variables are in. Raises `Wrong`."""
    try:
        parts = urlsplit(access_shapes.base_url(provider.base))
    except Wrong as error:
        raise Wrong(*(finding.under("url") for finding in error.findings)) from None
    host = parts.hostname or ""
    is_here = host == "localhost" or counted(host) == LOOPBACK
    if parts.scheme != "https" and not is_here and not provider.allow_http:
        fix = "use https, or set `allow_http = true`: then code and the key can be read on the way"
        raise Wrong(Finding("is plain http to another machine", fix, ("url",)))
    for name in filter(_of_the_carrier.fullmatch, provider.headers):
        raise Wrong(Finding("is set by toolgate itself", "remove it", ("headers", name)))
    for name, value in {"key": provider.key, **provider.headers}.items():
        if not value.isascii() or not value.isprintable():
            path = ("key",) if name == "key" else ("headers", name)
            raise Wrong(Finding("must be printable ASCII, to fit in a header", "", path))


def with_variables(provider: Provider, put_in: Callable[[Any], Any]) -> Provider:
    """With variables put into the fields that may have some."""
    texts = {"url": provider.url, "key": provider.key, "headers": dict(provider.headers)}
    return msgspec.structs.replace(provider, **put_in(texts))


_provider = fields.table(Provider, brief=True)
_table = values.mapping(_provider)


def _read(value: object) -> dict[str, Provider]:
    found: dict[str, Provider] = _table(value)
    owners: dict[str, str] = {}
    for name, provider in found.items():
        if not _name.fullmatch(name):
            fix = "use lower-case letters, digits and `-`, at most 32"
            raise Wrong(Finding("is not a valid name of a provider", fix, (name,)))
        if "execution" in provider.uses and provider.type != "anthropic":
            fix = 'remove it, or use a provider with `type = "anthropic"`'
            raise Wrong(Finding('"execution" needs an API that runs code', fix, (name, "uses")))
        if "embeddings" in provider.uses and provider.type != "openai":
            fix = 'remove it, or use a provider with `type = "openai"`'
            raise Wrong(Finding('"embeddings" needs an API that makes them', fix, (name, "uses")))
        for use in provider.uses:
            if (owner := owners.setdefault(use, name)) != name:
                fix = f"set `uses` in both: `{owner}` has it already"
                raise Wrong(Finding(f'"{use}" has two providers', fix, (name, "uses")))
    return found


providers: Kind[dict[str, Provider]] = Kind(_read, _table.schema, _table.write, Provider)
