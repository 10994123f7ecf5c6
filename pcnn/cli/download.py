"""`pcnn download`: trained weights of the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from pcnn.cli.app import refusing


def download(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of weights; without any, they are listed.")
    ] = None,
) -> None:
    """Fetch trained weights into the cache folder, or list all that there are.

    A transfer that breaks off goes on where it ended when the command is run again. The file is
    compared with the SHA-256 of the catalogue. Weights that come with the package need no download.
    """
    from rich.progress import Progress, TaskID

    from pcnn.console import Console
    from pcnn.experiment.catalogue import catalogue, local_file
    from pcnn.experiment.download import download as fetched

    console = Console()
    with refusing():
        entries = catalogue()
        unknown = [name for name in names or () if name not in entries]
        if unknown:
            raise ValueError(f"{unknown[0]}: no such weights; there are {', '.join(entries)}")
    if not names:
        for name, entry in entries.items():
            here = local_file(entry)
            where = str(here) if here else f"pcnn download {name}"
            console.say(
                f"{name} {entry.version}: {entry.task}, {entry.bytes / 1e6:.1f} MB, "
                f"{entry.licence}, trained on {entry.source} {entry.trained_on}; {where}"
            )
        return
    for name in names:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(name, total=entries[name].bytes)

            def told(have: int, progress: Progress = progress, bar: TaskID = bar) -> None:
                progress.update(bar, completed=have)

            path = fetched(entries[name], told)
        console.say(f"{name} {entries[name].version}: {path}")
