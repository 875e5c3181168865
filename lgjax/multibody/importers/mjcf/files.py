"""First pass over the XML of an MJCF and of the files that it includes, before MuJoCo reads it.

MuJoCo opens every file that an element names, wherever it lies, while it parses. So the names are checked first: each
is in the folder of the file or below. The same pass finds what MuJoCo would pass over or read in another way.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from lgjax.multibody.importers.source import Source

# Elements of deformable bodies, which read their file while they are parsed.
FLEXIBLE = ("flex", "flexcomp")
MOST_FILES = 1000


class _File(NamedTuple):
    """A file to be read: its name in errors ('' for the first), its folder and that of the model that it belongs to."""

    name: str
    content: bytes
    here: Path
    base: Path
    models: tuple[str, ...] = ()  # those attached on the way to it


class Allowed(NamedTuple):
    """The folder that files may be read from, and the attached models, each before those that it attaches itself."""

    folder: Path
    attached: tuple[Path, ...]


class _RefusedError(ValueError):
    """An error of this file, which needs no words of the parser's before it."""


def check_files(source: Source, folder: str | os.PathLike | None) -> Allowed:
    """A pass over the file and all that it includes or attaches.

    Raises ValueError in one line for XML that is not well formed, entities, numbers that are not finite, flexible
    bodies, and for included files, attached models and their meshes outside the folder.
    """
    base = Path.cwd() if source.path is None else source.path.parent
    allowed = Path(os.path.realpath(base if folder is None else folder))
    todo, seen = [_File("", source.content, base, base)], set()
    attached: dict[Path, None] = {}
    meshes: dict[Path, list[tuple[str, str]]] = {}  # of attached models: where they are named, and their file
    folders: dict[Path, list[str]] = {}
    while todo:
        file = todo.pop()
        named = _Elements(file, allowed)
        if file.models:
            folders.setdefault(file.base, [""]).extend(named.folders)
            meshes.setdefault(file.base, []).extend(named.meshes)
        for path, what in named.models:
            real = os.path.realpath(path)
            if real in file.models:
                raise _RefusedError(f"{what} attaches itself")
            if not os.path.isfile(path):
                raise _RefusedError(f"{what} does not exist")
            attached.pop(path, None)
            attached[path] = None
            todo.append(_File(str(path), path.read_bytes(), path.parent, path.parent, (*file.models, real)))
        for path in named.files:
            key = os.path.realpath(path), file.base, file.models
            if key not in seen and os.path.isfile(path):
                seen.add(key)
                todo.append(_File(str(path), path.read_bytes(), path.parent, file.base, file.models))
        if len(todo) + len(attached) > MOST_FILES:
            raise _RefusedError(f"more than {MOST_FILES} files are included or attached")
    # Which meshes of the model itself are needed is known later; of attached ones all count.
    for place, named_meshes in meshes.items():
        for where, name in named_meshes:
            for path in (place / below / x for below in folders[place] for x in (name, Path(name).name)):
                _check_inside(path, allowed, where)
    return Allowed(allowed, tuple(attached))


def is_inside(path: str | os.PathLike, folder: Path) -> bool:
    """Whether a file lies in a folder or below it, when links are followed, before `..` as systems do and after."""
    return all(Path(os.path.realpath(p)).is_relative_to(folder) for p in (path, os.path.normpath(path)))


def outside(path: str | os.PathLike, folder: Path) -> str:
    """The end of a message: that a file is outside a folder, and which one would do."""
    wider = os.path.commonpath([folder, os.path.realpath(os.path.dirname(path))])
    return f"is outside the folder {str(folder)!r} (folder= names another one, such as {wider!r})"


class _Elements:
    """References in a file: other files and models, meshes, and folders of meshes."""

    def __init__(self, file: _File, allowed: Path):
        self.files: list[Path] = []
        self.models: list[tuple[Path, str]] = []
        self.meshes: list[tuple[str, str]] = []
        self.folders: list[str] = []
        self._file, self._allowed, self._empty = file, allowed, True
        self._whole = not file.name or os.path.realpath(file.name) in file.models
        self._where = f"{file.name}: " if file.name else ""
        self._parser: Any = expat.ParserCreate("utf-8")  # MuJoCo reads UTF-8, whatever a file declares
        self._parser.StartElementHandler = self._start
        self._parser.EntityDeclHandler = _refuse_entity
        try:
            file.content.decode()
        except UnicodeDecodeError as error:
            raise _RefusedError(
                f"{self._where}the file is not in UTF-8, which MuJoCo reads, at byte {error.start}: convert the file"
            ) from error
        try:
            self._parser.Parse(file.content, True)
        except _RefusedError:
            raise
        except (expat.ExpatError, ValueError) as error:
            raise ValueError(f"{self._where}not well-formed XML: {error}") from error

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._empty and self._whole and tag != "mujoco":
            raise _RefusedError(f"{self._where}no <mujoco>: the root element is <{tag}>")
        self._empty = False
        _check_numbers(tag, attributes, self._where)
        line = f"in line {self._parser.CurrentLineNumber}"
        if tag in FLEXIBLE:
            raise _RefusedError(f"{self._where}<{tag}> {line}: flexible bodies are not supported")
        # MuJoCo takes `..` out of names before it opens them.
        name = os.path.normpath(attributes["file"].replace("\\", "/")) if attributes.get("file") else ""
        what = f"{self._where}<{tag} file={attributes.get('file')!r}> {line}"
        if tag == "model":  # MuJoCo looks for it beside the model that attaches it
            if not name:
                raise _RefusedError(f"{self._where}<model> {line} has no attribute 'file'")
            _check_inside(self._file.base / name, self._allowed, what)
            self.models.append((self._file.base / name, what))
        elif name and tag == "include":  # beside the model first, then beside the file that names it
            for path in {self._file.base / name: None, self._file.here / name: None}:
                _check_inside(path, self._allowed, what)
                self.files.append(path)
        elif name and tag == "mesh":
            self.meshes.append((what, name))
        elif tag == "compiler":
            self.folders += [attributes.get(a, "").replace("\\", "/") for a in ("assetdir", "meshdir")]


def _check_inside(path: Path, allowed: Path, what: str) -> None:
    if not is_inside(path, allowed):
        raise _RefusedError(f"{what} {outside(path, allowed)}")


def _refuse_entity(name: str, *_: Any) -> None:
    raise _RefusedError(f"the file declares the entity {name!r}: entities are not supported")


def _check_numbers(tag: str, attributes: dict[str, str], where: str) -> None:
    """No NaN and nothing infinite, which MuJoCo lets pass with a message on the terminal."""
    for attribute, text in attributes.items():
        if not attribute.endswith(("name", "class")) and not all(map(math.isfinite, _numbers(text))):
            name = f" name={attributes['name']!r}" if attributes.get("name") else ""
            raise _RefusedError(f"{where}<{tag}{name} {attribute}={text!r}> is not finite")


def _numbers(text: str) -> Iterator[float]:
    """The numbers of a list of nothing but numbers; none of anything else."""
    try:
        yield from [float(token) for token in text.split()]
    except ValueError:
        return
