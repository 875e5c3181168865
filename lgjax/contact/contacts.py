"""Where a tree can touch: shapes fixed to its links, the ground, and pairs of links.

Read first: `geometry/candidates.py`, what of a shape can touch. Next: `geometry/detection.py`, which finds gaps and
normals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.geometry.candidates import Corners, corners_of, parts_of, patch_of, points_towards
from lgjax.contact.geometry.height_field import HeightField
from lgjax.contact.geometry.pairs import Couples, touching
from lgjax.dynamics.jacobians import carrier
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.shapes.contact import Plane, Shape

Array = jax.Array
Ground = Plane | HeightField
LEAVES = ("friction", "restitution", "smoothing", "grounds", "corners", "solids", "segments", "couples")
STATIC = ("names", "links", "corner_links", "corner_counts", "solid_links", "limited", "dry", "nearest")


@jax.tree_util.register_pytree_node_class
class Contacts:
    """Places where links of a model can touch the ground and one another, with friction and restitution.

    A candidate is a point of a shape that may touch a ground: each corner of a shape (one of a sphere, two of a
    capsule, eight of a box), six points of a cylinder, and the support point of any other shape. `names` lists the n
    candidates. Two shapes of a pair have one candidate if one of them is round (two capsules, too), `points` of them if
    both have faces (boxes, polyhedra, cylinders), and two if one of these is a capsule. While the bounding balls of two
    shapes are farther apart than an eighth of their radii, the gap is that of the balls: shapes that pass each other
    and move by more than this in a step may touch before they meet.

    Friction, restitution, smoothing, shapes and grounds are pytree leaves: they can be batched, differentiated, and
    exchanged without compiling again.

    Args:
        model: for its links and dtype; a `Robot` alone touches the planes of its file, with the larger of two
            frictions.
        ground: planes, height fields, or several of them, world frame.
        shapes: {link: shape or shapes}, where links are names of bodies or frames and shapes are of `lgjax.shapes` in
            the link's frame, m. None takes the collision geometry that came with the model (`Model.geometry`, without
            meshes that were not read and shapes whose group and mask exclude every contact); a list of links takes only
            theirs.
        pairs: (link, link), whose shapes can touch each other, any convex ones and unions of them; for links in
            `Robot.pairs` only the shapes that their file lets touch.
        friction: coefficient >= 0, one number or (n,). None takes that of the model's geometry where this is used and
            has one, otherwise 1; in a pair the larger one, as in MuJoCo.
        restitution: coefficient in 0..1, one number or (n,). None means none, and saves time; 0 also keeps account of
            the energy, so that bodies in pairs that turn on each other gain none.
        smoothing: one number >= 0, m: the distance at which a rigid contact acts before it closes, so that gradients
            see it. At this distance it carries the weight of the mass that it moves. 0 is the rigid law itself, as is
            None, which saves time. Only `TimeStepping` has it.
        joint_limits: whether the model's joint limits (`lower`, `upper`) are part of the rigid problem, True, False or
            a list of names of joints. True takes the joints that have finite limits when the contacts are made.
        joint_friction: the same for dry friction (`friction`). Both need no ground, and only `TimeStepping` has them.
        points: number of candidates on a ground of a polyhedron with more corners than this, and than eight: its
            deepest corner, and those that spread widest among the next to touch. They jump from corner to corner as the
            body turns, which `TimeStepping` takes; a corner that was not among them may sink in for one step, by a part
            of its speed times dt. For `EventDriven` and `forces.contact` give as many points as there are corners.
        nearest: number of candidates that act in a step of `TimeStepping`, None for all: those with the least gaps at
            the end of the step without contacts. The status says TOO_MANY_NEAR where more of them meet. It saves time
            where few of many candidates are near. With it, restitution takes all contacts for one part of the
            mechanism.

    Raises:
        ValueError: naming the cause: an unknown link, a link that is fixed to the world, a shape without support
            function, pairs of shapes that are not convex, of links on one body or given twice, negative friction,
            restitution outside 0..1, a joint that has no limits or more than one coordinate, or nothing that can touch.
    """

    def __init__(
        self, model: Model | Mechanism, ground: Ground | Sequence[Ground] = (),
        shapes: Mapping[str, Shape | Sequence[Shape]] | Sequence[str] | None = None,
        pairs: Sequence[tuple[str, str]] = (), friction: Any = None, restitution: Any = None, smoothing: Any = None,
        joint_limits: bool | Sequence[str] = False, joint_friction: bool | Sequence[str] = False, points: int = 4,
        nearest: int | None = None,
    ):  # fmt: skip
        mechanism, model = model, checked_model(model, leaves=True)
        dtype = model.dtype
        own = () if ground or pairs or shapes is not None else grounds_of(mechanism)
        self.grounds = _grounds([Plane(np.asarray(one.normal, float), one.offset) for one in own] or ground, dtype)
        alone = not self.grounds and not pairs  # joints alone
        points = checks.integer("points", points)
        filters = getattr(mechanism, "shape_pairs", {}) if pairs and not isinstance(shapes, Mapping) else {}
        fixed = [] if alone and shapes is None else _fixed_shapes(model, shapes, points, own)
        self.names, self.links, usual = _candidates(self.grounds, fixed, dtype, self)
        missing = {k for pair in filters for k in pair} - {one.number for one in fixed}  # which only pairs touch
        fixed = fixed + (_checked(model, _numbered(model, sorted(missing)), points) if shapes is None else [])
        found = touching(model, fixed, pairs, points, filters)
        self.segments, self.couples, usual = found.segments, found.couples, usual + found.friction
        self.names = (*self.names, *(f"{first} on {second}" for first, second in found.links))
        self.links = (*self.links, *found.links)
        self.limited = _limited(model, joint_limits)
        self.dry = _dry(model, joint_friction)
        if not (self.names or self.limited or self.dry):
            raise ValueError("nothing can touch: give a ground or pairs, and shapes")
        count = (len(self.names),)
        bound = len(self.names) if nearest is None else checks.integer("nearest", nearest)
        self.nearest = bound if bound < len(self.names) else None
        if own:
            usual = np.maximum(usual, np.repeat([one.friction for one in own], len(usual) // len(own)))
        self.friction = _law("friction", np.asarray(usual, float) if friction is None else friction, count, dtype)
        self.smoothing = _law("smoothing", smoothing, (), dtype)
        self.restitution = _law("restitution", restitution, count, dtype)

    @classmethod
    def none(cls, model: Model | Mechanism) -> Contacts:
        """The contacts of a mechanism that touches nothing."""
        found = object.__new__(cls)
        found.grounds, found.corners, found.solids, found.segments, found.couples = (), None, (), None, ()
        found.names, found.links, found.corner_links, found.corner_counts, found.solid_links = (), (), (), (), ()
        found.limited, found.dry, found.nearest = (), (), None
        found.friction = jnp.zeros(0, checked_model(model).dtype)
        found.restitution = found.smoothing = None
        return found

    # grounds: planes and height fields.  corners: Corners (k,), links of each in `corner_links`, how many each shape
    # has in `corner_counts`.  solids: shapes without corners, their links in `solid_links`.  segments: two Corners with
    # axes (pairs, 2) and (pairs, 1).  couples: pairs of other shapes.  links: for each candidate the link that touches
    # and the other one, None for the ground.
    corners: Corners | None
    solids: tuple[Shape, ...]
    segments: tuple[Corners, Corners] | None
    couples: tuple[Couples, ...]
    # limited, dry: bodies behind the joints whose limits and dry friction are part of the problem.
    corner_links: tuple[str, ...]
    corner_counts: tuple[int, ...]
    solid_links: tuple[str, ...]
    limited: tuple[int, ...]
    dry: tuple[int, ...]
    # nearest: how many act at a time; None for all.
    nearest: int | None

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self.names)

    def __repr__(self) -> str:
        return f"Contacts({', '.join(self.names)})"

    def replace(self, **changes: Any) -> Contacts:
        """A copy with other friction, restitution, smoothing or grounds of the same kinds.

        Nothing is compiled again, except for height fields of another size, and where restitution or smoothing becomes
        None or ceases to be. Raises TypeError or ValueError for other names or kinds of grounds, and for numbers that
        `Contacts` does not take.
        """
        unknown = set(changes) - {"friction", "restitution", "smoothing", "grounds"}
        if unknown:
            raise ValueError(f"contacts have no {', '.join(sorted(unknown))} to replace")
        copy = jax.tree.map(lambda x: x, self)
        for name, value in changes.items():
            old = getattr(self, name)
            if name == "grounds":
                value = _grounds(value, self.friction.dtype)
                if [type(x) for x in value] != [type(x) for x in old]:
                    raise ValueError(f"grounds are replaced by grounds of the same kinds, got {checks.shown(value)}")
            else:
                shape = self.friction.shape[:-1] if name == "smoothing" else self.friction.shape
                value = _law(name, value, shape, self.friction.dtype)
            setattr(copy, name, value)
        return copy

    def astype(self, dtype) -> Contacts:
        """The same contacts with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    def tree_flatten(self):
        return tuple(tuple(getattr(self, name) for name in names) for names in (LEAVES, STATIC))

    @classmethod
    def tree_unflatten(cls, static, leaves) -> Contacts:
        contacts = object.__new__(cls)
        for name, value in zip((*LEAVES, *STATIC), (*leaves, *static), strict=True):
            setattr(contacts, name, value)
        return contacts


