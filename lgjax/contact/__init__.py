"""Contact of trees with the ground and among their links: where they touch, and what happens then.

Read first: `contacts.py`; then `step.py` for the rigid law in time steps, `modes.py` and `event_driven.py` for the same
law event by event, `compliant.py` for the soft one.
"""

from lgjax.contact.bilateral import Implicit
from lgjax.contact.event_driven import EventDriven
from lgjax.contact.geometry.detection import ContactPoints
from lgjax.contact.geometry.height_field import HeightField
from lgjax.contact.status import ContactStatus
from lgjax.contact.time_stepping import (
    ContactStep,
    TimeStepping,
    contact_points,
    contact_step,
    contact_torques,
    contact_velocities,
)

__all__ = [
    "ContactPoints",
    "ContactStatus",
    "ContactStep",
    "EventDriven",
    "HeightField",
    "Implicit",
    "TimeStepping",
    "contact_points",
    "contact_step",
    "contact_torques",
    "contact_velocities",
]
