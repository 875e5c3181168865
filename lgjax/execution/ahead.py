"""Programs compiled before they are called, which say what they are at: it can take longer than the run itself.

Messages go to the logger "lgjax" at the level INFO, which nobody sees unless asked for; the command line asks.
"""

import logging
import time
from typing import Any

logger = logging.getLogger("lgjax")

# Seconds of compiling for one of tracing and lowering, on a CPU: 5 to 8 for rollouts and searches.
COMPILE_TO_TRACE = 6.0


def compile_ahead(function: Any, *args: Any, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """(lowered, compiled) of a jitted function for arguments like `args`; options are the compiler's."""
    logger.info("tracing")
    started = time.perf_counter()
    lowered = function.lower(*args)
    seconds = COMPILE_TO_TRACE * (time.perf_counter() - started)
    logger.info("compiling, about %.0f s the first time", max(1.0, seconds))
    return lowered, lowered.compile(compiler_options=options)
