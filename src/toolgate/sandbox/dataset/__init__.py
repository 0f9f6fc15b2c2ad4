"""Operations on whole data (seed 004, `process_large_dataset`): described in English, as steps, or as one SELECT.

Standard library only, and it imports nothing of toolgate but itself: `program.text()` is all of it as one program, to
be run inside the Python sandbox, so that the gateway never parses the data.

    tables      data of any accepted shape as rows with columns; what a column holds
    conditions  which rows: a closed table of tests, as values of JSON
    measures    what is computed of the values of a column
    steps       a closed table of operations, as values of JSON; each runs on a table and says what it did
    sql         the data as a table of SQLite in memory, and one SELECT on it
    words       an English text as tokens; the words that mean the same
    parser      all readings of tokens by a table of forms, in bounded time
    scope       what words can mean in this data: columns, values, the rows themselves
    rows        the closed grammar of which rows are meant: a table of forms
    sentences   the closed grammar of whole sentences: a table of forms
    compose     the parts of a sentence as steps, or why they do not fit together
    grammar     a text and a table → steps, or a refusal
    outline     what a model is shown of data in place of it
    runner      a request → a reply, whatever way the operation is given
    program     the files above as one text

The rule of this room: an operation is done on the whole data, as understood, or refused. Every word of a sentence is
accounted for, and two different readings are a refusal. What was done is told from the steps, not from the text.

Another operation is a row in `steps.OPERATIONS`; another way to say one is a row in `sentences.FORMS`.
"""
