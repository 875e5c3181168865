"""MuJoCo's parser, and lines in included files: it counts those of the main file only and calls all others line 0.

Such an error is looked up: the same steps read one text in which the included files are written out, an element and
its end each in a line of its own, and the line of that error says which file and line the element came from.
"""

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

LINE = re.compile(r"\bline (\d+)\b")
SHOWN = 5  # names of files in a message


def parsed(mujoco: Any, content: bytes, path: Path | None) -> Any:
    """MuJoCo's specification of a file, or of a text if path is None; ValueError names file and line."""
    try:
        if path is None:
            return asked(mujoco, mujoco.MjSpec.from_string, content.decode())
        return asked(mujoco, mujoco.MjSpec.from_file, str(path))
    except ValueError as error:
        raise ValueError(located(mujoco, error, content, path, lambda spec: None)) from error


def asked(mujoco: Any, function: Callable, *arguments: Any) -> Any:
    """The answer of MuJoCo without its warnings, which are about what it would do itself with the model."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*arguments)
    except (RuntimeError, mujoco.FatalError) as error:
        raise ValueError(str(error)) from error


def located(mujoco: Any, error: Exception, content: bytes, path: Path | None, then: Callable[[Any], object]) -> str:
    """The message of an error of reading, or of what `then` did with the specification, with file and line.

    content and path are those of the main file, path None for a text.
    """
    message, base = str(error).strip(), Path.cwd() if path is None else path.parent
    lines = LINE.findall(message)
    if not lines:
        return message
    whole = _Whole(content, base)
    if whole.attaches:  # MuJoCo counts the lines of attached models, too, and ends the process where one is absent
        return f"{message} (a line of the element's own file: this one, an included or an attached one)"
    if lines[-1] != "0" or not whole.files:
        return message
    try:
        spec = asked(mujoco, mujoco.MjSpec.from_string, "\n".join(whole.text))
        spec.modelfiledir = str(base)
        then(spec)
    except ValueError as found:
        numbers = [int(number) for number in LINE.findall(str(found))]
        same = LINE.sub("", str(found).strip()) == LINE.sub("", message)
        if same and 0 < numbers[-1] <= len(whole.places):
            file, line = whole.places[numbers[-1] - 1]
            before, _, after = message.rpartition("line 0")
            return f"{before}line {line} of {file}{after}"
    more = ", ..." if len(whole.files) > SHOWN else ""
    return f"{message} (in an included file: {', '.join(whole.files[:SHOWN])}{more})"


class _Whole:
    """A file with all that it includes: its lines, and the file and the line that each came from."""

    def __init__(self, content: bytes, base: Path):
        self.text: list[str] = []
        self.places: list[tuple[str, int]] = []
        self.files: list[str] = []
        self.attaches = False
        self._base, self._depth = base, 0
        self._read(content, "", base)

    def _read(self, content: bytes, file: str, here: Path) -> None:
        parser, outermost = expat.ParserCreate("utf-8"), self._depth

        def say(text: str) -> None:
            self.text.append(text)
            self.places.append((file, parser.CurrentLineNumber))

        def start(tag: str, attributes: dict[str, str]) -> None:
            self._depth += 1
            if tag == "include" and self._include(attributes.get("file", ""), here):
                return
            self.attaches |= tag == "model"
            if file and "file" in attributes:  # MuJoCo looks for it beside the file that names it
                attributes["file"] = str(here / attributes["file"])
            if not file or self._depth > outermost + 1:  # of a part, the children stand for the whole
                say(f"<{tag} {' '.join(f'{name}={quoteattr(value)}' for name, value in attributes.items())}>")

        def end(tag: str) -> None:
            if tag != "include" and (not file or self._depth > outermost + 1):
                say(f"</{tag}>")
            self._depth -= 1

        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.Parse(content, True)

    def _include(self, name: str, here: Path) -> bool:
        """Whether the file of an <include> was read: beside the main file first, then beside the one that names it."""
        name = os.path.normpath(name.replace("\\", "/"))
        path = next((path for path in (self._base / name, here / name) if path.is_file()), None)
        if path is None or str(path) in self.files:
            return False
        self.files.append(str(path))
        self._read(path.read_bytes(), str(path), path.parent)
        return True
