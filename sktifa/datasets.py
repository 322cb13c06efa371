"""Data sets as graphs: embedded, read from disk or fetched, and made up.

Every function returns a :class:`sklearn.utils.Bunch` with ``graph``, ``target``
(-1 where a node has no label), ``target_names`` and ``DESCR``, and with
``train_mask``, ``val_mask`` and ``test_mask`` where the data bring a split.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.datasets import get_data_home, load_digits
from sklearn.utils import Bunch, check_random_state

from sktifa.checks import check_count, check_real, check_sparse
from sktifa.device import free_memory, resolve_device
from sktifa.exceptions import GraphWarning, NotEnoughMemoryError, ParameterError
from sktifa.files import whole_file
from sktifa.graph import Graph
from sktifa.raw_files import (
    fetch_archive,
    fetch_files,
    missing_files,
    read_npz,
    read_pickle,
    read_table,
    reading,
)

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

# Where the raw files come from.
_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
_GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data/"
_HETEROPHILOUS = (
    "https://github.com/yandex-research/heterophilous-graphs/raw/main/data/"
)
_OGB = "https://snap.stanford.edu/ogb/data/nodeproppred/"

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
_FETCH_RAISES = """
    Raises
    ------
    DatasetError
        If the raw files are neither on disk nor to be had.
    ParameterError
        If there is no graph of that name.
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

    {raises}

    Examples
    --------
    >>> from sktifa.datasets import fetch_planetoid
    >>> fetch_planetoid("Cora").graph  # doctest: +SKIP
    Graph(2,708 nodes, 5,278 edges, 1,433 features)
    """
    name = _known(name, ["Cora", "CiteSeer", "PubMed"])
    parts = ["x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"]
    files = [f"ind.{name.lower()}.{part}" for part in parts]
    raw = _raw_folder("Planetoid", name, root)
    fetch_files(raw, {file: _PLANETOID + file for file in files}, download_if_missing)
    with reading(raw):
        graph = _read_planetoid(*(raw / file for file in files))
    return _bunch(name, graph, raw, largest_component)


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

    {raises}
    """
    name = _known(name, ["Photo", "Computers"])
    file = f"amazon_electronics_{name.lower()}.npz"
    raw = _raw_folder("Amazon", name, root)
    fetch_files(raw, {file: _GNN_BENCHMARK + file}, download_if_missing)
    return _bunch(name, _read_benchmark(raw / file), raw, largest_component)


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

    {raises}
    """
    name = _known(name, ["CS", "Physics"])
    file = f"ms_academic_{name[:3].lower()}.npz"
    raw = _raw_folder("Coauthor", name, root)
    fetch_files(raw, {file: _GNN_BENCHMARK + file}, download_if_missing)
    return _bunch(name, _read_benchmark(raw / file), raw, largest_component)


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

    {raises}
    """
    name = _known(name, ["DBLP", "Cora", "Cora_ML", "CiteSeer", "PubMed"])
    file = f"{name.lower()}.npz"
    raw = _raw_folder("CitationFull", name, root)
    fetch_files(raw, {file: _GRAPH2GAUSS + file}, download_if_missing)
    return _bunch(name, _read_benchmark(raw / file), raw, largest_component)


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

    {raises}
    """
    names = ["Minesweeper", "Tolokers", "Roman-empire", "Amazon-ratings", "Questions"]
    name = _known(name, names)
    file = f"{name.lower().replace('-', '_')}.npz"
    raw = _raw_folder("HeterophilousGraphDataset", name, root)
    fetch_files(raw, {file: _HETEROPHILOUS + file}, download_if_missing)
    return _bunch(name, _read_heterophilous(raw / file), raw, largest_component)


def fetch_ogbn(
    name: str = "arxiv",
    *,
    root: str | Path | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Fetch a graph of the Open Graph Benchmark with its official split.

    Needs pandas, in the extra ``sktifa[ogb]``. Of ogb's folder only the raw files and
    the split are read, not the caches that ogb pickles there. A citation graph becomes
    undirected.

    Parameters
    ----------
    name : {"arxiv", "products", "papers100M"}, default="arxiv"
        The graph; ``"ogbn-arxiv"`` is the same.
    root : str or Path, default=None
        Folder of the data, as for `fetch_planetoid`; the files lie in
        ``<root>/ogbn_<name>``, as ogb puts them. Where that folder can be written,
        tables are kept in ``processed`` in a form that is read faster.
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
        If pandas is not installed.
    ParameterError
        If there is no graph of that name.
    """
    names = ["arxiv", "products", "papers100M"]
    names += [f"ogbn-{name}" for name in names]
    name = _known(name, names).removeprefix("ogbn-")
    packed = name == "papers100M"
    folder = _home(root) / f"ogbn_{name}"
    split_by = "sales_ranking" if name == "products" else "time"
    splits = [f"split/{split_by}/{part}.csv.gz" for part in ("train", "valid", "test")]
    raw = ["data.npz", "node-label.npz"]
    if not packed:
        raw = [f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label")]
    files = [*(f"raw/{file}" for file in raw), *splits]
    missing = [file for file in files if not (folder / file).exists()]
    if missing and not download_if_missing:
        raise missing_files(folder, missing)
    if missing:
        archive = "papers100M-bin" if packed else name
        fetch_archive(folder, f"{_OGB}{archive}.zip", archive, missing)

    if packed:
        arrays = read_npz(folder / files[0], ["edge_index", "node_feat"])
        edges, features = arrays["edge_index"], arrays["node_feat"]
        labels = read_npz(folder / files[1], ["node_label"])["node_label"]
    else:
        edges, features, labels = (_cached_table(folder, file) for file in files[:3])
        edges = edges.T
    with reading(folder):
        n = len(features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            graph = Graph.from_edge_index(edges, features)
        labels = np.asarray(labels, dtype=np.float64).reshape(n)
        target = np.where(np.isnan(labels), -1, labels).astype(np.int64)
        masks = {key: np.zeros(n, dtype=bool) for key in _MASKS}
        for mask, file in zip(masks.values(), splits, strict=True):
            mask[read_table(folder / file)[:, 0]] = True
    n_classes = {"arxiv": 40, "products": 47, "papers100M": 172}[name]
    return Bunch(
        graph=graph,
        target=target,
        target_names=np.arange(n_classes).astype(str),
        **masks,
        DESCR=f"ogbn-{name}: {graph}, {n_classes} classes.",
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
        Edge ends a node has on average; no more than `n_nodes`, or 10.
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
    NotEnoughMemoryError
        If the graph would not fit in memory.

    Examples
    --------
    >>> from sktifa.datasets import make_block_graph
    >>> made = make_block_graph(500, 3, random_state=0)
    >>> made.graph.shape, made.target.max().item()
    ((500, 16), 2)
    """
    check_count(n_nodes, "n_nodes", low=1)
    check_count(n_classes, "n_classes", low=2)
    check_count(n_features, "n_features", low=1)
    # A node has no more neighbours than there are nodes.
    check_real(average_degree, "average_degree", low=0, high=max(n_nodes, 10))
    check_real(homophily, "homophily", low=0, high=1)
    if degree_exponent != np.inf:
        check_real(degree_exponent, "degree_exponent", low=2, open=True)
    check_real(class_separation, "class_separation", low=0, high=1e6)
    place = resolve_device(device)
    n_arcs = n_nodes * average_degree
    needed = 80 * n_nodes + 40 * n_arcs + 8 * n_features * (n_nodes + n_classes)
    if needed > free_memory(place):
        raise NotEnoughMemoryError(
            f"the graph takes about {needed:.1e} bytes on {place}, more than are free: "
            "lower n_nodes, average_degree or n_features."
        )
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
    graph = Graph.from_clean(adjacency, features.cpu().numpy())
    return Bunch(
        graph=graph,
        target=target.cpu().numpy(),
        target_names=np.arange(n_classes).astype(str),
        DESCR=f"{graph}: degree-corrected block graph, {n_classes} classes.",
    )


# ------------------------------------------------------------------- the loaders


@dataclass
class _RawGraph:
    """What the raw files of a graph say."""

    edges: NDArray[np.integer]
    features: Any
    target: NDArray[np.int64]
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    class_names: NDArray[Any] | None = None


def _read_planetoid(*files: Path) -> _RawGraph:
    """Read the eight files of a Planetoid graph.

    The rows of tx and ty come with their node numbers, in test.index; nodes that are
    not among these have no label and zero features.
    """
    *pickles, index = files
    _, tx, allx, y, ty, ally, neighbors = (read_pickle(file) for file in pickles)
    n, n_first = len(neighbors), allx.shape[0]
    with reading(index):
        test = np.array(index.read_text().split(), dtype=np.int64)
        if test.min() < n_first or test.max() >= n:
            raise ValueError(f"nodes must be numbered from {n_first} to {n - 1}")
    nodes = np.concatenate([np.arange(n_first), test])
    rows = sp.vstack([check_sparse(allx, "allx"), check_sparse(tx, "tx")]).tocoo()
    row, column = rows.coords
    features = sp.csr_array((rows.data, (nodes[row], column)), shape=(n, rows.shape[1]))
    target = np.full(n, -1)
    target[nodes] = np.vstack([ally, ty]).argmax(axis=1)
    masks = {key: np.zeros(n, dtype=bool) for key in _MASKS}
    masks["train_mask"][: len(y)] = True
    masks["val_mask"][len(y) : len(y) + 500] = True
    masks["test_mask"][test] = True
    others = neighbors.values()
    source = np.repeat(list(neighbors), [len(some) for some in others])
    other = np.fromiter(itertools.chain.from_iterable(others), dtype=np.int64)
    return _RawGraph(np.array([source, other]), features, target, masks)


def _read_benchmark(file: Path) -> _RawGraph:
    """Read a graph in the npz layout of gnn-benchmark and graph2gauss."""
    parts = ("data", "indices", "indptr", "shape")
    keys = [f"{matrix}_{part}" for matrix in ("adj", "attr") for part in parts]
    arrays = read_npz(file, [*keys, "labels"], optional=["class_names"])
    with reading(file):
        adjacency, features = (
            _csr(matrix, *(arrays[f"{matrix}_{part}"] for part in parts))
            for matrix in ("adj", "attr")
        )
        features.data[features.data > 0] = 1
        return _RawGraph(
            np.array(adjacency.tocoo().coords),
            features,
            arrays["labels"].astype(np.int64),
            class_names=arrays.get("class_names"),
        )


def _csr(
    name: str,
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[Any],
) -> sp.csr_array:
    # The constructor looks at no index: an empty matrix takes the arrays unseen.
    matrix = sp.csr_array(tuple(shape.tolist()))
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return check_sparse(matrix, name)


def _read_heterophilous(file: Path) -> _RawGraph:
    keys = ["node_features", "node_labels", "edges"]
    masks = ["train_masks", "val_masks", "test_masks"]
    arrays = read_npz(file, [*keys, *masks])
    with reading(file):
        return _RawGraph(
            arrays["edges"].T,
            arrays["node_features"],
            arrays["node_labels"].astype(np.int64),
            dict(zip(_MASKS, (arrays[mask].T for mask in masks), strict=True)),
        )


def _cached_table(folder: Path, file: str) -> NDArray[Any]:
    """Read a table, which takes minutes if it is large, and keep it for next time."""
    raw = folder / file
    kept = folder / "processed" / f"{Path(file).name.split('.')[0]}.npy"
    if kept.exists() and kept.stat().st_mtime >= raw.stat().st_mtime:
        with reading(kept):
            return np.load(kept)
    table = read_table(raw)
    if table.dtype.kind == "f":
        table = table.astype(np.float32)
    with contextlib.suppress(OSError):
        kept.parent.mkdir(exist_ok=True)
        with whole_file(kept) as part, part.open("wb") as opened:
            np.save(opened, table)
    return table


def _raw_folder(family: str, name: str, root: str | Path | None) -> Path:
    """Find the folder of a graph's raw files, or where they are to be."""
    home = _home(root)
    spelt = name.lower().replace("-", "_")
    for parent in (home, home / family):
        for raw in parent.glob("*/raw"):
            if raw.parent.name.lower() == spelt:
                return raw
    if family in ("CitationFull", "HeterophilousGraphDataset"):
        name = spelt
    return home / family / name / "raw"


def _home(root: str | Path | None) -> Path:
    chosen = root or os.environ.get("SKTIFA_DATA")
    try:
        return Path(chosen).expanduser() if chosen else Path(get_data_home()) / "sktifa"
    except TypeError:
        raise ParameterError(f"root must be a path or None, got {root!r}") from None


def _known(name: str, names: list[str]) -> str:
    for known in names:
        if isinstance(name, str) and name.lower() == known.lower():
            return known
    raise ParameterError(f"there is no graph {name!r} here; choose from {names}")


def _bunch(name: str, raw: _RawGraph, folder: Path, largest_component: bool) -> Bunch:
    target, masks = raw.target, raw.masks
    with reading(folder):
        edges = np.hstack([raw.edges, raw.edges[::-1]])
        graph = Graph.from_edge_index(edges, _compact(raw.features))
        for key, values in {"target": target, **masks}.items():
            if len(values) != graph.n_nodes:
                raise ValueError(
                    f"{key} has {len(values)} entries for {graph.n_nodes} nodes"
                )
    if largest_component:
        _, component = sp.csgraph.connected_components(graph.adjacency, directed=False)
        keep = np.flatnonzero(component == np.bincount(component).argmax())
        graph, target = graph.subgraph(keep), target[keep]
        masks = {key: mask[keep] for key, mask in masks.items()}
    names = np.arange(int(target.max()) + 1).astype(str)
    if raw.class_names is not None:
        names = raw.class_names.astype(str)
    return Bunch(
        graph=graph,
        target=target,
        target_names=names,
        **masks,
        DESCR=f"{name}: {graph}, {len(names)} classes"
        f"{' (largest component)' if largest_component else ''}.",
    )


def _compact(features: Any) -> NDArray[np.float32] | sp.csr_array:
    """Store features densely or not, by how filled they are."""
    sparse = sp.csr_array(features)
    sparse.eliminate_zeros()
    if sparse.nnz < _SPARSE_BELOW * np.prod(sparse.shape):
        return sparse
    return sparse.toarray()


for _fetch, _family in (
    (fetch_planetoid, "Planetoid"),
    (fetch_amazon, "Amazon"),
    (fetch_coauthor, "Coauthor"),
    (fetch_citation_full, "CitationFull"),
    (fetch_heterophilous, "HeterophilousGraphDataset"),
):
    _fetch.__doc__ = (
        str(_fetch.__doc__)
        .replace("    {fetch}\n", _FETCH_PARAMETERS.lstrip("\n"))
        .replace("    {raises}\n", _FETCH_RAISES.lstrip("\n"))
        .replace("{family}", _family)
    )
