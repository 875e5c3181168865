"""The Python of README.md and docs runs as printed; links, names and cited keys exist; docstrings start well."""

import doctest
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import lgjax
from lgjax.numerics.status import Flags

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "tutorials").glob("*.ipynb"))
PAGES = [README, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("coming_from/*.md"))]
OTHERS = [page for page in sorted(DOCS.glob("*/*.md")) if page not in PAGES]
LINKED = [
    *PAGES,
    *OTHERS,
    *(ROOT / page for page in ("benchmarks/README.md", "examples/README.md", "CHANGELOG.md", "soak/LOG.md")),
]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(text(path))["cells"] if cell["cell_type"] == kind]


def blocks(path: Path) -> list[str]:
    if path.suffix == ".ipynb":
        return ["".join([*cell["source"], "\n"]) for cell in cells(path, "code")]
    return re.findall(r"^```python\n(.*?)^```$", text(path), re.M | re.S)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in [*PAGES, *NOTEBOOKS] if blocks(page)], ids=name)
def test_the_python_of_a_page_runs(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page)), encoding="utf-8")
    result = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_enough_pages_have_python_that_runs():
    assert blocks(README)
    assert sum(len(blocks(page)) for page in PAGES) > 20


@pytest.mark.parametrize("page", NOTEBOOKS, ids=name)
def test_a_notebook_holds_the_results_of_one_run_in_order(page):
    code = cells(page, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    results = [result for cell in code for result in cell["outputs"]]
    assert {result["output_type"] for result in results} <= {"stream", "execute_result", "display_data"}
    assert "stderr" not in {result.get("name") for result in results}
    assert any("image/png" in result.get("data", {}) for result in results)
    assert page.stat().st_size < 300_000


def test_the_start_page_writes_and_shows_one_motion():
    page = text(DOCS / "index.md")
    written = re.findall(r'"(\w+\.html)"\)', "".join(blocks(DOCS / "index.md")))
    assert written == re.findall(r'<iframe src="_static/(\w+\.html)"', page)
    assert f'"_static" / "{written[0]}"' in text(DOCS / "conf.py")


@pytest.mark.parametrize("page", NOTEBOOKS, ids=name)
def test_links_of_a_notebook_lead_to_files(page):
    prose = "".join(line for cell in cells(page, "markdown") for line in cell["source"])
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose)
    assert links
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_readme_is_short_and_has_the_test_command():
    assert len(text(README).split()) <= 700
    assert re.search(r"<!-- test command -->\n```bash\n[^\n]+\n```", text(README))


WORDS = {  # at most, of a page or of all pages of a folder: readers finish what is short
    "docs": 38_000,
    "docs/benchmarks": 9_000,
    "docs/papers": 6_000,
    "docs/benchmarks/suite.md": 2_500,
    "docs/contact.md": 1_900,
    "docs/control.md": 1_400,
    "docs/life_of_a_program.md": 1_000,
    "docs/trust.md": 900,
}
LONGEST = 1_700  # words of any other page


def words(place: Path) -> int:
    """As `wc -w` counts them."""
    return sum(len(text(page).split()) for page in (sorted(place.rglob("*.md")) if place.is_dir() else [place]))


def test_words_are_counted_on_pages_and_in_folders(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "a.md").write_text("# One two\n\n| three |\n")
    (tmp_path / "below" / "b.md").write_text("six\n")
    assert words(tmp_path / "a.md") == 6
    assert words(tmp_path) == 7


@pytest.mark.parametrize("place", WORDS)
def test_pages_are_short_enough_to_be_read(place):
    assert 0 < words(ROOT / place) <= WORDS[place], "shorten before you add: readers do not finish long pages"


def test_every_other_page_is_short():
    assert {name(page): words(page) for page in DOCS.rglob("*.md") if words(page) > LONGEST}.keys() <= WORDS.keys()


