"""What the registries of npm and PyPI say of one version of a package: when it came, its hash, and whose server it is.

An npm package says in its `mcpName`, one of PyPI in a line `mcp-name: …` of its description, which server of an MCP
registry it belongs to: nobody else can claim it then. PyPI is read by the Simple API with JSON (PEP 691, 700), which
mirrors have too, and by the metadata in the wheel itself. The rules this file keeps: what is read is bounded, and read
in a thread; of what a registry has of all versions, only the one that is asked for becomes values; a hash that is used
was computed here, over the bytes that were served.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import math
import re
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urljoin

import msgspec
from msgspec import Meta

from toolgate import __version__
from toolgate.auth.safe_net import Bounds, SafeNet
from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.provision import entries
from toolgate.provision.entries import Kind, Package
from toolgate.upstreams.process.kept import LONGEST as LONGEST_FILE
from toolgate.upstreams.process.kept import hash_of

LONGEST_METADATA = (
    24 * 1024 * 1024
)  # bytes of all that a registry says of a package: npm has every version in one answer
LONGEST_README = 1024 * 1024  # bytes
MOST_LISTED = 500_000  # commas in what PyPI says of a package, by which its files are counted before they are read
MOST_FILES = 1000  # of one version
MOST_PACKED = 100_000  # files in a wheel
PATIENCE = 30.0  # seconds for an answer
FILE_PATIENCE = 120.0  # seconds for a file
AT_ONCE = 6  # requests to one registry; whose turn it is was settled before

_sha256 = re.compile("[0-9a-f]{64}")
_mark = re.compile(rb"(?<![\w-])mcp-name:[ \t]{0,8}([A-Za-z0-9./_-]{3,200})")


class Unknown(Exception):
    """A registry does not say what was asked, or not to be believed; `str()` says why."""


class File(msgspec.Struct, frozen=True):
    """Of a package, as its registry has it: what it is called, where it is, and its hash."""

    name: str
    url: str
    hash: str


class Facts(msgspec.Struct, frozen=True):
    """`hash` is `sha512-…` (npm) or `sha256:…` (PyPI) as the registry states it, `published` in seconds since 1970,
    `owners` the names of servers that the package says it is. `withdrawn`: why it should not be used any more. `file`
    is the one that was looked at, `files` all of this version. `unowned`: why it is not known whose it is."""

    hash: str
    published: float
    owners: tuple[str, ...] = ()
    unowned: str = ""
    withdrawn: str = ""
    file: File | None = None
    files: tuple[File, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """The hashes of all."""
        return tuple(file.hash for file in self.files)


Where = Callable[[Kind, str], Awaitable[str]]
"""The URL of the registry that has a package. Raises `Fault`."""


class Packages:
    """`where` says whom to ask."""

    def __init__(self, net: SafeNet, where: Where) -> None:
        self._net = net
        self._where = where

    async def facts(self, package: Package) -> Facts:
        """What is said of it. Raises `Unknown`."""
        try:
            base = await self._where(package.kind, package.name)
            return await (self._of_npm if package.kind == "npm" else self._of_pypi)(base, package)
        except Fault as fault:
            raise Unknown(fault.message) from None

    async def bytes_of(self, package: Package, file: File) -> bytes:
        """All of a file, which has the hash that is stated. Raises `Unknown` where it has not, or cannot be had."""
        try:
            base = await self._where(package.kind, package.name)
            data = await self._file(base, file.url, LONGEST_FILE)
        except Fault as fault:
            raise Unknown(fault.message) from None
        if await asyncio.to_thread(hash_of, data, file.hash) != file.hash:
            raise Unknown(f"the file that is served has another hash than {file.hash[:40]}")
        return data

    # npm.

    async def _of_npm(self, base: str, package: Package) -> Facts:
        body = await self._get(base, f"{base}/{quote(package.name, safe='@')}", "application/json", *_OF_ALL_VERSIONS)
        version, time = await asyncio.to_thread(_of_npm_version, body, package.version)
        if version is None:
            raise Unknown(f"npm has no version {package.version} of {package.name}")
        if version.name != package.name or version.version != package.version:
            raise Unknown("its registry answers for another package")
        stated = version.dist.integrity if version.dist.integrity.startswith("sha512-") else ""
        name = f"{package.name.rpartition('/')[2]}-{package.version}.tgz"
        file = File(name, version.dist.tarball, stated)
        return Facts(
            hash=stated,
            published=entries.moment(time),
            owners=(version.mcpName,) if version.mcpName else (),
            withdrawn=entries.shown(_text_of(version.deprecated)),
            file=file,
            files=(file,) if stated else (),
        )

    # PyPI.

    async def _of_pypi(self, base: str, package: Package) -> Facts:
        name = normalized(package.name)
        body = await self._get(base, f"{base}/{name}/", "application/vnd.pypi.simple.v1+json", *_OF_ALL_VERSIONS)
        files = await asyncio.to_thread(_files_of, body, name, package.version)
        if not files:
            raise Unknown(f"PyPI has no version {package.version} of {package.name}")
        wheel = next((each for each in files if each.filename.endswith("-none-any.whl")), files[0])
        sha256 = wheel.hashes.sha256
        stated = f"sha256:{sha256}" if _sha256.fullmatch(sha256) else ""

        def there(each: _SimpleFile) -> File:
            url = urljoin(f"{base}/{name}/", each.url).partition("#")[0]
            return File(each.filename, url, f"sha256:{each.hashes.sha256}")

        url = there(wheel).url
        owners, unowned = (), ""
        try:
            owners = await self._owners(base, url, wheel, stated) if stated else ()
        except (Unknown, Fault) as error:
            unowned = str(error)
        return Facts(
            hash=stated,
            published=max(entries.moment(each.upload_time) for each in files),
            owners=owners,
            unowned=unowned,
            withdrawn=wheel.why_yanked,
            file=there(wheel),
            files=tuple(there(each) for each in files if _sha256.fullmatch(each.hashes.sha256)),
        )

    async def _owners(self, base: str, url: str, wheel: _SimpleFile, stated: str) -> tuple[str, ...]:
        """By the description in its metadata, of a file that has the hash that is stated for it."""
        if sha256 := wheel.hash_beside:
            metadata = await self._file(base, f"{url}.metadata", LONGEST_README)
            if hashlib.sha256(metadata).hexdigest() != sha256:
                raise Unknown("its metadata have another hash than its registry states")
            return _owners_in(metadata)
        if url.endswith(".whl") and 0 < wheel.size <= LONGEST_FILE:
            data = await self._file(base, url, LONGEST_FILE)
            return await asyncio.to_thread(_owners_of_wheel, data, stated)
        return ()

    # Requests.

    async def _file(self, base: str, url: str, longest: int) -> bytes:
        return await self._get(base, url, "*/*", longest, FILE_PATIENCE)

    async def _get(self, base: str, url: str, accept: str, longest: int, seconds: float) -> bytes:
        """Raises `Unknown`, `Fault`. Only the registry itself may be where the operator's client says, on an inner
        network too; a file that it names elsewhere is at a public address."""
        headers = {"Accept": accept, "User-Agent": f"toolgate/{__version__}"}
        bounds = Bounds(seconds, longest, AT_ONCE)
        fetched = await self._net.fetch(
            url, asker=f"packages of {base}", headers=headers, trusted=(base,), follow=False, bounds=bounds
        )
        if fetched.status in (404, 410):
            raise Unknown("its registry does not know it")
        if fetched.status != 200:
            raise Unknown(f"its registry answered HTTP {fetched.status}")
        return fetched.body


_OF_ALL_VERSIONS = LONGEST_METADATA, PATIENCE
_NO_TEXT = msgspec.Raw(b'""')

Found = TypeVar("Found")


class _Dist(msgspec.Struct):
    integrity: str = ""
    tarball: str = ""


class _NpmVersion(msgspec.Struct):
    name: str = ""
    version: str = ""
    mcpName: str = ""
    deprecated: msgspec.Raw = _NO_TEXT
    dist: _Dist = msgspec.field(default_factory=_Dist)


class _Hashes(msgspec.Struct):
    sha256: str = ""


class _SimpleFile(msgspec.Struct):
    """A file of the Simple API."""

    filename: str
    url: Annotated[str, Meta(max_length=8192)]
    hashes: _Hashes = msgspec.field(default_factory=_Hashes)
    yanked: bool | str = False
    size: int = 0
    upload_time: str = msgspec.field(default="", name="upload-time")
    core_metadata: msgspec.Raw = msgspec.field(default=_NO_TEXT, name="core-metadata")

    @property
    def hash_beside(self) -> str:
        """The SHA-256 of the metadata that stand beside it as a file (PEP 714); empty where none do."""
        try:
            return msgspec.json.decode(self.core_metadata, type=_Hashes).sha256
        except jsonrpc.UNREADABLE:
            return ""

    @property
    def why_yanked(self) -> str:
        return (entries.shown(self.yanked) if isinstance(self.yanked, str) else "") or "yanked" if self.yanked else ""


class _Simple(msgspec.Struct):
    name: str = ""
    files: list[msgspec.Raw] = []


def _read(body: bytes | msgspec.Raw, kind: type[Found]) -> Found:
    """Raises `Unknown`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        raise Unknown("the answer of its registry cannot be read") from None


