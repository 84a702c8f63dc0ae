"""The commands, and how errors become messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from rich.console import Console

import lbbsp
from lbbsp.cli.bench import bench
from lbbsp.cli.demo import demo
from lbbsp.cli.interfere import interfere
from lbbsp.cli.reproduce import reproduce
from lbbsp.cli.simulate import simulate
from lbbsp.errors import ConfigurationError, LbbspError

__all__ = ["app", "run"]

app = App(
    name="lbbsp",
    help="Synchronous data-parallel training that stays fast on machines of unequal and changing speed.",
    version=lbbsp.__version__,
    suppress_keyboard_interrupt=False,  # `run` says what became of it
)
app.command(demo)
app.command(interfere)
app.command(bench)
app.command(simulate)
app.command(reproduce)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    errors = Console(stderr=True)
    try:
        app(list(arguments), exit_on_error=False, print_error=False, error_console=errors)
    except CycloptsError as error:
        errors.print(f"lbbsp: {error}", style="red", highlight=False, markup=False)
        errors.print("Try 'lbbsp --help', or --help after the command.")
        return 2
    except ConfigurationError as error:
        errors.print(f"lbbsp: {error}", style="red", highlight=False, markup=False)
        return 2
    except LbbspError as error:
        errors.print(f"lbbsp: {error}", style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        errors.print("lbbsp: interrupted; everything that was started has been ended")
        return 130
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
