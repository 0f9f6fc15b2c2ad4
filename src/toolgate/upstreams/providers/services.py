"""The providers of a running gateway: which model is asked for what, and what that may cost.

The rules this file keeps: a request is bounded in time and size, and so are requests at once, those of a principal that
wait, and how many it makes; of several at once, no principal has all; a provider that says when to come back is left
alone until then; nothing is sent again.
What an API says of an error goes to the log, without secrets; clients get the word for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from toolgate import __version__
from toolgate.auth.safe_net import Bounds, Fetched, SafeNet
from toolgate.config import Config
from toolgate.config.providers import Provider
from toolgate.core import counting
from toolgate.core.clock import Clock
from toolgate.core.concurrency import Shared
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.core.services import Swap
from toolgate.core.token_shapes import quoted, shaped
from toolgate.upstreams.providers import anthropic, embeddings, execution, openai, prompts
from toolgate.upstreams.providers.api import Api, Prompt, Request, Said, Unusable, refusal
from toolgate.upstreams.providers.embeddings import Vector
from toolgate.upstreams.providers.execution import Executed

log = logging.getLogger(__name__)

APIS: Mapping[str, Api] = {
    "openai": Api(openai.request, openai.said, openai.look),
    "anthropic": Api(anthropic.request, anthropic.said, anthropic.look),
}

LONGEST_SHOWN = 300  # characters of what an API says, for the log
LONGEST_ANSWER = 4 * 1024 * 1024  # bytes
MOST_VALUES = 10_000  # of JSON in one: each part of what a model says is read by itself
MOST_WAITING = 8  # requests of one principal
MOST_PRINCIPALS = 10_000  # whose pace is remembered
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds: where a provider says nothing, and that it may ask for
LOOK = 10.0  # seconds to look whether one is there
CONFIGURE = "an operator can configure a model for it: `providers` with `uses = [{use}]`"


class Pace:
    """How often each principal asks."""

    def __init__(self, provider: Provider) -> None:
        self._rate = provider.rate
        self._filled: dict[str, float] = {}  # until when each has used up its share

    def take(self, whose: str, now: float) -> float:
        """Take one; 0.0, or the seconds until there is one to take."""
        share = self._rate.seconds / self._rate.count
        filled = max(self._filled.pop(whose, 0.0), now)
        if filled - now > self._rate.seconds - share + 1e-6:
            self._filled[whose] = filled
            return filled - now - (self._rate.seconds - share)
        self._filled[whose] = filled + share
        while len(self._filled) > MOST_PRINCIPALS:
            del self._filled[next(iter(self._filled))]
        return 0.0


class _State:
    """What holds for one provider as it is configured."""

    def __init__(self, name: str, provider: Provider) -> None:
        self.name, self.provider = name, provider
        self.turns = Shared(provider.concurrency, most=MOST_WAITING, what="requests to a model")
        self.pace = Pace(provider)
        self.closed_until = 0.0


class Providers:
    """`net` carries the requests; `redactor` knows what must not be in them."""

    def __init__(self, config: Config, clock: Clock, net: SafeNet, redactor: Redactor) -> None:
        self._clock, self._net, self._redactor = clock, net, redactor
        self._states: Mapping[str, _State] = {}  # by use
        self.prepared(config)()

    def prepared(self, config: Config) -> Swap:
        """A provider that stays as it is keeps its turns and paces."""
        known = {state.name: state for state in self._states.values()}
        states: dict[str, _State] = {}
        for name, provider in config.providers.items():
            state = known.get(name)
            if state is None or state.provider != provider:
                state = _State(name, provider)
            states |= dict.fromkeys(provider.uses, state)

        def swap() -> None:
            self._states = states

        return swap

    def of(self, use: str) -> Provider | None:
        """Whom to ask; None where there is nobody."""
        state = self._states.get(use)
        return state.provider if state else None

    def name(self, use: str) -> str:
        state = self._states.get(use)
        return state.name if state else ""

    async def ask(self, use: str, prompt: Prompt, whose: str) -> Said:
        """`whose` it is: see `Principal.counted_as`. Raises `Fault`; of an answer that is none UPSTREAM_ERROR."""
        state = self._found(use)
        api, provider = APIS[state.provider.type], state.provider
        async with self._turn(state, whose):
            body = await self._answer(state, api.request(provider, self._clean(prompt)))
        try:
            said = api.said(body)
        except Unusable as why:
            raise self._unusable(state, why) from None
        self._note(state, use, whose, said.sent, said.written)
        return said

    async def embed(self, texts: Sequence[str], whose: str) -> list[Vector]:
        """Each as a vector of length 1. Raises `Fault`."""
        state = self._found("embeddings")
        clean = [self._clean(Prompt("", text)).text for text in texts]
        async with self._turn(state, whose):
            asked = embeddings.request(state.provider, clean)
            body = await self._answer(state, asked, len(texts) * embeddings.MOST_VALUES)
        try:
            return await asyncio.to_thread(embeddings.vectors, body, len(texts))
        except Unusable as why:
            raise self._unusable(state, why) from None

    async def execute(self, code: str, context: str, whose: str, seconds: float | None = None) -> Executed:
        """Have Python code run in a container of the provider, in so many seconds at most. Raises `Fault`."""
        state = self._found("execution")
        run = execution.Run(state.provider, self._clean(prompts.run(code, context)))
        ended: Executed | None = None
        async with self._turn(state, whose, seconds):
            try:
                while not ended:
                    ended = run.heard(await self._answer(state, run.request()))
            except Unusable as why:
                raise self._unusable(state, why) from None
        self._note(state, "execution", whose, ended.sent, ended.written)
        return ended

    @asynccontextmanager
    async def _turn(self, state: _State, whose: str, seconds: float | None = None) -> AsyncGenerator[None]:
        """A turn at a provider, and the time for it. Raises `Fault`."""
        now, seconds = self._clock.now(), min(seconds or math.inf, state.provider.timeout)
        wait = max(0.0, state.closed_until - now) or state.pace.take(whose, now)
        if wait:
            message, extra = f"The provider {state.name} cannot be asked yet", {"retryAfter": math.ceil(wait)}
            raise Fault("RATE_LIMITED", message, reach="not_sent", hint=_LATER, extra=extra)
        try:
            async with self._clock.timeout(seconds):
                await state.turns.turn(whose)
                try:
                    yield
                finally:
                    state.turns.give_back(whose)
        except TimeoutError:
            message = f"The provider {state.name} did not answer within {seconds:g} s"
            raise Fault("TIMEOUT", message, reach="sent_unknown") from None

    def _found(self, use: str) -> _State:
        state = self._states.get(use)
        if state is None:
            hint = CONFIGURE.format(use=f'"{use}"')
            raise Fault("SERVER_FAILED", f"No model is configured for {use}", reach="not_sent", hint=hint)
        if state.provider.problem:
            log.warning("the provider %s cannot be asked: %s", state.name, state.provider.problem)
            raise Fault(
                "SERVER_FAILED",
                f"The provider {state.name} cannot be asked: something in its configuration is missing",
                reach="not_sent",
                hint="`toolgate doctor` says what",
            )
        return state

    def _clean(self, prompt: Prompt) -> Prompt:
        """Without known secrets, and what has the shape of one. Raises `Fault` where it is too long."""
        if len(prompt.text) > prompts.LONGEST:
            message = f"What is to be sent to the model has more than {prompts.LONGEST:,} characters"
            raise Fault("INVALID_ARGS", message, reach="not_sent")
        clean = shaped(self._redactor.anywhere.text(prompt.text).encode(errors="replace"))
        return msgspec.structs.replace(prompt, text=clean.decode(errors="replace"))

    async def _answer(self, state: _State, request: Request, most: int = MOST_VALUES) -> bytes:
        """The body of an answer with status 200 and so many values at most, without secrets: it may repeat the key that
        it was asked with. Raises `Fault`."""
        fetched = await _fetched(self._net, state.name, state.provider, request)
        if fetched.status != 200:
            return self._refused(state, fetched)
        if counting.has_more_values(fetched.body, most):
            raise self._unusable(state, Unusable(f"the answer has more than {most:,} values"))
        return self._redactor.anywhere.body(fetched.body)

    def _refused(self, state: _State, fetched: Fetched) -> bytes:
        """Raises `Fault`: why there is no answer, and what to do about it."""
        name, status = state.name, fetched.status
        word, message = refusal(fetched.body)
        shown = quoted(message or word or "nothing", LONGEST_SHOWN)
        log.warning("the provider %s answered HTTP %d: %s", name, status, shown)
        said = f"The provider {name} answered HTTP {status}" + (f" ({word})" if word else "")
        if status in (429, 503, 529):
            wait = pause(fetched.headers.get("retry-after", ""))
            state.closed_until = max(state.closed_until, self._clock.now() + wait)
            raise Fault("RATE_LIMITED", said, reach="executed", hint=_LATER, extra={"retryAfter": math.ceil(wait)})
        hint = _FIXES[300] if 300 <= status < 400 else _FIXES.get(status, "the gateway's log says more")
        raise Fault("UPSTREAM_ERROR", said, reach="executed", hint=hint.format(name=name))

    def _unusable(self, state: _State, why: Unusable) -> Fault:
        log.warning("the answer of the provider %s is of no use: %s", state.name, why)
        return Fault("UPSTREAM_ERROR", f"The provider {state.name}: {why}", reach="executed")

    def _note(self, state: _State, use: str, whose: str, sent: int, written: int) -> None:
        log.info("the provider %s answered for %s of %s: %d tokens, then %d", state.name, use, whose, sent, written)


async def looked_at(name: str, provider: Provider, net: SafeNet) -> tuple[bool, str]:
    """Whether a provider is good as it answers now, and what an operator is to look at. It is asked whether it knows
    the key and the model, which costs nothing. Raises `Fault` where it cannot be reached."""
    fetched = await _fetched(net, name, provider, APIS[provider.type].look(provider), LOOK)
    if fetched.status == 404:
        return True, f"it does not know the model {provider.model}, or does not say which models it has"
    if fetched.status != 200:
        word, message = refusal(fetched.body)
        return False, f"it answered HTTP {fetched.status}: {quoted(message or word or 'nothing', LONGEST_SHOWN)}"
    return True, openai.missing(fetched.body, provider.model) if provider.type == "openai" else ""


async def _fetched(net: SafeNet, name: str, provider: Provider, request: Request, seconds: float = 0.0) -> Fetched:
    """The operator has written the URL, so that it may lead inside (behaviour.md 6.11). Raises `Fault`."""
    told = {"User-Agent": f"toolgate/{__version__}", "Accept": "application/json", **request.headers}
    if request.body:
        told["Content-Type"] = "application/json"
    own = {header.lower() for header in provider.headers}
    headers = {**{header: value for header, value in told.items() if header.lower() not in own}, **provider.headers}
    bounds = Bounds(seconds or provider.timeout + LOOK, LONGEST_ANSWER, provider.concurrency)
    try:
        return await net.fetch(
            provider.base + request.path,
            "POST" if request.body else "GET",
            asker=f"providers.{name}",
            headers=headers,
            body=request.body,
            trusted=(provider.base,),
            follow=False,
            bounds=bounds,
        )
    except Fault as fault:
        log.warning("the provider %s: %s", name, quoted(fault.message, LONGEST_SHOWN))
        message = f"The provider {name} cannot be reached, or its answer cannot be read"
        raise Fault("UPSTREAM_ERROR", message, reach="sent_unknown", hint="the gateway's log says why") from fault


def code_of(text: str) -> str:
    """The code in an answer: what stands in its first Markdown fence, else all of it."""
    before, fence, rest = text.partition("```")
    if not fence or (before and not before.endswith("\n")):
        return text
    return rest.partition("\n")[2].partition("\n```")[0]


def pause(said: str) -> float:
    """Seconds of a header `Retry-After`: a number, or a date."""
    try:
        left = float(said) if _number.fullmatch(said) else _until(said)
    except (ValueError, OverflowError):
        return SHORTEST_PAUSE
    return min(max(0.0, left), LONGEST_PAUSE)


def _until(said: str) -> float:
    date = parsedate_to_datetime(said)
    at = date if date.tzinfo else date.replace(tzinfo=UTC)  # one with -0000 has none
    return (at - datetime.now(UTC)).total_seconds()


_number = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,9})?")
_LATER = "try again after `retryAfter` seconds"
_FIXES = {
    300: "it redirects: set its `url` to where the API is",
    401: "check its key: providers.{name}.key",
    403: "check its key, and what it may be used for: providers.{name}.key",
    404: "check its `model` and its `url`: providers.{name}",
    413: "ask for less at once",
}
