"""Exported networks on the Hugging Face hub, with the package `huggingface_hub`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import SUFFIX
from pcnn.errors import MissingPackageError, UserError
from pcnn.experiment.export import export
from pcnn.extras import install
from pcnn.files.bounded import named

#: Names of the files in a repository.
WEIGHTS, CARD = f"model{SUFFIX}", "README.md"


def push_to_hub(
    checkpoint: str | Path,
    repository: str,
    *,
    licence: str,
    card: str = "",
    private: bool = False,
    token: str | None = None,
) -> str:
    """Export a network and upload it; see `pcnn.models.push_to_hub`."""
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / WEIGHTS
        facts = export(checkpoint, file)
        (Path(folder) / CARD).write_text(_card(facts, licence, card), encoding="utf-8")
        with _refusals(repository):
            hub.create_repo(repository, private=private, exist_ok=True, token=token)
            done = hub.upload_folder(
                repo_id=repository,
                folder_path=folder,
                commit_message=f"{facts['model']}, step {facts['steps']}",
                token=token,
            )
    return str(getattr(done, "commit_url", done))


def from_hub(repository: str, revision: str | None = None, token: str | None = None) -> Path:
    """Fetch an exported network; see `pcnn.models.from_hub`."""
    hub = _hub()
    with _refusals(repository):
        path = Path(hub.hf_hub_download(repository, WEIGHTS, revision=revision, token=token))
    with named(path, "exported network"):
        RunCheckpoint.read(path).config  # noqa: B018  (refuses what is none)
    return path


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(f"the hub needs huggingface_hub: {install('hub')}") from error
    return huggingface_hub


@contextmanager
def _refusals(repository: str) -> Iterator[None]:
    """Let errors of the library, and of the network beneath it, name the repository."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise UserError(f"{repository}: {text or type(error).__name__}") from error


def _card(facts: dict[str, Any], licence: str, text: str) -> str:
    """A card that the hub shows: what the file is, and how it is used."""
    rows = {key: value for key, value in facts.items() if key not in ("name", "figures")}
    rows |= facts["figures"]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return (
        f"---\nlicense: {licence}\nlibrary_name: pcnn\n"
        f"tags: [point-cloud, {facts['task']}]\n---\n\n"
        f"# {facts['model']}, {facts['task']}\n\n{text}\n\n| field | |\n|---|---|\n{table}\n\n"
        "```python\nimport pcnn\n\n"
        "net = pcnn.models.load(pcnn.models.from_hub('THIS_REPOSITORY'))\n```\n"
    )
