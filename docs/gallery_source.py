"""The examples as sphinx-gallery wants them: a copy of each with its section of examples.md as the first docstring.

`conf.py` calls `write`. A section of examples.md is a heading "## NN Title", the picture, and paragraphs.
"""

import ast
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).parent
SECTION = re.compile(r"^## (\d\d) (.+?)\n+!\[(.*?)\]\((images/gallery/(\S+?)\.png)\)\n+(.*?)(?=^## |\Z)", re.M | re.S)


def sections(text: str) -> dict[str, tuple[str, str, str, str]]:
    """{name of the example: (title, what the picture shows, path of the picture, paragraphs)}"""
    return {
        stem: (f"{number} {title}", shown, path, body)
        for number, title, shown, path, stem, body in SECTION.findall(text)
    }


def restructured(text: str) -> str:
    """Markdown of examples.md, which has code, links to pages, and nothing else, as reStructuredText."""
    text = re.sub(r"`([^`]+)`", r"``\1``", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\.md\)", r":doc:`\1 </\2>`", text)


def write(docs: Path = DOCS) -> Path:
    """Fill docs/_examples, which is not kept, and return it."""
    folder = docs / "_examples"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "GALLERY_HEADER.rst").write_text(
        "Gallery\n=======\n\nEvery example with its figure. A page has the whole script; none is run by the build of "
        "these pages.\n",
        encoding="utf-8",
    )
    for stem, (title, shown, path, body) in sections((docs / "examples.md").read_text(encoding="utf-8")).items():
        source = (docs.parent / "examples" / f"{stem}.py").read_text(encoding="utf-8")
        first = ast.parse(source).body[0]
        code = "\n".join(source.splitlines()[first.end_lineno :])
        top = f"{title}\n{'=' * len(title)}\n\n.. image:: /{path}\n   :alt: {shown}\n\n{restructured(body).strip()}\n"
        header = f'r"""\n{top}"""'
        thumbnail = f"# sphinx_gallery_thumbnail_path = '{path}'\n"
        (folder / f"{stem}.py").write_text(f"{header}\n{thumbnail}{code}\n", encoding="utf-8")
    return folder
