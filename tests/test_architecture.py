"""The house: imports run one way, in the order of `docs/architecture.md`."""

import ast
import re
import runpy
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "sktifa"


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(source):
    """Yield the modules of this package that some source imports, wherever it does.

    But for those whose types alone are named.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in whole]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "sktifa")


def room(module):
    """Return the file or folder of the package that a module is in."""
    return (module.split(".") + ["__init__"])[1]


def rooms_of_the_page():
    """Return the rooms in the order of the page's table."""
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.M)
    return re.findall(r"`(\w+)(?:\.py|/)`", "".join(rows))


# What the package is seen as from outside.
DOORS = {"__init__", "__main__"}
IMPORTS = {name: set(imported(path.read_text())) for name, path in MODULES.items()}


def test_the_page_names_every_room():
    rooms = rooms_of_the_page()
    assert len(rooms) == len(set(rooms))
    assert set(rooms) | DOORS == {room(module) for module in MODULES}


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) not in DOORS])
def test_a_module_imports_from_above_alone(module):
    order = rooms_of_the_page()
    place = order.index(room(module))
    allowed = {*order[: place + 1]}
    if room(module) in (
        "cli",
        "persistence",
        "versions",
    ):  # which tell the package's own version
        allowed.add("__init__")
    assert {room(other) for other in IMPORTS[module]} <= allowed


def test_within_a_room_no_two_modules_need_each_other():
    # A folder's face gathers what is in it.
    inside = {
        module: {
            other
            for other in others
            if room(other) == room(module) and not f"{other}.".startswith(f"{module}.")
        }
        for module, others in IMPORTS.items()
    }
    assert len(list(TopologicalSorter(inside).static_order())) == len(MODULES)


def test_imports_are_found_in_functions_too():
    source = (
        "import sktifa.graph\n"
        "def f():\n"
        "    from sktifa import labels, Graph\n"
        "if TYPE_CHECKING:\n"
        "    import sktifa.cli\n"
    )
    assert list(imported(source)) == ["sktifa.graph", "sktifa.labels", "sktifa"]


def test_the_picture_is_what_its_script_draws():
    script = runpy.run_path(str(ROOT / "docs" / "figures" / "layers.py"))
    assert script["FILE"].read_text() == script["draw"]()
