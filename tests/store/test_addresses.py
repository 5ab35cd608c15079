"""Addresses of stores: what is one, what is refused, and that no secret of either is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from calyx_orch.errors import UsageError
from calyx_orch.store import addresses, database

WAYS = "is no store: write sqlite:///FILE or postgresql://USER@HOST/DATABASE"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cret@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql://u:s3cret@h:notaport/db", "postgresql://u:***@h:***/db"),
        ("postgresql://u:a@s3cret@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:a/s3cret@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:a?s3cret@h/db", "postgresql://u:***?***"),
        ("postgresql://u:s3cret", "postgresql://u:***"),
        ("postgresql:/u:s3cret@h/db", "postgresql:/u:***@h/db"),
        ("postgresql//u:s3cret@h/db", "postgresql//u:***@h/db"),
        ("postgresql:s3cret", "postgresql:***"),
        ("u:s3cret@h", "u:***@h"),
        ("host=h password=s3cret", "host***"),
        ("postgresql://u@h/db?password=s3cret", "postgresql://u@h/db?password=***"),
        ("postgresql://h:5432/db?password=a@s3cret", "postgresql://h:5432/db?password=***"),
        ("postgresql:///db?host=/tmp;password=s3cret", "postgresql:///db?host=***"),
        ("postgresql://h/db&password=s3cret", "postgresql://h/db&password***"),
        ("sqlite:////tmp/a.yaml?foo=s3cret", "sqlite:////tmp/a.yaml?foo=***"),
        ("sqlite://u:s3cret@h/x", "sqlite://u:***@h/x"),
        ("mysql://u:s3cret@h/db", "mysql://u:***@h/db"),
        ("sqlite:////tmp/a@b:c=d/x.sqlite", "sqlite:////tmp/a@b:c=d/x.sqlite"),
        ("postgresql:///db?host=/tmp/x&port=5432", "postgresql:///db?host=/tmp/x&port=5432"),
        ("postgresql://u@[::1]:5432/db", "postgresql://u@[::1]:5432/db"),
        ("nonsense", "nonsense"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_secret_and_no_less_of_the_rest_than_it_must(url: str, shown: str) -> None:
    assert database.shown(url) == shown
    assert "s3cret" not in shown


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:s3cret@h:notaport/db", WAYS),
        ("postgresql:/u:s3cret@h/db", WAYS),
        ("postgresql+asyncpg://u@h/db", WAYS),
        ("sqlite+pysqlcipher:///x", WAYS),
        ("sqlite:x", WAYS),
        ("sqlite://", "it names no file, and what is kept in memory is gone at once: write sqlite:///FILE"),
        ("sqlite:///", "it names no file"),
        ("sqlite:///:memory:", "it names no file"),
        ("sqlite:///a?mode=ro", r"nothing may follow the file, from the \? on: write sqlite:///FILE"),
        ("sqlite:////tmp/a.yaml?foo=s3cret", "nothing may follow the file"),
        ("sqlite://host/x", "a store on SQLite is a file of this machine"),
        ("postgresql://h/db&password=s3cret", r"settings follow a \?"),
    ],
)
def test_what_is_no_address_is_refused_with_what_is_one(
    url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence, and nothing is made on the disk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(addresses.ENVIRONMENT, raising=False)
    for create in (True, False):
        with pytest.raises(UsageError, match=says) as told:
            database.open_store(url, create=create)
        assert "s3cret" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///x", "sqlite+pysqlite"),
        ("sqlite+pysqlite:///x", "sqlite+pysqlite"),
        ("postgresql://u@h/db", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/db", "postgresql+psycopg"),
    ],
)
def test_a_driver_may_be_named_where_it_is_the_one_that_is_used(url: str, driver: str) -> None:
    assert addresses.parse(url).drivername == driver


def test_a_password_reaches_the_driver_as_it_was_meant() -> None:
    assert addresses.parse("postgresql://u:a%40b%2Fc@h/db").password == "a@b/c"
    assert addresses.parse("postgresql://u:a/b:c@h/db").password == "a/b:c"
    assert addresses.parse("postgresql://h:5432/db?password=a@b").query["password"] == "a@b"


def test_what_a_driver_says_is_told_without_the_secrets_of_the_address() -> None:
    address = addresses.parse("postgresql://u:s3cret@h/db?passfile=/hidden/s3&host=/tmp")
    assert addresses.scrubbed("no s3cret\n in /hidden/s3 of /tmp", address) == "no *** in *** of /tmp"
