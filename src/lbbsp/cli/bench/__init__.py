"""``lbbsp bench``: the figures that the project promises, each measured as a ratio inside one run."""

from cyclopts import App

from lbbsp.cli.bench.decision import decision
from lbbsp.cli.bench.hetero import hetero
from lbbsp.cli.bench.overhead import overhead
from lbbsp.cli.bench.predict import predict
from lbbsp.cli.bench.tuner import tuner

__all__ = ["bench"]

bench = App(name="bench", help="Measure what the project promises, each figure as a ratio inside one run.")
bench.command(decision)
bench.command(hetero)
bench.command(overhead)
bench.command(predict)
bench.command(tuner)
