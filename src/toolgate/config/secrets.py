"""Secrets by name, `${secret:NAME}` in a configuration, and the places where they are looked for, one after the other.

The rules this file keeps: a secret that is nowhere, or a place that cannot be read, fails only the servers that need
it, and the reason names every place that was asked and no value; a place that is there and broken ends the search, so
that a slip never brings in another value than was meant.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

import msgspec

from toolgate.config import allowing, fields, ownership, values
from toolgate.config.allowing import Allows, Harmless
from toolgate.config.fields import Key
from toolgate.config.formats import LONGEST, Malformed, parse
from toolgate.config.private import UNKNOWN_YET
from toolgate.config.values import Wrong, choice, filled, many
from toolgate.config.variables import SHELL, Expansion, Lacking, Style, Unread, is_secret_name, variable_of_secret
from toolgate.core import plain

FILE = "secrets.json"
LONGEST_SECRET = 64 * 1024  # bytes
VAULT_PATIENCE = 5.0  # seconds for all of a request
LONGEST_ANSWER = 4 * 1024 * 1024  # bytes of Vault's, which has a secret's fields
FIELD = "value"  # of a secret in Vault, where its name has no `#FIELD`

_named = re.compile(r"\$\{secret:([^${}]{1,250})\}")
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_plain_here = re.compile(r"http://(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?(?:/[^?#@\s]*)?")


class Vault(msgspec.Struct, frozen=True):
    """A HashiCorp Vault, or what speaks its API, with a KV store of version 2 at `mount`; secrets stand below `path`.
    Texts may hold variables. Empty: `VAULT_ADDR`, `VAULT_TOKEN`, `VAULT_NAMESPACE`."""

    address: Annotated[str, Key(filled, "the URL of the Vault", default="`VAULT_ADDR`")] = ""
    token: Annotated[str, Key(filled, "the token to sign in with", default="`VAULT_TOKEN`", secret=UNKNOWN_YET)] = ""
    role_id: Annotated[str, Key(filled, "the role id of an AppRole, instead of a token", secret=UNKNOWN_YET)] = ""
    secret_id: Annotated[
        str, Key(filled, "the secret id of this AppRole", default="`VAULT_SECRET_ID`", secret=UNKNOWN_YET)
    ] = ""
    mount: Annotated[str, Key(filled, "the mount of the KV store (version 2)")] = "secret"
    path: Annotated[str, Key(values.text, "the path of the secrets in this store")] = "toolgate"
    namespace: Annotated[str, Key(filled, "the namespace, if the Vault has any", default="`VAULT_NAMESPACE`")] = ""

    def __repr__(self) -> str:
        return f"<Vault {self.mount}/{self.path}>"


class Secrets(msgspec.Struct, frozen=True):
    """Where `${secret:NAME}` is looked for, in this order. `file` empty: in the state folder; `service` is what the
    keyring knows them under. `public` are names of `env`, of headers and of variables whose values are no secrets."""

    backends: Annotated[
        tuple[str, ...],
        Key(many(choice("env", "file", "systemd", "keyring", "vault")), "where secrets are looked up, in this order"),
        Harmless("which places of the user are searched for a secret; each secret is named"),
    ] = ("env", "file", "systemd", "keyring", "vault")
    file: Annotated[
        str, Key(filled, "the file with secrets", default="`secrets.json` in the state folder"), allowing.REFUSED
    ] = ""
    service: Annotated[
        str,
        Key(filled, "the service name in the keyring"),
        Allows("look up secrets in the keyring under the service {}"),
    ] = "toolgate"
    public: Annotated[
        tuple[str, ...],
        Key(many(filled), "names of variables and headers whose values are not secret"),
        Allows("show the values of these secrets: {}"),
    ] = ()
    vault: Annotated[
        Vault | None,
        Key(fields.table(Vault), "a HashiCorp Vault with secrets ([secrets.md](secrets.md))"),
        allowing.TOLD,
    ] = None


class Broken(Exception):
    """A place is there and cannot be used. `str()` says which, and what to do."""


class Place(Protocol):
    def find(self, name: str) -> str | None:
        """None where it is not here. Raises `Broken`."""
        ...

    def where(self, name: str) -> str:
        """The place in words, once it has been looked at."""
        ...


def named_in(text: str) -> list[str]:
    return [name for name in _named.findall(text) if is_secret_name(name)]


def folder(state: str, source: str, environ: Mapping[str, str]) -> Path:
    """The state folder. It is not made here."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home()).absolute()
    if state:
        written = state.removeprefix("~/")
        return Path(source).absolute().parent / (home / written if written != state else written)
    if os.path.isabs(environ.get("XDG_STATE_HOME", "")):
        return Path(environ["XDG_STATE_HOME"], "toolgate")
    return home / ".local" / "state" / "toolgate"


