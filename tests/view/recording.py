"""Reads what a page plays: the recorded messages, and the properties of the nodes that they leave at a time."""

import base64
import json
import re

import msgspec
import numpy as np
import zstandard


class Recording:
    """messages: (time, message) in order; seconds: how long the page plays; panels: their data, or None."""

    def __init__(self, text: str):
        data = base64.b64decode(re.search(r'__VISER_EMBED_DATA__="([^"]*)"', text)[1])
        size = int.from_bytes(data[:8], "little")
        inner = zstandard.ZstdDecompressor().decompress(data[8:], max_output_size=size)
        length = int.from_bytes(inner[:8], "little")
        content = msgspec.msgpack.decode(inner[8 : 8 + length])
        self.seconds, start, self._buffers = content["durationSeconds"], 8 + length, []
        for count in content["binaryBufferLengths"]:
            start += -start % 8
            self._buffers.append(inner[start : start + count])
            start += count
        self.messages = [(t, self._filled(message)) for t, message in content["messages"]]
        found = re.search(r"const data = (.*);\n", text)
        self.panels = json.loads(found[1]) if found else None

    def _filled(self, value):
        """The message with its arrays in place of the numbers of their buffers."""
        if isinstance(value, dict):
            if "__binary_index" in value:
                return np.frombuffer(self._buffers[value["__binary_index"]], value["dtype"])
            return {key: self._filled(x) for key, x in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(x) for x in value]
        return value

    def nodes(self, time: float) -> dict[str, dict]:
        """Name -> properties, position and wxyz of every node at a time."""
        nodes: dict[str, dict] = {}
        for t, m in self.messages:
            if t > time:
                break
            if "props" in m and "name" in m:
                nodes.setdefault(m["name"], {}).update(m["props"])
            elif m["type"] == "SceneNodeUpdateMessage":
                nodes[m["name"]].update(m["updates"])
            elif m["type"] in ("SetPositionMessage", "SetOrientationMessage"):
                nodes.setdefault(m["name"], {}).update({k: m[k] for k in ("position", "wxyz") if k in m})
        return nodes
