"""The pages: their code runs, their figures are those measured, nothing is left out."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

import sktifa
from benchmarks import report
from sktifa.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# What the reader sees, and what only makes it run: the reader's own graph, say.
CODE = re.compile(
    r"^(?:```python|```console|<!-- setup)\n(.*?)^(?:```|-->)$", re.M | re.S
)
PRINTED = re.compile(r"^print\((\w+)\)  # (.*)$", re.M)
COMMAND = re.compile(r"^\$ sktifa (.*)$", re.M)


def blocks(page):
    """Yield a page's pieces of code, with the number of lines before each."""
    text = page.read_text()
    for match in CODE.finditer(text):
        yield match.group(1), text.count("\n", 0, match.start(1))


@pytest.mark.filterwarnings(
    "error",
    "ignore::DeprecationWarning",
    "ignore:Port .* is already in use",  # by the cluster of other tests, say
)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(blocks(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_pages_code_runs_without_a_warning(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    parser = doctest.DocTestParser()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    for code, line in blocks(page):
        if code.startswith("$ "):
            for command in COMMAND.findall(code):
                assert main(shlex.split(command)) == 0
        elif ">>>" in code:
            runner.run(
                parser.get_doctest(code, names, page.name, str(page), line),
                clear_globs=False,
            )
        else:
            exec(compile("\n" * line + code, str(page), "exec"), names)
            for printed, said in PRINTED.findall(code):
                assert str(eval(printed, names)) == said
    assert runner.summarize(verbose=False).failed == 0


def test_the_reference_has_every_public_name():
    listed = (DOCS / "api.rst").read_text().split()
    assert set(sktifa.__all__) <= {name.rsplit(".")[-1] for name in listed}


def test_figures_are_those_of_the_reports():
    assert report.PAGE.read_text() == report.page()
    assert report.README.read_text() == report.readme()


def test_links_from_the_readme_lead_somewhere():
    # Between pages sphinx looks itself.
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text())
    assert links and all((ROOT / link).exists() for link in links)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
