"""An English text as tokens, and the words that mean the same.

A token is a word (with what joins it: `created_at`, `in-stock`), a number, a date, a text in quotes, or a sign.
Nothing of the text is dropped but spaces and the sign that ends a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Token(NamedTuple):
    kind: str  # word, number, grouped, date, quoted, sign
    text: str  # in lower case; of a text in quotes what is inside, as written
    raw: str


_TOKEN = re.compile(
    r"""
    (?P<quoted>"[^"]*" | “[^”]*” | `[^`]*` | (?<![\w])'[^']*'(?!\w))
    | (?P<date>\d{4}-\d\d(?:-\d\d(?:[T\ ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?)?(?![\w-]))
    | (?P<grouped>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w,]))
    | (?P<number>-?\d+(?:\.\d+)?(?![\w.-]*\w))
    | (?P<word>\w+(?:[.@+/&-]\w+)*(?:['’]\w+)?)
    | (?P<sign>>=|<=|!=|<>|==|≥|≤|≠|\S)
    """,
    re.VERBOSE,
)


def tokens_of(text: str) -> list[Token]:
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind, raw = str(match.lastgroup), match[0]
        found.append(Token(kind, raw[1:-1] if kind == "quoted" else raw.replace("’", "'").casefold(), raw))
    while found and found[-1].raw in (".", "!", "?"):
        found.pop()
    return found


_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def parts_of(name: str) -> tuple[str, ...]:
    """The words of a column's name or of a token, in lower case: createdAt, created_at and created-at are the same."""
    return tuple(_PARTS.findall(_CAMEL.sub(" ", name).casefold()))


def singular(word: str) -> str:
    """A noun without the ending of its plural; other words may lose one as well, alike on both sides."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for ending, instead, least in (
        ("ies", "y", 5),
        ("sses", "ss", 5),
        ("shes", "sh", 5),
        ("ches", "ch", 5),
        ("xes", "x", 4),
    ):
        if word.endswith(ending) and len(word) >= least:
            return word.removesuffix(ending) + instead
    if word.endswith("uses") and len(word) > 5:
        return word.removesuffix("es")
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


_IRREGULAR: Mapping[str, str] = dict(
    pair.split(":")
    for pair in [
        "people:person",
        "men:man",
        "women:woman",
        "children:child",
        "statuses:status",
        "movies:movie",
        "series:series",
        "analyses:analysis",
        "indices:index",
        "cookies:cookie",
        "houses:house",
    ]
)


NUMBERS: Mapping[str, int] = {
    word: number
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
        ]
    )
} | {"twenty": 20, "fifty": 50, "hundred": 100}

MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]

# By name, phrases that mean the same in a form. Alternatives stand apart by |.
_CLASSES: Mapping[str, str] = {
    "GIVE": "show|show me|show us|give|give me|list|get|get me|return|find|find me|fetch|display|print|retrieve"
    "|tell me|what is"
    "|what are|what's|i want|i need|compute|calculate|report|output|extract|select|pick|please show|please list"
    "|please give me"
    "|determine|look up|pull|see",
    "KEEP": "keep only|only keep|keep just|just keep|keep|only|just|filter|filter to|filter for|filter on"
    "|filter by|retain only"
    "|filter down to|restrict to|narrow down to|limit to|show only|select only|return only|list only|find|select"
    "|retain",
    "KEEPCOLUMNS": "keep only|only keep|keep just|just keep|keep|only|just|show only|select only|return only"
    "|list only|select|retain"
    "|retain only|limit to|restrict to",
    "REMOVE": "remove|drop|exclude|delete|discard|filter out|leave out|omit|get rid of|throw away|strip out|eliminate",
    "TRIM": "remove|drop|exclude|delete|discard|leave out|omit|get rid of|strip|hide",
    "ROWS": "rows|row|records|record|entries|entry|items|item|elements|objects|lines|results|data|dataset|the dataset"
    "|data set|the list|table|documents|observations",
    "ONES": "ones|those",
    "ALL": "all|all the|all of the|the|every|each|any|a|an",
    "THE": "the|a|an|each|all|all the|their",
    "WHERE": "where|whose|for which|in which|such that|that have|which have|who have|when|having",
    "THATARE": "that are|which are|who are|that is|which is|who is|being",
    "WITH": "with|having|that have|which have|who have|that has|containing",
    "IS": "is|are|=|==|equals|equal to|is equal to|is exactly|was|has value|set to|is set to",
    "ISNOT": "is not|are not|isn't|aren't|!=|<>|≠|not equal to|is not equal to|does not equal|is different from"
    "|was not|other than"
    "|is other than|is anything but|not",
    "IN": "in|is in|is one of|one of|is any of|is either|are in|are one of|are either|is among",
    "NOTIN": "not in|is not in|is none of|is not one of|is not any of|is neither|are not in",
    "CONTAINS": "contains|contain|containing|includes|including|has the text|contains the text|contains the word"
    "|that contains",
    "LACKS": "does not contain|do not contain|doesn't contain|not containing|does not include|without the text",
    "STARTS": "starts with|start with|starting with|begins with|beginning with|begin with",
    "ENDS": "ends with|end with|ending with|ends in|ending in",
    "MISSING": "is missing|is null|are missing|is empty|is blank|is not set|is unset|are null|are empty|is none"
    "|missing|is absent"
    "|is not present|not set|has no value|is not there|does not exist|is undefined",
    "PRESENT": "is not missing|is not null|is not empty|is not blank|is set|is present|exists|not null|not empty"
    "|has a value"
    "|is known|is filled|are not null|are not missing|are present|is defined",
    "NO": "no|missing|empty|null|blank|without|without a|without an|without any",
    "BETWEEN": "between|is between|from|ranges from|is from|in the range",
    "BY": "by|per|for each|for every|grouped by|group by|by each|in each|broken down by|for every single|of each"
    "|within each",
    "FOR": "of|for|in|across|over|among|from|of all|for all|across all|over all",
    "GROUP": "group by|group rows by|group them by|group the rows by|group the data by|grouped by|group data by"
    "|aggregate by",
    "TOP": "top|the top|highest|the highest|largest|the largest|biggest|the biggest|best|the best|greatest"
    "|the greatest",
    "BOTTOM": "bottom|the bottom|lowest|the lowest|smallest|the smallest|worst|the worst|least|the least",
    "MOST": "highest|largest|biggest|most|greatest|maximum|max|top",
    "LEAST": "lowest|smallest|least|fewest|minimum|min",
    "FIRST": "first|the first|take|take the first|keep the first|limit|limit to|head|keep only the first"
    "|limit to the first|the initial",
    "LAST": "last|the last|take the last|keep the last|tail|keep only the last|the final",
    "SKIP": "skip|skip the first|skip first|leave out the first|drop the first|remove the first|without the first"
    "|ignore the first",
    "SORT": "sort|order|sort by|order by|sorted by|ordered by|sort them by|order them by|sort rows by"
    "|sort the rows by"
    "|sort the data by|sort all rows by|sort the results by|order the rows by|sort results by|order rows by"
    "|arrange by|rank by"
    "|sort everything by|sort it by|sort data by|sort on|in order of|rank rows by|sort this by",
    "DESC": "descending|desc|in descending order|highest first|largest first|biggest first|most first|high to low"
    "|from high to low"
    "|from highest to lowest|highest to lowest|largest to smallest|in reverse order|reversed|reverse|z-a|z to a"
    "|from z to a|decreasing"
    "|from largest to smallest|greatest first|in decreasing order|most expensive first|descendingly"
    "|biggest to smallest|in desc order",
    "ASC": "ascending|asc|in ascending order|lowest first|smallest first|least first|low to high|from low to high"
    "|from lowest to highest|lowest to highest|smallest to largest|alphabetically|a-z|a to z|from a to z|increasing"
    "|in alphabetical order|in increasing order|cheapest first|in asc order|from smallest to largest",
    "NEWEST": "newest|latest|most recent|the newest|the latest|the most recent|most recently",
    "OLDEST": "oldest|earliest|the oldest|the earliest",
    "NEWFIRST": "newest first|latest first|most recent first|newest to oldest|from newest to oldest",
    "OLDFIRST": "oldest first|earliest first|oldest to newest|from oldest to newest|chronologically"
    "|in chronological order",
    "UNIQUE": "unique|distinct|different|all unique|all distinct|all different|the unique|the distinct"
    "|the different|unique values of"
    "|distinct values of|the unique values of|the distinct values of|different values of|all unique values of"
    "|deduplicated"
    "|all the different|the list of unique|a list of unique|all distinct values of|all the unique|all the distinct",
    "DEDUPE": "remove duplicates|deduplicate|dedupe|drop duplicates|remove duplicate rows|drop duplicate rows"
    "|remove the duplicates"
    "|remove all duplicates|eliminate duplicates|de-duplicate|remove duplicate records|remove duplicate entries"
    "|deduplicate rows"
    "|delete duplicates|deduplicate the rows|deduplicate records|remove duplicated rows|delete duplicate rows"
    "|filter out duplicates",
    "DEDUPEBY": "by|based on|on|with the same|by the|having the same|according to|using|in terms of",
    "COUNT": "count|how many|number of|the number of|count of|count the|count all|the count of|total number of"
    "|the total number of"
    "|count up|count the number of|counts of|count how many|numbers of|total count of|the total count of",
    "PLAINCOUNT": "count|the count|number of rows|the number of rows|row count|count rows|count of rows"
    "|number of records|counts"
    "|number of entries|number of items|count them|size|the size|the row count|count the rows|total count"
    "|total number of rows",
    "TALLY": "value counts of|value counts for|frequency of|frequencies of|the frequency of|distribution of"
    "|the distribution of"
    "|count each|count of each|count for each|counts of each|number of each|counts by|how often each|tally"
    "|tally of|histogram of"
    "|the number of each|count per|breakdown by|break down by|a breakdown by|count the rows of each",
    "SUM": "sum|total|sum of|total of|the sum of|the total|the total of|sum up|add up|summed|the sum of all"
    "|the total sum of",
    "MEAN": "average|mean|avg|average of|mean of|the average|the mean|avg of|the average of|the mean of"
    "|mean value of|average value of"
    "|the average value of|the mean value of",
    "MEDIAN": "median|median of|the median|the median of|median value of",
    "MIN": "min|minimum|lowest|smallest|min of|minimum of|the minimum|the lowest|the smallest|the min"
    "|minimum value of|the min of|the minimum of|the minimum value of",
    "MAX": "max|maximum|highest|largest|biggest|greatest|max of|maximum of|the maximum|the highest|the largest"
    "|the max"
    "|the biggest|maximum value of|the max of|the maximum of|the maximum value of",
    "STDDEV": "standard deviation of|the standard deviation of|standard deviation|std dev of|stddev of|stddev"
    "|stdev of|std of|std dev|std",
    "NDISTINCT": "number of unique|number of distinct|number of different|the number of unique|the number of distinct"
    "|the number of different|how many unique|how many distinct|how many different|count unique|count distinct"
    "|count of unique"
    "|count of distinct|count the unique|count the distinct|count of different|count the different|count different"
    "|count the number of unique|count the number of distinct|distinct count of|unique count of"
    "|total number of unique",
    "ABOVE": ">|more than|greater than|over|above|is more than|is greater than|is over|is above|exceeds|exceeding"
    "|is larger than"
    "|larger than|higher than|is higher than|is bigger than|bigger than|are over|are above|are more than"
    "|are greater than|is >|exceed",
    "ATLEAST": ">=|≥|at least|is at least|no less than|greater than or equal to|is greater than or equal to"
    "|not less than|not below"
    "|is no less than|more than or equal to|is not less than|is >=|are at least|is not below",
    "BELOW": "<|less than|fewer than|under|below|is less than|is under|is below|lower than|is lower than"
    "|smaller than|is smaller than"
    "|are under|are below|are less than|is <|cheaper than",
    "ATMOST": "<=|≤|at most|is at most|no more than|less than or equal to|is less than or equal to|not more than"
    "|not above|up to"
    "|is no more than|fewer than or equal to|is not more than|is <=|are at most|is not above|not over|is not over"
    "|does not exceed|not greater than|is not greater than",
    "AFTER": "after|is after|later than|is later than|newer than|is newer than|are after",
    "BEFORE": "before|is before|earlier than|is earlier than|older than|is older than|prior to|are before",
    "SINCE": "since|is since|on or after|from|is on or after|starting|starting on|starting from",
    "UNTIL": "until|on or before|up to|through|is on or before|up until|by the end of",
    "DURING": "on|in|is on|is in|during|within",
    "COMMON": "most common|most frequent|the most common|the most frequent|most popular|most frequently occurring"
    "|commonest",
    "COLUMN": "column|field|attribute|property|value|values|columns|fields|attributes",
    "COLUMNS": "columns|fields|the columns|the fields|column|field|the column|the field|attributes|attribute"
    "|only the columns",
    "ORDERED": "ordered by|sorted by|sort by|order by|ordered on|in order of|arranged by|and sort by",
    "SOFT": ",|and|, and|;|and finally|, and also|, also|plus",
    "THEN": "then|and then|, then|, and then|; then|. then|.|after that|, after that|. after that|;|. finally|next"
    "|, finally|. next",
    "OR": "or|, or|,|/",
    "AND": "and|, and|,|&|as well as|along with",
    "BOTHAND": "and|and also|but|but also|, and|, but|&|and is|and are",
    "EITHER": "or|, or",
    "ASC_OF": "as|to|into",
}

PHRASES: Mapping[str, Sequence[tuple[str, ...]]] = {
    name: sorted({tuple(phrase.split()) for phrase in text.split("|")}, key=len, reverse=True)
    for name, text in _CLASSES.items()
}

KNOWN = frozenset(word for phrases in PHRASES.values() for phrase in phrases for word in phrase)

# What rows may be called without the data saying so, singular. A word that may mean some of the rows only (errors,
# refunds,
# sales) is not among them. Words of one line mean nearly the same: a column of one of them is about the others, too.
ENTITIES: Sequence[frozenset[str]] = [
    frozenset(line.split())
    for line in (
        "customer client buyer user member account shopper subscriber consumer patron",
        "employee person worker staff colleague individual people",
        "order purchase",
        "product good article",
        "ticket issue task todo job case",
        "transaction payment",
        "invoice bill",
        "student pupil",
        "city town",
        "country nation",
        "company organization organisation firm vendor supplier",
        "book title",
        "movie film",
        "song track",
        "file document",
        "event log",
        "message email mail",
        "post comment",
        "repository repo",
        "commit",
        "server host machine",
        "device",
        "project",
        "team",
        "patient",
        "session visit",
        "page url",
        "flight",
        "hotel",
        "car vehicle",
        "player",
        "game match",
        "contact lead",
        "asset",
        "measurement reading sample",
    )
]
