"""Known causes: each row of the table on words that programs really say."""

from __future__ import annotations

import errno
import re

import pytest

from toolgate.upstreams.diagnosis import CAUSES, INSTALLERS, as_a_shell_says, fix_for, last_words, of_system

# What stands on stderr → what the fix must say.
SAID = [
    ("AttributeError: 'Server' object has no attribute 'list_resources'", "mcp<2"),
    ("AttributeError: module 'mcp.types' has no attribute 'Foo'", "mcp<2"),
    ("ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' (/x/y.py)", "mcp<2"),
    ("ImportError: cannot import name 'types' from 'mcp' (/x/__init__.py)", "mcp<2"),
    ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'", "mcp<2"),
    ("TypeError: Server.run() got an unexpected keyword argument 'raise_exceptions'", "mcp<2"),
    ("ImportError: cannot import name 'url_quote' from 'werkzeug.urls'", "another version of a library"),
    ("KeyError: 'GITHUB_TOKEN'", "set GITHUB_TOKEN"),
    ("Error: BRAVE_API_KEY environment variable is required", "set BRAVE_API_KEY"),
    ("environment variable SLACK_BOT_TOKEN is not set", "set SLACK_BOT_TOKEN"),
    ("ValueError: Environment variable 'NOTION_KEY' not found", "set NOTION_KEY"),
    ("Please set SLACK_TEAM_ID and SLACK_BOT_TOKEN", "set SLACK_TEAM_ID"),
    ("Missing required environment variable: OPENAI_API_KEY", "set OPENAI_API_KEY"),
    ("GOOGLE_MAPS_API_KEY must be set", "set GOOGLE_MAPS_API_KEY"),
    ('sudo: The "no new privileges" flag is set, which prevents sudo from running as root.', "new_privileges"),
    ('cannot set up namespace using "/usr/bin/newuidmap": exit status 1: Operation not permitted', "new_privileges"),
    ("snap-confine has elevated permissions and is not confined but should be", "new_privileges"),
    ("required permitted capability cap_dac_override not found in current capabilities", "new_privileges"),
    ("fusermount3: mount failed: Operation not permitted", "new_privileges"),
    (
        "browserType.launch: Executable doesn't exist at /root/.cache/ms-playwright/chromium-1/chrome",
        "playwright install",
    ),
    ("python: error while loading shared libraries: libnss3.so: cannot open shared object file", "libnss3.so"),
    ("node: /lib/libc.so.6: version `GLIBC_2.38' not found (required by node)", "GLIBC_2.38"),
    ("OSError: [Errno 8] Exec format error: './server'", "another kind of processor"),
    ("ModuleNotFoundError: No module named 'pydantic_core._pydantic_core'", "--reinstall"),
    ("Error: JWT expired", "get a new one"),
    ("botocore.exceptions.ClientError: ExpiredToken", "get a new one"),
    ("google.auth.exceptions.RefreshError: ('invalid_grant: Bad Request')", "sign in again"),
    ("Error: certificate has expired", "must renew it"),
    ("npm error code E404\nnpm error 404 Not Found - GET https://registry/x", "name and version"),
    ("npm ERR! 404 Not Found", "name and version"),
    ("npm error notarget No matching version found for x@9.", "name and version"),
    ("Because nothing was not found in the package registry and you require it", "name and version"),
    ("ERROR: No matching distribution found for nothing", "name and version"),
    ("npm error could not determine executable to run", "no default program"),
    ("npm warn EBADENGINE Unsupported engine {", "newer Node.js"),
    ("Error [ERR_REQUIRE_ESM]: require() of ES Module", "newer Node.js"),
    ("SyntaxError: Unexpected token '?'", "newer Node.js"),
    ("ERROR: Package 'x' requires a different Python: 3.9.1 not in '>=3.11'", "--python"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "start Docker"),
    ("Unable to find image 'nobody/nothing:latest' locally", "docker pull"),
    ("ModuleNotFoundError: No module named 'requests'", "dependency requests"),
    ("/usr/bin/python: No module named a_server", "dependency a_server"),
    ("Error: Cannot find module 'express'", "npx -y"),
    ("Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod'", "npx -y"),
    ("/bin/sh: 1: jq: not found", "install jq"),
    ("run.sh: line 3: jq: command not found", "install jq"),
    ("env: 'node': No such file or directory", "install node"),
    ("Error: spawn git ENOENT", "install git"),
    ("Error: listen EADDRINUSE: address already in use :::3000", "port"),
    ("OSError: [Errno 98] Address already in use", "port"),
    ("Error: EACCES: permission denied, open '/etc/x'", "permissions"),
    ("PermissionError: [Errno 13] Permission denied: '/root/x'", "permissions"),
    ("OSError: [Errno 28] No space left on device", "free some disk space"),
    ("OSError: [Errno 24] Too many open files", "ulimit -n"),
    ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "more memory"),
    ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]", "SSL_CERT_FILE"),
    ("Error: getaddrinfo ENOTFOUND api.example.com", "host not found"),
    ("[Errno -3] Temporary failure in name resolution", "host not found"),
    ("OSError: [Errno 101] Network is unreachable", "no network"),
    ("Error: connect ECONNREFUSED 127.0.0.1:5432", "nothing is listening there"),
    ("Method not found: initialize", "not MCP"),
    ("usage: server [-h] --db-path DB_PATH", "check its args"),
]