def file_of(settings: Secrets, state: str, source: str, environ: Mapping[str, str]) -> Path:
    if not settings.file:
        return folder(state, source, environ) / FILE
    return folder(settings.file, source, environ)  # written as `state` is


class Sources:
    """All places of one configuration. Each secret is looked for once. `style` is how the settings write variables of
    the environment. Where `looks` is false no place is asked for a value."""

    def __init__(
        self,
        settings: Secrets,
        environ: Mapping[str, str],
        file: Path,
        style: Style = SHELL,
        looks: bool = True,
    ) -> None:
        self.settings = settings
        self._looks = looks
        self._environ = environ
        self._file = file
        self._style = style
        self._places: Sequence[tuple[str, Place]] | None = None
        self._found: dict[str, str | Lacking] = {}

    @property
    def found(self) -> Sequence[str]:
        """The values of all that was looked for and found."""
        return [value for value in self._found.values() if isinstance(value, str)]

    @property
    def credentials(self) -> Sequence[str]:
        """What the gateway shows Vault, as far as it can be known."""
        vault, found = self.settings.vault or Vault(), list[str]()
        for written in filter(None, (vault.token, vault.role_id, vault.secret_id)):
            try:
                found.append(self._expand(written))
            except Broken:
                pass  # it is said where a secret is looked up
        return [*found, *_logins.values()]

    def _expand(self, written: str) -> str:
        """With variables put in, which cannot be secrets themselves. Raises `Broken`."""
        expansion = Expansion(self._environ, self._style)
        try:
            found = cast(str, expansion.expand(written))
        except Wrong as error:
            raise Broken(f"a value in secrets.vault {error.findings[0].message}") from None
        if expansion.missing:
            raise Broken("; ".join(expansion.lacks()))
        return found

    def get(self, name: str) -> str:
        """Raises `Lacking`."""
        if not self._looks:
            raise Unread(f"secret `{name}` was not looked up")
        if name not in self._found:
            try:
                self._found[name] = self._looked_up(name)[1]
            except Lacking as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, Lacking):
            raise found
        return found

    def origin(self, name: str) -> str:
        """The backend that has it. Raises `Lacking`."""
        return self._looked_up(name)[0]

    def has(self, name: str) -> bool:
        """Some place has it."""
        try:
            self._looked_up(name)
        except Lacking:
            return False
        return True

    def _looked_up(self, name: str) -> tuple[str, str]:
        asked: list[str] = []
        for backend, place in self._all():
            try:
                value = place.find(name)
            except Broken as error:
                raise Lacking(f"secret `{name}` cannot be looked up: {error}") from None
            if value:
                return backend, value
            asked.append(place.where(name))
        raise Lacking(
            f"secret `{name}` not found; looked in {'; '.join(asked) or 'no source'}. "
            f"`toolgate secrets set {name}` stores it in the file"
        )

    def _all(self) -> Sequence[tuple[str, Place]]:
        if self._places is None:
            settings = self.settings
            made: Mapping[str, Callable[[], Place | None]] = {
                "env": lambda: _Environment(self._environ),
                "file": lambda: _File(self._file),
                "systemd": lambda: _Systemd(self._environ),
                "keyring": lambda: _Keyring(settings.service),
                "vault": lambda: _Vault(settings.vault, self._environ, self._expand) if settings.vault else None,
            }
            self._places = [(backend, place) for backend in settings.backends if (place := made[backend]())]
        return self._places


class _Environment:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def find(self, name: str) -> str | None:
        return next((value for variable in variables_of(name) if (value := self._environ.get(variable))), None)

    def where(self, name: str) -> str:
        return f"the environment ({' and '.join(variables_of(name))})"


