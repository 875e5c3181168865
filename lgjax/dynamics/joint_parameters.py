"""Parameters of joints, one for each coordinate of some of them: what the makers of forces share."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.messages import listed


def coordinates_of(
    model: Model | Mechanism, joints: Sequence[str] | None, free: bool = False
) -> tuple[list[str], list[int]]:
    """The joint's name of each velocity coordinate of the joints, and its index.

    joints: None for all but free ones. free: whether these may be named.
    """
    model = checked_model(model)
    tree = model.tree
    known = tree.joint_names if free and joints is not None else model.joint_names
    chosen = known if joints is None else checks.names("joints", joints)
    for name in chosen:
        if name not in known:
            raise ValueError(f"no joint {name!r} in {model.name!r}; joints: {listed(known)}")
    rows = [
        (tree.joint_names[body], i)
        for i, body in enumerate(tree.v_body)
        if tree.joint_names[body] in chosen and (free or tree.kinds[body].coordinates != "free_poses")
    ]
    return [name for name, _ in rows], [i for _, i in rows]


def scalars_of(model: Model, joints: Sequence[str] | None) -> tuple[list[str], list[int], list[int]]:
    """As `coordinates_of`, for scalar coordinates alone, with their indices in `Configuration.joints`."""
    names, index = coordinates_of(model, joints)
    tree = model.tree
    rows = []
    for name, i in zip(names, index, strict=True):
        body = tree.v_body[i]
        if tree.kinds[body].coordinates == "joints":
            rows.append((name, i, tree.q_start[body] + i - tree.v_start[body]))
        elif joints is not None:
            raise ValueError(f"joint {name!r} is a ball: it has no scalar coordinate")
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def parameter(what: str, value, names, dtype, least=0.0, positive: bool = False, finite: bool = True) -> jax.Array:
    """`value` for each of `names` (None: one number), checked where it is known.

    A traced one that is out of range becomes NaN. A force has no status, so the driver reports NOT_FINITE.
    """
    shape = () if names is None else (len(names),)
    if not checks.known(value):
        value = checks.floats(what, value, shape, dtype)
    else:
        checks.real(what, value)
    if np.ndim(value) and np.shape(value) != shape:
        raise ValueError(f"{what} has shape {np.shape(value)}, expected a number or {shape}")
    if not checks.known(value):
        found = jnp.broadcast_to(jnp.asarray(value, dtype), shape)
        return jnp.where(_out_of_range(found, least, positive, finite), jnp.nan, found)
    known = np.broadcast_to(np.asarray(value, float), shape)
    bad = np.asarray(_out_of_range(known, least, positive, finite))
    if bad.any():
        where = "" if names is None else f" of {names[int(np.argmax(bad))]!r}"
        sign = "a number" if least < 0 else "positive" if positive else "at least 0"
        expected = "a finite number" if least < 0 and finite else f"finite and {sign}" if finite else sign
        raise ValueError(f"{what}{where} is {known.ravel()[np.argmax(bad)]:g}, expected {expected}")
    return jnp.broadcast_to(jnp.asarray(value, dtype), shape)


def _out_of_range(x, least: float, positive: bool, finite: bool):
    return ~((x >= least) & ((x > 0) | (not positive)) & ((abs(x) < np.inf) | (not finite)))
