"""The file of tokens: users and roles; every mistake is named with its line, and never with a token."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from orchestrator.web.access.tokens import BadTokenFile, TokenFile, new_token
from orchestrator.web.access.users import Role, User
from worlds.page_users import ADA, SHOP, USERS, WALL, write_users


def test_each_line_is_a_user_with_its_role(tmp_path: Path) -> None:
    tokens = TokenFile(write_users(tmp_path))

    found = [tokens.find(token) for token in (ADA, WALL, SHOP)]

    assert found == [
        User("ada", Role.OPERATE),
        User("wall", Role.READ),
        User("shop", Role.START, "order"),
    ]


@pytest.mark.parametrize(
    "token", ["", "ada", ADA[:-1], f"{ADA}a", ADA.upper(), f"{ADA}\x00", "ä" * 32, "\ud800"]
)
def test_any_other_text_is_no_token(tmp_path: Path, token: str) -> None:
    tokens = TokenFile(write_users(tmp_path))

    assert tokens.find(token) is None


SECRET = "S3cret-" * 5
MISTAKES = {
    f"ada operate\t{SECRET} more": "write a user, a role and a token",
    f"ada {SECRET}": "write a user, a role and a token",
    SECRET: "write a user, a role and a token",
    f"ada operator {SECRET}": "the role must be read, operate or start:WORKFLOW",
    f"ada start: {SECRET}": "the role must be read, operate or start:WORKFLOW",
    f"ada {SECRET} operate": "the role must be read, operate or start:WORKFLOW",
    f"{SECRET} operate ada": "a token has 24 to 512 characters of ASCII",
    f"ada operate {SECRET[:23]}": "a token has 24 to 512 characters of ASCII",
    f"ada operate {SECRET * 20}": "a token has 24 to 512 characters of ASCII",
    f"ada operate {SECRET}ä": "a token has 24 to 512 characters of ASCII",
    f"<ada> operate {SECRET}": "a user has 1 to 64 letters",
    f"{'a' * 65} operate {SECRET}": "a user has 1 to 64 letters",
    f"ada operate {ADA}": "this token stands on an earlier line too",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_named_with_its_line_and_without_the_text_of_the_line(tmp_path: Path, line: str) -> None:
    path = write_users(tmp_path, f"{USERS}\n{line}\n")

    with pytest.raises(BadTokenFile) as caught:
        TokenFile(path)

    assert str(caught.value).startswith(f"{path}:{len(USERS.splitlines()) + 2}: {MISTAKES[line]}")
    assert SECRET[:7] not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "\n\n", "# ada operate token\n"])
def test_a_file_without_users_is_a_mistake(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadTokenFile, match="there is no token; write lines such as: ada operate TOKEN"):
        TokenFile(write_users(tmp_path, text))


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe" * 20)

    with pytest.raises(BadTokenFile, match=r"missing': No such file"):
        TokenFile(tmp_path / "missing")
    with pytest.raises(BadTokenFile, match="Is a directory"):
        TokenFile(tmp_path)
    with pytest.raises(BadTokenFile, match="it is not UTF-8 text"):
        TokenFile(binary)


def test_a_mark_of_an_editor_at_the_beginning_and_its_line_ends_are_no_mistake(tmp_path: Path) -> None:
    tokens = TokenFile(write_users(tmp_path, f"\ufeffada operate {ADA}\r\nwall read {WALL}\r\n"))

    assert (tokens.find(ADA), tokens.find(WALL)) == (User("ada", Role.OPERATE), User("wall", Role.READ))


def test_a_replaced_token_works_at_once_and_the_old_one_does_not(tmp_path: Path) -> None:
    path = write_users(tmp_path)
    tokens = TokenFile(path)

    replaced = path.with_suffix(".new")
    replaced.write_text(USERS.replace(ADA, ADA[::-1]))
    os.replace(replaced, path)

    assert tokens.find(ADA) is None
    assert tokens.find(ADA[::-1]) == User("ada", Role.OPERATE)
    assert [user.name for _, user in tokens.digests()] == ["ada", "wall", "shop"]


def test_the_users_stay_while_the_changed_file_has_a_mistake_which_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_users(tmp_path)
    tokens = TokenFile(path)

    path.write_text(f"ada operate {ADA}\nwall {WALL} read\n")
    found = [tokens.find(ADA), tokens.find(WALL), tokens.find(ADA)]

    assert found == [User("ada", Role.OPERATE), User("wall", Role.READ), User("ada", Role.OPERATE)]
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert f"{path}:2: the role must be" in record.getMessage()
    assert WALL not in record.getMessage()


def test_the_users_stay_while_the_file_is_missing_and_change_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_users(tmp_path)
    tokens = TokenFile(path)

    path.unlink()
    assert [tokens.find(ADA), tokens.find(ADA)] == [User("ada", Role.OPERATE)] * 2
    assert ["No such file" in record.getMessage() for record in caplog.records] == [True]

    write_users(tmp_path, f"ada read {ADA}")
    assert tokens.find(ADA) == User("ada", Role.READ)


def test_a_file_that_every_user_can_read_gives_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_users(tmp_path)
    TokenFile(path)
    assert caplog.records == []

    path.chmod(0o604)
    TokenFile(path)

    assert [record.getMessage() for record in caplog.records] == [
        f"every user of this host can read the file of tokens: chmod o-r {path}"
    ]


def test_a_new_token_can_be_written_into_the_file_and_is_another_each_time(tmp_path: Path) -> None:
    made = [new_token() for _ in range(100)]

    tokens = TokenFile(write_users(tmp_path, "".join(f"u{n} read {one}\n" for n, one in enumerate(made))))

    assert tokens.find(made[99]) == User("u99", Role.READ)
