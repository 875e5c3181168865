"""The classical formulations: composition of angles, rates, and motions beside the group's and Exudyn's."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.spatial.transform import Rotation

from lgjax import SE3, GeneralizedAlpha, R3xSO3, maximal, so3
from lgjax.maximal.classical import body_rate, compose_tait_bryan_angles, rotation_matrix
from lgjax.systems import heavy_top_maximal
from tests.oracles import heavy_top as oracle

KINDS = ("euler_parameters", "tait_bryan")
END = 0.02
REFERENCE = oracle.solve(END)


def angles(n, seed=0):
    """Angles whose second is within its range."""
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (n, 3))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=lambda d: d.__name__)
def test_angles_compose_as_their_rotations_do(dtype):
    first, second = angles(50), angles(50, 1)
    turned = Rotation.from_euler("XYZ", first) * Rotation.from_euler("XYZ", second)
    found = compose_tait_bryan_angles(jnp.asarray(first, dtype), jnp.asarray(second, dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(
        Rotation.from_euler("XYZ", np.asarray(found, np.float64)).as_matrix(), turned.as_matrix(),
        atol=20 * jnp.finfo(dtype).eps,
    )  # fmt: skip
    assert np.all(np.abs(found[:, 1]) <= np.pi / 2)
    np.testing.assert_allclose(compose_tait_bryan_angles(found, 0 * found), found, atol=100 * jnp.finfo(dtype).eps)


@pytest.mark.parametrize("kind", KINDS)
def test_rates_of_parameters_are_those_of_the_rotation(kind):
    """R' = R hat(ω), for Euler parameters of length one and rates along the sphere."""
    rng = np.random.default_rng(2)
    rho = angles(1)[0] if kind == "tait_bryan" else rng.normal(size=4)
    rate = rng.normal(size=rho.shape)
    if kind == "euler_parameters":
        rho = rho / np.linalg.norm(rho)
        rate = rate - rho * (rho @ rate)
    r, turning = jax.jvp(lambda x: rotation_matrix(kind, x), (jnp.asarray(rho),), (jnp.asarray(rate),))
    np.testing.assert_allclose(r.T @ turning, so3.hat(body_rate(kind, jnp.asarray(rho), jnp.asarray(rate))), atol=1e-14)


def top_error(kind, group, steps, constrained=True):
    """Error of the center of mass and of the body rates (relative), and of the multipliers."""
    problem = heavy_top_maximal(constrained, group=group)
    run = jit(
        lambda q, v: maximal.integrate(
            problem.system, q, v, 0.0, END, steps, GeneralizedAlpha(0.6), save_every=None, rotations=kind
        )
    )
    s = run(problem.q0, problem.v0)
    assert s.success
    r, w, x, _, force = REFERENCE
    place = np.max(np.abs(s.q.bodies.rotation[0, 0] - r))
    found = [place, np.max(np.abs(s.v[0, :3] - w)) / 150.0]
    if constrained:
        found += [np.max(np.abs(s.q.bodies.translation[0, 0] - x)), np.max(np.abs(s.multipliers[0] - force)) / 1e5]
        assert s.multipliers.shape == (1, 3)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("constrained", [True, False], ids=["held", "turning"])
@pytest.mark.parametrize("group", [R3xSO3, SE3], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_the_classical_formulations_have_order_two(kind, group, constrained):
    errors = [top_error(kind, group, steps, constrained) for steps in (400, 800)]
    for a, b in pairwise(errors):
        assert np.all(b < np.maximum(a / 3.3, 1e-9))
    assert errors[-1][0] < 1e-3


@pytest.mark.parametrize(("kind", "node"), [*zip(KINDS, ("EP", "Rxyz"), strict=True)])
def test_the_classical_formulations_move_as_exudyn_s_do(kind, node):
    """The top with its tip held, where both solve the same equations to the tolerance of Newton's iteration."""
    from tests.oracles import exudyn_systems

    p, steps, end = heavy_top_maximal(), 40, 0.004
    mechanism, body = exudyn_systems.heavy_top(node)
    mechanism.solve(end, steps, rtol=1e-11)
    method = GeneralizedAlpha(0.9, rtol=1e-11)
    s = maximal.integrate(p.system, p.q0, p.v0, 0.0, end, steps, method, save_every=None, rotations=kind)
    assert s.success
    np.testing.assert_allclose(s.q.bodies.translation[0, 0], mechanism.position(body), atol=1e-9)


def test_an_unknown_choice_of_rotations_is_an_error():
    p = heavy_top_maximal()
    with pytest.raises(ValueError, match="rotations must be one of"):
        maximal.integrate(p.system, p.q0, p.v0, 0.0, 0.1, 1, rotations="quaternion")
