"""Matrices in float32: small inertias far out on a robot keep their digits, wherever the robot stands."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from tests.dynamics import trees
from tests.oracles import pinocchio_robots as oracle

STATES = 32
ROBOTS = [
    pytest.param("panda"),
    pytest.param("go1", marks=pytest.mark.slow),
    pytest.param("talos_reduced", marks=pytest.mark.slow),
]


def narrow(tree):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)


@cache
def robot(name):
    path = oracle.path(name)
    model = lgjax.load_urdf(path, floating_base=oracle.floating(name), mimic="independent", check_inertia="warn")
    return model, trees.random_states(model, STATES)[:4]


@cache
def found(name):
    """Mass matrices and derivatives of forward dynamics, in float64 and float32."""

    def matrices(model, q, v, vdot, tau):
        return lgjax.mass_matrix(model, q), *lgjax.forward_dynamics_partials(model, q, v, tau)

    function, (model, state) = jax.jit(jax.vmap(matrices, (None, 0, 0, 0, 0))), robot(name)
    of = lambda given: [np.asarray(x, np.float64) for x in function(*given)]
    return of((model, *state)), of(narrow((model, *state)))


def scaled(error, positive):
    """Entries over the roots of the diagonal entries of their row and column."""
    root = np.sqrt(np.diagonal(positive, axis1=1, axis2=2))
    return np.abs(error / root[:, :, None] / root[:, None, :]).max()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ROBOTS)
def test_every_entry_of_the_mass_matrix_and_of_its_inverse_is_precise_for_its_row_and_column(name):
    (M, *_, inverse), (M32, *_, inverse32) = found(name)
    assert scaled(M32 - M, M) < 4e-6
    assert scaled(inverse32 - inverse, inverse) < 4e-5


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ROBOTS)
def test_partials_of_forward_dynamics_keep_their_precision(name):
    exact, rounded = found(name)
    # rotations of the base that float32 rounds, no longer orthonormal, are 2e-6 of it on the humanoid
    bound = 4e-5 if name == "talos_reduced" else 2e-5
    for a, b in zip(rounded[1:], exact[1:], strict=True):
        assert np.abs(a - b).max() < bound * np.abs(b).max()


def mounted() -> lgjax.Model:
    """An arm on the ground."""
    return lgjax.build(
        [
            trees.body("shoulder", None, "revolute", 1),
            trees.body("elbow", "shoulder", "universal", 2),
            trees.body("wrist", "elbow", "spherical", 3),
            trees.body("finger", "wrist", "prismatic", 4),
        ],
        "mounted",
    )


@pytest.mark.parametrize("make", [mounted, trees.shoulder], ids=["mounted", "floating"])
def test_a_kilometre_away_float32_gives_what_it_gives_at_home(make):
    model = make()
    q, v, vdot, _, _ = trees.random_states(model)
    # positions that a kilometer away are numbers of float32, too
    coarse = lambda p: jnp.round(64 * p) / 64
    home = q._replace(free_poses=q.free_poses._replace(translation=coarse(q.free_poses.translation)))
    away = home._replace(free_poses=home.free_poses._replace(translation=home.free_poses.translation + 1024.0))
    far = model
    if not model.tree.n_free:
        shift = jnp.zeros_like(model.placements.translation).at[0].set(1024.0)
        first = model.placements.translation.at[0].set(coarse(model.placements.translation[0]))
        model = model.replace(placements=model.placements._replace(translation=first))
        far = model.replace(placements=model.placements._replace(translation=first + shift))

    def matrices(model, q, v, vdot):
        partials = lgjax.inverse_dynamics_partials(model, q, v, vdot)
        return lgjax.mass_matrix(model, q), lgjax.coriolis_matrix(model, q, v), *partials

    function = jax.jit(jax.vmap(matrices, (None, 0, 0, 0)))
    for a, b in zip(function(*narrow((far, away, v, vdot))), function(*narrow((model, home, v, vdot))), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.abs(b).max())
