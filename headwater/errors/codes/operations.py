"""What is asked of tables: `plan`, `rebuild`, `backfill`, `accept-gap`, `savepoint`, `erase` and the like."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Operations = Literal[
    "REBUILD_UNDER_WAY",
    "RESTORE_UNDER_WAY",
    "NO_REBUILD",
    "TABLE_IS_HISTORY",
    "HISTORY_GONE",
    "START_NOT_POSSIBLE",
    "FLOWS_NOT_AT_REST",
    "BUILD_FAILED",
    "INPUT_SWAPPED",
    "NOT_BUILT_SO_FAR",
    "NOT_COMPARABLE",
    "WINDOWS_NOT_COMPARABLE",
    "BACKFILL_NEEDS_TOPIC",
    "NO_FILES",
    "FORMAT_UNKNOWN",
    "NOT_ADOPTABLE",
    "ADOPTED_TABLE_UNREADABLE",
    "ADOPTED_TABLE_REWRITTEN",
    "NOTHING_DECODED",
    "NOTHING_MISSING",
    "NOT_OF_A_TOPIC",
    "NO_SUCH_RECORD",
    "UNKNOWN_SAVEPOINT",
    "SAVEPOINT_EXISTS",
    "SAVEPOINT_NAME_INVALID",
    "SAVEPOINT_BUSY",
    "RESTORE_NOT_POSSIBLE",
    "LAKE_EMPTY",
    "FOLDER_TAKEN",
    "VERSION_FILES_GONE",
    "ERASE_UNDER_WAY",
    "CONDITION_INVALID",
    "BATCH_BROKEN_OFF",
    "SAVEPOINTS_HOLD_RECORDS",
    "TABLE_WITHOUT_DEFINITION",
    "RECORDS_LEFT",
    "FILE_DAMAGED",
    "TABLE_DEFINED",
    "TABLE_HAS_READERS",
    "TABLE_NOT_DROPPABLE",
]

MEANINGS: dict[Operations, Meaning] = {
    "REBUILD_UNDER_WAY": Meaning(
        "LakeError",
        "Another rebuild is under way, or was killed.",
        "End it, or remove what it built: `headwater rebuild --abort`.",
    ),
    "RESTORE_UNDER_WAY": Meaning(
        "LakeError",
        "The restore of a savepoint is under way, or was killed.",
        "Run it again, or `headwater rebuild --abort`.",
    ),
    "NO_REBUILD": Meaning("LakeError", "There is no rebuild to abort.", "Nothing needs to be done."),
    "TABLE_IS_HISTORY": Meaning(
        "ProjectError", "A bronze table is the history that others are made of.", "Name a table below it."
    ),
    "HISTORY_GONE": Meaning(
        "LakeError",
        "A rebuild would lose rows: their history has been shortened.",
        "Build from what is left with `--from earliest`; keep a savepoint of what is there.",
    ),
    "START_NOT_POSSIBLE": Meaning(
        "ProjectError", "The table can't be made of a part of its input.", "Leave `--from` away."
    ),
    "FLOWS_NOT_AT_REST": Meaning(
        "FlowError", "The flows had too much to do for a swap.", "Run the same again when there is less."
    ),
    "BUILD_FAILED": Meaning(
        "FlowError",
        "A flow of the tables that are built failed.",
        "Mend what the message names, then run the same again.",
    ),
    "INPUT_SWAPPED": Meaning(
        "FlowError", "A table has not yet read the live generation of its input.", "Run it first."
    ),
    "NOT_BUILT_SO_FAR": Meaning(
        "CommitError",
        "A table that is compared was not built far enough.",
        "That is a defect; please report it.",
    ),
    "NOT_COMPARABLE": Meaning(
        "FlowError", "Rows of two generations can't be compared.", "Restore the file that the message names."
    ),
    "WINDOWS_NOT_COMPARABLE": Meaning(
        "ProjectError",
        "Windows of the table can't be computed alone.",
        "Compare all of it: leave `--window` away.",
    ),
    "BACKFILL_NEEDS_TOPIC": Meaning(
        "ProjectError",
        "History can enter the table of a topic only.",
        "Name a bronze table; put files where a table of files takes them.",
    ),
    "NO_FILES": Meaning("ProjectError", "No file has such a name.", "Mend the pattern."),
    "FORMAT_UNKNOWN": Meaning(
        "ProjectError", "The names of the files do not say what is in them.", "Say `--format`."
    ),
    "NOT_ADOPTABLE": Meaning(
        "ProjectError",
        "A Delta table's rows are not simply those of its files.",
        "Write them to a table of their own, and take that.",
    ),
    "ADOPTED_TABLE_UNREADABLE": Meaning(
        "LakeError",
        "A Delta table of someone else's, whose files are to be taken, can't be read.",
        "See that its own engine can read it, then go on: nothing of it is passed over.",
    ),
    "ADOPTED_TABLE_REWRITTEN": Meaning(
        "LakeError",
        "A Delta table was rewritten after some of its files were taken.",
        "Nothing is taken; take a table that is only appended to.",
    ),
    "NOTHING_DECODED": Meaning(
        "FlowError or ProjectError",
        "The table decodes no raw records, so it has no quarantine, and no fields to name.",
        "Name one that does.",
    ),
    "NOTHING_MISSING": Meaning(
        "LakeError",
        "There is no gap to accept: Kafka has all that the table has not read.",
        "Nothing needs to be done.",
    ),
    "NOT_OF_A_TOPIC": Meaning(
        "ProjectError",
        "What is asked for is of tables that read a topic.",
        "Name one of those that it lists.",
    ),
    "NO_SUCH_RECORD": Meaning(
        "LakeError",
        "No open record of the quarantine fails the rule.",
        "Take one of those that the message lists.",
    ),
    "UNKNOWN_SAVEPOINT": Meaning(
        "ProjectError", "There is no savepoint of that name.", "Take one of those that the message lists."
    ),
    "SAVEPOINT_EXISTS": Meaning(
        "LakeError", "There is a savepoint of that name already.", "Take another name, or drop that one."
    ),
    "SAVEPOINT_NAME_INVALID": Meaning(
        "ProjectError", "A savepoint can't have that name.", "Use letters, digits, `-`, `_` and `.`."
    ),
    "SAVEPOINT_BUSY": Meaning(
        "LeaseError", "Another process is making or removing the folder.", "Wait until that has ended."
    ),
    "RESTORE_NOT_POSSIBLE": Meaning(
        "LakeError",
        "The bronze tables can't go on from where the savepoint had read them.",
        "Restore their files, or rebuild what is below.",
    ),
    "LAKE_EMPTY": Meaning(
        "LakeError", "The lake holds nothing to keep or copy yet.", "`headwater run --once`."
    ),
    "FOLDER_TAKEN": Meaning(
        "ProjectError or QualityError",
        "A folder that is to be written holds something else.",
        "Name another.",
    ),
    "VERSION_FILES_GONE": Meaning(
        "CommitError or QueryError", "Files of a version are gone.", "Run again, or name a later version."
    ),
    "ERASE_UNDER_WAY": Meaning(
        "LakeError", "An erase is under way, or was killed half-way.", "`headwater erase` ends it."
    ),
    "CONDITION_INVALID": Meaning(
        "ProjectError", "`--where` is no condition on the records' fields.", "Mend it."
    ),
    "BATCH_BROKEN_OFF": Meaning(
        "LakeError",
        "A flow or sink was killed in a batch, so what it has is not known.",
        "Let it end first: `headwater run TABLE --once`.",
    ),
    "SAVEPOINTS_HOLD_RECORDS": Meaning(
        "LakeError",
        "A savepoint has what was made of the records that are to be erased.",
        "Drop it first.",
    ),
    "TABLE_WITHOUT_DEFINITION": Meaning(
        "ProjectError",
        "A table without a definition may have what was made of the records.",
        "Drop it first.",
    ),
    "RECORDS_LEFT": Meaning(
        "FlowError",
        "A file still has records that were erased.",
        "That is a defect; `headwater erase` tries again.",
    ),
    "FILE_DAMAGED": Meaning(
        "FlowError or DamageError",
        "A file of a table is not what was written, or is no whole Parquet file.",
        "`headwater verify` says what is lost and the way back; remove it if no table has it.",
    ),
    "TABLE_DEFINED": Meaning(
        "ProjectError", "A table that is to be dropped has a definition.", "Remove that first."
    ),
    "TABLE_HAS_READERS": Meaning(
        "LakeError", "A table that is to be dropped was read by others.", "Drop or rebuild those first."
    ),
    "TABLE_NOT_DROPPABLE": Meaning(
        "ProjectError",
        "The name is no table that can be dropped alone.",
        "Take one of those that the message lists.",
    ),
}