def test_the_newest_list_of_changes_is_short():
    section = re.search(r"^## .*?\n(.*?)^## ", text(ROOT / "CHANGELOG.md"), re.M | re.S)
    assert 0 < len(section[1].split()) <= 900


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text(page))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_every_page_is_in_the_menu_of_the_site():
    listed = set()
    for page in DOCS.rglob("*.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text(page), re.S):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{name}{end}").resolve() for name in names for end in (".md", ".ipynb")}
    assert {*DOCS.rglob("*.md"), *NOTEBOOKS} - listed == {DOCS / "index.md"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_of_the_library_exist(page):
    for found in set(re.findall(r"\blgjax(?:\.[A-Za-z_]\w*)+", text(page))):
        pkgutil.resolve_name(found)


def test_tests_that_pages_name_exist():
    exist = {path.name for path in (ROOT / "tests").rglob("*.py")}
    for page in LINKED:
        assert set(re.findall(r"\btest_\w+\.py\b", text(page))) <= exist, page


ARGUMENTS = {"v", "tau", "wrenches", "damping", "gravity", "Method"}  # in tables, without what they belong to


@pytest.mark.parametrize("page", sorted(DOCS.glob("coming_from/*.md")), ids=name)
def test_our_names_in_the_tables_of_other_programs_exist(page):
    """The second column: a name of lgjax or of a namespace, JAX's, or of a model."""
    cells = re.findall(r"^\| [^|]+\| ([^|]+)\|", text(page), re.M)
    found = {x for cell in cells for x in re.findall(r"`([A-Za-z_][\w.]*)", cell)} - ARGUMENTS
    model = lgjax.models.chain(1)
    for called in found:
        if called.startswith("model."):
            assert hasattr(model, called.removeprefix("model."))
        else:
            pkgutil.resolve_name(called if called.startswith("jax.") else f"lgjax.{called}")


def test_every_cited_key_is_in_the_list_of_references():
    listed = re.findall(r"^\* \[(\w+)\]", text(ROOT / "docs" / "references.md"), re.M)
    assert listed == sorted(set(listed))
    folders = (ROOT / folder for folder in ("lgjax", "examples", "benchmarks", "tests"))
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    cited = {key for path in [*sources, *LINKED] for key in re.findall(r"\[([a-z]+(?:19|20)\d\d)\]", text(path))}
    assert cited
    assert cited <= set(listed)


@pytest.mark.parametrize("function", [f for f in lgjax.__all__ if callable(getattr(lgjax, f))])
def test_docstrings_begin_with_a_noun_or_a_verb(function):
    docstring = inspect.getdoc(getattr(lgjax, function))
    assert docstring
    assert docstring.split()[0] not in {"What", "How", "Where", "Which", "Whether", "Why", "It"}


STATUSES = [found for found in Flags.__subclasses__() if found.__module__.startswith("lgjax.")]


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.__qualname__)
def test_a_status_says_what_each_of_its_flags_means(status):
    docstring = inspect.getdoc(status)
    assert [x for x in status if not re.search(rf"^{x.name} +{int(x)}: \w", docstring, re.M)] == []


def test_there_is_more_than_one_status():
    assert len(STATUSES) >= 10


EXAMPLES = [name for name in lgjax.__all__ if ">>> " in (inspect.getdoc(getattr(lgjax, name)) or "")]


def failures(name: str, docstring: str) -> int:
    """How many lines of the examples in a docstring do not give what it says, in JAX's default dtype."""
    names = {"lgjax": lgjax, "jax": jax, "jnp": jnp}
    found = doctest.DocTestParser().get_doctest(docstring, names, name, None, None)
    with jax.enable_x64(False):
        return doctest.DocTestRunner(verbose=False).run(found).failed


def test_most_functions_have_an_example():
    functions = [name for name in lgjax.__all__ if inspect.isfunction(inspect.unwrap(getattr(lgjax, name)))]
    assert len(EXAMPLES) > 0.7 * len(functions)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_docstring_give_what_it_says(name):
    assert failures(name, inspect.getdoc(getattr(lgjax, name))) == 0


def test_an_example_that_gives_something_else_fails(capsys):
    assert failures("sum", ">>> jnp.ones(2).sum()\nArray(3., dtype=float32)\n") == 1