def variables_of(name: str) -> list[str]:
    """`github-token` → `TOOLGATE_SECRET_GITHUB_TOKEN`; and the name itself where it can be a variable."""
    prefixed = variable_of_secret(name)
    return [prefixed, name] if _variable.fullmatch(name) else [prefixed]


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: Mapping[str, str] | None = None

    def find(self, name: str) -> str | None:
        if self._known is None:
            self._known = read_file(self._path)
        return self._known.get(name)

    def where(self, name: str) -> str:
        return f"the file {self._path}" + ("" if self._known else " (empty or missing)")


def read_file(path: Path) -> Mapping[str, str]:
    """Names and values; none where there is no file. Raises `Broken`, for a file that others may read as well."""
    try:
        with ownership.open_anyones(path) as file:
            _refuse_if_open_to_others(path, os.fstat(file.fileno()))
            tree = parse(file.read(4 * LONGEST).decode(), "json")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError):
        raise Broken(f"{path} cannot be read") from None
    except Malformed as error:
        raise Broken(f"{path} is not valid JSON ({error.message})") from None
    if not isinstance(tree, dict) or not all(isinstance(each, str) for each in cast("dict[str, Any]", tree).values()):
        raise Broken(f"{path} must be a JSON object whose values are text")
    return cast("dict[str, str]", tree)


def _refuse_if_open_to_others(path: Path, found: os.stat_result) -> None:
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Broken(f"{path} is accessible to other users: chmod 600 {path}")
    if found.st_uid not in (os.geteuid(), 0):
        raise Broken(f"{path} belongs to another user: chown it to the user that runs toolgate")


class _Systemd:
    """Credentials that systemd hands to a service (`LoadCredential=`, `SetCredentialEncrypted=`): a file for each."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = environ.get("CREDENTIALS_DIRECTORY", "")

    def find(self, name: str) -> str | None:
        if not self._folder or "/" in name:
            return None
        path = Path(self._folder, name)
        try:
            with ownership.open_anyones(path) as file:
                return file.read(LONGEST_SECRET).decode().removesuffix("\n")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            raise Broken(f"the systemd credential {path} cannot be read as text") from None

    def where(self, name: str) -> str:
        return f"systemd's credentials ({self._folder or '$CREDENTIALS_DIRECTORY is not set'})"


class _Keyring:
    """That of the user's desktop. Where there is none, or its library is not installed, it has nothing."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._why_not = ""

    def find(self, name: str) -> str | None:
        try:
            keyring: Any = importlib.import_module("keyring")
        except ImportError:
            self._why_not = "not installed: pip install 'toolgate[keyring]'"
            return None
        try:
            return keyring.get_password(self._service, name)
        except keyring.errors.NoKeyringError:
            self._why_not = "no keyring on this machine"
            return None
        except (keyring.errors.KeyringError, RuntimeError) as error:
            raise Broken(f"the keyring cannot be read ({type(error).__name__})") from None

    def where(self, name: str) -> str:
        return f"the keyring ({self._why_not or f'service {self._service}'})"


_logins: dict[tuple[str, str], str] = {}  # tokens by Vault and role: to read a file again is no new login


