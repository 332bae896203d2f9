"""Write the report of one or several runs.

python -m ragen_trl.report runs/demo/bandit
python -m ragen_trl.report runs/a runs/b --output comparison.html --curves
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ragen_envs.output_files import to_readable
from ragen_trl.curves import Reference, plot_curves
from ragen_trl.report.page import write_report
from ragen_trl.report.run_folder import RunFolder
from ragen_trl.report.series import trained_names

FILE_NAME = "report.html"
CURVES_NAME = "curves.png"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, write the files, say where they are and what is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m ragen_trl.report",
        description="Write one HTML file with curves, the filter's choices and episodes of runs. "
        "It opens from disk, needs no network and sends nothing anywhere.",
    )
    parser.add_argument("runs", nargs="+", type=_path, metavar="RUN", help="output folder of a run")
    parser.add_argument(
        "--output", type=_path, metavar="FILE", help=f"default: {FILE_NAME} in the first folder"
    )
    parser.add_argument(
        "--curves", action="store_true", help="draw curves.png of every run as well, for papers"
    )
    options = parser.parse_args(arguments)
    output = options.output or options.runs[0] / FILE_NAME
    try:
        runs = write_report(options.runs, output)
    except OSError as error:
        parser.error(str(error))
    for run in runs:
        _say(*(f"{run.name}: {note}" for note in run.notes))
    _say(f"Report: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    for run in runs if options.curves else []:
        try:
            _say(f"Curves: {draw_curves(run)}")
        except OSError as error:
            parser.error(f"{CURVES_NAME} of `--curves` cannot be written: {error}")


def draw_curves(run: RunFolder) -> Path:
    """Draw the picture of a run into its folder; it lacks what the log lacks."""
    references = {name: Reference(None, None) for name in trained_names(run, [])}
    for name, reference in run.references.items():
        random_play = (reference.get("random_play") or {}).get("rate")
        references[name] = Reference(random_play, reference.get("optimum"))
    path = run.path / CURVES_NAME
    plot_curves(run.log, path, references=references, title=run.name)
    return path


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"must be a path, got {text!r}")
    return Path(text)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{to_readable(line)}\n" for line in lines))


if __name__ == "__main__":
    main()
