"""What `verbose` says: logged where logging is set up, printed elsewhere."""

from __future__ import annotations

import logging

__all__ = ["say"]

logger = logging.getLogger("sktifa")


def say(message: str) -> None:
    """Tell the user one line that was asked for.

    Examples
    --------
    >>> from sktifa.logs import say
    >>> say("epoch 10")
    epoch 10
    """
    # Whoever logs wants it in the log; nobody else need set anything up.
    if logger.hasHandlers() and logger.isEnabledFor(logging.INFO):
        logger.info(message)
    else:
        print(message)
