"""The longest step of a controller, as the page on errors gives it: from its gains and an eigenvalue."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax

DT = 2e-3


@pytest.mark.parametrize(("method", "limit"), [(lgjax.contact.TimeStepping(), 2.0), (lgjax.MuntheKaas(lgjax.RK4), 2.8)])
def test_the_inverse_of_the_mass_matrix_says_when_a_controller_is_too_stiff(method, limit):
    model = lgjax.models.chain(3)
    model = model.replace(damping=0 * model.damping, gravity=0 * model.gravity)
    start = lgjax.neutral(model)
    matrix = np.asarray(lgjax.mass_matrix(model, start))
    largest = np.linalg.eigvalsh(np.linalg.inv(matrix))[-1]
    assert largest > 2 / np.diag(matrix).min()  # one joint's inertia is no measure
    v = 1e-3 * jax.random.normal(jax.random.key(0), (model.nv,))

    def growth(kp, kd):
        path = lgjax.rollout(model, start, v, lambda t, q, v: -kp * q.joints - kd * v, DT, 200, method, None)
        return jnp.linalg.norm(path.v) / jnp.linalg.norm(v)

    for fraction in (0.9, 1.1):
        kp, kd = (fraction * limit / DT) ** 2 / largest, fraction * limit / (DT * largest)
        found = growth(kp, 0.0), growth(0.0, kd)
        assert [bool(x < 2) for x in found] == [fraction < 1] * 2, found
