"""Where a store is: addresses as a person writes them, and as they may be shown.

    sqlite:///FILE                          one file, 0600; several processes may read and write it at once
    postgresql://USER@HOST/DATABASE         with the extra `postgresql` (psycopg 3)

What is shown of an address holds no secret, also where it is no address at all: a mistyped one holds a password as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa

from calyx_orch.errors import UsageError

ENVIRONMENT = "CALYX_ORCH_STORE"
WAYS = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"
PASSWORDS = ", in a password each of @ : / ? as %40 %3A %2F %3F"
SQLITE = "sqlite+pysqlite"
POSTGRESQL = "postgresql+psycopg"
DRIVERS = {"sqlite": SQLITE, SQLITE: SQLITE, "postgresql": POSTGRESQL, "postgres": POSTGRESQL, POSTGRESQL: POSTGRESQL}
HIDDEN = "***"

# In a password `/` and `:` may stand; `@` and `?` may not, as nobody could tell where it ends.
_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][\w+.-]*)://"
    r"(?:(?P<user>[^:/@?]*)(?P<password>:[^@?]*)?@)?"
    r"(?P<host>\[[^\]/@?]*\]|[^:/@?\[]*)(?::(?P<port>[^/@?]*))?"
    r"(?P<database>/[^?]*)?"
    r"(?P<query>\?.*)?",
    re.DOTALL,
)
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*://|(?:sqlite|postgres)[\w+]*:/*")
_HARMLESS = re.compile(r"(?:host|hostaddr|port|user|dbname|sslmode|connect_timeout|application_name)=[\w./:,%-]*")


def default() -> str:
    """Where the index lies when nobody says: $CALYX_ORCH_STORE, else a file of the user's own."""
    given = os.environ.get(ENVIRONMENT)
    if given:
        return given
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return f"sqlite:///{Path(home) / 'calyx-orch' / 'store.sqlite'}"


def parse(url: str) -> sa.URL:
    """The address with the driver that is used for it. Raises UsageError, without its password, for what is none."""
    match = _ADDRESS.fullmatch(url)
    driver = DRIVERS.get(match["scheme"]) if match else None
    if match is None or driver is None or not (match["port"] or "0").isdecimal():
        raise _refused(url, WAYS + PASSWORDS * ("@" in url))
    if driver == SQLITE:
        return _file(url, match)
    if re.search("[@=]", match["database"] or ""):
        raise _refused(url, f"{WAYS}{PASSWORDS}; settings follow a ?")
    query = match["query"] or ""
    try:
        return sa.make_url(url.removesuffix(query) + query.replace("@", "%40")).set(drivername=driver)
    except (sa.exc.ArgumentError, ValueError):
        raise _refused(url, WAYS) from None  # what it says may hold the password


def shown(url: str) -> str:
    """The address without its password and whatever else may be one; of what cannot be read as an address rather too little."""
    match = _ADDRESS.fullmatch(url)
    if match is None:
        return _masked(url)
    database = match["database"] or ""
    is_file = DRIVERS.get(match["scheme"]) == SQLITE and not match["host"] and match["user"] is None
    if not is_file and re.search("[@=]", database):
        return _masked(url)
    user = "" if match["user"] is None else f"{match['user']}{f':{HIDDEN}' if match['password'] else ''}@"
    port = "" if match["port"] is None else f":{match['port'] if match['port'].isdecimal() else HIDDEN}"
    return f"{match['scheme']}://{user}{match['host']}{port}{database}{_query(match['query'] or '')}"


def scrubbed(said: object, address: sa.URL) -> str:
    """What a driver says of an address, on one line, without the secrets that stand in it."""
    text = " ".join(str(said).split())
    values = [
        address.password,
        *(value for pair in address.normalized_query.items() if not _is_harmless(*pair) for value in pair[1]),
    ]
    for secret in sorted({str(one) for one in values if one}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def of_environment(url: str) -> str:
    """` of $CALYX_ORCH_STORE` where the address stands there, to follow it in a sentence."""
    return f" of ${ENVIRONMENT}" if url == os.environ.get(ENVIRONMENT) else ""


def _file(url: str, match: re.Match[str]) -> sa.URL:
    """The address of a file. Raises UsageError for one in memory, which is gone at once, and for what would be left unheeded."""
    file = (match["database"] or "")[1:]
    if match["host"] or match["port"] or match["user"] is not None:
        raise _refused(
            url, "a store on SQLite is a file of this machine: write sqlite:///FILE, as sqlite:////tmp/a.sqlite"
        )
    if match["query"] is not None:
        raise _refused(url, "nothing may follow the file, from the ? on: write sqlite:///FILE")
    if not file.strip() or file == ":memory:":
        raise _refused(url, "it names no file, and what is kept in memory is gone at once: write sqlite:///FILE")
    return sa.URL.create(SQLITE, database=file)


def _refused(url: str, way_out: str) -> UsageError:
    return UsageError(f"{shown(url)!r}{of_environment(url)} is no store: {way_out}")


def _query(query: str) -> str:
    """The settings behind the `?`: of what nobody knows to be harmless only the names."""
    if not query:
        return ""
    parts = query[1:].split("&")
    return "?" + "&".join(part if _HARMLESS.fullmatch(part) else _unnamed(part) for part in parts)


def _unnamed(part: str) -> str:
    name, equals, _ = part.partition("=")
    return f"{name}={HIDDEN}" if equals and re.fullmatch(r"\w+", name) else HIDDEN


def _is_harmless(name: str, values: Iterable[str]) -> bool:
    return all(_HARMLESS.fullmatch(f"{name}={value}") for value in values)


def _masked(text: str) -> str:
    """What is no address: nothing between its first `:` and its last `@`, and nothing from a `?` or a `=` on."""
    scheme = _SCHEME.match(text)
    begins = scheme.end() if scheme else 0
    head, rest = text[:begins], text[begins:]
    if cut := re.search(r"[?=]", rest):  # behind it an @ may be one of a secret
        return f"{head}{re.split('[:@]', rest[: cut.start()])[0]}{HIDDEN}"
    if head.startswith("sqlite") and "@" not in rest:
        return text
    name, colon, secret = rest.partition(":")
    if not colon:
        return f"{head}{HIDDEN}" if head and "@" not in rest else text
    return f"{head}{name}:{HIDDEN}" + (f"@{secret.rpartition('@')[2]}" if "@" in secret else "")
