"""The command line: parse, one call, one handler for errors."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from headwater.cli import (
    accept_gap,
    backfill,
    copy,
    demo,
    diff,
    drop,
    erase,
    explain,
    history,
    init,
    kafka,
    lateness,
    maintain,
    plan,
    produce,
    project,
    quality,
    quarantine,
    query,
    rebuild,
    reconcile,
    run,
    savepoint,
    setup,
    sql,
    state,
    status,
    verify,
)
from headwater.common import interrupts
from headwater.errors import HeadwaterError
from headwater.errors.causes import describe, known
from headwater.errors.several import SeveralErrors

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(kafka.app, name="kafka")
app.add_typer(quarantine.app, name="quarantine")
app.command("init")(init.init)
app.command("setup")(setup.setup)
app.command("produce")(produce.produce)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("explain")(explain.explain)
app.command("rebuild")(rebuild.rebuild)
app.command("maintain")(maintain.maintain)
app.command("backfill")(backfill.backfill)
app.command("accept-gap")(accept_gap.accept_gap)
app.command("reconcile")(reconcile.reconcile)
app.command("verify")(verify.verify)
app.add_typer(savepoint.app, name="savepoint")
app.command("copy")(copy.copy)
app.command("demo")(demo.demo)
app.command("query")(query.query)
app.command("sql")(sql.sql)
app.command("history")(history.history)
app.command("diff")(diff.diff)
app.command("drop")(drop.drop)
app.command("erase")(erase.erase)
app.command("lateness")(lateness.lateness)
app.command("status")(status.status)
app.command("state")(state.state)
app.add_typer(quality.app, name="quality")
app.command("ls")(project.ls)
app.command("describe")(project.describe)
app.command("graph")(project.graph)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"headwater {metadata.version('headwater')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """A lakehouse kappa pipeline: Kafka to bronze, silver and gold tables, on Spark and Delta."""


def main() -> None:
    """Run the command line; an error is one red line and its exit code, several of a project one each.

    With `--json` each is one line of JSON on standard output, too.
    """
    try:
        app()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1 if e.code else 0
        if code == interrupts.CODE:
            interrupts.say()
        _leave(code)
    except Exception as e:
        if interrupts.seen():
            interrupts.leave()
        said = known(e) or _unforeseen(e)
        for each in said.errors if isinstance(said, SeveralErrors) else [said]:
            if "--json" in sys.argv:
                print(json.dumps({"event": "error", "error": str(each), **each.data()}, ensure_ascii=False))
            _say(each)
        _leave(said.exit_code)


def _say(error: HeadwaterError) -> None:
    typer.secho(f"headwater: {error} [{error.code}]", fg="red", err=True)


def _unforeseen(error: Exception) -> HeadwaterError:
    """What is said of a defect; where it came about goes to a file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="headwater-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    hint = f"that is a defect: please report it with {file.name}"
    return HeadwaterError(describe(error), code="UNFORESEEN", file=file.name, hint=hint)


def _leave(code: int) -> None:
    """End the process with `code`: libraries' threads may abort an interpreter that takes itself apart."""
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads it any more
        pass
    except OSError as e:
        if code == 0:  # else that was said
            _say(said := known(e) or _unforeseen(e))
            code = said.exit_code
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)
