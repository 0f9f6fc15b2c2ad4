"""Python as models write it, to work something out: each with what comes of it. The one that does not run needs threads."""

# ruff: noqa: E501  a row of the table is a line

from __future__ import annotations

from typing import Any

# Name, code, value.
SNIPPETS: list[tuple[str, str, Any]] = [
    ("sum of squares", "sum(i * i for i in range(10000))", 333283335000),
    ("mean and deviation", "import statistics\ndata = [2, 4, 4, 4, 5, 5, 7, 9]\n"
     "{'mean': statistics.mean(data), 'stdev': statistics.pstdev(data)}", {"mean": 5, "stdev": 2.0}),
    ("csv", "import csv, io\nrows = list(csv.DictReader(io.StringIO('name,age\\nann,30\\nbob,25')))\n"
     "sorted(rows, key=lambda r: int(r['age']))[0]['name']", "bob"),
    ("csv out", "import csv, io\nout = io.StringIO()\nw = csv.writer(out)\nw.writerow(['a', 'b,c'])\nout.getvalue()",
     'a,"b,c"\r\n'),
    ("regex", "import re\nre.findall(r'[\\w.]+@[\\w.]+', 'a@b.c, no, d.e@f.g')", ["a@b.c", "d.e@f.g"]),
    ("named groups", "import re\nm = re.match(r'(?P<y>\\d{4})-(?P<m>\\d\\d)', '2024-05-06')\nm.groupdict()",
     {"y": "2024", "m": "05"}),
    ("days between", "from datetime import date\n(date(2024, 3, 1) - date(2024, 2, 1)).days", 29),
    ("parse a date", "from datetime import datetime\ndatetime.strptime('01 Feb 2024', '%d %b %Y').isoformat()",
     "2024-02-01T00:00:00"),
    ("time zones", "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
     "datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('America/New_York')).astimezone(ZoneInfo('Asia/Tokyo')).isoformat()",
     "2024-07-02T01:00:00+09:00"),
    ("dataclass", "from dataclasses import dataclass, asdict, field\n@dataclass(order=True)\nclass Item:\n    name: str\n"
     "    price: float = 0\n    tags: list[str] = field(default_factory=list)\nasdict(Item('pen', 1.5))",
     {"name": "pen", "price": 1.5, "tags": []}),
    ("classes", "class Shape:\n    def area(self): raise NotImplementedError\nclass Square(Shape):\n"
     "    def __init__(self, s): self.s = s\n    def area(self): return self.s ** 2\n    def __repr__(self): return f'Square({self.s})'\n"
     "print(Square(3))\nSquare(3).area()", 9),
    ("properties", "class T:\n    def __init__(self): self._c = 0\n    @property\n    def f(self): return self._c * 9 / 5 + 32\n"
     "    @classmethod\n    def boiling(cls):\n        t = cls(); t._c = 100; return t\nT.boiling().f", 212.0),
    ("generators", "def fib():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b\n"
     "from itertools import islice\nlist(islice(fib(), 10))", [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]),
    ("json", "import json\nd = json.loads('{\"a\": [1, {\"b\": null}]}')\njson.dumps(d, sort_keys=True, indent=1)",
     '{\n "a": [\n  1,\n  {\n   "b": null\n  }\n ]\n}'),
    ("format", "f'{1234567.891:,.2f}|{\"x\":>5}|{255:#x}|{0.256:.1%}'", "1,234,567.89|    x|0xff|25.6%"),
    ("counter", "from collections import Counter\nCounter('mississippi').most_common(2)", [["i", 4], ["s", 4]]),
    ("defaultdict", "from collections import defaultdict\ng = defaultdict(list)\n"
     "for w in ['apple', 'ant', 'bee']: g[w[0]].append(w)\ndict(g)", {"a": ["apple", "ant"], "b": ["bee"]}),
    ("deque", "from collections import deque\nd = deque(maxlen=3)\nfor i in range(5): d.append(i)\nlist(d)", [2, 3, 4]),
    ("named tuple", "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 2)\np._asdict()", {"x": 1, "y": 2}),
    ("recursion", "def hanoi(n, a, b, c): return 0 if n == 0 else hanoi(n - 1, a, c, b) + 1 + hanoi(n - 1, c, b, a)\n"
     "hanoi(10, 'A', 'B', 'C')", 1023),
    ("cached", "from functools import lru_cache, reduce\n@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nf(90)",
     2880067194370816120),
    ("async", "import asyncio\nasync def one(n):\n    await asyncio.sleep(0.001)\n    return n * 2\nasync def main():\n"
     "    return await asyncio.gather(*(one(i) for i in range(3)))\nasyncio.run(main())", [0, 2, 4]),
    ("await at the top", "import asyncio\nawait asyncio.sleep(0)\nq = asyncio.Queue()\nawait q.put(5)\nawait q.get()", 5),
    ("async with and for", "class R:\n    async def __aenter__(self): return self\n    async def __aexit__(self, *a): pass\n"
     "    async def __aiter__(self):\n        for i in range(3): yield i\nasync with R() as r:\n    got = [i async for i in r]\ngot", [0, 1, 2]),
    ("decimal", "from decimal import Decimal, ROUND_HALF_UP\nstr((Decimal('2.675') * 3).quantize(Decimal('0.01'), ROUND_HALF_UP))", "8.03"),
    ("fractions", "from fractions import Fraction\nstr(Fraction(1, 3) + Fraction(1, 6))", "1/2"),
    ("itertools", "from itertools import groupby, combinations, accumulate, product\n"
     "[len(list(combinations(range(5), 2))), list(accumulate([1, 2, 3])), [(k, len(list(g))) for k, g in groupby('aabc')]]",
     [10, [1, 3, 6], [["a", 2], ["b", 1], ["c", 1]]]),
    ("textwrap", "import textwrap\ntextwrap.dedent('''\n    a\n      b\n''').strip() + textwrap.shorten('one two three', 9)", "a\n  bone [...]"),
    ("heap", "import heapq\nh = [5, 1, 4]\nheapq.heapify(h)\n[heapq.heappop(h), heapq.nlargest(2, [1, 5, 2])]", [1, [5, 2]]),
    ("bisect", "import bisect\ngrades = 'FDCBA'\n[grades[bisect.bisect([60, 70, 80, 90], s)] for s in (33, 99, 77)]", ["F", "A", "C"]),
    ("enum", "from enum import Enum, auto\nclass C(Enum):\n    RED = auto()\n    BLUE = auto()\n[c.name for c in C]", ["RED", "BLUE"]),
    ("typing", "from typing import Optional, TypedDict, Protocol, Generic, TypeVar\nT = TypeVar('T')\nclass Box(Generic[T]):\n"
     "    def __init__(self, v: T) -> None: self.v: Optional[T] = v\nclass M(TypedDict):\n    a: int\nm: M = {'a': Box(3).v}\nm", {"a": 3}),
    ("match", "def kind(x):\n    match x:\n        case {'type': 'circle', 'r': r}: return 3 * r\n        case [a, *rest]: return len(rest)\n"
     "        case _: return None\n[kind({'type': 'circle', 'r': 2}), kind([1, 2, 3])]", [6, 2]),
    ("hashes", "import hashlib, base64, hmac\n[hashlib.sha256(b'x').hexdigest()[:8], base64.b64encode(b'hi').decode(), "
     "hmac.new(b'k', b'm', 'sha1').hexdigest()[:6]]", ["2d711642", "aGk=", "772b71"]),
    ("sqlite", "import sqlite3\ndb = sqlite3.connect(':memory:')\ndb.execute('create table t(a, b)')\n"
     "db.executemany('insert into t values (?, ?)', [(i % 3, i) for i in range(100)])\n"
     "db.execute('select a, sum(b) from t group by a order by 2 desc').fetchall()", [[0, 1683], [2, 1650], [1, 1617]]),
    ("random with a seed", "import random\nrandom.seed(1)\nlen({random.randint(1, 10**9) for _ in range(100)})", 100),
    ("try and raise", "class Bad(ValueError): pass\ntry:\n    try: int('x')\n    except ValueError as e: raise Bad('no') from e\n"
     "except Bad as e: out = [str(e), type(e.__cause__).__name__]\nfinally: done = True\nout", ["no", "ValueError"]),
    ("context manager", "from contextlib import contextmanager, suppress\n@contextmanager\ndef tag(n):\n    print(f'<{n}>')\n    yield\n    print(f'</{n}>')\n"
     "with tag('b'), suppress(KeyError): {}['x']\nresult = 'fine'", "fine"),
    ("decorator", "import functools, time\ndef timed(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n        t = time.perf_counter()\n"
     "        r = f(*a, **k)\n        assert time.perf_counter() >= t\n        return r\n    return g\n@timed\ndef add(a, b): return a + b\n[add(1, 2), add.__name__]", [3, "add"]),
    ("primes", "def sieve(n):\n    p = bytearray([1]) * (n + 1)\n    p[:2] = b'\\0\\0'\n    for i in range(2, int(n ** .5) + 1):\n"
     "        if p[i]: p[i * i::i] = bytes(len(range(i * i, n + 1, i)))\n    return sum(p)\nif __name__ == '__main__':\n    result = sieve(100000)", 9592),
    ("matrices", "a = [[1, 2], [3, 4]]\n[[sum(x * y for x, y in zip(r, c)) for c in zip(*a)] for r in a]", [[7, 10], [15, 22]]),
    ("urls, html and xml", "from urllib.parse import urlparse, parse_qs\nimport html, xml.etree.ElementTree as ET, uuid\n"
     "[parse_qs(urlparse('http://x/y?a=1&a=2').query)['a'], html.unescape('&lt;'), ET.fromstring('<a><b>t</b></a>').find('b').text, len(str(uuid.uuid4()))]",
     [["1", "2"], "<", "t", 36]),
    ("a pool of threads", "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n"
     "    result = list(pool.map(lambda x: x * x, range(3)))", [0, 1, 4]),
]  # fmt: skip

DO_NOT_RUN = {"a pool of threads"}
