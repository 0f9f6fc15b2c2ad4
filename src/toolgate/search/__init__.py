"""Search: which tool, prompt, resource or server is meant by a few words. Standard library only.

`Index` holds `Document`s and answers with `Hit`s. `words` makes terms of text, `documents` says what is searched,
`ranking` what counts how much, `confidence` how sure a hit is, `points` is seed 002's integer score, `patterns` the
regular expressions; `signatures`, `tokens` and `briefs` say what is found in few words.
"""

from toolgate.search.documents import Document as Document
from toolgate.search.documents import Hit as Hit
from toolgate.search.documents import Unsearchable as Unsearchable
from toolgate.search.index import Index as Index
