"""The public names: few flat ones, documented, and none that means two things."""

import ast
import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest

import lgjax
from lgjax.moved import RENAMED

NAMESPACES = (
    *(
        "actuators",
        "centroidal",
        "collisions",
        "contact",
        "control",
        "conventions",
        "ensembles",
        "execution",
        "forces",
        "groups",
        "integrators",
    ),
    *("identification", "loops", "maximal", "models", "multibody", "plot", "adapters", "saving", "sensors", "shapes"),
    *("systems", "time_derivatives", "view"),
)
# The same word for the same idea in another setting: the namespace says which.
SHARED = {
    "Body": {"lgjax", "maximal"},
    "Joint": {"lgjax", "maximal"},
    "Solution": {"integrators", "lgjax", "maximal"},
    "Status": {"integrators", "maximal"},
    "aerial_manipulator": {"models", "systems"},
    "integrate": {"integrators", "lgjax", "maximal"},
    "damper": {"actuators", "forces"},
    "kinetic_energy": {"collisions", "lgjax", "sensors"},
    "potential_energy": {"collisions", "lgjax", "sensors"},
    "total_energy": {"collisions", "lgjax"},
}


def names(space: ModuleType) -> list[str]:
    """The public names of a namespace: its __all__, or what it defines itself."""
    defined = [
        n for n, x in vars(space).items() if not n.startswith("_") and getattr(x, "__module__", "") == space.__name__
    ]
    return list(getattr(space, "__all__", defined))


def test_flat_names_are_few_and_exist():
    assert len(lgjax.__all__) == len(set(lgjax.__all__)) <= 85
    for name in lgjax.__all__:
        assert hasattr(lgjax, name), name


def test_the_list_of_names_is_that_of_the_library_alone():
    shown = {name for name in dir(lgjax) if not name.startswith("__")}
    assert shown == {*lgjax.__all__, *NAMESPACES, "cache_programs"}


def test_type_checkers_see_the_namespaces():
    """Of an installed package they take only what `__all__` lists for public."""
    written = ast.parse(inspect.getsource(lgjax))
    (added,) = (node for node in ast.walk(written) if isinstance(node, ast.AugAssign))
    assert {*ast.literal_eval(added.value)} == {*NAMESPACES, "cache_programs"}


MOVED = {
    "TS2": "there is lgjax.groups.TS2",
    "BounceSolution": "there is lgjax.collisions.BounceSolution",
    "ControlSystem": "there is lgjax.control.ControlSystem",
    "inverse_dynamics_derivatives": "it is now lgjax.inverse_dynamics_time_derivatives",
    "integrate_constrained": "it is now lgjax.maximal.integrate",
}


@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_is_not_flat_says_where_it_is(name):
    with pytest.raises(AttributeError, match=f"^module 'lgjax' has no attribute '{name}'; {MOVED[name]}$"):
        getattr(lgjax, name)
    with pytest.raises(AttributeError, match=r"^module 'lgjax' has no attribute 'nonsense'$"):
        lgjax.nonsense  # noqa: B018


@pytest.mark.parametrize("new", sorted(set(RENAMED.values())))
def test_the_new_names_exist(new):
    for path in re.findall(r"(?:lgjax|jax)(?:\.\w+)+", new):
        assert pkgutil.resolve_name(path) is not None


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespaces_hold_what_they_list(name):
    space = getattr(lgjax, name)
    assert isinstance(space, ModuleType)
    assert names(space)
    for member in names(space):
        assert hasattr(space, member), f"{name}.{member}"


def test_no_name_means_two_things():
    meanings: dict[str, dict[int, set[str]]] = {}
    for place, space in (("lgjax", lgjax), *((name, getattr(lgjax, name)) for name in NAMESPACES)):
        for name in names(space):
            meanings.setdefault(name, {}).setdefault(id(getattr(space, name)), set()).add(place)
    twice = {name: set().union(*places.values()) for name, places in meanings.items() if len(places) > 1}
    assert {n: p for n, p in twice.items() if not p <= SHARED.get(n, set()) | {"multibody"}} == {}


@pytest.mark.parametrize("name", lgjax.__all__)
def test_flat_names_are_documented(name):
    """A value such as RK4 is documented by its class."""
    thing = getattr(lgjax, name)
    own = isinstance(thing, type | ModuleType) or inspect.isfunction(thing)
    text = inspect.getdoc(thing if own else type(thing))
    assert text
    assert not text.startswith("What ")


@pytest.mark.parametrize("place", ["lgjax", *NAMESPACES])
def test_public_signatures_are_annotated(place):
    space = lgjax if place == "lgjax" else getattr(lgjax, place)
    for function in filter(inspect.isfunction, (getattr(space, name) for name in names(space))):
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty, function.__name__
        for parameter in signature.parameters.values():
            assert parameter.annotation is not parameter.empty, f"{function.__name__}({parameter.name})"


@pytest.mark.parametrize("name", [name for name in lgjax.__all__ if callable(getattr(lgjax, name))])
def test_signatures_are_readable(name):
    """`help` shows types by the names that people write, not where they are defined or what aliases stand for."""
    try:
        shown = str(inspect.signature(getattr(lgjax, name)))
    except ValueError:  # of a class without one, such as a flag
        return
    assert not re.search(r"\blgjax\.|Union\[|jaxlib|<function| at 0x", shown)


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespaces_are_imported_by_their_public_names(name):
    space, here = importlib.import_module(f"lgjax.{name}"), getattr(lgjax, name)
    assert all(getattr(space, x) is getattr(here, x) for x in names(here))
    for x in names(here) if space is not here else ():  # as tools for documentation find them
        assert pkgutil.resolve_name(f"lgjax.{name}.{x}") is getattr(here, x)


def described(docstring: str) -> list[str]:
    """The names in the section "Args:" of a docstring, several to an entry where commas separate them."""
    section = re.search(r"^Args:\n((?:    .*\n|\n(?=    ))+)", docstring + "\n", re.M)
    entries = re.findall(r"^    (\w+(?:, \w+)*): ", section[1] if section else "", re.M)
    return [name for entry in entries for name in entry.split(", ")]


def first_met() -> list[str]:
    """Functions and, of the namespaces for contact, control and learning, those that drive them."""
    flat = [name for name in lgjax.__all__ if inspect.isfunction(getattr(lgjax, name))]
    spaces = [(place, getattr(lgjax, place)) for place in ("contact", "control", "adapters")]
    further = [f"{at}.{x}" for at, space in spaces for x in names(space) if inspect.isfunction(getattr(space, x))]
    classes = ["Contacts", "Joint", "Body", "contact.TimeStepping", "contact.EventDriven", "contact.HeightField"]
    return flat + further + classes + ["control.ControlSystem.of_model", "adapters.Environment", "shapes.distance"]


@pytest.mark.parametrize("name", first_met())
def test_docstrings_describe_every_argument(name):
    """One or two arguments may be part of the first sentence."""
    function = pkgutil.resolve_name(f"lgjax:{name}")
    parameters = list(inspect.signature(function).parameters)
    found = described(inspect.getdoc(function) or "")
    assert len(found) == len(set(found))
    if len(parameters) > 2 or found:
        assert set(found) == set(parameters)


def test_arguments_are_found_in_a_docstring():
    text = "Sum.\n\nArgs:\n    a, b: terms, as in\n        `f`: numbers.\n    scale: a factor.\n\nc: not one.\n"
    assert described(text) == ["a", "b", "scale"]
