"""The scenarios by name: what each revision requires, and what is run besides without counting for the suite.

The names are those of the pinned suite's own requirement sets; `test_server_scenarios.py` holds them to be the same.
None is expected to fail. `NEVER_RUN` skips itself in every run, whatever the server.
"""

from __future__ import annotations

from suite import LEGACY, MODERN

NEVER_RUN = "tasks-status-notifications"

_BOTH = """
    completion-complete tools-list tools-call-simple-text tools-call-image tools-call-audio
    tools-call-embedded-resource tools-call-mixed-content tools-call-error tools-call-with-progress
    server-sse-multiple-streams resources-list resources-read-text resources-read-binary resources-templates-read
    prompts-list prompts-get-simple prompts-get-with-args prompts-get-embedded-resource prompts-get-with-image
    dns-rebinding-protection
"""

SERVER = {
    LEGACY: f"""{_BOTH}
        server-initialize logging-set-level ping tools-call-with-logging tools-call-sampling tools-call-elicitation
        elicitation-sep1034-defaults elicitation-sep1330-enums resources-subscribe resources-unsubscribe
    """.split(),
    MODERN: f"""{_BOTH}
        server-stateless sep-2164-resource-not-found caching
        input-required-result-basic-elicitation input-required-result-basic-sampling
        input-required-result-basic-list-roots input-required-result-request-state
        input-required-result-multiple-input-requests input-required-result-multi-round
        input-required-result-missing-input-response input-required-result-non-tool-request
        input-required-result-result-type input-required-result-unsupported-methods
        input-required-result-tampered-state input-required-result-capability-check
        input-required-result-ignore-extra-params input-required-result-validate-input
    """.split(),
}

_TASKS = """
    tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal tasks-mrtr-input
    tasks-request-headers tasks-dispatch-and-envelope tasks-required-task-error tasks-mrtr-composition
"""

SERVER_BESIDES = {
    LEGACY: ["server-session-lifecycle", "json-schema-2020-12", "server-sse-polling"],
    MODERN: [
        "json-schema-2020-12",
        "http-header-validation",
        "http-custom-header-server-validation",
        *_TASKS.split(),
    ],
}

# What a server of the handshake cannot offer, whoever stands before it: there a question has no name of its own, and
# cannot be answered before it is asked; and a child is started for every set of capabilities, which takes longer than
# the 600 ms for which `server-stateless` listens.
OUT_OF_REACH = {
    "http-legacy": ["input-required-result-basic-elicitation", "input-required-result-ignore-extra-params"],
    "stdio-legacy": [
        "input-required-result-basic-elicitation",
        "input-required-result-ignore-extra-params",
        "server-stateless",
    ],
}

# The SDK's everything-server adds a tool and takes it away again, and says that the list has changed: through a gateway
# that compares it has not, and nobody is told. The suite says of that SHOULD, and the scenario passes for it.
SAME_AGAIN = (
    "sep-2575-server-sends-prompts-list-changed-on-subscription",
    "sep-2575-server-sends-tools-list-changed-on-subscription",
)

CLIENT = {
    LEGACY: ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"],
    MODERN: [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ],
}

CLIENT_BESIDES = {LEGACY: ["json-schema-2020-12-preservation"], MODERN: ["json-schema-2020-12-preservation"]}

# For a client of the handshake a server over HTTP is first asked to shake hands, without the headers and the envelope
# of a revision that nobody speaks yet: these take each request to be of theirs.
CLIENT_NOT_BEFORE_A_LEGACY_ONE = ("request-metadata", "http-standard-headers")

# Their server knows the handshake only, at whatever revision they are run.
CLIENT_OF_THE_HANDSHAKE = ("json-schema-ref-no-deref",)

# Here a server leaves `resultType` out, as the revision allows; the official Python SDK 2.3 alone refuses that.
CLIENT_NOT_ALONE = ("sep-2322-client-request-state",)

_AUTHORIZATION = """
    auth/metadata-default auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/basic-cimd
    auth/scope-from-www-authenticate auth/scope-from-scopes-supported auth/scope-omitted-when-undefined
    auth/scope-step-up auth/scope-retry-limit auth/token-endpoint-auth-basic auth/token-endpoint-auth-post
    auth/token-endpoint-auth-none auth/pre-registration
"""

# For a gateway that signs in at its servers.
CLIENT_AUTHORIZATION = {
    LEGACY: _AUTHORIZATION.split(),
    MODERN: f"""{_AUTHORIZATION}
        auth/resource-mismatch auth/offline-access-scope auth/offline-access-not-supported
        auth/authorization-server-migration auth/iss-supported auth/iss-not-advertised auth/iss-supported-missing
        auth/iss-wrong-issuer auth/iss-unexpected auth/iss-normalized auth/metadata-issuer-mismatch
    """.split(),
}

# Extensions, and the revision before: run, and not scored.
CLIENT_AUTHORIZATION_BESIDES = {
    LEGACY: ["auth/client-credentials-jwt", "auth/client-credentials-basic"],
    MODERN: ["auth/client-credentials-jwt", "auth/client-credentials-basic"],
}
