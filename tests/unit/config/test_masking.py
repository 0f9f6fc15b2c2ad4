"""What is shown of a command's arguments, and what is taken for a secret of them."""

from __future__ import annotations

import pytest

from toolgate.config import masking
from toolgate.upstreams.process import supervisor


@pytest.mark.parametrize("package", ["@scope/name", "@playwright/mcp@latest", "@a/b@^1.2.3", "@a-b/c.d_e@1.0.0"])
def test_what_npx_is_told_to_fetch_is_no_password(package: str) -> None:
    args = ["-y", "-p", package, "mcp"]
    assert masking.arguments(args) == args and not list(masking.secrets_of(args))


@pytest.mark.parametrize("secret", ["hunter2", "@hunter2", "@h/", "@Scope/name", "@a/b/c", "@a/b@", "@a/b c"])
def test_what_else_stands_behind_it_is_one(secret: str) -> None:
    assert masking.arguments(["-p", secret]) == ["-p", masking.MASK]
    assert list(masking.secrets_of(["-p", secret])) == [secret]


def test_what_is_called_a_password_is_one_whatever_it_looks_like() -> None:
    assert masking.arguments(["--password", "@scope/name", "x"]) == ["--password", masking.MASK, "x"]
    assert masking.arguments(["--token=@scope/name"]) == [f"--token={masking.MASK}"]


SHORT = ["--pat", "--pass", "--pw", "--otp", "--github-pat", "--totp"]


@pytest.mark.parametrize("name", SHORT)
def test_so_is_what_has_a_short_word_for_one(name: str) -> None:
    assert masking.arguments([name, "hunter2", "x"]) == [name, masking.MASK, "x"]
    assert masking.arguments([f"{name}=hunter2"]) == [f"{name}={masking.MASK}"]


@pytest.mark.parametrize(
    "name", ["--path", "--pattern", "--patch", "--passive", "--pass-through", "--pw-browser", "--top"]
)
def test_longer_words_that_begin_so_are_none(name: str) -> None:
    assert masking.arguments([name, "hunter2"]) == [name, "hunter2"]


@pytest.mark.parametrize(
    "name", ["npm_config_otp", "NPM_CONFIG_OTP", "npm_config__auth", "UV_INDEX_X_PASSWORD", "PIP_PAT"]
)
def test_no_server_inherits_a_variable_of_a_runner_that_is_a_secret(name: str) -> None:
    """npm sends the one-time password of its user with each request."""
    kept = supervisor.child_environment({}, {name: "123456", "npm_config_registry": "https://r.example"})
    assert kept == {"npm_config_registry": "https://r.example"}
    assert supervisor.child_environment({name: "123456"}, {}) == {name: "123456"}, "but for who names it"
