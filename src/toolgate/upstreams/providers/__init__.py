"""Models behind HTTP APIs, asked by the gateway itself: to write code, to sum up a session, to run code elsewhere.

    api         what is asked and answered, free of APIs; what an answer that is none says
    openai      Chat Completions, as OpenAI and many others speak it: requests and answers as bytes, without I/O
    anthropic   Messages, the same
    embeddings  texts as vectors, as OpenAI and many others make them
    execution   code that Anthropic runs in its own containers: the same, over several requests
    prompts     all that models are told
    services    `Providers`: those of a running gateway, with their bounds; the one file that sends anything

May import the rooms that `upstreams` may, and of `upstreams` nothing.

The rules of this package: what a model answers is text of a stranger, and is never run but in the sandbox; a key is in
no error, no log and no answer; where no provider is configured nothing pretends to be one.

Another API is a module with the two functions of `api.Api`, and a row in `services.APIS`.
"""
