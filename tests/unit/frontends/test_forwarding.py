"""What proxies say of a request, header by header."""

from __future__ import annotations

import pytest

from toolgate.frontends.forwarding import MOST_HOPS, Forwarding, Told
from toolgate.frontends.peers import Operator

OURS = ("127.0.0.1", "10.0.0.0/8", "fd00::/8")
CLIENT = "203.0.113.9"


def told(*headers: tuple[str, str], peer: str = "10.0.0.1", trusted: tuple[str, ...] = OURS) -> Told | None:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return Forwarding(trusted).told({"headers": raw, "client": (peer, 5)})


def x(*values: str, peer: str = "10.0.0.1") -> str:
    """The client by `X-Forwarded-For`."""
    found = told(*(("X-Forwarded-For", value) for value in values), peer=peer)
    assert found
    return found.address


def forwarded(*values: str, peer: str = "10.0.0.1") -> Told:
    found = told(*(("Forwarded", value) for value in values), peer=peer)
    assert found
    return found


@pytest.mark.parametrize(
    ("values", "client"),
    [
        ((CLIENT,), CLIENT),
        ((f" {CLIENT}\t",), CLIENT),
        ((f"{CLIENT}:4711",), CLIENT),
        (("2001:db8::1",), "2001:db8::1"),
        (("[2001:db8::1]:443",), "2001:db8::1"),
        (("::ffff:203.0.113.9",), CLIENT),
        ((f"{CLIENT}, 10.0.0.2, 10.0.0.3",), CLIENT),
        ((CLIENT, "10.0.0.2"), CLIENT),
        (("10.0.0.7, 10.0.0.2",), "10.0.0.7"),  # a client in the network of the proxies
    ],
)
def test_the_client_is_the_first_that_is_no_proxy_of_ours(values: tuple[str, ...], client: str) -> None:
    assert x(*values) == client


@pytest.mark.parametrize("before", ["198.51.100.1", "127.0.0.1", "unknown", '"', "10.0.0.9", "a," * 40 + "b"])
def test_what_a_client_has_written_before_it_counts_for_nothing(before: str) -> None:
    assert x(f"{before}, {CLIENT}") == x(before, CLIENT) == x(f"{before}, {CLIENT}, 10.0.0.2") == CLIENT
    assert forwarded(f'for="{before}, for={CLIENT}').address == CLIENT


@pytest.mark.parametrize(
    "value", ["unknown", "_hidden", "", "gate.example.com", "1.2.3", "01.2.3.4", "fe80::1%eth0", "1.2.3.4:port", "::g"]
)
def test_what_cannot_be_read_is_not_guessed_and_ends_what_is_known(value: str) -> None:
    assert x(value) == ""
    assert x(f"{CLIENT}, {value}, 10.0.0.2") == "10.0.0.2"


def test_no_proxy_elsewhere_says_that_somebody_is_on_this_machine() -> None:
    for here in ("127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"):
        assert x(here) == ""
        assert x(f"{here}, 10.0.0.2", peer="127.0.0.1") == "10.0.0.2"
    assert x("127.0.0.5", peer="127.0.0.1") == "127.0.0.5"


def test_nobody_else_is_believed() -> None:
    header = "X-Forwarded-For", "198.51.100.1"
    assert told(header, peer=CLIENT) is None
    assert told(header, peer="127.0.0.1", trusted=()) is None
    assert told(header, peer="", trusted=("0.0.0.0/1",)) is None
    raw = [(b"x-forwarded-for", b"198.51.100.1")]
    assert Forwarding(OURS).told({"headers": raw, "client": None}) is None
    assert Forwarding(OURS).told({"headers": raw, "client": Operator(("127.0.0.1", 0))}) is None
    assert told(peer="10.0.0.1") is None
    assert told(("X-Real-IP", "198.51.100.1")) is None


def test_a_proxy_is_known_however_its_address_is_written() -> None:
    assert x(CLIENT, peer="::ffff:10.0.0.1") == x(CLIENT, peer="fd00::1%eth0") == CLIENT


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"for={CLIENT};proto=https;host=gate.example.com", Told(CLIENT, "https", "gate.example.com")),
        (f'FOR="{CLIENT}:80" ; Proto=HTTP;by=_proxy', Told(CLIENT, "http")),
        ('for="[2001:db8::1]:4711"', Told("2001:db8::1")),
        (f"for={CLIENT};proto=https, for=10.0.0.2;proto=http", Told(CLIENT, "https")),
        ("for=unknown;proto=https", Told("", "https")),
        (f"for={CLIENT};proto=gopher", Told(CLIENT)),
        (f'for={CLIENT};host="gate.example.com:8443"', Told(CLIENT, "", "gate.example.com:8443")),
        (f"for={CLIENT};;proto=https", Told()),  # read whole or not at all
        (f"for={CLIENT};host=a b", Told()),
        (f'for="{CLIENT}\\"";proto=https', Told()),
    ],
)
def test_the_header_of_the_standard_says_the_rest_as_well(value: str, expected: Told) -> None:
    assert forwarded(value) == expected


def test_each_proxys_scheme_and_host_belong_to_who_came_to_it() -> None:
    found = told(
        ("X-Forwarded-For", f"{CLIENT}, 10.0.0.2"),
        ("X-Forwarded-Proto", "gopher, https, http"),
        ("X-Forwarded-Host", "gate.example.com"),  # passed on by the second one
    )
    assert found == Told(CLIENT, "https", "gate.example.com")


def test_of_two_kinds_that_say_different_things_none_is_believed() -> None:
    """A proxy that sets one of them passes the other on as a client has written it."""
    for_ = "X-Forwarded-For", CLIENT
    assert told(for_, ("Forwarded", "for=198.51.100.1")) == Told(is_unclear=True)
    assert told(for_, ("X-Forwarded-Host", "a.example"), ("Forwarded", "host=b.example")) == Told(is_unclear=True)
    assert told(for_, ("Forwarded", f"for={CLIENT};proto=https")) == Told(CLIENT, "https")


def test_no_more_hops_are_looked_at_than_anybody_has() -> None:
    assert x(", ".join([CLIENT, *["10.0.0.2"] * (MOST_HOPS - 1)])) == CLIENT
    assert x(", ".join([CLIENT, *["10.0.0.2"] * 1_000_000])) == "10.0.0.2"