def _law(name: str, value: Any, shape: tuple[int, ...], dtype) -> Any:
    """A checked number of the law of contact; None for no restitution and no smoothing."""
    if name != "friction" and value is None:
        return None
    what = f"{name} of the contacts"
    found = checks.array(what, value, shape, dtype)
    if name != "restitution":
        return checks.positive(what, found, allow_zero=True)
    if checks.known(found) and not np.all(good := (np.asarray(found) >= 0) & (np.asarray(found) <= 1)):
        raise ValueError(f"{what} must lie between 0 and 1, got {checks.entries(found, ~good)}")
    return found


def in_range(contacts: Contacts, model: Model) -> Array:
    """Whether friction, restitution, smoothing and the numbers of the joints that act are in their ranges, () bool.

    It is for the status of a step: traced numbers are not checked when contacts are made.
    """
    at = lambda values, starts, bodies: values[np.asarray([starts[body] for body in bodies], int)]
    dry = at(model.friction, model.tree.v_start, contacts.dry)
    lower, upper = (at(x, model.tree.q_start, contacts.limited) for x in (model.lower, model.upper))
    finite = [contacts.friction] if contacts.smoothing is None else [contacts.friction, contacts.smoothing]
    good = [x >= 0 for x in (dry, *finite)]
    good += [x < jnp.inf for x in finite]
    if contacts.restitution is not None:
        good += [contacts.restitution >= 0, contacts.restitution <= 1]
    return jnp.all(jnp.concatenate([jnp.ravel(x) for x in (*good, lower <= upper)]))


