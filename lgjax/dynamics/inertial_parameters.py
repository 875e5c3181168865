"""The ten inertial parameters of each body as a vector, and coordinates of those that a body can have.

The order is m, hx, hy, hz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz: mass (kg), first moment h = mass times the center of mass
(kg m), and the rotational inertia about the origin by the rows of its lower triangle (kg m^2), all in the body frame.
It is Pinocchio's. Read next: `regressor.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.subtree_sums import inertia_to_parent
from lgjax.execution.compiled import compiled
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_arguments, checked_array, checked_model
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm

LOWER = np.tril_indices(3)
ENTRY = np.asarray([[0, 1, 3], [1, 2, 4], [3, 4, 5]])  # of the six moments, at each place of the matrix
NAMES = ("m", "hx", "hy", "hz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")


def parameters_of(inertia: Inertia) -> jax.Array:
    """The ten parameters (..., 10) of inertias."""
    return sm.join(inertia.mass[..., None], inertia.moment, inertia.rotational[..., LOWER[0], LOWER[1]])


def inertia_of(parameters: jax.Array) -> Inertia:
    """The inertias with the parameters (..., 10)."""
    return Inertia(parameters[..., 0], parameters[..., 1:4], parameters[..., 4:][..., ENTRY])


@checked_arguments()
def inertial_parameters(model: Model) -> jax.Array:
    """The inertial parameters (10 nbodies,) of all bodies, ten for each in turn, in body frames.

    The order of the ten is m, hx, hy, hz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz, as in Pinocchio. Bodies are those of
    `Model.body_names`: links on fixed joints count to the body that carries them. Source: [rucker2022] section II.
    """
    rotation, translation = se3.inverse(model.links)
    return parameters_of(jax.vmap(inertia_to_parent)(rotation, translation, model.inertias)).reshape(-1)


def with_inertial_parameters(model: Model | Mechanism, parameters: jax.Array) -> Model:
    """The model with these inertial parameters (10 nbodies,), the inverse of `inertial_parameters`.

    Any numbers pass, also of bodies that cannot exist: in them the dynamics are linear. `from_log_cholesky` gives those
    of bodies that can. If the model is specialized, its inertias become inputs.
    """
    model = checked_model(model, leaves=True)
    parameters = checked_array("parameters", parameters, (10 * model.nbodies,), model.dtype)
    inertia = inertia_of(jnp.asarray(parameters).reshape(-1, 10))
    return model.replace(inertias=jax.vmap(inertia_to_parent)(*model.links, inertia))


# ---- bodies that can exist
def log_cholesky(parameters: jax.Array) -> jax.Array:
    """Coordinates (..., 10) of bodies from their inertial parameters (..., 10), in which every number is a body.

    They are (a, d1, d2, d3, s12, s23, s13, t1, t2, t3): the pseudo-inertia [[S, h], [h^T, m]], S = tr(I)/2 - I, is
    exp(2 a) U U^T with U = [[exp(d1), s12, s13, t1], [0, exp(d2), s23, t2], [0, 0, exp(d3), t3], [0, 0, 0, 1]], so that
    a is half the logarithm of the mass and t the center of mass. Raises ValueError for known parameters of a body that
    cannot exist: the mass or an eigenvalue of the pseudo-inertia is not positive. Of a traced one, whatever is not
    positive counts as nearly zero, so that the result is finite. Source: [rucker2022] eqs. (6)-(8).
    """
    parameters = _ten("parameters", parameters)
    if checks.known(parameters):
        with jax.ensure_compile_time_eval():  # known inside jit too
            inertia = inertia_of(parameters)
            pseudo = np.asarray(_pseudo_inertia(inertia), float)
        checks.positive("parameters: mass", inertia.mass)
        least = np.min(np.linalg.eigvalsh(pseudo), -1)
        if np.any(least <= 0):
            raise ValueError(
                "parameters: the pseudo-inertia of a body is not positive definite: its least eigenvalue is "
                f"{np.min(least):.3g} kg m^2"
            )
    return _to_log_cholesky(parameters)


def from_log_cholesky(theta: jax.Array) -> jax.Array:
    """The inertial parameters (..., 10) of the bodies with the coordinates theta (..., 10), see `log_cholesky`.

    Any finite theta gives a mass and a pseudo-inertia that are positive. Source: [rucker2022] eqs. (6)-(8).
    """
    return _from_log_cholesky(_ten("theta", theta))


def _ten(name: str, value) -> jax.Array:
    arrays = isinstance(value, jax.Array | np.ndarray)
    found = jnp.asarray(value) if arrays else checks.floats(name, value, (10,), float)
    if found.shape[-1:] != (10,) or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(f"{name} must be floating numbers of shape (..., 10), got {found.dtype}{found.shape}")
    return checks.finite(name, found)


def _pseudo_inertia(inertia: Inertia):
    half = sm.trace(inertia.rotational) / 2
    second = sm.diagonal(sm.stack(half, half, half)) - inertia.rotational
    top = jnp.concatenate([second, inertia.moment[..., None]], -1)
    return jnp.concatenate([top, sm.join(inertia.moment, inertia.mass[..., None])[..., None, :]], -2)


@compiled
def _to_log_cholesky(parameters: jax.Array) -> jax.Array:
    inertia = inertia_of(parameters)
    eps, floor = float(jnp.finfo(parameters.dtype).eps), float(jnp.finfo(parameters.dtype).tiny) ** 0.25
    heavy = inertia.mass > floor
    mass = jnp.where(heavy, inertia.mass, 1)
    t = inertia.moment / mass[..., None]
    half = sm.trace(inertia.rotational) / 2
    # about the center of mass, per kg
    second = sm.diagonal(sm.stack(half, half, half)) - inertia.rotational
    C = (second - sm.outer(inertia.moment, t)) / mass[..., None, None]
    least = jax.lax.stop_gradient(jnp.maximum(100 * eps * (jnp.abs(sm.trace(C)) + sm.dot(t, t)), floor))
    root = lambda x: jnp.sqrt(jnp.maximum(x, least))
    u3 = root(C[..., 2, 2])
    s23, s13 = C[..., 1, 2] / u3, C[..., 0, 2] / u3
    u2 = root(C[..., 1, 1] - s23 * s23)
    s12 = (C[..., 0, 1] - s13 * s23) / u2
    u1 = root(C[..., 0, 0] - s12 * s12 - s13 * s13)
    return sm.join(jnp.log(sm.stack(jnp.sqrt(jnp.where(heavy, mass, floor)), u1, u2, u3)), sm.stack(s12, s23, s13), t)


@compiled
def _from_log_cholesky(theta: jax.Array) -> jax.Array:
    a, d1, d2, d3, s12, s23, s13, *_ = sm.components(theta)
    zero, mass, t = jnp.zeros_like(a), jnp.exp(2 * a), theta[..., 7:]
    U = sm.rows(sm.stack(jnp.exp(d1), s12, s13), sm.stack(zero, jnp.exp(d2), s23), sm.stack(zero, zero, jnp.exp(d3)))
    second = sm.matmult(U, U) + sm.outer(t, t)
    whole = sm.trace(second)
    rotational = sm.diagonal(sm.stack(whole, whole, whole)) - second
    return parameters_of(Inertia(mass, mass[..., None] * t, mass[..., None, None] * rotational))
