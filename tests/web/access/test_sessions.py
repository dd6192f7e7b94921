"""The cookie of a login: it ends with its time and with the token of its user, and cannot be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.web.access.sessions import MAX_AGE_S, find_user, make_cookie
from orchestrator.web.access.tokens import TokenFile
from orchestrator.web.access.users import Role, User
from worlds.page_users import ADA, USERS, WALL, write_users

NOW = 1_790_000_000.0


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(write_users(tmp_path))


def test_a_cookie_names_its_user_until_it_ends(tokens: TokenFile) -> None:
    cookie = make_cookie(WALL, NOW)

    assert find_user(cookie, tokens, NOW) == User("wall", Role.READ)
    assert find_user(cookie, tokens, NOW + MAX_AGE_S - 1) == User("wall", Role.READ)
    assert find_user(cookie, tokens, NOW + MAX_AGE_S) is None


def test_a_cookie_says_nothing_about_its_token(tokens: TokenFile) -> None:
    cookies = {make_cookie(token, NOW) for token in (ADA, WALL)}

    assert len(cookies) == 2
    assert all(ADA not in cookie and WALL not in cookie and len(cookie) < 80 for cookie in cookies)


def test_a_cookie_works_after_a_restart(tokens: TokenFile, tmp_path: Path) -> None:
    cookie = make_cookie(ADA, NOW)

    restarted = TokenFile(tmp_path / "tokens")

    assert find_user(cookie, restarted, NOW) == User("ada", Role.OPERATE)


def test_a_cookie_ends_with_the_token_of_its_user_and_takes_its_new_role(
    tokens: TokenFile, tmp_path: Path
) -> None:
    cookie = make_cookie(ADA, NOW)

    write_users(tmp_path, USERS.replace("operate", "read   "))
    assert find_user(cookie, tokens, NOW) == User("ada", Role.READ)

    write_users(tmp_path, USERS.replace(ADA, ADA[::-1]))
    assert find_user(cookie, tokens, NOW) is None


def test_no_changed_cookie_is_valid(tokens: TokenFile) -> None:
    cookie = make_cookie(ADA, NOW)
    until, signature = cookie.split(".")

    for place in range(len(cookie)):
        for char in "0A.é":
            changed = cookie[:place] + char + cookie[place + 1 :]
            assert changed == cookie or find_user(changed, tokens, NOW) is None, changed
    for changed in (
        "",
        ".",
        until,
        signature,
        f"{until}.",
        f".{signature}",
        f"{until}.{signature}=",
        f"{until}.{signature} ",
        f"0{until}.{signature}",
        f"+{until}.{signature}",
        f" {until}.{signature}",
        f"{until}0.{signature}",
        f"{int(until) + 1}.{signature}",
        f"{until}.{make_cookie(WALL, NOW + 1).split('.')[1]}",
        f"{'9' * 5000}.{signature}",
        f"{chr(0x661) * 10}.{signature}",
        f"{until}.\ud800",
        f"{until}.\x00",
    ):
        assert find_user(changed, tokens, NOW) is None, changed


def test_the_cookie_of_a_token_that_is_not_in_the_file_is_not_valid(tokens: TokenFile) -> None:
    stranger = "x" * 40

    assert find_user(make_cookie(stranger, NOW), tokens, NOW) is None
