"""Names of what lies beside a table, in the lake and in its commits."""

from __future__ import annotations

PARTIAL = "_partial"  # the trailing column of partial results, which readers do not see
# Columns that the engine gives rows on their way, or that Delta or DuckDB do: no table has one of its own.
RESERVED = frozenset(
    f"{PARTIAL} _gone _sign _change _here _until _comes _late _rows _window "
    "__verdict __row __hash __keyed __rank __known __before __first __start __end __number "
    "__least __most __offsets __cluster __topic __partition __era __order __next __begins __ends __floor "
    "__file file_row_number "
    "_change_type _commit_version _commit_timestamp".split()
)
FILES_CLUSTER = "files"  # of all rows that come from files: no cluster of Kafka's may have the name
FILES = f"{FILES_CLUSTER}:"  # before what has the place of a topic, in what a commit says was consumed


def quarantine_name(table: str) -> str:
    """The name of a table's quarantine: `quarantine.<layer>_<name>`."""
    return f"quarantine.{table.replace('.', '_')}"


def resolved_name(table: str) -> str:
    """The name of the table that says what became of quarantined records."""
    return f"{quarantine_name(table)}__resolved"


def late_name(table: str) -> str:
    """The table of the rows that came too late for a table."""
    return f"{table}_late"


def state_name(table: str) -> str:
    """The table of the open windows of a table of final ones."""
    return f"{table}__state"


def lookup_name(table: str) -> str:
    """The table of what the rows of a table were told by its lookup."""
    return f"{table}__lookup"


def stage_name(table: str) -> str:
    """The table of what the inner part of a view gives."""
    return f"{table}__1"


def ledger_name(table: str) -> str:
    """The name of the ledger of a bronze table's files."""
    return f"{table}__files"


def gaps_name(table: str) -> str:
    """The table of what a bronze table has not read and will not, as Kafka has it no more."""
    return f"{table}__gaps"


def replay_name(table: str) -> str:
    """The name of the flow that puts a table's quarantined records back."""
    return f"{table}.replay"


def backfill_name(table: str) -> str:
    """The name of the flow that takes history into a bronze table."""
    return f"{table}.backfill"


def beside(table: str) -> dict[str, str]:
    """{table that a flow may write beside its own → its kind}."""
    return {
        quarantine_name(table): "quarantine",
        resolved_name(table): "quarantine",
        late_name(table): "late",
        state_name(table): "state",
        stage_name(table): "state",
        lookup_name(table): "lookup",
        ledger_name(table): "ledger",
        gaps_name(table): "gaps",
    }


def is_engines(name: str) -> bool:
    """Whether a table is the engine's own, to which several processes add: `ops.*`."""
    return name.startswith("ops.")
