"""Search: which tool, prompt, resource or server a few words mean. Standard library only.

May import `upstreams` and the rooms below it; it needs `core` alone.

Finding
    index       documents by server, found by a few words
    long_lists  the same for long lists of strangers, in little memory
    documents   what can be found, and by which terms
    words       text as terms: identifiers split, endings off
    queries     a request as terms, what each is worth, and its synonyms (from `synonyms.txt`)
    spellings   how alike two texts are written
    weights     what counts how much
    ranking     the order of the answers
    confidence  how likely it is that a hit is what was meant, by the weights in `confidence.json`
    places      which of them are shown where one server has all
    comparing   how sure a candidate would be without those that answer the same
    semantic    the order by words and the order by meaning made one
    folder      a model of embeddings in a folder: the extra `semantic`
    points      the integer score of seed 002, shown beside a hit
    patterns    search by regular expression, in bounded time
Saying what was found
    shapes      what results look like, without their values
    signatures  a tool as a typed declaration, in TypeScript and Python
    briefs      a description in one short line
    tokens      about how many tokens a text is

A change of the ranker is measured with `make retrieval`.
"""

from toolgate.search.comparing import Candidate as Candidate
from toolgate.search.comparing import Comparison as Comparison
from toolgate.search.documents import Document as Document
from toolgate.search.documents import Hit as Hit
from toolgate.search.documents import Unsearchable as Unsearchable
from toolgate.search.documents import Verdict as Verdict
from toolgate.search.index import MOST_TERMS as MOST_TERMS
from toolgate.search.index import Index as Index
from toolgate.search.long_lists import LongLists as LongLists
from toolgate.search.queries import LONGEST as LONGEST
