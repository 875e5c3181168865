"""The XML of a URDF: parsed once, by lxml, which tells the line of every element."""

import re
from functools import cache
from typing import Any

from lgjax.multibody.importers.source import Source, require

XACRO = re.compile(r"(\{[^}]*\})?xacro:|\{http[^}]*/xacro\}")


@cache
def etree(function: str = "load_urdf") -> Any:
    return require("lxml.etree", "urdf", function)


def parse(source: Source, function: str = "load_urdf") -> Any:
    """The root element <robot>.

    A prefix that no namespace declares, a version of XML that does not exist and a declaration that is not at the start
    are common in old files and harmless. Entities are not: readers differ in whether they see them.
    """
    xml = etree(function)
    parser = xml.XMLParser(
        recover=True, resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True,
        encoding="utf-8" if source.path is None else None,  # a text has been decoded, whatever it declares
    )  # fmt: skip
    try:
        root = xml.fromstring(source.content, parser)
    except xml.XMLSyntaxError as error:
        raise ValueError(f"not well-formed XML: {error}") from error
    harmless = xml.ErrorTypes.ERR_UNKNOWN_VERSION, xml.ErrorTypes.ERR_RESERVED_XML_NAME
    errors = [e for e in parser.error_log if e.domain != xml.ErrorDomains.NAMESPACE and e.type not in harmless]
    if root is None or errors:
        where = f", line {errors[0].line}: {errors[0].message.strip()}" if errors else ""
        raise ValueError(f"not well-formed XML{where}")
    dtd = root.getroottree().docinfo.internalDTD
    entity = next(dtd.iterentities(), None) if dtd is not None else None
    if entity is not None:
        raise ValueError(f"the file declares the entity {entity.name!r}: entities are not supported")
    foreign = root.xpath("//*[namespace-uri() or contains(name(), ':')]")
    xacro = next((e for e in foreign if XACRO.match(e.tag)), None)
    if xacro is not None:
        raise ValueError(f"line {xacro.sourceline} is a xacro macro: expand the file with xacro first")
    for element in foreign:  # other readers ignore namespaces: a name without a prefix is the format's
        name = element.tag.rpartition("}")[2]
        if element.prefix is None and ":" not in name:
            element.tag = name
    if root.tag != "robot":
        shown = root.tag if root.prefix is None else f"{root.prefix}:{xml.QName(root).localname}"
        raise ValueError(f"no <robot>: the root element is <{shown}>")
    return root
