"""What a client carries for us: it opens as it was closed, or not at all."""

from __future__ import annotations

import base64
import os
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.auth.seal import Broken, Seal


class Value(msgspec.Struct, frozen=True, array_like=True):
    text: str
    number: float
    raw: bytes
    nothing: str | None


VALUE = Value("é\0", 1.5, b"\xff\0", None)
values = st.builds(Value, st.text(), st.floats(allow_nan=False), st.binary(), st.none() | st.text())

SEAL = Seal("tests", [bytes(32)])


@given(values)
def test_it_opens_as_it_was_closed(value: Value) -> None:
    assert SEAL.unseal(SEAL.seal(value), Value) == value


def test_the_same_value_is_sealed_differently_each_time() -> None:
    assert len({SEAL.seal(VALUE) for _ in range(20)}) == 20


def test_a_sealed_text_goes_through_any_header_url_and_json() -> None:
    allowed = set(string.ascii_letters + string.digits + "-_.")
    assert set(SEAL.seal(VALUE)) <= allowed


def test_what_is_sealed_cannot_be_read() -> None:
    sealed = SEAL.seal(Value("a secret that nobody may see", 0, b"", None))
    body = sealed.removeprefix("v1.")
    assert b"secret" not in base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


@pytest.mark.promise("spec.2026.mrtr.state-integrity")
def test_every_change_of_a_character_is_noticed() -> None:
    sealed = SEAL.seal(VALUE)
    for place in range(len(sealed)):
        for character in "Aa0-_.=é\n":
            if sealed[place] != character:
                with pytest.raises(Broken):
                    SEAL.unseal(sealed[:place] + character + sealed[place + 1 :], Value)


def test_nothing_can_be_left_out_or_added() -> None:
    sealed = SEAL.seal(VALUE)
    for length in range(len(sealed)):
        with pytest.raises(Broken):
            SEAL.unseal(sealed[:length], Value)
    for added in ("A", "=", "==", "\n", " ", sealed, "."):
        for changed in (sealed + added, added + sealed):
            with pytest.raises(Broken):
                SEAL.unseal(changed, Value)


@given(st.text())
def test_no_text_opens_that_was_not_sealed(text: str) -> None:
    for each in (text, "v1." + text):
        with pytest.raises(Broken):
            SEAL.unseal(each, Value)


@given(st.binary())
def test_no_bytes_open_that_were_not_sealed(raw: bytes) -> None:
    with pytest.raises(Broken):
        SEAL.unseal("v1." + base64.urlsafe_b64encode(raw).decode().rstrip("="), Value)


def test_another_key_does_not_open_it() -> None:
    with pytest.raises(Broken):
        Seal("tests", [os.urandom(32)]).unseal(SEAL.seal(VALUE), Value)


def test_without_keys_each_seal_has_its_own() -> None:
    with pytest.raises(Broken):
        Seal("tests").unseal(Seal("tests").seal(VALUE), Value)


def test_what_was_sealed_for_one_purpose_does_not_open_for_another() -> None:
    with pytest.raises(Broken):
        Seal("cursors", [bytes(32)]).unseal(SEAL.seal(VALUE), Value)


def test_keys_rotate() -> None:
    old, new = os.urandom(32), os.urandom(32)
    before, during, after = Seal("tests", [old]), Seal("tests", [new, old]), Seal("tests", [new])
    sealed = before.seal(VALUE)
    assert during.unseal(sealed, Value) == VALUE
    assert after.unseal(during.seal(VALUE), Value) == VALUE
    with pytest.raises(Broken):
        after.unseal(sealed, Value)


def test_a_value_of_another_shape_does_not_open() -> None:
    with pytest.raises(Broken):
        SEAL.unseal(SEAL.seal({"a": 1}), Value)


def test_what_cannot_be_opened_does_not_say_why() -> None:
    reasons = set()
    for text in ("", "v1.", "v2.AAAA", SEAL.seal(VALUE)[:-2], Seal("other").seal(VALUE)):
        with pytest.raises(Broken) as caught:
            SEAL.unseal(text, Value)
        reasons.add(str(caught.value))
    assert reasons == {""}


@pytest.mark.promise("spec.2026.tasks.ids")
@given(values)
def test_a_stable_seal_says_the_same_each_time_and_opens_as_it_was_closed(value: Value) -> None:
    sealed = SEAL.stable(value)
    assert sealed == SEAL.stable(value)
    assert SEAL.unseal(sealed, Value) == value


@given(values, values)
def test_stable_seals_differ_where_the_values_do(one: Value, other: Value) -> None:
    assert (SEAL.stable(one) == SEAL.stable(other)) == (msgspec.msgpack.encode(one) == msgspec.msgpack.encode(other))


def test_stable_seals_of_two_values_have_no_nonce_in_common() -> None:
    nonces = {SEAL.stable(Value(str(number), 0, b"", None)).removeprefix("v1.")[:16] for number in range(1000)}
    assert len(nonces) == 1000


def test_a_stable_seal_is_another_with_another_key_or_purpose() -> None:
    others = [Seal("tests", [bytes([1] * 32)]), Seal("other", [bytes(32)]), Seal("tests")]
    assert len({seal.stable(VALUE) for seal in (SEAL, *others)}) == 4


@pytest.mark.promise("spec.2026.tasks.isolation")
def test_a_stable_seal_that_was_changed_does_not_open() -> None:
    sealed = SEAL.stable(VALUE)
    for place in range(3, len(sealed)):
        changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        with pytest.raises(Broken):
            SEAL.unseal(changed, Value)


def test_a_stable_seal_opens_after_the_keys_have_rotated() -> None:
    old, new = bytes(32), bytes([1] * 32)
    sealed = Seal("tests", [old]).stable(VALUE)
    rotated = Seal("tests", [new, old])
    assert rotated.unseal(sealed, Value) == VALUE
    assert rotated.stable(VALUE) == Seal("tests", [new]).stable(VALUE)


def test_a_stable_seal_is_the_same_text_in_every_version() -> None:
    text = Seal("purpose", [bytes(range(32))]).stable({"a": 1})
    assert text == "v1.IxJMdgUrJ0VZRfPLklW1F4kjWp-TY45_BO_CZsAskzY"


def test_a_sealed_text_may_end_with_any_letter() -> None:
    there = Seal("purpose")
    several = (there.seal("a") for _ in range(100_000))  # 30 bytes each: no sign at the end is half used
    assert there.unseal(next(each for each in several if each.endswith("X")), str) == "a"