class _Vault:
    """KV version 2 over HTTP. Each secret is fetched once; a login by AppRole serves all that come after it."""

    def __init__(self, settings: Vault, environ: Mapping[str, str], expand: Callable[[str], str]) -> None:
        self._settings = settings
        self._environ = environ
        self._expand = expand
        self._fetched: dict[str, Mapping[str, Any]] = {}
        self._why_not: Broken | None = None  # it cannot be reached: nor is it asked for what else there is

    def find(self, name: str) -> str | None:
        path, _, field = name.partition("#")
        if self._why_not:
            raise self._why_not
        if path not in self._fetched:
            self._fetched[path] = self._fetch(path)
        value = self._fetched[path].get(field or FIELD)
        return value if isinstance(value, str) else None

    def where(self, name: str) -> str:
        path, _, field = name.partition("#")
        return f"Vault ({self._path(path)}, field {field or FIELD})"

    def _path(self, name: str) -> str:
        return "/".join(filter(None, (self._settings.mount, "data", self._settings.path.strip("/"), name)))

    def _fetch(self, name: str) -> Mapping[str, Any]:
        address = self._text(self._settings.address, "VAULT_ADDR").rstrip("/")
        if not re.match(r"https?://[^/?#@\s]+", address):
            raise Broken("Vault has no address: set secrets.vault.address or VAULT_ADDR")
        if not address.startswith("https://") and not _plain_here.fullmatch(address):
            raise Broken(f"Vault at {address} is on another machine: use https")
        status, body = self._asked(address, "GET", self._path(name))
        if status == 403 and self._settings.role_id:
            _logins.pop(self._login_key(address), None)  # its time is over
            status, body = self._asked(address, "GET", self._path(name))
        if status == 404:
            return {}
        if status != 200:
            raise Broken(f"Vault answered HTTP {status} for {self._path(name)}")
        return _inner(_inner(body, "data"), "data")

    def _asked(self, address: str, method: str, path: str) -> tuple[int, Mapping[str, Any]]:
        return self._request(address, method, path, {"X-Vault-Token": self._token(address)})

    def _token(self, address: str) -> str:
        if not self._settings.role_id:
            token = self._text(self._settings.token, "VAULT_TOKEN")
            if not token:
                raise Broken("Vault has no token: set secrets.vault.token, or role_id and secret_id")
            return token
        key = self._login_key(address)
        if key not in _logins:
            given = {"role_id": key[1], "secret_id": self._text(self._settings.secret_id, "VAULT_SECRET_ID")}
            status, body = self._request(address, "POST", "auth/approle/login", {}, msgspec.json.encode(given))
            if status != 200:
                raise Broken(f"Vault answered HTTP {status} to the AppRole login")
            _logins[key] = str(_inner(body, "auth").get("client_token", ""))
        return _logins[key]

    def _login_key(self, address: str) -> tuple[str, str]:
        return address, self._text(self._settings.role_id, "VAULT_ROLE_ID")

    def _request(
        self, address: str, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, Any]]:
        http: Any = importlib.import_module("httpcore2")  # 50 ms that only those pay who have a Vault
        namespace = self._text(self._settings.namespace, "VAULT_NAMESPACE")
        sent = {**headers, "X-Vault-Request": "true", **({"X-Vault-Namespace": namespace} if namespace else {})}
        until, read = time.monotonic() + VAULT_PATIENCE, b""
        try:
            with (
                http.ConnectionPool(network_backend=_Until(until, http.SyncBackend())) as pool,
                pool.stream(method, f"{address}/v1/{path}", headers=sent, content=body) as answer,
            ):
                for piece in answer.iter_stream():
                    read += piece
                    if len(read) > LONGEST_ANSWER:
                        raise Broken(f"Vault at {address} answered with more than {LONGEST_ANSWER:,} bytes")
                return answer.status, _table(read)
        except (http.NetworkError, http.TimeoutException, http.ProtocolError, http.UnsupportedProtocol) as error:
            why = f"within {VAULT_PATIENCE:g} s" if isinstance(error, http.TimeoutException) else type(error).__name__
            self._why_not = Broken(f"Vault at {address} cannot be reached ({why})")
            raise self._why_not from None
        except UnicodeError:
            raise Broken("Vault's address, token or namespace has letters that are not valid there") from None
        except (ValueError, TypeError):
            raise Broken(f"Vault's address is no URL: {address}") from None

    def _text(self, written: str, variable: str) -> str:
        return self._expand(written) if written else self._environ.get(variable, "")


class _Until:
    """A connection, or what makes one, each step of which ends by this time: each may be any number of reads."""

    def __init__(self, until: float, inner: Any) -> None:
        self._until = until
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("connect_tcp", "connect_unix_socket", "start_tls", "read", "write"):
            return found

        def bounded(*args: Any, timeout: float | None = None, **more: Any) -> Any:
            made = found(*args, timeout=max(0.001, self._until - time.monotonic()), **more)
            return _Until(self._until, made) if name.startswith(("connect", "start")) else made

        return bounded


def _table(body: bytes) -> Mapping[str, Any]:
    """Nothing where it is an error page of a proxy."""
    try:
        return plain.read(body, dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _inner(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
