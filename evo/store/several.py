"""Several runs as one database: each table and view has the rows of all of them, and says of which run they are."""

from __future__ import annotations

import re
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from evo.store.attaching import attach
from evo.store.errors import StoreError
from evo.store.joined import MAIN, MERGED, Attached, labelled
from evo.store.schema import VERSION_TABLE

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
        try:
            _allow_files(len(folders))
            attached = (attach(self.connection, f"r{place}", folder) for place, folder in enumerate(folders))
            self._runs = [run for held in attached for run in held]
            self._name_apart()
            self._name_origins()
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

    def _name_apart(self) -> None:
        """Runs whose folders are called the same are told apart by their whole path."""
        names = [run.run for run in self._runs]
        self._runs = [
            replace(run, run=str(run.origin) if run.schema == MAIN else f"{run.origin}:{run.run}")
            if names.count(run.run) > 1
            else run
            for run in self._runs
        ]

    def _name_origins(self) -> None:
        """Where runs are from that were merged is known of them alone."""
        merged = dict.fromkeys(run.place.partition(".")[0] for run in self._runs if run.schema != MAIN)
        if merged:
            parts = " UNION ALL BY NAME ".join(f"FROM {database}.{MAIN}.{MERGED}" for database in merged)
            self.connection.execute(f"CREATE VIEW {MERGED} AS {parts}")

    def _found(self) -> dict[str, bool]:
        """Names of what can be asked, and whether each is a view."""
        sql = """
            SELECT table_name AS name, false FROM duckdb_tables() WHERE database_name = 'r0' AND schema_name = $schema
            UNION ALL
            SELECT view_name, true FROM duckdb_views()
            WHERE database_name = 'r0' AND schema_name = $schema AND NOT internal
            ORDER BY name
        """
        found = self.connection.execute(sql, {"schema": self._runs[0].schema}).fetchall()
        return {name: view for name, view in found if name != VERSION_TABLE}

    def _define(self, name: str, runs: Sequence[Attached], *, is_view: bool) -> None:
        parts = labelled(self.connection, "r0", name, runs)
        if not is_view:
            self.connection.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")
            return
        for number, part in enumerate(parts):
            self.connection.execute(
                f"INSERT INTO {name} BY NAME {part}" if number else f"CREATE TABLE {name} AS {part}"
            )


def _allow_files(count: int) -> None:
    """Let the process open a file for each run, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            raise StoreError(f"{count} runs need {wanted} open files, and {allowed} are allowed: raise `ulimit -n`")
