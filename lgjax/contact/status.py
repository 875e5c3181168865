"""Flags of the status of a run with rigid contacts. Read first: `lgjax/numerics/status.py`."""

from lgjax.numerics.status import NOT_FINITE, Flags


class ContactStatus(Flags):
    """Flags of a run with rigid contacts; 0: nothing to report. AT_ONCE alone is a success, too.

    NOT_FINITE      1: the state is infinite or NaN
    NOT_SOLVED      128: in some step the law of contact is violated, a traced number has none, or a distance is inexact
    TOO_MANY_PARTS  256: a step of `EventDriven` needed more than max_parts and stopped early
    AT_ONCE         512: impacts that would follow each other were simultaneous in a step of `TimeStepping`
    TOO_MANY_NEAR   1024: more contacts met in a step of `TimeStepping` than `Contacts(nearest=)` lets act
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    NOT_SOLVED = 128
    TOO_MANY_PARTS = 256
    AT_ONCE = 512
    TOO_MANY_NEAR = 1024
