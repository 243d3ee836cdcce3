"""The command line. Exit codes: 0 done, 1 verification failed, 2 bad input or usage, 3 out of
memory, 4 a bug of ours.
"""

from __future__ import annotations

import sys
import traceback

import typer

from gdn_ir import __version__
from gdn_ir.cli import build, demo, inspect, optimize, passes, run, verify
from gdn_ir.runtime import RunFailed
from gdn_ir.verify import VerificationFailed

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
    version: bool = typer.Option(False, "--version", help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Print tracebacks of internal errors."),
) -> None:
    if version:
        typer.echo(f"gdn-ir {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for module in (demo, build, inspect, optimize, verify, run, passes):
    app.command(module.__name__.rpartition(".")[2])(module.command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and ends the process with its exit code."""
    sys.exit(exit_code(sys.argv[1:] if arguments is None else arguments))


def exit_code(arguments: list[str]) -> int:
    """Runs a command; errors become one line on stderr and a code."""
    try:
        result = app(arguments, standalone_mode=False)
    except (ValueError, OSError, RunFailed, typer.TyperException) as error:
        # BadModel and BadPipeline are ValueErrors.
        return _fail(2, error)
    except VerificationFailed as error:
        return _fail(1, error)
    except MemoryError:
        return _fail(3, "out of memory; use a smaller model or a machine with more")
    except typer.Abort:
        return 130
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        kind = type(error).__name__
        return _fail(4, f"internal error ({kind}: {error}); run with --debug before the command")
    return result if isinstance(result, int) else 0


def _fail(code: int, error: object) -> int:
    message = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    typer.echo("error: " + " ".join(message.split()), err=True)
    return code
