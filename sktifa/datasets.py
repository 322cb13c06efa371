"""Data sets as graphs: embedded, read from disk or fetched, and made up.

Every function returns a :class:`sklearn.utils.Bunch` with ``graph``, ``target``
(-1 where a node has no label), ``target_names`` and ``DESCR``, and with
``train_mask``, ``val_mask`` and ``test_mask`` where the data bring a split.
"""

from __future__ import annotations

import contextlib
import io
import numbers
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import get_data_home, load_digits
from sklearn.utils import Bunch, check_random_state

from sktifa.exceptions import DatasetError, GraphWarning, ParameterError
from sktifa.graph import Graph

__all__ = [
    "fetch_amazon",
    "fetch_citation_full",
    "fetch_coauthor",
    "fetch_heterophilous",
    "fetch_ogbn",
    "fetch_planetoid",
    "load_digits_graph",
    "make_block_graph",
]

_MASKS = ("train_mask", "val_mask", "test_mask")

# Features with fewer stored values than this share go into the graph as CSR.
_SPARSE_BELOW = 0.25

# Seconds without an answer after which a server counts as out of reach.
_NETWORK_TIMEOUT = 10

_FETCH_PARAMETERS = """
    root : str or Path, default=None
        Folder of the data. None takes the environment variable ``SKTIFA_DATA``, else
        ``sktifa`` in scikit-learn's data home. The raw files lie in
        ``<root>/{family}/<name>/raw``, or in ``<root>/<name>/raw``, as
        torch_geometric puts them. Nothing is written if they are there.
    largest_component : bool, default=False
        Keep the largest connected component alone.
    download_if_missing : bool, default=True
        Fetch raw files that are not there.
"""


def load_digits_graph(*, n_neighbors: int = 10, metric: str = "euclidean") -> Bunch:
    """Load scikit-learn's handwritten digits as a nearest-neighbour graph.

    Parameters
    ----------
    n_neighbors : int, default=10
        Neighbours looked for from each of the 1,797 images.
    metric : str, default="euclidean"
        Distance of two images.

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `images`, `DESCR`.

    Examples
    --------
    >>> from sktifa.datasets import load_digits_graph
    >>> load_digits_graph().graph.shape
    (1797, 64)
    """
    digits = load_digits()
    # Pixels go from 0 to 16; at most 1 suits the encoders.
    graph = Graph.from_features(
        digits.data / 16, n_neighbors=n_neighbors, metric=metric
    )
    return Bunch(
        graph=graph,
        target=digits.target.astype(np.int64),
        target_names=digits.target_names.astype(str),
        images=digits.images,
        DESCR=f"{graph}: images of digits, each tied to its {n_neighbors} nearest.",
    )


