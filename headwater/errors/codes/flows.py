"""What stops a flow of `headwater run`, and what keeps a process from the lake."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Flows = Literal[
    "LEASE_HELD",
    "LEASE_HELD_BY_JVM",
    "WRITTEN_BY_OTHERS",
    "LOG_SHORTENED",
    "LOG_DAMAGED",
    "TABLE_MISSING",
    "NOTE_DAMAGED",
    "CATALOG_MISSING",
    "ROWS_TAKEN_AWAY",
    "INPUT_REPLACED",
    "TABLE_OF_EARLIER_LIFE",
    "LEDGER_DISAGREES",
    "FLOW_ORPHANED",
    "TOPIC_RECREATED",
    "TOPIC_CUT_SHORT",
    "DEFINITION_CHANGED",
    "DEFINITIONS_OUTDATED",
    "CONTRACT_BROKEN",
    "PROCESS_FAILED",
    "PROCESS_ROW_INVALID",
    "SUM_OUTGROWS_TYPE",
    "BATCH_NOT_REPEATED",
    "LOOKUP_UNAVAILABLE",
    "LOOKUP_REFUSED",
    "LOOKUP_ANSWER_INVALID",
    "STORE_UNAVAILABLE",
    "STORE_REFUSES",
    "TABLE_EMPTY",
    "FLOW_HAS_FAILED",
    "FLOW_WAITS",
    "REQUEST_FAILED",
    "SWAPPED_MEANWHILE",
    "NOT_MAINTAINED",
    "STOPPED",
    "JVM_ENDED",
]

MEANINGS: dict[Flows, Meaning] = {
    "LEASE_HELD": Meaning(
        "LeaseError", "Another process writes the table.", "Stop that one first, or wait until it ends."
    ),
    "LEASE_HELD_BY_JVM": Meaning(
        "LeaseError", "The JVM of a run that was killed still lives.", "End it first."
    ),
    "WRITTEN_BY_OTHERS": Meaning(
        "CommitError",
        "Something else than Headwater wrote to a table.",
        "Find that writer; do as the message says.",
    ),
    "LOG_SHORTENED": Meaning(
        "CommitError",
        "A version that is to be read is gone from the table's log.",
        "Ask for a newer one; of a flow that was to read on from there: rebuild its table.",
    ),
    "LOG_DAMAGED": Meaning(
        "CommitError",
        "An entry or a checkpoint of a table's Delta log is empty, or is no JSON or Parquet.",
        "Put the file back from a copy, or make the table anew: see [When something is broken](broken.md).",
    ),
    "TABLE_MISSING": Meaning(
        "CommitError",
        "The catalog has a table whose folder or log is gone.",
        "Put it back from a copy, or make it anew: see [When something is broken](broken.md).",
    ),
    "NOTE_DAMAGED": Meaning(
        "DamageError",
        "A small file that the engine keeps beside its tables is empty, or is not what was written.",
        "Do as the message says: see [When something is broken](broken.md).",
    ),
    "CATALOG_MISSING": Meaning(
        "CommitError",
        "A lake has tables, and nothing that says which of them are live.",
        "Put `_catalog` back from a copy.",
    ),
    "ROWS_TAKEN_AWAY": Meaning(
        "FlowError",
        "A commit took rows away from a table that is read as append-only.",
        "Rebuild the tables below it.",
    ),
    "INPUT_REPLACED": Meaning(
        "FlowError",
        "A table that a flow has read was made anew since, or an older copy of it was put back.",
        "Put back what was there, or `headwater rebuild` what reads it.",
    ),
    "TABLE_OF_EARLIER_LIFE": Meaning(
        "CommitError",
        "A table that stands beside another is of an earlier life of it.",
        "Put both back from one copy, or make both anew: `headwater rebuild`.",
    ),
    "LEDGER_DISAGREES": Meaning(
        "CommitError",
        "A table and the ledger of its files were not restored together.",
        "Restore both, or start anew.",
    ),
    "FLOW_ORPHANED": Meaning(
        "FlowError",
        "What the flow of a bronze table has kept is there, the table is not.",
        "Remove it too; the topic is read from its start.",
    ),
    "TOPIC_RECREATED": Meaning(
        "FlowError",
        "A topic was deleted and made again, and may have had records that its table has not read.",
        "[Accept the gap](operating.md#accepting-a-gap).",
    ),
    "TOPIC_CUT_SHORT": Meaning(
        "FlowError",
        "A topic ends before what its table has read of it.",
        "[Accept the gap](operating.md#accepting-a-gap).",
    ),
    "DEFINITION_CHANGED": Meaning(
        "ProjectError",
        "A table can't go on with its definition as it was changed.",
        "Undo the change, or `headwater rebuild` it.",
    ),
    "DEFINITIONS_OUTDATED": Meaning(
        "FlowError or LakeError",
        "A process runs with other definitions than those of now.",
        "Start it again.",
    ),
    "CONTRACT_BROKEN": Meaning(
        "FlowError",
        "A record has other fields than `contract='freeze'` allows.",
        "Change the fields of `hw.json`, or write `contract='quarantine'`.",
    ),
    "PROCESS_FAILED": Meaning("FlowError", "A process raises on a row or a timer.", "Mend it and run again."),
    "PROCESS_ROW_INVALID": Meaning(
        "FlowError",
        "A process gives a row, or keeps a state, that does not fit its columns.",
        "Mend it, or its columns.",
    ),
    "SUM_OUTGROWS_TYPE": Meaning(
        "FlowError",
        "A sum is too large for its type; the batch is not committed.",
        "Cast what it adds to a wider type, then `headwater rebuild` the table.",
    ),
    "BATCH_NOT_REPEATED": Meaning(
        "CommitError", "A batch that was done again gave other rows.", "That is a defect; please report it."
    ),
    "LOOKUP_UNAVAILABLE": Meaning(
        "LookupUnavailable",
        "What a lookup asks gave no answer; it is asked again by itself, and the table waits.",
        "See that it runs; where `fetch` itself is wrong, mend it and start the run again.",
    ),
    "LOOKUP_REFUSED": Meaning(
        "FlowError",
        "PostgreSQL refuses what a lookup asks: no such table or column, or no right to it.",
        "Mend what the message names, and run again.",
    ),
    "LOOKUP_ANSWER_INVALID": Meaning(
        "FlowError",
        "A lookup's function or table gave rows that are not as it declares them, or two of one key.",
        "Mend the function, the table or the lookup's columns, and run again.",
    ),
    "STORE_UNAVAILABLE": Meaning(
        "StoreUnavailable",
        "The object store can't be reached; flows try again by themselves.",
        "See that it runs, and that its address is right.",
    ),
    "STORE_REFUSES": Meaning(
        "FlowError", "The object store refuses the request.", "Mend the keys or the name in `s3.<bucket>`."
    ),
    "TABLE_EMPTY": Meaning(
        "LakeError or QualityError or QueryError",
        "No flow has written the table yet.",
        "`headwater run TABLE --once`.",
    ),
    "FLOW_HAS_FAILED": Meaning(
        "FlowError",
        "Something is asked of a flow that has failed in a process that still runs.",
        "Mend it, and start that process again.",
    ),
    "FLOW_WAITS": Meaning(
        "FlowError",
        "Something is asked of a flow that waits for what can't be reached, in a process that runs.",
        "See that what the message names can be reached, and ask again.",
    ),
    "REQUEST_FAILED": Meaning(
        "FlowError",
        "What another process was asked for failed there.",
        "Mend what the message names, and ask again.",
    ),
    "SWAPPED_MEANWHILE": Meaning(
        "FlowError or LakeError",
        "Another process has swapped the generation of a table meanwhile.",
        "Run the same again.",
    ),
    "NOT_MAINTAINED": Meaning(
        "FlowError",
        "A table could not be maintained this time.",
        "Mend what the message names; it is tried again.",
    ),
    "STOPPED": Meaning(
        "FlowError", "The run was stopped before this was done.", "Run the same again: it goes on from there."
    ),
    "JVM_ENDED": Meaning(
        "FlowError", "The JVM of the run has ended.", "Run again; see its last lines for why."
    ),
}