def _scalar_joints(model: Model) -> dict[str, int]:
    """Bodies behind joints with one coordinate, by the names of the joints."""
    tree = model.tree
    return {
        tree.joint_names[i]: i for i, kind in enumerate(tree.kinds) if kind.coordinates == "joints" and kind.nv == 1
    }


def _named_joints(model: Model, joints: Sequence[str], what: str) -> tuple[int, ...]:
    known = _scalar_joints(model)
    for name in joints:
        if name not in known:
            raise ValueError(
                f"{what}: {model.name!r} has no joint {name!r} with one coordinate; it has {sorted(known)}"
            )
    return tuple(known[name] for name in joints)


def _limited(model: Model, joints: bool | Sequence[str]) -> tuple[int, ...]:
    """Bodies behind joints whose limits act."""
    if joints is False:
        return ()
    taken = tuple(_scalar_joints(model).values()) if joints is True else _named_joints(model, joints, "joint_limits")
    if not checks.known(model.lower, model.upper):
        return taken
    tree, lower, upper = model.tree, np.asarray(model.lower), np.asarray(model.upper)
    finite = [b for b in taken if np.isfinite(lower[tree.q_start[b]]) or np.isfinite(upper[tree.q_start[b]])]
    if joints is not True and len(finite) < len(taken):
        missing = [tree.joint_names[b] for b in taken if b not in finite]
        raise ValueError(f"joint_limits: the joints {missing} of {model.name!r} have no limits")
    return tuple(finite)


def _dry(model: Model, joints: bool | Sequence[str]) -> tuple[int, ...]:
    """Bodies behind joints whose dry friction acts."""
    if joints is False:
        return ()
    if joints is not True:
        return _named_joints(model, joints, "joint_friction")
    taken = tuple(_scalar_joints(model).values())
    if not checks.known(model.friction):
        return taken
    return tuple(b for b in taken if np.asarray(model.friction)[model.tree.v_start[b]] > 0)


def grounds_of(mechanism: Any) -> tuple[Any, ...]:
    """The planes in the file of a robot, if something of it may touch one of them; none of a model."""
    grounds = getattr(getattr(mechanism, "contacts", None), "grounds", ())
    return grounds if _touching(checked_model(mechanism), grounds) else ()


def _touching(model: Model, grounds: Sequence[Any] = ()) -> list[Any]:
    """The shapes that came with the model, move and can touch something: of grounds with filters one of these."""
    meets = lambda one, ground: one.group & ground.mask or one.mask & ground.group
    moving = [one for one in model.geometry if one.kind != "mesh" and carrier(model, one.link)[0] >= 0]
    return [
        one
        for one in moving
        if (one.group or one.mask) and (not grounds or any(meets(one, ground) for ground in grounds))
    ]


def _grounds(ground: Any, dtype) -> tuple[Ground, ...]:
    grounds = tuple(ground) if isinstance(ground, list | tuple) else (ground,)
    for one in grounds:
        if not isinstance(one, Plane | HeightField):
            raise TypeError(f"a ground is a Plane or a HeightField, not {checks.shown(one)}")
        if isinstance(one, Plane) and one.normal.ndim != 1:
            raise ValueError(f"a ground is one plane, got normals {one.normal.shape}: give a list of planes")
    return tuple(one.astype(dtype) for one in grounds)


