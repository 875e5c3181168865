"""Every public function stands in a list of `soak/doors.py`, but for those that are named here."""

import inspect
import pkgutil
import re

from soak.door_adapters import others
from soak.door_calls import doors
from soak.door_drivers import drivers
from tests.test_site import public

# Without arguments; and parts of a state for the errors of adaptive steps, which the library asks for itself.
UNTRIED = {"lgjax.models.arm", "lgjax.models.quadruped", *(f"lgjax.{x}.parts" for x in ("s3", "se3", "so3", "ts2"))}


def checks_itself(thing) -> bool:
    """Whether this is a function, or a class that judges what it is made of; not a record, nor a protocol."""
    if not isinstance(thing, type):
        return callable(thing)
    written = "__init__" in vars(thing) and not hasattr(thing, "__dataclass_fields__")
    return ("__post_init__" in vars(thing) or written) and not getattr(thing, "_is_protocol", False)


def test_every_public_function_is_called_with_arguments_that_do_not_fit():
    calls = doors() | drivers() | others()
    called = {id(inspect.unwrap(function)) for function, _, _ in calls.values()}
    named = {re.split(r"[ (,]", name)[0] for name in calls}  # a call may be of a function around it

    def tried(thing, names) -> bool:
        short = {name.removeprefix("lgjax.") for name in names} | {name.rsplit(".", 1)[1] for name in names}
        return id(inspect.unwrap(thing)) in called or not named.isdisjoint(short)

    things = {shortest: (pkgutil.resolve_name(shortest), names) for shortest, names in public().items()}
    left = {shortest for shortest, (thing, names) in things.items() if checks_itself(thing) and not tried(thing, names)}
    assert left == UNTRIED