def _of_npm_version(body: bytes, version: str) -> tuple[_NpmVersion | None, str]:
    """What npm says of one version, and when that came. Of the others nothing is made. Raises `Unknown`."""
    versions = msgspec.defstruct("_Versions", [("it", _NpmVersion | None, None)], rename={"it": version}, frozen=True)
    times = msgspec.defstruct("_Times", [("it", str, "")], rename={"it": version}, frozen=True)
    found: Any = _read(body, msgspec.defstruct("_Npm", [("versions", versions, versions()), ("time", times, times())]))
    return found.versions.it, found.time.it


def _files_of(body: bytes, name: str, version: str) -> Sequence[_SimpleFile]:
    """Those of one version of a package. Raises `Unknown`."""
    if body.count(b",") > MOST_LISTED:
        raise Unknown("its registry lists too many files")
    found = _read(body, _Simple)
    if normalized(found.name) != name:
        raise Unknown("its registry answers for another package")
    listed = (_read(each, _SimpleFile) for each in found.files)
    of_it = (each for each in listed if _version_of(each.filename, name) == version)
    files = list(itertools.islice(of_it, MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise Unknown(f"its registry lists more than {MOST_FILES:,} files of this version")
    return files


def _text_of(raw: msgspec.Raw) -> str:
    """Empty for what is no text."""
    try:
        return msgspec.json.decode(raw, type=str)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        return ""


def normalized(name: str) -> str:
    """As PyPI compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version_of(filename: str, name: str) -> str:
    """Of a wheel, or of a source distribution."""
    if filename.endswith(".whl"):
        parts = filename.split("-")
        return parts[1] if len(parts) >= 5 and normalized(parts[0]) == name else ""
    stem = filename.removesuffix(".tar.gz").removesuffix(".zip")
    before, _, version = stem.rpartition("-")
    return version if normalized(before) == name else ""


def wheels_of(files: Sequence[File], hashes: Sequence[str]) -> Sequence[File]:
    """Those with one of these hashes."""
    return [each for each in files if each.hash in hashes and each.name.endswith(".whl")]


def chosen(wheels: Sequence[File], tags: frozenset[str]) -> File | None:
    """The one that a client has taken, by the tags that it says it has."""
    return next((each for each in wheels if _has_tags(each.name, tags)), None)


def _has_tags(wheel: str, tags: frozenset[str]) -> bool:
    """Whether its name has packed these together. A name of some kilobytes would be a billion: they are counted
    first."""
    parts = [frozenset(each.split(".")) for each in wheel.removesuffix(".whl").split("-")[-3:]]
    return math.prod(map(len, parts)) == len(tags) and tags.issuperset(map("-".join, itertools.product(*parts)))


def _owners_of_wheel(wheel: bytes, stated: str) -> tuple[str, ...]:
    """Raises `Unknown` for what has another hash, or is no wheel."""
    if hash_of(wheel, stated) != stated:
        raise Unknown(f"the file that is served has another hash than {stated[:40]}")
    return _owners_in(_metadata_of(wheel))


def _owners_in(metadata: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found.decode() for found in _mark.findall(metadata)))


_UNPACKED_IN_PARTS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of others a little may become a lot at once


def _metadata_of(wheel: bytes) -> bytes:
    """The file METADATA, as far as it is read. Raises `Unknown`."""
    if wheel.count(b"PK\x01\x02") > MOST_PACKED:  # what each entry begins with
        raise Unknown(f"its wheel has more than {MOST_PACKED:,} files")
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as packed:
            for info in packed.infolist():
                is_it = re.fullmatch(r"[^/]+\.dist-info/METADATA", info.filename)
                if is_it and info.compress_type in _UNPACKED_IN_PARTS:
                    with packed.open(info) as file:
                        return file.read(LONGEST_README)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError, OSError):
        pass
    raise Unknown("its wheel cannot be read")
