"""JSON schemas of arguments, compiled once per text: what is wrong with a value, in words that give none of it away.

The rules this file keeps: nothing is fetched for a schema, from nowhere; no schema and no value takes the gateway's
time without bound; arguments may be secrets, so that no message shows one, only where it stands and what was expected.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, surrogates
from toolgate.core.model import ToolInfo
from toolgate.core.redaction import excerpt
from toolgate.policy import plain_schemas, schema_cost
from toolgate.policy.schema_cost import DATA, DEEPEST, SchemaCost, TooMuch, parts

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

LARGEST = 256 * 1024  # bytes of a schema
QUICK = 8 * 1024  # bytes of arguments, at most, that are soon judged
LARGEST_SHOWN = 16 * 1024  # bytes of one in an error
MOST_VALUES = 20_000  # in one
MOST_KEPT = 128 * 1024 * 1024  # bytes that all compiled schemas together may take, about
_LEAST_SIZE = 1000  # bytes of one, of which nothing is compiled
_COMPILED = 20  # bytes that one of a schema takes when it is compiled
_FURTHER = (128 * 1024, 2 * 1024 * 1024)  # bytes that each pattern may take when it has run: so many at least, at most
_FURTHER_TIMES = 16  # what it takes itself, between these: usual texts are then matched a thousand times as fast
_PATTERNS = 16 * 1024 * 1024  # bytes that the patterns of one schema may take: about a tenth of a second to compile
_SIZES = tuple(4096 << step for step in range(12))  # that are tried for each pattern
MOST_NAMED = 20  # errors
_BACKTRACKS = 200  # steps that one pattern may go back in one text, each of which may be a look at all that is left
_LOOKS = 10  # such looks at a whole text that take as long as all of these steps at the very worst, as measured
_MOST_VISITS = 4_000_000  # of parts by schemas: about a tenth of a second, in which nothing else is done
_MOST_LISTED = 5_000  # visits after which all errors are listed, which takes 25 µs for each; else the first is named
_MOST_TOLD = 25 * 10**6  # bytes of a schema by visits that errors are listed after: each may repeat what was expected
_MOST_ESCAPES = 10_000  # class escapes in patterns, by their square: some hundredths of a second to compile
_UNIQUE = 512  # bytes of arguments in which no list takes long to be seen to say nothing twice
_LONG = 16  # how many times as long it takes to compare numbers beyond 64 bits
_MOST_MATCHED = 4 * 10**8  # bytes of texts by bytes of compiled patterns: a tenth of a second at the very worst, twice
HERE = 10  # so much less of each of these may be judged on the event loop: some hundredths of a second at most
LARGE = 128 * 1024  # bytes of arguments, above which they are not: nested ones take up to 30 ms to read
_MOST_REPEATED = 10**8  # bytes of arguments by visits: each that fails may repeat them
_LONGEST_POINTER = 1000
_LONGEST_PROBLEM = 500  # characters
_MOST_OPTIONS, _LONGEST = 10, 200  # of what was expected that is shown


class Wrong(msgspec.Struct, frozen=True):
    """One error: where, against which keyword, and what was expected."""

    pointer: str
    keyword: str
    message: str


class ArgumentsVerdict(msgspec.Struct, frozen=True):
    """What is wrong, the first `MOST_NAMED` of `count`. `is_whole`: all was looked at."""

    wrong: tuple[Wrong, ...] = ()
    count: int = 0
    is_whole: bool = True


FINE = ArgumentsVerdict()
_FOR_ELSEWHERE = ArgumentsVerdict(is_whole=False)
_SOMEWHERE = ArgumentsVerdict(
    (Wrong("", "anyOf", "do not match the schema, and have too many parts to say where"),), 1, is_whole=False
)


def in_error(tool_info: ToolInfo) -> dict[str, Raw]:
    """What an error says of a tool's schema, as clients know it; nothing where it has none, or a large one."""
    text = tool_info.shown_schema or tool_info.schema
    return {"schema": Raw(text)} if 0 < len(text) <= LARGEST_SHOWN else {}


