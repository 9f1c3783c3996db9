"""Several runs as one database: each table and view has the rows of all of them, and says of which run they are."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from evo.store.errors import StoreError, one_line
from evo.store.reaching import reached
from evo.store.schema import VERSION_TABLE, newest_version, version_in

LABELS = ("run", "arm", "seed")
"""Columns that every relation has first."""
LISTING = re.compile(r"\b(show|describe|summarize|duckdb_\w+|information_schema)\b", re.IGNORECASE)
"""What may ask for relations without naming them."""
SPARE_FILES = 256
"""Files that a process has open besides databases, at most."""
LAST_SETTINGS = {"enable_external_access": False, "lock_configuration": True}
"""What a connection is told once it has attached the runs."""


class Union:
    """Runs that were opened together, read-only, without access to anything else.

    A relation is there once it was defined: tables are read where they are, views are worked out run by run, so that a
    question about thousands of runs is no plan of thousands of views. Of a run that is a cell of a comparison `arm` is
    its arm, of any other its strategy.
    """

    def __init__(self, folders: Sequence[Path], config: Mapping[str, Any]) -> None:
        """`config` is that of a reader. It raises StoreError."""
        first = {name: value for name, value in config.items() if name not in LAST_SETTINGS}
        self.connection = duckdb.connect(":memory:", config=first)
        self._defined: set[str] = set()
        self._newest = newest_version()
        try:
            _allow_files(len(folders))
            self._runs = [self._attach(f"r{place}", folder) for place, folder in enumerate(folders)]
            self._name_apart(folders)
            for name, value in LAST_SETTINGS.items():
                self.connection.execute(f"SET {name} = {str(value).lower()}")
            self.relations = self._found()
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """It lets the runs go."""
        self.connection.close()

    def define(self, sql: str) -> None:
        """Make sure that all relations are there which a query may name."""
        words = set(re.findall(r"\w+", sql.lower()))
        everything = bool(LISTING.search(sql)) and not self._defined
        for name, is_view in self.relations.items():
            if name in words and name not in self._defined:
                self._defined.add(name)
                self._define(name, self._runs, is_view=is_view)
            elif everything and name not in words:  # what no query can read need not be whole
                self._define(name, self._runs[:1], is_view=False)

    def _attach(self, name: str, folder: Path) -> tuple[str, dict[str, Any]]:
        def attach(file: Path) -> Path:
            self.connection.execute(f"ATTACH {_text(str(file))} AS {name} (READ_ONLY)")
            return file

        def is_older(file: Path) -> bool:
            version = version_in(self.connection, name)
            if version is None:
                raise StoreError(f"{folder}: its {file.name} is no run's")
            return version < self._newest

        def detach(_: Path) -> None:
            self.connection.execute(f"DETACH {name}")

        reached(folder, attach, is_older, detach)
        try:
            rows = self.connection.execute(f"SELECT arm, seed, config_json FROM {name}.runs LIMIT 1").fetchall()
        except duckdb.Error as error:
            raise StoreError(f"{folder} cannot be read beside the others: {one_line(error)}") from error
        arm, seed, config = rows[0] if rows else (None, None, "{}")
        if arm is None:
            with suppress(ValueError, AttributeError):
                arm = json.loads(config).get("strategy")
        return name, {"run": folder.name, "arm": arm, "seed": seed}

    def _name_apart(self, folders: Sequence[Path]) -> None:
        """Runs whose folders are called the same are told apart by their whole path."""
        names = [folder.name for folder in folders]
        for (_, labels), folder in zip(self._runs, folders, strict=True):
            if names.count(folder.name) > 1:
                labels["run"] = str(folder)

    def _found(self) -> dict[str, bool]:
        """Names of what can be asked, and whether each is a view."""
        sql = """
            SELECT table_name AS name, false FROM duckdb_tables() WHERE database_name = 'r0'
            UNION ALL
            SELECT view_name, true FROM duckdb_views() WHERE database_name = 'r0' AND NOT internal
            ORDER BY name
        """
        return {name: view for name, view in self.connection.execute(sql).fetchall() if name != VERSION_TABLE}

    def _define(self, name: str, runs: Sequence[tuple[str, Mapping[str, Any]]], *, is_view: bool) -> None:
        own = self.connection.execute(
            "SELECT list(column_name) FROM duckdb_columns() WHERE database_name = 'r0' AND table_name = ?", [name]
        ).fetchall()[0][0]
        hidden = [label for label in LABELS if label in own]
        star = f"* EXCLUDE ({', '.join(hidden)})" if hidden else "*"
        parts = [f"SELECT {_labelled(labels)}, {star} FROM {run}.{name}" for run, labels in runs]
        if not is_view:
            self.connection.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")
            return
        for number, part in enumerate(parts):
            self.connection.execute(
                f"INSERT INTO {name} BY NAME {part}" if number else f"CREATE TABLE {name} AS {part}"
            )


def _labelled(labels: Mapping[str, Any]) -> str:
    run, arm = (_text(labels[name]) for name in ("run", "arm"))
    seed = "NULL" if labels["seed"] is None else str(int(labels["seed"]))
    return f"{run}::VARCHAR AS run, {arm}::VARCHAR AS arm, {seed}::BIGINT AS seed"


def _text(value: str | None) -> str:
    """A literal of SQL; whatever a folder is called, it is no more than that."""
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def _allow_files(count: int) -> None:
    """Let the process open a file for each run, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            raise StoreError(f"{count} runs need {wanted} open files, and {allowed} are allowed: raise `ulimit -n`")
