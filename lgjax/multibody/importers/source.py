"""Parts that the importers share: the source of a description, its label in errors, and absent parsers."""

import importlib
import math
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from xml.parsers import expat

from lgjax.multibody.model import Model
from lgjax.numerics.messages import why

LONGEST = 600  # characters of a message; names and numbers of a broken file can be of any length
# What a number may look like: float() of Python takes digits of every script and underscores as well.
NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)
SPACE = " \t\r\n"


class Source(NamedTuple):
    """Description of a robot and its origin: label names it in errors, path is None for text."""

    content: bytes
    label: str
    path: Path | None


def read(path_or_text: str | os.PathLike, what: str) -> Source:
    """The content of a file, or the text itself where `path_or_text` is a string that starts with '<'.

    Raises ValueError in one line for a file that cannot be read and for an empty one.
    """
    if isinstance(path_or_text, str) and path_or_text.lstrip("\ufeff \t\r\n").startswith("<"):
        # Half a surrogate pair is left to the parsers, which refuse it.
        return Source(path_or_text.lstrip("\ufeff \t\r\n").encode(errors="surrogatepass"), f"{what} text", None)
    if not isinstance(path_or_text, str | os.PathLike):
        raise TypeError(f"{what}: expected a path or text, not {type(path_or_text).__name__}")
    path = Path(path_or_text)
    # A text that is not XML is taken for a path; its first line is enough to recognize it by.
    label = str(path).strip().split("\n")[0][:200]
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {what} {label!r}: {why(error)}") from error
    if not content.strip():
        raise ValueError(f"{label}: the file is empty")
    return Source(content, label, path)


def root_element(source: Source) -> str:
    """Name of the root element, without a prefix; ValueError where no element is.

    XML declarations that are not at the start, or of a version that does not exist, do no harm, as in the parsers.
    """
    try:
        return _first_element(source.content, "utf-8" if source.path is None else None)
    except (expat.ExpatError, ValueError) as error:
        with suppress(expat.ExpatError, ValueError):
            return _first_element(re.sub(rb"<\?xml\s.*?\?>", b"", source.content, flags=re.DOTALL), None)
        raise ValueError(one_line(f"{source.label}: not well-formed XML: {error}")) from error


def _first_element(content: bytes, encoding: str | None) -> str:
    """An error behind it is left to the parsers."""
    found: list[str] = []
    parser = expat.ParserCreate(encoding)
    parser.StartElementHandler = lambda tag, _: found or found.append(tag.rpartition(":")[2])
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError):
        if not found:
            raise
    return found[0]


def numbers(text: str) -> list[float] | None:
    """The numbers in an attribute, which white space separates; None where something else is there, or a NaN."""
    tokens = [token for token in re.split(f"[{SPACE}]", text) if token]
    if not all(NUMBER.fullmatch(token) for token in tokens):
        return None
    values = [float(token) for token in tokens]
    return None if any(map(math.isnan, values)) else values


def one_line(message: object) -> str:
    """A message as one printable line of bounded length, which keeps its beginning and its end."""
    text = "; ".join(line.strip() for line in str(message).splitlines() if line.strip())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 150]} ... {text[-140:]}"


def from_file(model: Model, source: Source) -> Model:
    """The model, which remembers the file that it came from."""
    return model if source.path is None else model.replace(tree=replace(model.tree, source=str(source.path.resolve())))


def require(module: str, extra: str, function: str) -> ModuleType:
    """The imported module, or an ImportError in one line that names the extra which brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{function} needs the package {module.partition('.')[0]}: pip install 'lgjax[{extra}]'"
        ) from error
