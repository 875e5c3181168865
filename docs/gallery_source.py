"""The examples as sphinx-gallery wants them: a copy of each with its section of examples/README.md as first docstring.

`conf.py` calls `write`, and `linked` for every page. A section of examples/README.md is a heading "## NN Title", the
picture, and paragraphs. A GIF of the same name is the thumbnail and stands below them; without one a panel of the
picture in images/thumbnails is the thumbnail.
"""

import ast
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).parent
PICTURE = r"!\[(.*?)\]\(\.\./docs/(images/gallery/(\S+?)\.png)\)"
SECTION = re.compile(rf"^## (\d\d) (.+?)\n+{PICTURE}\n+(.*?)(?=^## |\Z)", re.M | re.S)


def sections(text: str) -> dict[str, tuple[str, str, str, str]]:
    """{name of the example: (title, what the picture shows, path of the picture, paragraphs)}"""
    return {
        stem: (f"{number} {title}", shown, path, body)
        for number, title, shown, path, stem, body in SECTION.findall(text)
    }


def restructured(text: str) -> str:
    """Markdown of examples/README.md: code, pictures and links to pages, as reStructuredText."""
    text = re.sub(r"`([^`]+)`", r"``\1``", text)
    text = re.sub(r"^!\[(.*?)\]\(\.\./docs/(\S+)\)$", r".. image:: /\2\n   :alt: \1", text, flags=re.M)
    return re.sub(r"\[([^\]]+)\]\(\.\./docs/([^)\s]+)\.md\)", r":doc:`\1 </\2>`", text)


def linked(text: str) -> str:
    """A page of docs with its links to examples, which are outside of docs, leading to their pages of the gallery."""
    text = re.sub(r"\]\(\.\./((?:\.\./)*)examples/README\.md\)", r"](\1gallery/index.rst)", text)
    return re.sub(r"\]\(\.\./((?:\.\./)*)examples/(\d\w+)\.py\)", r"](\1gallery/\2.rst)", text)


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
    readme = (docs.parent / "examples" / "README.md").read_text(encoding="utf-8")
    for stem, (title, shown, path, body) in sections(readme).items():
        source = (docs.parent / "examples" / f"{stem}.py").read_text(encoding="utf-8")
        first = ast.parse(source).body[0]
        code = "\n".join(source.splitlines()[first.end_lineno :])
        text = f"{restructured(body).strip()}\n\n``python examples/{stem}.py``\n"
        top = f"{title}\n{'=' * len(title)}\n\n.. image:: /{path}\n   :alt: {shown}\n\n{text}"
        moving, thumbnail = path.replace(".png", ".gif"), path.replace("/gallery/", "/thumbnails/")
        if (docs / moving).exists():
            # Under a name of its own: of pictures with one name sphinx-gallery takes the PNG, also one made before.
            thumbnail = f"{folder.name}/{stem}.gif"
            shutil.copy(docs / moving, docs / thumbnail)
            (docs / "gallery" / "images" / "thumb" / f"sphx_glr_{stem}_thumb.png").unlink(missing_ok=True)
            if moving not in top:
                top += f"\n.. image:: /{moving}\n   :alt: The motion\n"
        thumbnail = f"# sphinx_gallery_thumbnail_path = '{thumbnail}'\n"
        header = f'r"""\n{top}"""'
        (folder / f"{stem}.py").write_text(f"{header}\n{thumbnail}{code}\n", encoding="utf-8")
    return folder