class Schema(msgspec.Struct):
    """`problem` says why nothing can be judged by it; `was_told`: somebody has said so. `work` weighs what it takes to
    judge, `errors` how much can be wrong, `visits` is the most that `work` says of any value; `matched` are bytes of
    compiled patterns that a byte of a text may be held against, which has to stand in these `members` of a value (None:
    anywhere). `without_patterns` is the same schema but for them. `size`: bytes that it takes, about. `is_elsewhere`:
    nothing is compiled, since it is for the process that judges what may take long; `is_slow`: also there."""

    validator: Any = None
    work: Any = None
    errors: Any = None
    visits: int = 0
    matched: int = 0
    members: frozenset[str] | None = None
    has_alternatives: bool = False
    has_unique: bool = False
    listed: int = _MOST_LISTED
    without_patterns: Schema | None = None
    size: int = 0
    problem: str = ""
    was_told: bool = False
    is_elsewhere: bool = False
    is_slow: bool = False
    quick: int = 0  # bytes of arguments that are soon judged, whatever they are

    def __post_init__(self) -> None:
        if not self.problem and not self.is_elsewhere:
            most = min(_UNIQUE if self.has_unique else QUICK, _MOST_VISITS // (HERE * self.visits or 1))
            self.quick = min(most, _MOST_MATCHED // (4 * HERE * self.matched or 1)) - 1

    def surely_takes(self, arguments: bytes) -> bool:
        """Whether they are right, and that is soon told. If not, `judge` tells."""
        if len(arguments) > self.quick:
            return False
        try:
            return arguments.find(b"\\u") < 0 and self.validator.is_valid(decode(arguments))
        except (UnicodeDecodeError, ValueError, *jsonrpc.UNREADABLE):
            return False

    def judge_here(self, arguments: bytes) -> ArgumentsVerdict | None:
        """None: it is for the process that judges what may take long."""
        if self.problem:
            return FINE
        if self.is_elsewhere or len(arguments) > LARGE or self.visits * len(arguments) > _MOST_REPEATED:
            return None
        if len(arguments) > QUICK and _long_number.search(arguments):
            return None  # one of thousands of digits takes as long as thousands of others
        found = self.judge(arguments, _FOR_ELSEWHERE, HERE)
        return None if found is _FOR_ELSEWHERE else found

    def judge(self, arguments: bytes, undecided: ArgumentsVerdict = FINE, share: int = 1) -> ArgumentsVerdict:
        """What cannot be read here, or would take too long, is `undecided`: left to the server to judge. `share`: what
        may take that part of the time only."""
        if arguments.find(b"\\u") >= 0:
            arguments = surrogates.replaced(arguments)  # the validator knows no lone ones; a length stays what it was
        try:
            value = decode(arguments)
        except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
            return undecided
        most_matched = _MOST_MATCHED // share
        if self.matched * len(arguments) > most_matched and self.matched * self._texts(value) > most_matched:
            spare = self.without_patterns if undecided is FINE else None
            return spare.judge(arguments) if spare else undecided
        most = 1 + arguments.count(b",") + arguments.count(b":")  # values in it; less where texts have them, too
        limit = _MOST_VISITS // (share * _LONG if _long_number.search(arguments) else share)
        try:
            if self.visits * most > limit and not _is_within(limit, self.work, value, most):
                return undecided
            if self.has_unique and self.work.of(value) * schema_cost.of_unique(value) > limit:
                return undecided
            if self.validator.is_valid(value):
                return FINE
            jsonrpc.value(arguments)  # which refuses what is infinite here
            if _is_within(self.listed // share, self.errors, value, most):
                return _listed(self.validator, value) or undecided
            if share > 1:
                return undecided
            if self.has_alternatives:  # of each that is wrong, all that is wrong would be kept
                return _SOMEWHERE
            return _first(self.validator, value) or undecided
        except (ValueError, TooMuch, *jsonrpc.UNREADABLE):  # nested deeper than the validator goes, or infinite
            return undecided

    def _texts(self, value: object) -> int:
        """How many bytes of texts patterns are held against, at most."""
        if self.members is None or not isinstance(value, dict):
            return len(jsonrpc.encode(value))
        known = cast("dict[str, object]", value)
        return len(jsonrpc.encode([known[name] for name in self.members if name in known]))


# Not by `jsonrpc`, since each call passes this. Python reads the floats, as there (`core.plain` says why), and
# makes infinite what no double can hold.
decode = msgspec.json.Decoder(float_hook=float).decode
_long_number = re.compile(rb"[0-9]{19}")


def _is_within(limit: int, weight: SchemaCost, value: object, most: int) -> bool:
    try:
        visits = weight.of(value)
    except TooMuch:
        return False
    return visits * most <= limit or visits * parts(value) <= limit


class Kept:
    """Compiled schemas, by their servers and texts. Where they take more than `MOST_KEPT` together, the oldest of the
    server whose schemas take most give way, so that no server has those of another compiled again."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, bytes], Schema] = {}
        self._texts: dict[str, dict[bytes, None]] = {}  # of a server, the oldest first
        self._sizes: dict[str, int] = {}  # bytes that a server's take
        self.size = 0
        self._changing = threading.Lock()

    def put(self, server: str, text: bytes, schema: Schema) -> None:
        with self._changing:
            if (server, text) not in self.found:  # another thread may have been quicker
                self.found[server, text] = schema
                self._texts.setdefault(server, {})[text] = None
                self._resize(server, schema.size)
            while self.size > MOST_KEPT:
                self._let_go_of_one()

    def _let_go_of_one(self) -> None:
        server = max(self._sizes, key=self._sizes.__getitem__)
        theirs = self._texts[server]
        oldest = next(iter(theirs))
        del theirs[oldest]
        self._resize(server, -self.found.pop((server, oldest)).size)
        if not theirs:
            del self._texts[server], self._sizes[server]

    def _resize(self, server: str, by: int) -> None:
        self._sizes[server] = self._sizes.get(server, 0) + by
        self.size += by


_kept = Kept()
KEPT: Mapping[tuple[str, bytes], Schema] = _kept.found  # those that are compiled, by their servers and texts


def is_quick(server: str, text: bytes) -> bool:
    """Whether it is compiled already, or soon is."""
    return not SHORT < len(text) <= LARGEST or (server, text) in _kept.found


def here(text: bytes, server: str) -> Schema:
    """The same where it is plain; else one that is judged elsewhere. It may be called in any thread."""
    found = _kept.found.get((server, text))
    if found is None:
        found = _compiled(text) if _is_plain(text) else Schema(is_elsewhere=True, size=_LEAST_SIZE + len(text))
        _kept.put(server, text, found)
    return found


def _is_plain(text: bytes) -> bool:
    """One that is no schema is told from others as soon."""
    if len(text) > LARGEST or counting.has_more_values(text, MOST_VALUES):
        return True
    try:
        return plain_schemas.is_plain(jsonrpc.value(surrogates.replaced(text)))
    except (ValueError, *jsonrpc.UNREADABLE):
        return True


def compiled(text: bytes, server: str = "") -> Schema:
    """Once for each text of a server, as long as it is kept. It may be called in any thread."""
    found = _kept.found.get((server, text))
    if found is None:
        found = _compiled(text)
        _kept.put(server, text, found)
    return found


SHORT = 1024  # bytes of a schema; one that refers to itself wherever it can takes some milliseconds for each of so many


def _compiled(text: bytes) -> Schema:
    size = _LEAST_SIZE + _COMPILED * len(text)
    if len(text) > LARGEST:
        return Schema(problem=f"it has more than {LARGEST:,} bytes", size=size)
    if counting.has_more_values(text, MOST_VALUES):
        return Schema(problem=f"it has more than {MOST_VALUES:,} values", size=size)
    replaced = surrogates.replaced(text)
    try:
        schema = jsonrpc.value(replaced)
        if _spare_defaults(schema):
            replaced = jsonrpc.encode(schema)
        plain = SchemaCost(schema)
        plain.reckon()
        if plain.escapes > _MOST_ESCAPES:
            raise ValueError("its patterns have too many classes of characters")
        validator, of_pattern, largest = _validator(replaced.decode(), plain.patterns)
        work = plain if of_pattern == 1 else SchemaCost(schema, of_pattern)
        work.reckon()
        spare = (
            _compiled(jsonrpc.encode(rest))
            if plain.patterns and (rest := schema_cost.without_patterns(schema))
            else None
        )
    except (TooMuch, ValueError, *jsonrpc.UNREADABLE) as problem:
        return Schema(problem=str(problem).partition("\n")[0][:_LONGEST_PROBLEM], size=size)
    size += plain.patterns * (largest + _further(largest)) + (spare.size if spare else 0)
    matched, members = plain.patterns * largest * min(of_pattern, _LOOKS), schema_cost.matched_members(schema)
    spare = spare if spare and not spare.problem else None
    return Schema(
        validator,
        work,
        plain,
        work.visits(DEEPEST),
        matched,
        members,
        has_alternatives=schema_cost.has_alternatives(schema),
        has_unique=plain.has_unique,
        listed=min(_MOST_LISTED, _MOST_TOLD // len(text)),
        without_patterns=spare,
        size=size,
    )


def _further(largest: int) -> int:
    least, most = _FURTHER
    return min(max(least, _FURTHER_TIMES * largest), most)


def _spare_defaults(schema: object) -> bool:
    """Whether anything is no longer required in it, for it has a default. Schemas that are made of what a server works
    with require all that it fills in itself."""
    found, ahead = False, [schema]
    while ahead:
        node: Any = ahead.pop()
        if isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            required, known = members.get("required"), members.get("properties")
            if isinstance(required, list) and isinstance(known, dict):
                missed = [name for name in cast("list[Any]", required) if not _has_default(cast("Any", known), name)]
                found = found or len(missed) < len(cast("list[Any]", required))
                members["required"] = missed
            ahead += [each for name, each in members.items() if name not in DATA]
        elif isinstance(node, list):
            ahead += node
    return found


def _has_default(known: Mapping[str, Any], name: object) -> bool:
    of_it = known.get(name) if isinstance(name, str) else None
    return isinstance(of_it, dict) and "default" in of_it


def _validator(text: str, patterns: int) -> tuple[Validator, int, int]:
    """The validator, how many steps back a pattern may go, and the bytes that each pattern may take. Patterns run in
    linear time; those that cannot (they look around, or back) run on another engine, bounded."""
    import jsonschema_rs  # 45 ms that only those pay who validate

    def made(patterns: Any) -> Validator:
        return jsonschema_rs.validator_for(text, offline=True, validate_formats=False, pattern_options=patterns)

    def tried(options: Callable[[int], Any]) -> tuple[Validator, int]:
        sizes = [size for size in _SIZES if size * patterns <= _PATTERNS]
        if not sizes:
            raise ValueError("it has too many patterns")
        found, fails, fits = None, -1, len(sizes)  # places among them
        at = 0  # most are small
        while fits - fails > 1:
            try:
                found, fits = made(options(sizes[at])), at
            except ValueError:  # for its size, or for another reason, which is said in the end
                fails = at
                if at == len(sizes) - 1:
                    raise
            at = (fails + fits) // 2 if found else len(sizes) - 1
        assert found
        return found, sizes[fits]

    try:
        found, size = tried(lambda size: jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_further(size)))
        return found, 1, size
    except ValueError:
        found, size = tried(
            lambda size: jsonschema_rs.FancyRegexOptions(
                backtrack_limit=_BACKTRACKS, size_limit=size, dfa_size_limit=_further(size)
            )
        )
        return found, _BACKTRACKS, size


def _listed(validator: Validator, value: object) -> ArgumentsVerdict | None:
    found = list(validator.iter_errors(value))
    if any(map(_is_undecided, found)):
        return None
    wrong = [each for error in sorted(found, key=_place) for each in _said(error)]
    return ArgumentsVerdict(tuple(wrong[:MOST_NAMED]), len(wrong))


def _place(error: ValidationError) -> list[tuple[bool, int, str]]:
    """From the outside in, and in order: what comes first is the same whatever the validator begins with."""
    return [(True, step, "") if isinstance(step, int) else (False, 0, step) for step in error.instance_path]


def _first(validator: Validator, value: object) -> ArgumentsVerdict | None:
    try:
        validator.validate(value)
    except ValueError as error:
        found: Any = error
        if not hasattr(found, "kind"):
            raise
        if not _is_undecided(found):
            wrong = tuple(_said(found))
            return ArgumentsVerdict(wrong[:MOST_NAMED], len(wrong), is_whole=False)
    return None


def _is_undecided(error: ValidationError) -> bool:
    """A pattern ran out of steps: that is not the caller's fault."""
    if type(error.kind).__name__ in ("BacktrackLimitExceeded", "RegexEngineFailure"):
        return True
    return any(_is_undecided(inner) for branch in _branches(error) for inner in branch)


def _branches(error: ValidationError) -> list[list[ValidationError]]:
    return getattr(error.kind, "context", [])


# What is said of an error.


def _said(error: ValidationError, most: int = 3) -> Iterator[Wrong]:
    """`most`: how many errors of an alternative are told."""
    name: str = error.kind.name
    expected: Any = error.kind.value
    if name in _NAMING:
        names: Iterable[str] = [expected] if isinstance(expected, str) else expected
        yield from (Wrong(_pointer([*error.instance_path, each]), name, _NAMING[name]) for each in names)
    elif name in _ALTERNATIVES:
        yield Wrong(_pointer(error.instance_path), name, _of_branches(error, most))
    else:
        say = _WORDS.get(name)
        yield Wrong(_pointer(error.instance_path), name, say(expected) if say else f"does not satisfy {name!r}")


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)[:_LONGEST_POINTER]


_NAMING = {
    "required": "is required",
    "additionalProperties": "is not a known argument",
    "unevaluatedProperties": "is not a known argument",
    "unevaluatedItems": "is beyond the allowed number of items",
}
_ALTERNATIVES = ("anyOf", "oneOf")


def _plainly(name: str) -> Callable[[Any], str]:
    return lambda _expected: name


def _with(before: str, after: str = "") -> Callable[[Any], str]:
    return lambda expected: f"{before} {_shown(expected)} {after}".rstrip()


def _shown(expected: Any) -> str:
    text = jsonrpc.encode(expected).decode()
    return text if len(text) <= _LONGEST else f"{excerpt(text, _LONGEST)}…"


def _types(expected: Any) -> str:
    return f"must be of type {' or '.join(expected)}"


def _options(expected: Any) -> str:
    more = f" or one of {len(expected) - _MOST_OPTIONS} more" if len(expected) > _MOST_OPTIONS else ""
    return f"must be one of {', '.join(_shown(each) for each in expected[:_MOST_OPTIONS])}{more}"


_WORDS: Mapping[str, Callable[[Any], str]] = {
    "type": _types,
    "enum": _options,
    "const": _with("must be"),
    "minimum": _with("must be at least"),
    "maximum": _with("must be at most"),
    "exclusiveMinimum": _with("must be greater than"),
    "exclusiveMaximum": _with("must be less than"),
    "multipleOf": _with("must be a multiple of"),
    "minLength": _with("must have at least", "characters"),
    "maxLength": _with("must have at most", "characters"),
    "pattern": _with("must match"),
    "format": _with("must be of the format"),
    "minItems": _with("must have at least", "items"),
    "maxItems": _with("must have at most", "items"),
    "additionalItems": _with("must have at most", "items"),
    "uniqueItems": _plainly("must not have duplicate items"),
    "contains": _plainly("lacks required items"),
    "minProperties": _with("must have at least", "members"),
    "maxProperties": _with("must have at most", "members"),
    "propertyNames": _plainly("has a member whose name is not allowed"),
    "falseSchema": _plainly("is not allowed"),
    "not": _plainly("matches a forbidden schema"),
}


def _of_branches(error: ValidationError, most: int) -> str:
    """What the nearest alternative wants: the one that goes deepest, then the one that misses least."""
    branches = [branch for branch in _branches(error) if branch]
    if error.kind.name == "oneOf" and len(branches) < len(_branches(error)):
        return "matches several alternatives but must match exactly one"
    nearest = min(branches, key=lambda branch: (-max(len(each.instance_path) for each in branch), len(branch)))
    said = [wrong for each in nearest[:most] for wrong in _said(each, 1)]
    start = _pointer(error.instance_path)
    shown = "; ".join(f"{wrong.pointer.removeprefix(start)} {wrong.message}".strip() for wrong in said[:most])
    return f"matches none of {len(branches)} alternatives; nearest: {shown}"