@pytest.mark.parametrize(("said", "cure"), SAID)
def test_a_known_cause_has_its_mend(said: str, cure: str) -> None:
    assert cure in fix_for("x exited with status 1", f"something\n{said}\nand more\n")


def test_every_row_of_the_table_is_tried() -> None:
    """Each row is the first that fits some of these words."""
    fitting = {next(i for i, (sign, _) in enumerate(CAUSES) if re.search(sign, said)) for said, _ in SAID}
    assert [sign for i, (sign, _) in enumerate(CAUSES) if i not in fitting] == []


@pytest.mark.parametrize("command", INSTALLERS)
def test_a_command_that_there_is_not_says_what_to_install(command: str) -> None:
    assert "install" in fix_for(f"Command not found: {command}")
    assert fix_for(f"Command not found: /usr/bin/{command}") == fix_for(f"Command not found: {command}")


def test_what_is_not_known_has_no_mend() -> None:
    assert fix_for("Command not found: my-own-server") == ""
    for said in ("it broke", "Traceback (most recent call last):", "KeyError: 'name'", "Listening on port 3000"):
        assert fix_for("x exited with status 1", said) == ""


def test_a_shells_words_are_of_missing_commands_only() -> None:
    assert as_a_shell_says("Command not found: broken_command") == "/bin/sh: broken_command: command not found\n"
    assert as_a_shell_says("it broke") == ""


NPM = """npm error code E404
npm error 404 Not Found - GET http://registry.example/no-such-server - Not found
npm error 404
npm error 404  'no-such-server@*' is not in this registry.
npm error A complete log of this run can be found in: /home/a/.npm/_logs/2026-01-01T00_00_00_000Z-debug-0.log
"""


def test_of_npm_the_line_is_shown_that_says_what_is_wrong() -> None:
    assert last_words(NPM) == "npm error 404 Not Found - GET http://registry.example/no-such-server - Not found"
    assert last_words("starting\nKeyError: 'TOKEN'\n\n") == "KeyError: 'TOKEN'"
    assert last_words("npm warn deprecated\nError: it broke\n") == "Error: it broke"
    assert last_words("") == ""


def test_what_the_system_lacks_is_told_with_what_to_raise() -> None:
    why, hint = of_system(OSError(errno.EMFILE, "x"))
    assert why == "Too many open files" and "ulimit -n" in hint
    assert of_system(OSError("odd")) == ("odd", "")


def test_a_server_of_an_older_library_is_fixed_by_our_own_key() -> None:
    assert '"compat": "mcp<2"' in fix_for("", "AttributeError: 'Server' object has no attribute 'list_tools'")
