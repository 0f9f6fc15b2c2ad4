"""Sealing what a client carries for us: `requestState`, cursors, and the ids of tasks.

Authenticated encryption (AES-256-GCM) under keys that rotate: the first seals, any opens. A sealed text is `v1.` and
base64url of nonce (12 bytes) and ciphertext. The nonce is random, or, where equal values are to be equal texts, a keyed
hash of the value. The rule this file keeps: what cannot be opened says only that, never why.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from toolgate.core import surrogates
from toolgate.state.keys import SealingKeys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = "v1."
_NONCE = 12

Value = TypeVar("Value")


class Broken(Exception):
    """Not sealed by us, or changed since."""


class Seal:
    """Seals with the first key, opens with any. Keys are 32 bytes, and may be others at any time; `purpose` separates
    kinds of sealed texts."""

    def __init__(self, purpose: str, keys: Sequence[bytes] = ()) -> None:
        self._purpose = purpose.encode()
        self._given = keys or [os.urandom(32)]
        self._made_of: tuple[bytes, ...] = ()
        self._made: Sequence[AESGCM] = ()

    def _keys(self) -> Sequence[AESGCM]:
        if (given := tuple(self._given)) != self._made_of:
            # 7 MB that a gateway without seals does not have
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._made_of, self._made = given, [AESGCM(key) for key in given]
        return self._made

    def seal(self, value: object) -> str:
        return self._sealed(os.urandom(_NONCE), surrogates.pack(value))

    def stable(self, value: object) -> str:
        """The same text each time for one value, as long as the first key stays. It tells who sees two of them whether
        they are equal, and no more."""
        content = surrogates.pack(value)
        hash_key = hmac.digest(self._given[0], b"nonce of " + self._purpose, hashlib.sha256)
        return self._sealed(hmac.digest(hash_key, content, hashlib.sha256)[:_NONCE], content)

    def _sealed(self, nonce: bytes, content: bytes) -> str:
        sealed = self._keys()[0].encrypt(nonce, content, self._purpose)
        return _VERSION + base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def unseal(self, text: str, type: type[Value]) -> Value:
        """The value that was sealed. Raises `Broken`."""
        try:
            if not text.startswith(_VERSION):
                raise ValueError
            body = text[len(_VERSION) :]
            raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            if base64.urlsafe_b64encode(raw).decode().rstrip("=") != body:
                raise ValueError  # a second spelling of the same bytes
        except ValueError:
            raise Broken from None
        from cryptography.exceptions import InvalidTag

        while True:
            for key in self._keys():
                try:
                    return surrogates.unpack(key.decrypt(raw[:_NONCE], raw[_NONCE:], self._purpose), type)
                except (InvalidTag, ValueError, msgspec.DecodeError):
                    continue
            if not isinstance(self._given, SealingKeys) or not self._given.look():
                raise Broken