def fetch_planetoid(
    name: str = "Cora",
    *,
    root: str | Path | None = None,
    largest_component: bool = False,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a citation graph with its public split: Cora, CiteSeer or PubMed.

    Fifteen nodes of CiteSeer have edges but no row in the raw features and labels.
    They stay in the graph, with zero features and target -1.

    Parameters
    ----------
    name : {"Cora", "CiteSeer", "PubMed"}, default="Cora"
        The graph.
    {fetch}

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `train_mask`, `val_mask`, `test_mask`,
        `DESCR`.

    Raises
    ------
    DatasetError
        If the raw files are neither on disk nor to be had.
    ParameterError
        If there is no graph of that name.

    Examples
    --------
    >>> from sktifa.datasets import fetch_planetoid
    >>> fetch_planetoid("Cora").graph  # doctest: +SKIP
    Graph(2,708 nodes, 5,278 edges, 1,433 features)
    """
    name = _known(name, ["Cora", "CiteSeer", "PubMed"])
    data, raw = _load("Planetoid", name, root, download_if_missing)
    target = data.y.numpy().copy()
    target[_absent_nodes(raw / f"ind.{name.lower()}.test.index")] = -1
    return _bunch(name, data, target, raw, largest_component)


def fetch_amazon(
    name: str = "Photo",
    *,
    root: str | Path | None = None,
    largest_component: bool = False,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a graph of goods bought together: Photo or Computers.

    Parameters
    ----------
    name : {"Photo", "Computers"}, default="Photo"
        The graph.
    {fetch}

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `DESCR`.

    Raises
    ------
    DatasetError
        If the raw files are neither on disk nor to be had.
    ParameterError
        If there is no graph of that name.
    """
    name = _known(name, ["Photo", "Computers"])
    data, raw = _load("Amazon", name, root, download_if_missing)
    return _bunch(name, data, data.y.numpy(), raw, largest_component)


def fetch_coauthor(
    name: str = "Physics",
    *,
    root: str | Path | None = None,
    largest_component: bool = False,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a graph of authors who wrote together: CS or Physics.

    Parameters
    ----------
    name : {"CS", "Physics"}, default="Physics"
        The graph.
    {fetch}

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `DESCR`.

    Raises
    ------
    DatasetError
        If the raw files are neither on disk nor to be had.
    ParameterError
        If there is no graph of that name.
    """
    name = _known(name, ["CS", "Physics"])
    data, raw = _load("Coauthor", name, root, download_if_missing)
    return _bunch(name, data, data.y.numpy(), raw, largest_component)


def fetch_citation_full(
    name: str = "DBLP",
    *,
    root: str | Path | None = None,
    largest_component: bool = False,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a whole citation graph: DBLP, Cora, Cora_ML, CiteSeer or PubMed.

    Parameters
    ----------
    name : {"DBLP", "Cora", "Cora_ML", "CiteSeer", "PubMed"}, default="DBLP"
        The graph.
    {fetch}

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `DESCR`.

    Raises
    ------
    DatasetError
        If the raw files are neither on disk nor to be had.
    ParameterError
        If there is no graph of that name.
    """
    name = _known(name, ["DBLP", "Cora", "Cora_ML", "CiteSeer", "PubMed"])
    data, raw = _load("CitationFull", name, root, download_if_missing)
    return _bunch(name, data, data.y.numpy(), raw, largest_component)


def fetch_heterophilous(
    name: str = "Minesweeper",
    *,
    root: str | Path | None = None,
    largest_component: bool = False,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a graph whose edges often join classes, with its ten splits.

    Parameters
    ----------
    name : {"Minesweeper", "Tolokers", "Roman-empire", "Amazon-ratings", \
            "Questions"}, default="Minesweeper"
        The graph.
    {fetch}

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `train_mask`, `val_mask`, `test_mask`
        (each of shape (n_nodes, 10), a column a split), `DESCR`.

    Raises
    ------
    DatasetError
        If the raw files are neither on disk nor to be had.
    ParameterError
        If there is no graph of that name.
    """
    names = ["Minesweeper", "Tolokers", "Roman-empire", "Amazon-ratings", "Questions"]
    name = _known(name, names)
    data, raw = _load("HeterophilousGraphDataset", name, root, download_if_missing)
    return _bunch(name, data, data.y.numpy(), raw, largest_component)


def fetch_ogbn(
    name: str = "arxiv",
    *,
    root: str | Path | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a graph of the Open Graph Benchmark with its official split.

    Needs the extra ``sktifa[ogb]``. ogb's loader is run as a batch job needs it:
    it asks no questions, does not look for a newer version of itself, and reads the
    caches it wrote with ``pickle``, so take them from nowhere else. A citation graph
    becomes undirected.

    Parameters
    ----------
    name : {"arxiv", "products", "papers100M"}, default="arxiv"
        The graph; ``"ogbn-arxiv"`` is the same.
    root : str or Path, default=None
        Folder of the data, as for `fetch_planetoid`; the files lie in
        ``<root>/ogbn_<name>``. ogb writes a cache of the raw files there.
    download_if_missing : bool, default=True
        Fetch a graph that is not there, without asking, whatever its size.

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `train_mask`, `val_mask`, `test_mask`,
        `DESCR`.

    Raises
    ------
    DatasetError
        If the files are neither on disk nor to be had.
    ImportError
        If ogb is not installed.
    ParameterError
        If there is no graph of that name.
    """
    name = _known(name.removeprefix("ogbn-"), ["arxiv", "products", "papers100M"])
    home = _home(root)
    folder = home / f"ogbn_{name}"
    # ogb takes a folder without its files for an old release and asks what to do.
    if not any((folder / "raw").glob("*")) and not download_if_missing:
        raise DatasetError(_missing(folder, "ogb's own layout"))
    loader = _ogb_module()
    fetch = loader.download_url

    def download(url: str, into: str) -> str:
        with _network_errors(folder, "ogb's own layout"):
            return fetch(url, into)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        # torch >= 2.6 refuses ogb's caches unless told that they are trusted.
        trust = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        stack.enter_context(mock.patch.dict(os.environ, trust))
        stack.enter_context(
            mock.patch.multiple(
                loader,
                create=True,
                input=lambda prompt: "n",
                decide_download=lambda url: True,
                download_url=download,
            )
        )
        if folder.is_dir():
            (folder / "processed").mkdir(exist_ok=True)
        data = loader.NodePropPredDataset(f"ogbn-{name}", root=str(home))
        split = data.get_idx_split()
    parts, labels = data[0]
    n = int(parts["num_nodes"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        graph = Graph.from_edge_index(
            parts["edge_index"], parts["node_feat"], n_nodes=n
        )
    labels = np.asarray(labels, dtype=np.float64).reshape(n)
    target = np.where(np.isnan(labels), -1, labels).astype(np.int64)
    masks = {key: np.zeros(n, dtype=bool) for key in _MASKS}
    for key, part in zip(_MASKS, ("train", "valid", "test"), strict=True):
        masks[key][np.asarray(split[part])] = True
    return Bunch(
        graph=graph,
        target=target,
        target_names=np.arange(data.num_classes).astype(str),
        **masks,
        DESCR=f"ogbn-{name}: {graph}, {data.num_classes} classes.",
    )


def make_block_graph(
    n_nodes: int = 1000,
    n_classes: int = 4,
    *,
    average_degree: float = 10.0,
    homophily: float = 0.8,
    degree_exponent: float = 2.5,
    n_features: int = 16,
    class_separation: float = 1.5,
    device: str = "cpu",
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    """Make a degree-corrected block graph with features.

    Nodes get a class and an expected degree at random. Each of
    ``n_nodes * average_degree / 2`` edges joins a node, drawn by its expected degree,
    to another of the same class with probability `homophily`, else to one of another
    class. Self-loops and repeated edges are then left out, so that the average degree
    comes out a little lower. Features are Gaussian around their class's mean.

    Parameters
    ----------
    n_nodes : int, default=1000
        Number of nodes.
    n_classes : int, default=4
        Number of classes, at least 2.
    average_degree : float, default=10.0
        Edge ends a node has on average.
    homophily : float, default=0.8
        Share of the edges that join nodes of one class.
    degree_exponent : float, default=2.5
        Exponent of the power law of expected degrees, above 2; ``float("inf")``
        makes all of them equal. No node expects more than
        ``sqrt(n_nodes * average_degree)`` edges.
    n_features : int, default=16
        Number of features.
    class_separation : float, default=1.5
        Distance of two classes' means, on average, in standard deviations of a
        feature's noise.
    device : str, default="cpu"
        Where the graph is made, ``"cpu"``, ``"cuda"`` or ``"auto"``. The result lies in
        host memory; the same seed gives another graph on another device.
    random_state : int, RandomState or None, default=None
        Seed of all draws.

    Returns
    -------
    Bunch
        `graph`, `target`, `target_names`, `DESCR`.

    Raises
    ------
    ParameterError
        If a parameter is outside its range.

    Examples
    --------
    >>> from sktifa.datasets import make_block_graph
    >>> made = make_block_graph(500, 3, random_state=0)
    >>> made.graph.shape, made.target.max().item()
    ((500, 16), 2)
    """
    import torch

    from sktifa.device import resolve_device

    _check_block_graph(
        n_nodes,
        n_classes,
        average_degree,
        homophily,
        degree_exponent,
        n_features,
        class_separation,
    )
    place = resolve_device(device)
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    generator = torch.Generator(device=place).manual_seed(int(seed))
    drawn: dict[str, Any] = {"generator": generator, "device": place}

    def uniform(size: int) -> torch.Tensor:
        return torch.rand(size, dtype=torch.float64, **drawn)

    target = torch.randint(n_classes, (n_nodes,), **drawn)
    weight = (1 - uniform(n_nodes)).pow(-1 / (degree_exponent - 1))
    expected = weight * (average_degree / weight.mean())
    expected.clamp_(max=(n_nodes * average_degree) ** 0.5)

    # Nodes side by side, class by class, each as wide as its expected degree: a
    # point on the line, drawn uniformly from a stretch of it, is a node drawn by
    # its expected degree from the classes of that stretch.
    order = torch.argsort(target, stable=True)
    line = expected[order].cumsum(0)
    sizes = torch.bincount(target, minlength=n_classes)
    ends = torch.cat([line.new_zeros(1), line])[torch.cumsum(sizes, 0)]
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    total = line[-1]

    counts = torch.poisson(expected / 2, generator=generator).long()
    source = torch.repeat_interleave(counts)
    own = target[source]
    start, width = starts[own], (ends - starts)[own]
    del own
    same = uniform(len(source)) < homophily
    point = uniform(len(source)) * torch.where(same, width, total - width)
    # Within the class: shift to its start. Outside: jump over its stretch.
    point += torch.where(same | (point >= start), torch.where(same, start, width), 0.0)
    del same, start, width
    found = torch.searchsorted(line, point, right=True).clamp_(max=n_nodes - 1)
    del point
    other = order[found]
    del found

    loop = source == other
    source, other = source[~loop], other[~loop]
    keys = torch.cat([source * n_nodes + other, other * n_nodes + source])
    del source, other, loop
    keys = torch.unique(keys)
    bounds = torch.arange(n_nodes + 1, device=place) * n_nodes
    index_type = torch.int32 if len(keys) < 2**31 else torch.int64
    indptr = torch.searchsorted(keys, bounds).to(index_type).cpu().numpy()
    indices = (keys % n_nodes).to(index_type).cpu().numpy()
    del keys
    adjacency = sp.csr_array(
        (np.ones(len(indices), dtype=np.float32), indices, indptr),
        shape=(n_nodes, n_nodes),
    )

    means = torch.randn(n_classes, n_features, **drawn)
    means *= class_separation / (2 * n_features) ** 0.5
    features = torch.randn(n_nodes, n_features, **drawn)
    features += means[target]
    graph = Graph._from_clean(adjacency, features.cpu().numpy())
    return Bunch(
        graph=graph,
        target=target.cpu().numpy(),
        target_names=np.arange(n_classes).astype(str),
        DESCR=f"{graph}: degree-corrected block graph, {n_classes} classes.",
    )


def _check_block_graph(
    n_nodes: int,
    n_classes: int,
    average_degree: float,
    homophily: float,
    degree_exponent: float,
    n_features: int,
    class_separation: float,
) -> None:
    for name, count in (
        ("n_nodes", n_nodes),
        ("n_classes", n_classes),
        ("n_features", n_features),
    ):
        if not isinstance(count, numbers.Integral):
            raise ParameterError(f"{name} must be a whole number, got {count!r}")
    for name, value, fits, range_ in (
        ("n_nodes", n_nodes, n_nodes >= 1, "at least 1"),
        ("n_classes", n_classes, n_classes >= 2, "at least 2"),
        ("average_degree", average_degree, average_degree >= 0, "at least 0"),
        ("homophily", homophily, 0 <= homophily <= 1, "between 0 and 1"),
        ("degree_exponent", degree_exponent, degree_exponent > 2, "above 2"),
        ("n_features", n_features, n_features >= 1, "at least 1"),
        ("class_separation", class_separation, class_separation >= 0, "at least 0"),
    ):
        if not fits:
            raise ParameterError(f"{name} must be {range_}, got {value}")


# ------------------------------------------------------------------- the loaders


def _load(
    family: str, name: str, root: str | Path | None, download_if_missing: bool
) -> tuple[Any, Path]:
    """Run a loader of torch_geometric without a trace: its data, its raw folder."""
    from torch_geometric import datasets

    loader = getattr(datasets, family)
    home = _home(root)
    parent = home if _holds(home, name) else home / family
    layout = f"torch_geometric's {family} layout"
    kept: list[Any] = []

    with TemporaryDirectory() as scratch:

        class Here(loader):  # type: ignore[misc, valid-type]
            """The loader, keeping what it derives out of the user's folder."""

            @property
            def processed_dir(self) -> str:
                return scratch

            @staticmethod
            def save(data_list: list[Any], path: str) -> None:
                kept.extend(data_list)

            def load(self, path: str, data_cls: type | None = None) -> None:
                pass

            def _download(self) -> None:
                # Not in download(), before which folders would be made.
                if all(Path(path).exists() for path in self.raw_paths):
                    return
                folder = Path(self.raw_dir)
                if not download_if_missing:
                    raise DatasetError(_missing(folder, layout))
                with _network_errors(folder, layout):
                    super()._download()

        with _quiet():
            loaded = Here(str(parent), name)
    return kept[0], Path(loaded.raw_dir)


def _holds(folder: Path, name: str) -> bool:
    """Say whether the raw files of a graph lie right in a folder."""
    spelt = name.lower().replace("-", "_")
    return any(raw.parent.name.lower() == spelt for raw in folder.glob("*/raw"))


def _home(root: str | Path | None) -> Path:
    chosen = root or os.environ.get("SKTIFA_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(get_data_home()) / "sktifa"


def _known(name: str, names: list[str]) -> str:
    for known in names:
        if name.lower() == known.lower():
            return known
    raise ParameterError(f"there is no graph {name!r} here; choose from {names}")


def _missing(folder: Path, layout: str) -> str:
    return (
        f"there are no raw files in {folder}: put them there ({layout}), "
        "name another root= or set SKTIFA_DATA"
    )


@contextlib.contextmanager
def _network_errors(folder: Path, layout: str) -> Iterator[None]:
    """Wait a short while only, and say which folder would have spared the network."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_NETWORK_TIMEOUT)
    try:
        yield
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            folder.rmdir()  # the loader made it, empty
        raise DatasetError(
            f"{_missing(folder, layout)}. The download failed too: {error}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the loaders' progress messages and torch's warnings about them away."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _ogb_module() -> Any:
    """Import ogb's loader without the thread that asks the network for news."""
    found = sys.modules.get("outdated")
    hidden = "ogb" not in sys.modules
    try:
        if hidden:
            sys.modules["outdated"] = None  # type: ignore[assignment]
        from ogb.nodeproppred import dataset
    except ImportError as error:
        raise ImportError(
            "fetch_ogbn needs the package ogb: pip install 'sktifa[ogb]'"
        ) from error
    finally:
        if hidden:
            del sys.modules["outdated"]
        if found is not None:
            sys.modules["outdated"] = found
    return dataset


def _absent_nodes(test_index: Path) -> NDArray[np.int64]:
    """Find the nodes of a Planetoid graph that its raw features and labels lack.

    The raw test rows come with their node numbers; the loader fills the gaps among
    those numbers with nodes of zero features and label 0.
    """
    given = np.loadtxt(test_index, dtype=np.int64)
    return np.setdiff1d(np.arange(given.min(), given.max() + 1), given)


def _bunch(
    name: str,
    data: Any,
    target: NDArray[np.int64],
    raw: Path,
    largest_component: bool,
) -> Bunch:
    graph = Graph.from_pyg(data)
    stored = np.count_nonzero(graph.features)
    if stored < _SPARSE_BELOW * graph.features.size:
        graph = graph.with_features(sp.csr_array(graph.features))
    masks = {key: getattr(data, key).numpy() for key in _MASKS if key in data}
    if largest_component:
        _, component = sp.csgraph.connected_components(graph.adjacency, directed=False)
        keep = np.flatnonzero(component == np.bincount(component).argmax())
        graph, target = graph.subgraph(keep), target[keep]
        masks = {key: mask[keep] for key, mask in masks.items()}
    names = _class_names(raw, int(target.max()) + 1)
    return Bunch(
        graph=graph,
        target=target,
        target_names=names,
        **masks,
        DESCR=f"{name}: {graph}, {len(names)} classes"
        f"{' (largest component)' if largest_component else ''}.",
    )


def _class_names(raw: Path, n_classes: int) -> NDArray[np.str_]:
    """Take the class names of a raw npz file, or else the class numbers."""
    for file in raw.glob("*.npz"):
        with np.load(file) as arrays:
            if "class_names" in arrays:
                return arrays["class_names"].astype(str)
    return np.arange(n_classes).astype(str)


for _fetch, _family in (
    (fetch_planetoid, "Planetoid"),
    (fetch_amazon, "Amazon"),
    (fetch_coauthor, "Coauthor"),
    (fetch_citation_full, "CitationFull"),
    (fetch_heterophilous, "HeterophilousGraphDataset"),
):
    _fetch.__doc__ = str(_fetch.__doc__).replace(
        "    {fetch}\n", _FETCH_PARAMETERS.replace("{family}", _family).lstrip("\n")
    )
