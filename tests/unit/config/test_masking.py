"""What is shown of a command's arguments, and what is taken for a secret of them."""

from __future__ import annotations

import pytest

from toolgate.config import masking


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
