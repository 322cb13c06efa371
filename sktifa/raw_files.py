"""Raw files of data sets: fetched where they are missing, opened without trust.

Nothing that is read here runs code, and what can't be read names its file.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import http.client
import io
import pickle
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sktifa.exceptions import DatasetError
from sktifa.files import whole_file

__all__ = [
    "fetch_archive",
    "fetch_files",
    "missing_files",
    "read_npz",
    "read_pickle",
    "read_table",
    "reading",
]

# Seconds without an answer after which a server counts as out of reach.
_NETWORK_TIMEOUT = 10

# What the public pickles are made of, under the names of the day they were written.
_PICKLED = {
    ("__builtin__", "list"): builtins.list,
    ("collections", "defaultdict"): collections.defaultdict,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
}

# How files begin that are not what their name says.
_IMPOSTORS = {
    b"<": "is a page of a website, not the file",
    b"version https://git-lfs": "is a Git LFS pointer, not the file",
    b"\xef\xbb\xbf": "starts with a byte-order mark: an editor has rewritten it",
    b"\xff\xfe": "starts with a byte-order mark: an editor has rewritten it",
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that makes arrays, matrices, lists and dictionaries alone."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _PICKLED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which such a file has no use for and "
                "which could run a command"
            ) from None


# ------------------------------------------------------------------------ reading


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file where whatever is raised says that it can't be read."""
    try:
        yield
    except DatasetError:
        raise
    except FileNotFoundError:
        raise missing_files(path.parent, [path.name]) from None
    except PermissionError as error:
        raise DatasetError(f"{path} can't be opened ({error.strerror})") from None
    except Exception as error:  # damaged bytes raise just about anything
        raise DatasetError(
            f"{path} {_what_is_wrong(path, error)}. Delete it and fetch it anew (with "
            "download_if_missing=True), or copy it from where it is whole"
        ) from None


def read_pickle(path: Path) -> Any:
    """Read a pickle of arrays, sparse matrices, lists and dictionaries."""
    with reading(path), path.open("rb") as file:
        return _Unpickler(file, encoding="latin1").load()


def read_npz(
    path: Path, keys: Iterable[str], optional: Iterable[str] = ()
) -> dict[str, NDArray[Any]]:
    """Read some arrays of an npz file, the optional ones where it has them."""
    arrays = {}
    # NumPy leaves a damaged file open that it has opened itself.
    with reading(path), path.open("rb") as opened, np.load(opened) as file:
        for key in keys:
            if key not in file:
                raise ValueError(f"it has no array {key!r}, only {sorted(file)}")
            arrays[key] = file[key]
        for key in optional:
            # Optional arrays of Python objects are not worth unpickling.
            with contextlib.suppress(KeyError, ValueError):
                arrays[key] = file[key]
    return arrays


def read_table(path: Path) -> NDArray[Any]:
    """Read a compressed table of numbers without a header."""
    import pandas as pd

    with reading(path):
        table = pd.read_csv(path, header=None).to_numpy()
        if table.dtype.kind not in "iuf":
            raise ValueError("it holds more than numbers")
    return table


def _what_is_wrong(path: Path, error: Exception) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        start = file.read(64).lstrip(b" \r\n\t")
        if not start:
            return "is empty"
        for sign, meaning in _IMPOSTORS.items():
            if start.startswith(sign):
                return meaning
    if "allow_pickle" in str(error):  # NumPy advises what this module forbids
        return "holds Python objects, which could run a command when opened"
    return f"is damaged ({type(error).__name__}: {error})"


# ----------------------------------------------------------------------- fetching


def missing_files(folder: Path, names: Iterable[str]) -> DatasetError:
    """Make an error for files that are not there."""
    return DatasetError(
        f"{folder} lacks {', '.join(names)}: put the raw files there, name another "
        "root= or set SKTIFA_DATA"
    )


def fetch_files(folder: Path, urls: dict[str, str], download_if_missing: bool) -> None:
    """Fetch those files of a folder that are not there, by name and address.

    Or, without leave to download, say which are missing.
    """
    missing = [name for name in urls if not (folder / name).exists()]
    if missing and not download_if_missing:
        raise missing_files(folder, missing)
    for name in missing:
        with _fetching(folder, missing), _opened(urls[name]) as answer:
            folder.mkdir(parents=True, exist_ok=True)
            _save(answer, folder / name)


def fetch_archive(folder: Path, url: str, name: str, missing: list[str]) -> None:
    """Fetch a zip archive whose folder `name` becomes `folder`.

    That isn't there yet, or without the files that messages call `missing`.
    """
    with _fetching(folder, missing), _opened(url) as answer:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            archive = Path(scratch) / "archive.zip"
            _save(answer, archive)
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(scratch)
            shutil.copytree(Path(scratch) / name, folder, dirs_exist_ok=True)


@contextlib.contextmanager
def _fetching(folder: Path, missing: list[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"{missing_files(folder, missing)}. Fetching them failed: {error}"
        ) from None


def _opened(url: str) -> Any:
    return urllib.request.urlopen(url, timeout=_NETWORK_TIMEOUT)


def _save(answer: io.BufferedIOBase, path: Path) -> None:
    with whole_file(path) as part, part.open("wb") as file:
        shutil.copyfileobj(answer, file, 1 << 20)
