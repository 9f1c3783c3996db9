"""Runs as objects: queries to one or several, and of one its best kernels, their lineage, and all about a kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import pyarrow as pa

from evo.frames import Form, as_form, check_form
from evo.store import Connection, Limits, answer, has_writer, open_reader, query
from evo.store.named import named_query
from evo.stored import Ancestor, Read, StoredKernel, Verdict, found_kernel, stored_kernel, stored_lineage
from operators.errors import UserError

if TYPE_CHECKING:
    import pandas
    import polars

__all__ = ["Ancestor", "Run", "Several", "StoredKernel", "Verdict"]

Params = Mapping[str, Any]
ANSWER_BYTES = 2**30
"""Of an answer at most."""
READ_S = 300.0
"""A question of our own takes so long at most."""


class Several:
    """Runs that are asked together: every relation begins with the columns run, arm and seed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """`folders` are those of runs."""
        if not folders:
            raise UserError("no run was named")
        self.folders = tuple(folders)

    if TYPE_CHECKING:  # overloads are kept for ever, and duckdb complains of what is left when a program ends

        @overload
        def sql(self, sql: str, params: Params | None = None, *, timeout_s: float = 300.0) -> pa.Table: ...
        @overload
        def sql(
            self, sql: str, params: Params | None = None, *, to: Literal["pandas"], timeout_s: float = 300.0
        ) -> pandas.DataFrame: ...
        @overload
        def sql(
            self, sql: str, params: Params | None = None, *, to: Literal["polars"], timeout_s: float = 300.0
        ) -> polars.DataFrame: ...
        @overload
        def sql(self, sql: str, params: Params | None = None, *, to: Form, timeout_s: float = 300.0) -> Any: ...

    def sql(self, sql: str, params: Params | None = None, *, to: Form = "arrow", timeout_s: float = 300.0) -> Any:
        """The answer to one query: an Arrow table, or a data frame of pandas or polars where that is installed, whose
        sums are integers and whose differences of times are durations (`evo.frames.counted`).

        `params` are bound to `$name` in it. It raises UserError for anything but a query, after `timeout_s`, and for
        an answer of more than 1 GiB.
        """
        check_form(to)
        return as_form(self._table(sql, params or {}, timeout_s), to)

    def query(self, name: str, *, to: Form = "arrow", timeout_s: float = 300.0, **params: str) -> Any:
        """The answer to a named query (`evo sql --query` lists them), with its parameters by name; as `sql`."""
        known = named_query(name)
        check_form(to)
        sql = known.text(several=self._several)
        return as_form(self._table(sql, known.bound(params), timeout_s), to)

    _several = True

    def _table(self, sql: str, params: Params, timeout_s: float) -> pa.Table:
        return query(self.folders, sql, params=params, max_bytes=ANSWER_BYTES, timeout_s=timeout_s)


class Run(Several):
    """One run, which a search may be writing.

    Every call reads the run as it then is, and holds nothing afterwards; while a search goes on that is a snapshot, two
    seconds old at most, or older where making one takes the writer long. As a context manager it keeps one state from
    beginning to end, so that answers agree with each other, and `evo resume` waits for that end. Its methods may be
    called from any thread; in a `with` from one at a time.
    """

    _several = False

    def __init__(self, folder: Path) -> None:
        """`folder` is the run's."""
        super().__init__([folder])
        self.folder = folder
        self._held: ExitStack | None = None
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"evo.open({str(self.folder)!r})"

    def __enter__(self) -> Self:
        if self._held:
            raise UserError(f"run {self.id} is in a `with` already; open it once more")
        with ExitStack() as held:
            self._connection = held.enter_context(open_reader(self.folder))
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held, self._connection = self._held, None, None
        if held:
            held.close()

    @property
    def id(self) -> str:
        """The name of its folder, or of the file."""
        return self.folder.stem if self.folder.is_file() else self.folder.name

    @property
    def is_running(self) -> bool:
        """Whether a search is writing it now."""
        return self.folder.is_dir() and has_writer(self.folder)

    @property
    def config(self) -> dict[str, Any]:
        """Every setting of the run; empty where it was stopped before it began."""
        rows = self.sql("select config_json from runs limit 1").to_pylist()
        return dict(json.loads(rows[0]["config_json"])) if rows else {}

    @property
    def tasks(self) -> list[str]:
        """The tasks, `operator/dtype/target`, in the order in which they were first asked for."""
        sql = "select task from proposals group by task order by min(rowid)"
        return [str(task) for task in self.sql(sql).column("task").to_pylist()]

    def best(self, task: str = "") -> list[StoredKernel]:
        """The best kernel of each task, or of those that begin with `task`; what is not confirmed counts with the
        lower end of its interval."""
        sql = "select task, kernel_id from best where starts_with(task, $task) order by task"
        with self._reading() as read:
            return [stored_kernel(read, **row) for row in read(sql, {"task": task})]

    def lineage(self, kernel: str, task: str = "", *, principal: bool = False) -> list[Ancestor]:
        """A kernel and all its ancestors, parents before children, or (`principal`) those along principal parents.

        `kernel` is an id or its beginning. It raises UserError where there is no single one.
        """
        with self._reading() as read:
            return stored_lineage(read, *found_kernel(read, kernel, task), principal=principal)

    def kernel(self, kernel: str, task: str = "") -> StoredKernel:
        """All about a kernel; `kernel` is an id or its beginning. It raises UserError where there is no single one.

        Where a kernel belongs to several tasks, the first one that begins with `task` counts.
        """
        with self._reading() as read:
            return stored_kernel(read, *found_kernel(read, kernel, task))

    def _table(self, sql: str, params: Params, timeout_s: float) -> pa.Table:
        if self._connection is None:
            return query(self.folder, sql, params=params, max_bytes=ANSWER_BYTES, timeout_s=timeout_s)
        return _answered(self._connection, sql, params, timeout_s)

    @contextmanager
    def _reading(self) -> Iterator[Read]:
        """What answers several questions about one state of the run."""
        with nullcontext(self._connection) if self._connection else open_reader(self.folder) as connection:
            yield lambda sql, params: _answered(connection, sql, params, READ_S).to_pylist()


def _answered(connection: Connection, sql: str, params: Params, timeout_s: float) -> pa.Table:
    return answer(connection, sql, Limits(sys.maxsize, timeout_s, ANSWER_BYTES), params).table
