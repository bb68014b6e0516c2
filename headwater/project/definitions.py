"""What a project declares, as frozen values: in one file, because people read it as the reference.

A declaration does nothing by itself. `headwater.project.load` loads the project's files, gives each
declaration its name, `<folder>.<variable or function>`, and the engine interprets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headwater.errors import ProjectError, Where
from headwater.project.cdc.said import Cdc, Scd, of_arguments
from headwater.project.process import Function as ProcessFunction
from headwater.project.process import Process, Stream
from headwater.project.rule import Rule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Function = Callable[..., "DataFrame"]
Fetch = Callable[[list[dict[str, Any]]], Iterable[Mapping[str, Any]]]
Contract = Literal["evolve", "freeze", "quarantine"]
Emit = Literal["update", "final"]
OnError = Literal["bisect", "stop"]
Refresh = Literal["auto", "incremental strict", "full"]
Format = Literal["json", "text", "csv", "parquet", "avro"]


@dataclass(frozen=True)
class Json:
    """A decoder for values that are one JSON object each.

    Attributes:
        schema: the fields to take, as Spark DDL (`hostname STRING, usage DOUBLE`).
        contract: what becomes of a record whose fields are others; see `json`.
        timestamp: the column that gets Kafka's timestamp; None: none does.
        tombstones: the fields that a record's key has, where one without a value deletes that key.
    """

    schema: str
    contract: Contract = "evolve"
    timestamp: str | None = None
    tombstones: tuple[str, ...] = ()


@dataclass(frozen=True)
class Debezium(Json):
    """A decoder for Debezium's events; see `debezium`.

    Attributes:
        row: the columns of the rows that change, as Spark DDL.
    """

    row: str = ""


def debezium(row: str) -> Debezium:
    """Decode each value as an event of Debezium's, with or without its schema beside it, for `auto_cdc`.

    Args:
        row: the columns of the rows that change, as Spark DDL, in the types that the connector sends.

    The columns are those of the row as it is (as it was, where it is deleted), and of the event: `_op` (`c`,
    `u`, `d`, `r` of a snapshot, `t` of a truncation), `_lsn` (PostgreSQL's), `_file`, `_pos` and `_row`
    (of MySQL's binary log), `_ts_ms` (when the connector saw it; milliseconds since 1970, UTC). Unless it is
    said otherwise `_op = 'd'` deletes a row. Tombstones, which follow a delete, say nothing more.

    The format: https://debezium.io/documentation/reference/stable/connectors/postgresql.html
    """
    source = "source STRUCT<lsn BIGINT, file STRING, pos BIGINT, row INT>"
    event = f"before STRUCT<{row}>, after STRUCT<{row}>, {source}, op STRING, ts_ms BIGINT"
    return Debezium(f"{event}, payload STRUCT<{event}>", row=row)


def json(
    schema: str,
    contract: Contract = "evolve",
    *,
    timestamp: str | None = None,
    tombstones: str | Sequence[str] = (),
) -> Json:
    """Decode each value as one JSON object with the fields of `schema` (Spark DDL).

    A row that is not one well-formed object of these types goes to the quarantine, never to the table:
    see `headwater.connectors.decode.parser`. Where a record's fields are not those of the schema, the
    contract says:

    - `evolve`: a missing field is NULL, and unknown ones are kept in the column `_rescued` (STRING: a JSON
      object of them alone, each at its path; NULL where there are none).
    - `quarantine`: a record with an unknown or a missing field goes to the quarantine, with the reason.
    - `freeze`: a record with an unknown or a missing field, or one of another type, stops the flow.

    Alerts have no `_rescued`, whatever the contract, and take such records as `evolve` does.

    `timestamp` names a column for Kafka's timestamp of the record (UTC), where that is to tell the time.

    `tombstones` names the fields that a record's key has: its text is the field, or of several it is a JSON
    object. A record without a value, which deletes its key in a topic that Kafka compacts, is then a row of
    these fields, all others NULL, and `_tombstone` (BOOLEAN) says so; else it goes to the quarantine. To
    `auto_cdc` it is a delete, unless that says otherwise. Alerts leave it out.
    """
    return Json(schema, contract, timestamp, _names(tombstones))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds one batch of a flow; None takes the environment's default.

    `trigger` is how often a topic is read, or a folder looked at; of a table, the least time from one batch
    to the next.
    """

    parallelism: int | None = None
    max_rows_per_batch: int | None = None
    trigger: str | None = None


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Something a project file declares; `name`, `file` and `line` are set when the project is loaded.

    `line` is where in the file it begins, from 1; 0 where that is not known.
    """

    name: str = ""
    file: Path = Path()
    line: int = field(default=0, compare=False, repr=False)
    comment: str = ""

    @property
    def where(self) -> Where:
        """Where it is declared."""
        return Where.of(self.file, self.name, self.line)


@dataclass(frozen=True, kw_only=True)
class Topic(Declaration):
    """A bronze table: the records of one Kafka topic, as they arrive.

    Attributes:
        servers: the cluster that its text names, which is the environment's; "": it names none.
    """

    topic: str
    partitions: int = 4
    compacted: bool = False
    servers: str = ""
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True)
class Files(Declaration):
    """A bronze table: the records of files, as these arrive.

    Attributes:
        pattern: which files, below the project, absolute, or of an object store (`s3://…`).
        format: what is in them; see `headwater.connectors.files.formats`.
    """

    pattern: str
    format: Format = "json"
    limits: Limits = Limits()

    @property
    def topic(self) -> str:
        """What its rows have in the place of a topic: the table's name, wherever the files lie."""
        return self.name


@dataclass(frozen=True, kw_only=True)
class Table(Declaration):
    """A table that a function or a SQL query derives from others.

    Attributes:
        sources: what feeds it: streams, reference tables, and tables as they are. A view gets whole tables,
            as many as it likes.
        snapshots: of a table that streams, those of its sources that are read as they are when a batch is
            begun, like reference tables.
        reads: what the function or query gets, one DataFrame each, in this order: sources, and `views`. None
            are said: the sources.
        views: the project's named queries between it and its sources, each after those that it reads.
        decode: how the stream's `value` becomes columns; None where the source is already decoded.
        lookup: the project's lookup whose columns the stream's rows get, by name; "": there is none.
        function: from DataFrames to one DataFrame; None where `sql` says it.
        sql: the query, its text and where each source stands in it.
        process: what it does with each key's rows in turn, where that is what feeds it.
        view: whether it is a materialized view: computed from all that its sources hold.
        corrected: whether it is one because it joins streams by an outer join: a row without a partner is
            corrected when that comes.
        into: of a flow, the table that its rows go to.
        once: whether it reads what its source has when it first finds rows there, and nothing later.
        flows: where several feed the table, they; it has neither function nor query then, and all their
            sources.
        keys: the columns that identify a row.
        cluster_by: those of the keys by which rows stand together in files, where they change in place; of a
            process, those of its keys by which what it keeps does.
        event_time: the column that says when a row happened, of a process over several streams that of the
            first; see `stream`. `delay` says how much later rows may come.
        event_times: {stream → its event time}, of several that are joined, where rows without a partner wait
            for one.
        emit: `update`: rows change as their inputs come; `final`: each window, and each row without a partner
            of streams that are joined, is appended once, when it is over, and rows that come later go to the
            table `<name>_late`.
        refresh: how a view is brought up to date: `auto`: by the rows that changes touch, where they can be
            found and that is less work; `incremental strict`: it is refused where they can't; `full`: all of
            it is computed anew.
        allowed_lateness: with `update`, how long beyond the delay rows still correct their window; later
            ones go to `<name>_late`. None: however late they are.
        idle_timeout: with `final`, how long a partition of Kafka may be silent before the others' windows
            no longer wait for it.
        sinks: where its changes go, as its SQL properties say; in Python they are declared beside it.
        skew: how far a row's event time may lie ahead of its `ingested_at`; rows beyond are quarantined.
        on_error: what becomes of a record that makes the function fail: `bisect`: it is found and
            quarantined, where the table decodes; `stop`: it stops the flow.
        properties: further properties of the Delta table (`delta.*`).
        expectations: of its rows, said with the definition; they join those of the table's suite.
        cdc: how it follows from changes, where AUTO CDC feeds it; then `function` gives its rows, or a flow's
            changes. See `headwater.project.cdc`.
        carries: columns of its stream that it keeps though its query omits them; see
            `headwater.project.carried`.
    """

    sources: tuple[str, ...]
    snapshots: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    decode: Json | None = None
    lookup: str = ""
    function: Function | None = None
    sql: Query | None = None
    process: Process | None = None
    view: bool = False
    corrected: bool = False
    into: str | None = None
    once: bool = False
    flows: tuple[Table, ...] = ()
    keys: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    event_time: str | None = None
    event_times: Mapping[str, str] = field(default_factory=dict)
    delay: str | None = None
    emit: Emit = "update"
    refresh: Refresh = "auto"
    allowed_lateness: str | None = None
    idle_timeout: str = "30 seconds"
    sinks: tuple[Sink, ...] = ()
    skew: str = "5 minutes"
    on_error: OnError = "bisect"
    limits: Limits = Limits()
    properties: dict[str, str] = field(default_factory=dict)
    expectations: tuple[Rule, ...] = ()
    cdc: Cdc | None = None
    carries: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the function or query gets, in order."""
        return self.reads or self.sources

    @property
    def declared(self) -> bool:
        """Whether it says itself what its rows are, and no flows into it do."""
        said = (self.sql, self.function, self.process, self.cdc)
        return any(each is not None for each in said)

    @property
    def decodes(self) -> bool:
        """Whether it, or a flow into it, reads raw records: those that it can't take are quarantined."""
        return any(each.decode is not None for each in (self, *self.flows))

    def stream(self, source: str) -> Stream:
        """How it reads one of its sources."""
        if self.process is not None:
            return self.process.streams[self.inputs.index(source)]
        if source in self.event_times:
            return Stream(self.event_times[source], name=source)
        return Stream(self.event_time)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Call the definition itself, as a test does with batch DataFrames."""
        if self.function is None:
            how = "a process; call it with headwater.drive" if self.process else "SQL; run it with spark.sql"
            raise ProjectError(f"{self.where} is {how}", code="NOT_A_FUNCTION", where=self.where)
        return self.function(*frames)


@dataclass(frozen=True, kw_only=True)
class View(Declaration):
    """A named query of the project, which is kept nowhere: whoever reads it computes it.

    Attributes:
        sources: what it gets, one DataFrame each, in the order of `reads`, if that is said: tables, reference
            tables and other such views.
        function, sql: one of the two, as of a table.
        event_time, delay: what it says of the time, for those that read it and say nothing.
    """

    sources: tuple[str, ...]
    reads: tuple[str, ...] = ()
    function: Function | None = None
    sql: Query | None = None
    event_time: str | None = None
    delay: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the function or query gets, in order."""
        return self.reads or self.sources


@dataclass(frozen=True)
class PostgresRows:
    """Rows of a table in PostgreSQL, by keys; see `from_postgres`.

    Attributes:
        connection: a name in the environment's `postgres`.
        table: the table there, `schema.table`.
    """

    connection: str
    table: str


@dataclass(frozen=True, kw_only=True)
class Lookup(Declaration):
    """What another system knows of the keys of rows, asked as they come; see `lookup`.

    Attributes:
        fetch: gives the rows of some keys.
        keys: the columns by which is asked: those of the stream's that are called so.
        columns: of the answers, as Spark DDL, the keys aside.
        ttl: how long an answer holds.
        most: answers that are held in memory.
        at_once: keys that are asked for in one call.
    """

    fetch: Fetch | PostgresRows
    keys: tuple[str, ...]
    columns: str
    ttl: str
    most: int = 100_000
    at_once: int = 1_000


@dataclass(frozen=True, kw_only=True)
class Query:
    """A SQL query with a place for each source: `text.format(source=view, …)` is runnable Spark SQL.

    Attributes:
        text: the query; each source is a field `{s0}`, `{s1}`, … in the order of what it reads.
        streams: the sources read as streams, in the order of the text.
        line, column: where in its file the text begins, both from 0.
    """

    text: str
    streams: tuple[str, ...]
    line: int = 0
    column: int = 0

    def of(self, names: Sequence[str]) -> str:
        """The query with these names for its sources; an error's line and position are those of the file."""
        return "\n" * self.line + " " * self.column + self.bare(names)

    def bare(self, names: Sequence[str]) -> str:
        """The same from its first word on."""
        return self.text.format(**{f"s{at}": name for at, name in enumerate(names)})


@dataclass(frozen=True, kw_only=True)
class Alert(Declaration):
    """A stateless flow from a bronze table's topic to another topic, in milliseconds.

    Attributes:
        topic: where its rows go, as JSON.
        source: the bronze table whose topic is read.
        key: the column that becomes the record's key; None: no key.
    """

    topic: str
    source: str
    decode: Json
    function: Function
    key: str | None = None
    partitions: int = 1

    def __call__(self, metrics: DataFrame) -> DataFrame:
        """Call the definition itself, as a test does with a batch DataFrame."""
        return self.function(metrics)


@dataclass(frozen=True, kw_only=True)
class Sink(Declaration):
    """Where a table's changes go outside the lake; its own flow over the table's versions takes them there.

    Attributes:
        table: the table.
        on: `update` sends a row each time it changes; `final` sends each window once, when it is over.
    """

    table: str
    on: Emit = "update"

    @property
    def where(self) -> Where:
        """Where it is declared; what is wrong with it is of its table."""
        return Where(super().where, self.file, self.table, self.line)

    @property
    def target(self) -> str:
        """What people call it: `kafka:topic`, `postgres:warehouse.schema.table`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class KafkaSink(Sink):
    """A table's changes, published to a topic: at least once, keyed by the table's keys.

    Attributes:
        topic: where its rows go, as JSON.
        partitions: of the topic, where it has to be created.
    """

    topic: str
    partitions: int = 1

    @property
    def target(self) -> str:
        """`kafka:topic`."""
        return f"kafka:{self.topic}"


@dataclass(frozen=True, kw_only=True)
class StoreSink(Sink):
    """A table kept in a store that the environment says how to reach.

    Attributes:
        store: the kind of store, and the environment's section for it.
        connection: its name in that section.
        into: what it is called there.
    """

    store: ClassVar[Literal["postgres", "opensearch"]]
    connection: str
    into: str

    @property
    def target(self) -> str:
        """`store:connection.into`."""
        return f"{self.store}:{self.connection}.{self.into}"


@dataclass(frozen=True, kw_only=True)
class PostgresSink(StoreSink):
    """A table kept in PostgreSQL: exactly once, by the table's keys; `into` is `schema.table`."""

    store = "postgres"


@dataclass(frozen=True, kw_only=True)
class OpenSearchSink(StoreSink):
    """A table kept in OpenSearch: each row is one document, by the table's keys; `into` is an index."""

    store = "opensearch"


@dataclass(frozen=True, kw_only=True)
class OwnSink(Sink):
    """A sink of the project's own; see `headwater.connectors.sinks.Sink`.

    Attributes:
        called: its name.
        make: gives a `headwater.connectors.sinks.Sink`, not opened.
    """

    called: str
    make: Callable[[], Any]

    @property
    def target(self) -> str:
        """Its name."""
        return self.called


def topic(name: str, *, partitions: int = 4, compacted: bool = False, **limits: Any) -> Topic:
    """Declare a bronze table: one row per record of the Kafka topic `name`, nothing parsed or lost.

    Columns: key and value (BINARY), topic, partition, offset, timestamp (Kafka's, UTC), headers,
    cluster, ingested_at (UTC). `partitions` and `compacted` are used where the topic has to be created.
    """
    return Topic(topic=name, partitions=partitions, compacted=compacted, limits=Limits(**limits))


def files(pattern: str, *, format: Format = "json", **limits: Any) -> Files:
    """Declare a bronze table: one row per record of the files that `pattern` names, each file once.

    Args:
        pattern: a glob below the project, or absolute: `landing/payments/*.json.gz`, `landing/**/*.csv`; or
            of an object store: `s3://acme/payments/*.json`, if the environment says how `acme` is reached.
        format: `json` or `text`: each line is a record, as it is; `csv`, `parquet`, `avro`: each row is
            one, as a JSON object. Lines may be compressed (`.gz`, `.bz2`, `.lz4`, `.zst`).
        limits: see `Limits`.

    The columns are those of a topic's table, see `topic`: `topic` is the table's name, `partition` 0,
    `offset` counts the records of all its files in the order in which they were taken, `timestamp` is when
    the file was written last (UTC), `headers` say which file it was, and `cluster` is `files`.
    """
    return Files(pattern=pattern, format=format, limits=Limits(**limits))


def lookup(
    fetch: Fetch | PostgresRows,
    *,
    keys: str | Sequence[str],
    columns: str,
    ttl: str,
    cache_size: int = 100_000,
    batch_size: int = 1_000,
) -> Lookup:
    """Declare a lookup: what another system knows of the keys of a stream's rows, asked as these come.

    A table names it (`lookup=`, in SQL `headwater.lookup`); its stream then has the answer's columns beside
    its own, NULL where nothing is known of the keys, or one of them is NULL. What a row was told stays with
    it: see `headwater.flows.lookups`.

    Args:
        fetch: called with keys, `[{key: value, …}, …]`, gives the rows that are known of them, one for each
            at most, as dicts of the keys and columns; or `from_postgres(…)`. Where it raises, the table waits
            and asks again.
        keys: the columns of the stream by which is asked.
        columns: of the answers, as Spark DDL: `category STRING, risk DOUBLE`.
        ttl: how long an answer holds before the same keys are asked for again (`10 minutes`), that nothing is
            known of them likewise.
        cache_size: how many answers are held in memory.
        batch_size: how many keys one call gets at most.
    """
    return Lookup(
        fetch=fetch, keys=_names(keys), columns=columns, ttl=ttl, most=cache_size, at_once=batch_size
    )


def from_postgres(connection: str, table: str) -> PostgresRows:
    """Let a lookup ask a table in PostgreSQL, which has the lookup's keys and columns by these names.

    Args:
        connection: a name in the environment's `postgres`.
        table: `schema.table`.
    """
    return PostgresRows(connection, table)


def _names(source: str | Sequence[str]) -> tuple[str, ...]:
    found = (source,) if isinstance(source, str) else tuple(source)
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"source = {source!r} is no name of a table, nor several")
    return found


def table(
    *,
    source: str | Sequence[str],
    snapshots: str | Sequence[str] = (),
    decode: Json | None = None,
    lookup: str = "",
    keys: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    event_time: str | Mapping[str, str] | None = None,
    delay: str | None = None,
    emit: Emit = "update",
    allowed_lateness: str | None = None,
    idle_timeout: str = "30 seconds",
    skew: str = "5 minutes",
    on_error: OnError = "bisect",
    **limits: Any,
) -> Callable[[Function], Table]:
    """Declare a table by a function from its sources' DataFrames to its own.

    The table's name is `<folder>.<function>`, its comment the function's docstring. The function is
    pure: what it returns depends on its arguments alone. It keeps the column `_source`, which says
    where in Kafka a row came from. `snapshots` names tables that it gets as they are when a batch is begun,
    behind its sources. Of several streams that an outer join joins with `emit="final"`, `event_time` is
    {stream → column}.

    Raises:
        TypeError: the event times are not those of the streams, or a source is named twice.
    """
    streams, whole = _names(source), _names(snapshots)
    sources = (*streams, *whole)
    times = dict(event_time) if isinstance(event_time, Mapping) else {}
    first = next(iter(times.values()), None) if isinstance(event_time, Mapping) else event_time
    if twice := [each for each in streams if streams.count(each) > 1]:
        raise TypeError(f"{twice[0]} is read twice; join it with itself in @hw.materialized_view")
    if not {*times} <= {*sources}:
        raise TypeError(f"event_time = {event_time!r} is not of the streams {source!r}, each by its name")

    def declare(function: Function) -> Table:
        return Table(
            name=function.__name__,
            comment=(function.__doc__ or "").strip(),
            sources=sources,
            snapshots=whole,
            decode=decode,
            lookup=lookup,
            function=function,
            keys=tuple(keys),
            cluster_by=tuple(cluster_by),
            event_time=first,
            event_times=times,
            delay=delay,
            emit=emit,
            allowed_lateness=allowed_lateness,
            idle_timeout=idle_timeout,
            skew=skew,
            on_error=on_error,
            limits=Limits(**limits),
        )

    return declare


def materialized_view(
    *,
    source: str | Sequence[str],
    keys: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    refresh: Refresh = "auto",
    **limits: Any,
) -> Callable[[Function], Table]:
    """Declare a table by a function from whole tables to its own: it may sort, rank, join and aggregate them.

    After commits of a source the function is called again, and what differs is committed. `keys` tell its
    rows apart; by default all columns do. By those of `cluster_by` they stand together in files. `refresh`
    says how that is done (see `Table`), `trigger` bounds how often.
    """
    sources = _names(source)

    def declare(function: Function) -> Table:
        return Table(
            name=function.__name__,
            comment=(function.__doc__ or "").strip(),
            sources=sources,
            function=function,
            view=True,
            keys=tuple(keys),
            cluster_by=tuple(cluster_by),
            refresh=refresh,
            limits=Limits(**limits),
        )

    return declare


def auto_cdc(
    *,
    source: str,
    keys: Sequence[str | Column],
    sequence_by: str | Column,
    target: str | None = None,
    once: bool = False,
    scd: Scd = 1,
    apply_as_deletes: str | Column | None = None,
    apply_as_truncates: str | Column | None = None,
    ignore_null_updates: bool = False,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    ignore_null_updates_column_list: Sequence[str] | None = None,
    ignore_null_updates_except_column_list: Sequence[str] | None = None,
    track_history_column_list: Sequence[str] | None = None,
    track_history_except_column_list: Sequence[str] | None = None,
    decode: Json | None = None,
    cluster_by: Sequence[str] = (),
    **limits: Any,
) -> Table:
    """Declare a table that follows from changes, in whatever order these come, and however often.

    Two tables are kept: `<table>_changes` has each change as it came, the table what follows from them.

    Args:
        source: the table of changes, whose rows are appended; with `decode` one of bronze.
        keys: the columns that tell which row a change is of.
        sequence_by: an expression, greater for the later of two changes of a row. Where it is the same a
            delete comes last, and of others the one whose columns are greater.
        target: the table, one that `CREATE STREAMING TABLE` declares and several such flows may feed; by
            default it is called as the variable.
        once: whether what the source has when rows are first found there is read, and nothing that comes
            later.
        scd: 1: rows as they are now; 2: every version of them, with `__START_AT` and `__END_AT`.
        apply_as_deletes: a condition: the change deletes its row.
        apply_as_truncates: a condition: the change deletes all rows before it; with `scd=1`.
        ignore_null_updates: NULL in a change says that the value stays what it is; the lists say of which
            columns.
        column_list, except_column_list: the table's columns, or those of the source that it has not.
        track_history_column_list, track_history_except_column_list: with `scd=2`, the columns whose change
            begins another version, or those whose does not; other changes are written into the version.
        decode: how the source's `value` becomes columns.
        cluster_by: see `Table`; by default the keys.
        limits: see `Limits`.

    Raises:
        TypeError: arguments that contradict each other.
    """
    cdc = of_arguments(
        keys=keys,
        sequence_by=sequence_by,
        scd=scd,
        apply_as_deletes=apply_as_deletes,
        apply_as_truncates=apply_as_truncates,
        ignore_null_updates=ignore_null_updates,
        column_list=column_list,
        except_column_list=except_column_list,
        ignore_null_updates_column_list=ignore_null_updates_column_list,
        ignore_null_updates_except_column_list=ignore_null_updates_except_column_list,
        track_history_column_list=track_history_column_list,
        track_history_except_column_list=track_history_except_column_list,
    )
    return replace(_followed(cdc, source, target, decode, cluster_by, limits), once=once)


def _followed(
    cdc: Cdc,
    source: str,
    target: str | None,
    decode: Json | None,
    cluster_by: Sequence[str],
    limits: Mapping[str, Any],
) -> Table:
    """The flow of what follows from a source; see `auto_cdc`."""
    return Table(
        sources=(source,),
        cdc=cdc,
        into=target,
        decode=decode,
        cluster_by=tuple(cluster_by),
        limits=Limits(**limits),
    )


def auto_cdc_from_snapshot(
    *,
    source: str,
    keys: Sequence[str | Column],
    sequence_by: str | Column,
    target: str | None = None,
    scd: Scd = 1,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    track_history_column_list: Sequence[str] | None = None,
    track_history_except_column_list: Sequence[str] | None = None,
    decode: Json | None = None,
    cluster_by: Sequence[str] = (),
    **limits: Any,
) -> Table:
    """Declare a table that follows from rows which are delivered whole, again and again.

    A delivery is all rows with the same value of `sequence_by`: with it, rows that the one before had and it
    lacks are deleted. Deliveries may come in any order. `<table>_changes` keeps them.

    Args:
        source: the table of what is delivered, whose rows are appended; with `decode` one of bronze.
        keys: the columns that tell a delivery's rows apart.
        sequence_by: an expression: which delivery a row is of, greater for the later one.
        target, scd, column_list, except_column_list, track_history_column_list,
        track_history_except_column_list, decode, cluster_by, limits: see `auto_cdc`.

    Raises:
        TypeError: arguments that contradict each other.
    """
    cdc = of_arguments(
        keys=keys,
        sequence_by=sequence_by,
        scd=scd,
        column_list=column_list,
        except_column_list=except_column_list,
        track_history_column_list=track_history_column_list,
        track_history_except_column_list=track_history_except_column_list,
        snapshots=True,
    )
    return _followed(cdc, source, target, decode, cluster_by, limits)


def _streams(
    source: str | Sequence[str] | Mapping[str, str],
    keys: Sequence[str] | Mapping[str, Sequence[str]],
    event_time: str | Mapping[str, str],
) -> tuple[Stream, ...]:
    """How a process reads its streams: those without a name as one."""
    names = [*source] if isinstance(source, Mapping) else [""]
    for said in (each for each in (keys, event_time) if isinstance(each, Mapping)):
        if {*said} != {*names}:
            raise TypeError(f"{dict(said)} is not of the streams {source!r}, each by its name")
    if not names or any(not name.isidentifier() for name in names if isinstance(source, Mapping)):
        raise TypeError(f"source = {source!r}: the name of a stream is a word, as a variable's")

    def of(name: str) -> Stream:
        own = keys[name] if isinstance(keys, Mapping) else keys
        at = event_time[name] if isinstance(event_time, Mapping) else event_time
        return Stream(at, tuple(own), name)

    return tuple(map(of, names))


def process(
    *,
    source: str | Sequence[str] | Mapping[str, str],
    keys: Sequence[str] | Mapping[str, Sequence[str]],
    event_time: str | Mapping[str, str],
    delay: str,
    columns: str,
    state: str,
    ttl: str | None = None,
    cluster_by: Sequence[str] = (),
    idle_timeout: str = "30 seconds",
    **limits: Any,
) -> Callable[[ProcessFunction], Table]:
    """Declare a table by a function that is called with the rows of each key in the order of event time, and
    when a timer of the key has come; it may keep a state of the key.

    Args:
        source: the table whose rows it sees, with the columns `_source` and `ingested_at`; or {name → table}
            of several, as the function is told them. Of rows of the same time those of the first come first.
        keys: the columns whose rows belong together; {name → columns} where they are not called the same in
            all tables. They have the same types, and are called as in the first.
        event_time: the column that says when a row happened; {name → column} likewise.
        delay: how much later rows may come; later ones go to the table `<name>_late`.
        columns: of the table, as Spark DDL; rows are appended.
        state: what is kept of a key, as Spark DDL.
        ttl: how long, in event time, the state of a key is kept after its last row or timer where no timer is
            set; None: until the function forgets it.
        cluster_by: those of the keys by which what is kept of them stands together in files.
        idle_timeout: how long a partition of Kafka may be silent before the others no longer wait for it.
        limits: see `Limits`.

    The function takes a row (a dict of the source's columns; None where a timer has come) and a
    `headwater.project.process.Keyed`, with named sources also the name of the row's (or None), and yields the
    table's rows as dicts. What it does depends on these alone. Try it with `headwater.drive`.

    Raises:
        TypeError: the keys or event times are not those of the named sources.
    """

    sources = tuple(source.values()) if isinstance(source, Mapping) else _names(source)
    streams = _streams(source, keys, event_time)

    def declare(function: ProcessFunction) -> Table:
        return Table(
            name=function.__name__,
            comment=(function.__doc__ or "").strip(),
            sources=sources,
            process=Process(function, streams, columns, state, ttl),
            cluster_by=tuple(cluster_by),
            event_time=streams[0].event_time,
            delay=delay,
            idle_timeout=idle_timeout,
            limits=Limits(**limits),
        )

    return declare


def alert(
    *, topic: str, source: str, decode: Json, key: str | None = None, partitions: int = 1
) -> Callable[[Function], Alert]:
    """Declare an alert: rows of a bronze table's topic that reach `topic` in milliseconds.

    The function sees the decoded columns and filters or projects them; it may not aggregate. Each row
    it returns becomes one JSON record, at least once.
    """

    def declare(function: Function) -> Alert:
        return Alert(
            name=function.__name__,
            comment=(function.__doc__ or "").strip(),
            topic=topic,
            source=source,
            decode=decode,
            function=function,
            key=key,
            partitions=partitions,
        )

    return declare


def kafka_sink(table: str, *, topic: str, on: Emit = "update", partitions: int = 1) -> KafkaSink:
    """Publish the changes of `table` to the Kafka topic `topic`, from the file that declares the table: with
    `on="final"` each window once, when it is over.

    Each record's key is the row's keys and its value the row, both JSON; a reader that keeps the last
    value of each key has the table, however often a record is sent again.
    """
    return KafkaSink(table=table, topic=topic, on=on, partitions=partitions)


def postgres_sink(
    table: str, *, connection: str, into: str | None = None, on: Emit = "update"
) -> PostgresSink:
    """Keep `table` in PostgreSQL, from the file that declares the table: each change once, in one transaction
    with the version that it is of.

    Args:
        table: the table. Its rows are upserted by its keys; one without keys is appended to.
        connection: a name in the environment's `postgres`.
        into: the table there, as `schema.table`; by default it has the table's own name. It is created
            where it is missing.
        on: `final` keeps windows there that are over, and those alone.
    """
    return PostgresSink(table=table, connection=connection, into=into or table, on=on)


def opensearch_sink(
    table: str, *, connection: str, index: str | None = None, on: Emit = "update"
) -> OpenSearchSink:
    """Keep `table` in OpenSearch, from the file that declares the table: each row is one document, however
    often a batch is sent again.

    Args:
        table: the table. Its rows are written and deleted by its keys; one without keys is appended to.
        connection: a name in the environment's `opensearch`.
        index: the index there; by default it has the table's own name. It is created where it is missing.
        on: `final` keeps windows there that are over, and those alone.
    """
    return OpenSearchSink(table=table, connection=connection, into=index or table, on=on)


def sink(table: str, make: Callable[[], Any], *, name: str, on: Emit = "update") -> OwnSink:
    """Send the changes of `table` to a sink of your own.

    Args:
        table: the table.
        make: called without arguments, gives a `headwater.connectors.sinks.Sink`.
        name: what `headwater ls` and the position of the sink call it.
        on: `final` sends each window once, when it is over.
    """
    return OwnSink(table=table, make=make, called=name, on=on)
