"""Sphinx's settings: Markdown by MyST, the reference from docstrings, formulas as MathML, a gallery of the examples.

sphinx-build -W --keep-going -j auto docs build/site

The build needs no network and runs no example; notebooks hold their results. It runs the code of the start page alone,
for the motion that the page shows. Formulas are MathML, which browsers draw themselves: KaTeX would need
Node during the build, or a script and a megabyte of fonts on every page. docutils, which Sphinx needs anyway, does it.
"""

import itertools
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.errors import ExtensionError

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
sys.path.insert(0, str(DOCS))
import gallery_source  # noqa: E402

import lgjax  # noqa: E402

project = "lgjax"
author = "lgjax contributors"
copyright = "lgjax contributors, MIT license"
version = release = lgjax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_examples", "gallery/*.ipynb", "**/sg_execution_times.rst", "sg_execution_times.rst"]
nitpicky = False  # names of other libraries are not linked

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"lgjax {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
nb_execution_mode = "off"

# In docstrings `name` is code, and a link where the name is documented.
default_role = "py:obj"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
ALIASES = ("ArrayLike", "Controller", "DTypeLike", "Field", "Frame", "Ground", "Metric", "View")
autodoc_type_aliases = {name: name for name in ALIASES}
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

sphinx_gallery_conf = {
    "examples_dirs": "_examples",
    "gallery_dirs": "gallery",
    "plot_gallery": False,  # nothing runs
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "thumbnail_size": (400, 280),  # of the default size, 160 x 112, plots cannot be read
    "min_reported_time": 1e9,
    "filename_pattern": r"a^",
    "within_subsection_order": "FileNameSortKey",
}


ENTRY = re.compile(r'("?[A-Za-zρ][\w", /()=+*-]*?)\s{2,}(\S.*)')  # "name  text", with text that hangs below itself


SECTIONS = {"Args:": ":Parameters:", "Returns:": ":Returns:", "Raises:": ":Raises:"}
NAMED = re.compile(r"    (\w+(?:, \w+)*): (\S.*)")  # "    name: text", and text that hangs below itself


def section(lines: list[str], field: str) -> list[str]:
    """A section of a docstring as a field, with a list of the names that it describes."""
    text = [field]
    for line in lines:
        named = NAMED.fullmatch(line)
        text.append(f"   * **{named[1]}** -- {escaped(named[2])}" if named else f"     {escaped(line.strip())}")
    return ["", *text, ""]


def plain(lines: list[str]) -> list[str]:
    """Lines of a docstring as reStructuredText: sections of `SECTIONS` between what `prose` makes of the others."""
    text, rest, lines = [], [], list(lines)
    while lines:
        line = lines.pop(0)
        if line not in SECTIONS:
            rest.append(line)
            continue
        below = [lines.pop(0) for _ in itertools.takewhile(lambda line: line.startswith("    "), list(lines))]
        text += prose(rest) + section(below, SECTIONS[line])
        rest = []
    return text + prose(rest)


def prose(lines: list[str]) -> list[str]:
    """Lines of a docstring as reStructuredText: prose, lists with "*", `code`, tables of arguments, indented blocks."""
    text, state = [], "prose"
    for line in lines:
        entry, indented = ENTRY.fullmatch(line), line.startswith("    ")
        if entry:
            text += [""] * (state != "entry") + [escaped(entry[1]), f"   {escaped(entry[2])}"]
            state = "entry"
        elif indented and state == "entry":
            text.append(f"   {escaped(line.strip())}")
        elif indented or (state == "block" and not line.strip()):
            text += ["", "::", ""] * (state != "block") + [line]
            state = "block"
        else:
            item = line.startswith("* ") or (line.startswith("  ") and state == "list")
            begins = "list" if item else "prose"
            text += [""] * (state != begins and bool(line.strip())) + [escaped(line)]
            state = begins if line.strip() or state == "block" else state
    return text


def escaped(line: str) -> str:
    """The line with what reStructuredText would read as markup outside of `code` taken literally."""
    parts = re.split(r"(``[^`]*``|`[^`]*`|(?<!\w)\*\w[\w -]*\w\*(?!\w))", line)
    signs = lambda part: re.sub(r"(?<!^)([*|]|_\b)|^(\|)", r"\\\g<0>", part)
    return "".join(signs(part) if number % 2 == 0 else part for number, part in enumerate(parts))


def docstring(app, what, name, thing, options, lines):
    lines[:] = plain(lines)


def public_names() -> dict[str, str]:
    """{where a class is defined: its name on a page of the reference}, so that types in signatures are links."""
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    classes = {name: pkgutil.resolve_name(name) for name in re.findall(r"autoclass:: (\S+)", pages)}
    return {f"~{thing.__module__}.{thing.__qualname__}": f"~{name}" for name, thing in classes.items()}


LONG = {  # what aliases of types become when they are printed
    "~jax.jaxlib._jax.Array | ~numpy.ndarray | ~numpy.bool | ~numpy.number | bool | int | float | complex": "ArrayLike",
    "~jax.Array | ~numpy.ndarray | ~numpy.bool | ~numpy.number | bool | int | float | complex": "ArrayLike",
    "~jax.jaxlib._jax.Array": "Array",
    "~jax.Array": "Array",
    "~typing.": "",
    "~collections.abc.": "",
    "~os.": "os.",
    "Callable[[...]": "Callable[...",
    "MuntheKaas(tableau=RK4, commutators=None, scan_stages=None, error='space')": "MuntheKaas(RK4)",
}


PUBLIC = public_names()


def signature(app, what, name, thing, options, arguments, returns):
    """Types by the names that people write."""

    def short(text):
        for long, name in LONG.items():
            text = text.replace(long, name)
        text = re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)  # how Sphinx prints an alias beside others
        return re.sub(r"~lgjax[\w.]*", lambda found: PUBLIC.get(found[0], found[0]), text)

    return (arguments and short(arguments), returns and short(returns))


def skip(app, what, name, thing, skipping, options):
    """Leave out the fields of named tuples, which the docstring of the class describes, and the methods of pytrees."""
    described = str(getattr(thing, "__doc__", "")).startswith("Alias for field number")
    described |= isinstance(thing, property) and not thing.__doc__  # a field that is made when it is used
    return True if described or name in {"tree_flatten", "tree_unflatten"} else None


def examples(app, name, source):
    source[0] = gallery_source.linked(source[0])


def moving(app, error):
    """Run the code of the start page where the site is, and with it the viewer's page that the start page shows."""
    page, made = DOCS / "index.md", Path(app.outdir) / "_static" / "trot.html"
    if error or app.builder.format != "html" or (made.exists() and made.stat().st_mtime > page.stat().st_mtime):
        return
    code = "".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S))
    paths = os.pathsep.join(filter(None, (str(DOCS.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    run = subprocess.run([sys.executable, "-c", code], cwd=made.parent, env=environment, capture_output=True, text=True)
    if run.returncode or not made.exists():
        raise ExtensionError(f"the code of {page.name} did not write {made.name}: {run.stderr}")


def formula(self, node):
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def displayed(self, node):
    self.body.append(f'<p style="text-align:center">{mathml(node.astext(), display=True)}</p>')
    raise nodes.SkipNode


def mathml(text: str, display: bool = False) -> str:
    return latex2mathml.tex2mathml(text, as_block=display)


def setup(app):
    app.add_html_math_renderer("mathml", (formula, None), (displayed, None))
    app.connect("source-read", examples)
    app.connect("build-finished", moving)
    app.connect("autodoc-process-docstring", docstring)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    gallery_source.write(DOCS)