class _Fixed(NamedTuple):
    """A shape on a link, and its friction where nothing else is said."""

    link: str
    shape: Shape
    friction: float = 1.0
    number: int = -1  # among those of the model
    whole: Any = None  # the shape before corners were chosen


def _fixed_shapes(
    model: Model, shapes: Mapping | Sequence[str] | None, points: int, grounds: Sequence[Any]
) -> list[_Fixed]:
    """All shapes, unions taken apart; checked. grounds: those of the robot's file, with their filters."""
    if isinstance(shapes, Mapping):
        given = [
            _Fixed(link, one)
            for link, some in shapes.items()
            for one in (some if isinstance(some, list | tuple) else [some])
        ]
    else:
        given = _of_model(model, None if shapes is None else checks.names("shapes", shapes), grounds)
    return _checked(model, given, points)


def _checked(model: Model, given: Sequence[_Fixed], points: int) -> list[_Fixed]:
    found = []
    for link, shape, friction, number, _ in given:
        if not isinstance(shape, Shape):
            raise TypeError(f"shapes of link {link!r} are of lgjax.shapes, not {checks.shown(shape)}")
        if carrier(model, link)[0] < 0:
            raise ValueError(f"link {link!r} is fixed to the world: what cannot move is ground")
        for part in parts_of(shape.astype(model.dtype)):
            if corners_of(part) is None:
                try:
                    jax.eval_shape(lambda part=part: part.support(jnp.ones(3, model.dtype)))
                except (ValueError, NotImplementedError) as error:
                    raise ValueError(f"a shape of link {link!r} has no support function: {error}") from None
            found.append(_Fixed(link, patch_of(part, points) or part, friction, number, part))
    return found


def _of_model(model: Model, links: Sequence[str] | None, grounds: Sequence[Any]) -> list[_Fixed]:
    """The shapes that came with the model; of some links, or of all that move and can touch."""
    if links is None:
        taken = _touching(model, grounds)
        if not taken:
            meshes = model.geometry and all(one.kind == "mesh" for one in model.geometry)
            what = "nothing that can touch" if model.geometry else "no collision geometry"
            what = "meshes alone, which are not read" if meshes else what
            raise ValueError(f"{model.name!r} has {what}: give shapes={{link: shape}}")
    else:
        for link in links:
            if link not in {one.link for one in model.geometry}:
                carrier(model, link)  # which knows the names
                raise ValueError(f"link {link!r} of {model.name!r} came with no collision geometry: give it a shape")
        taken = [one for one in model.geometry if one.link in set(links)]
    which = {id(one) for one in taken}
    return _numbered(model, [k for k, one in enumerate(model.geometry) if id(one) in which])


def _numbered(model: Model, numbers: Sequence[int]) -> list[_Fixed]:
    """Shapes that came with the model, by their numbers."""
    usual = lambda one: 1.0 if one.friction is None else float(one.friction)
    chosen = [(k, model.geometry[k]) for k in numbers]
    return [_Fixed(one.link, one.shape(model.dtype), usual(one), k) for k, one in chosen]


def _candidates(grounds: tuple, fixed: list[_Fixed], dtype, into: Contacts):
    """Names, links and usual friction of all candidates on grounds; corners and solids are put into the contacts."""
    corners, corner_links, solids, solid_links, usual, labels = [], [], [], [], [], []
    for link, shape, friction, *_ in fixed:
        found = corners_of(shape)
        if found is not None:
            corners.append(found)
            corner_links += [link] * len(found.radii)
            usual += [friction] * len(found.radii)
    labels += corner_links
    for link, shape, friction, *_ in fixed:
        if corners_of(shape) is None:
            solids.append(shape)
            solid_links.append(link)
            down = jax.eval_shape(points_towards, shape, jnp.ones(3, dtype))
            labels += [link] * len(down)
            usual += [friction] * len(down)
    names, links = [], []
    for k in range(len(grounds)):
        numbers = dict.fromkeys(labels, 0)
        for link in labels:
            number = f"[{numbers[link]}]" if labels.count(link) > 1 else ""
            numbers[link] += 1
            names.append(f"{link}{number}" + (f" on ground {k}" if len(grounds) > 1 else ""))
            links.append((link, None))
    into.corners = jax.tree.map(lambda *x: jnp.concatenate(x).astype(dtype), *corners) if corners else None
    into.corner_counts = tuple(len(one.radii) for one in corners)
    into.solids, into.corner_links, into.solid_links = tuple(solids), tuple(corner_links), tuple(solid_links)
    return tuple(names), tuple(links), usual * len(grounds)
