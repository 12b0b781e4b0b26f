"""Trees between a simulated disk and a real one: to hand a crash state to another process, or to look at."""

from __future__ import annotations

from pathlib import Path

from holdfast.files import Files, SystemFiles


def copy_tree(source: Files, source_folder: Path, target: Files, target_folder: Path) -> None:
    """Copy all files and folders below `source_folder`; on return they are durable in `target`."""
    target.make_folder(target_folder)
    for name in source.list(source_folder):
        if source.is_folder(source_folder / name):
            copy_tree(source, source_folder / name, target, target_folder / name)
            continue
        file = target.create(target_folder / name)
        try:
            file.append([source.read(source_folder / name)])
            file.sync()
        finally:
            file.close()
    target.sync_folder(target_folder)


def dump(files: Files, real_folder: Path, folder: Path = Path("/")) -> None:
    """Write what `files` holds below `folder` into `real_folder`; a name in use is an error."""
    copy_tree(files, folder, SystemFiles(), real_folder)


def load(files: Files, real_folder: Path, folder: Path = Path("/")) -> None:
    """Fill `folder` of `files` with what is in `real_folder`."""
    copy_tree(SystemFiles(), real_folder, files, folder)
