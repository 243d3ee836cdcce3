"""The command line. Exit codes: 0 done, 1 verification failed, 2 bad input or usage, 3 out of
memory, 4 a bug of ours. With `--json` standard output holds one document, of an error too.
"""

from __future__ import annotations

import sys
import traceback

import typer

from gdn_ir import __version__
from gdn_ir.cli import bench, build, demo, inspect, optimize, passes, render, run, verify
from gdn_ir.cli.printing import print_json
from gdn_ir.cli.rejected import Rejected
from gdn_ir.runtime import RunFailed
from gdn_ir.verify import VerificationFailed

_BUG = 4

app = typer.Typer(
    name="gdn-ir",
    help="Rewrites, checks and draws ONNX graphs that contain a Gated DeltaNet.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
    debug: bool = typer.Option(False, "--debug", help="Print the traceback of an internal error."),
) -> None:
    if version:
        typer.echo(f"gdn-ir {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for module in (demo, build, inspect, optimize, verify, render, run, bench, passes):
    app.command(module.__name__.rpartition(".")[2])(module.command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and ends the process with its exit code."""
    sys.exit(exit_code(sys.argv[1:] if arguments is None else arguments))


def exit_code(arguments: list[str]) -> int:
    """Runs a command; an error becomes a code and one line on stderr, or JSON on stdout."""
    try:
        result = app(arguments, standalone_mode=False)
    except typer.Abort:
        return 130
    except Exception as error:
        code, message = _told(error)
        if code == _BUG and "--debug" in arguments:
            traceback.print_exc()
        message = " ".join(message.split())
        if "--json" in arguments:
            found = error.found if isinstance(error, Rejected) else {}
            print_json({**found, "error": message, "exit_code": code})
        else:
            typer.echo(f"error: {message}", err=True)
        return code
    return result if isinstance(result, int) else 0


def _told(error: Exception) -> tuple[int, str]:
    """The exit code of an error and its message."""
    if isinstance(error, typer.TyperException):
        return 2, error.format_message().replace(": Value error, ", ": ")
    if isinstance(error, OSError) and error.filename is not None:
        return 2, f"{error.filename}: {error.strerror}; check the path and its permissions"
    if isinstance(error, ValueError | OSError | RunFailed):
        return 2, str(error)  # BadModel and BadPipeline are ValueErrors
    if isinstance(error, VerificationFailed):
        return 1, str(error)
    if isinstance(error, MemoryError):
        return 3, "out of memory; use a smaller model or a machine with more"
    kind = type(error).__name__
    return _BUG, f"internal error ({kind}: {error}); run with --debug before the command"
