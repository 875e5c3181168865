"""Functions of groups refuse what does not fit in one sentence, and take lists and integers as numbers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax import groups
from lgjax.execution._jax import is_traced
from lgjax.groups import SE3, SO3, Covector, Pose, Rn, TangentPoint, r3_so3, s3, se3, so3, ts2
from lgjax.groups.arguments import checked
from lgjax.numerics import small_matrix

X, U, G = jnp.ones(3), jnp.ones(6), jnp.eye(3)
POSE = Pose(G, X)
PRODUCT = groups.product(SO3, SE3)
SPHERE = TangentPoint(jnp.asarray([0.0, 0.0, 1.0]), jnp.zeros(3))

# An index beyond the end is clamped by JAX, so that a vector of the wrong length used to give a result.
WRONG = {
    "w has shape (4,), expected (..., 3)": lambda: so3.exp(jnp.ones(4)),
    "w has shape (2,), expected (..., 3)": lambda: so3.exp(jnp.ones(2)),
    "g has shape (3, 4), expected (..., 3, 3)": lambda: so3.log(jnp.ones((3, 4))),
    "g has shape (3,), expected (..., 3, 3)": lambda: so3.act(X, X),
    "g has shape (4, 4), expected (..., 3, 3)": lambda: so3.to_quaternion(jnp.eye(4)),
    "q has shape (3,), expected (..., 4)": lambda: so3.from_quaternion(X),
    "x is bool, expected real numbers of shape (..., 3)": lambda: so3.act(G, jnp.ones(3, bool)),
    "x is complex64, expected real numbers": lambda: so3.act(G, jnp.ones(3, jnp.complex64)),
    "x is None, expected an array of shape (..., 3)": lambda: so3.act(G, None),
    "x is of type list, expected numbers of shape (..., 3)": lambda: so3.act(G, [1.0, "a", 2.0]),
    "x is of type list, expected numbers": lambda: so3.act(G, [[1.0], 2.0, 3.0]),
    "x is of type str, expected an array": lambda: so3.act(G, "abc"),
    "the leading axes do not broadcast: g (2,) and x (4,)": lambda: so3.act(jnp.ones((2, 3, 3)), jnp.ones((4, 3))),
    "g has shape (3,), expected (..., 4)": lambda: s3.compose(X, X),
    "u has shape (3,), expected (..., 6)": lambda: se3.exp(X),
    "g is an array of shape (4, 4), expected a Pose": lambda: se3.log(jnp.eye(4)),
    "g is of type tuple, expected a Pose": lambda: se3.inverse((G, X)),
    "g is of type RotationTranslation, expected a Pose": lambda: se3.inverse(r3_so3.exp(U)),
    "h.translation has shape (2,), expected (..., 3)": lambda: se3.compose(POSE, Pose(G, jnp.ones(2))),
    "g.rotation is of type list, expected numbers": lambda: se3.act(Pose([["a"] * 3] * 3, X), X),
    "m has shape (3, 3), expected (..., 4, 4)": lambda: se3.from_matrix(G),
    "g is an array of shape (3,), expected a RotationTranslation": lambda: r3_so3.to_pose(X),
    "y is an array of shape (3,), expected a TangentPoint": lambda: ts2.act(POSE, X),
    "x has shape (3,), expected (..., 2), for g has 2": lambda: groups.vector.act(jnp.ones(2), X),
    "h has shape (2,), expected (..., 4)": lambda: Rn(4).compose(jnp.ones(4), jnp.ones(2)),
    "v has shape (3,), expected (..., 9)": lambda: PRODUCT.dexp(jnp.ones(9), X),
    "g[1].rotation has shape (2, 3)": lambda: PRODUCT.log((G, Pose(jnp.ones((2, 3)), X))),
    "xi has shape (6,), expected (..., 3)": lambda: groups.left_translation(SO3).move(U, G),
    "y has shape (3,), expected (..., 3, 3)": lambda: groups.right_translation(SO3).move(X, X),
    "y is an array of shape (3, 3), expected a Pose": lambda: groups.right_translation(SE3).move(U, G),
    "xi has shape (5,), expected (..., 6)": lambda: groups.TS2.move(jnp.ones(5), SPHERE),
    "xi is an array of shape (3,), expected a tuple of 2": lambda: groups.two_sided_translation(SO3).move(X, G),
    "mu has shape (2,), expected (..., 3)": lambda: groups.coadjoint_orbit(SO3).move(X, jnp.ones(2)),
    "y.mu has shape (2,)": lambda: groups.cotangent_bundle(SO3).move(U, Covector(G, jnp.ones(2))),
    "y1 is of type list, expected a tuple of 2": lambda: groups.product_space(
        groups.TS2, groups.vector_space(3)
    ).distance((SPHERE, X), [SPHERE, X]),
    "u has shape (2,), expected (..., 6)": lambda: groups.second_kind_coordinates(SE3).exp(jnp.ones(2)),
    "mu has shape (2,), expected (..., 3), for u has 3": lambda: groups.cayley_coordinates(SO3).codexp(X, jnp.ones(2)),
    "dtype must be a floating dtype, such as jnp.float32, got 'text'": lambda: so3.identity("text"),
    "dtype must be a floating dtype, such as jnp.float32, got": lambda: se3.identity(jnp.int32),
    "batch must be a tuple of sizes of axes, got 3": lambda: so3.identity(jnp.float32, 3),
    "batch must be a tuple of sizes of axes, got an array of shape (2, 1)": lambda: so3.identity(
        jnp.float32, np.ones((2, 1), int)
    ),
    "batch[0] must be an integer of at least 0, got -1": lambda: SO3.identity(jnp.float32, (-1,)),
    "n must be a Python integer": lambda: Rn(2.5),
    "n must be a positive integer, got 0": lambda: groups.power_space(groups.TS2, 0),
    "group takes a LieGroup, got 'SO3'": lambda: groups.left_translation("SO3"),
    "spaces takes a HomogeneousSpace, got SO3": lambda: groups.product_space(SO3),
    "flow must be a function, got 1": lambda: groups.frame_space("frame", 2, 1, lambda a, b: a),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_named(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)) as caught:
        jax.eval_shape(WRONG[message])
    assert "\n" not in str(caught.value)


def test_numbers_in_lists_integers_and_numpy_arrays_are_arrays():
    expected = so3.exp(jnp.asarray([0.0, 1.0, 2.0]))
    assert expected.dtype == jnp.float64
    for given in ([0.0, 1.0, 2.0], [0, 1, 2], (0, 1.0, 2), np.arange(3), np.arange(3.0), jnp.arange(3)):
        np.testing.assert_array_equal(so3.exp(given), expected)
    assert so3.exp(np.arange(3, dtype=np.float32)).dtype == jnp.float32
    # a number without a dtype takes that of the others
    assert so3.act(jnp.eye(3, dtype=jnp.float32), [1, 2, 3]).dtype == jnp.float32
    traced = jax.eval_shape(lambda a: so3.act(jnp.eye(3), [a, 1.0, 2]), jnp.ones(()))
    assert traced.dtype == jnp.float64


def test_what_is_known_stays_known_inside_jit():
    def known(x):
        found = checked({"x": (x, (3,))})["x"]
        assert not is_traced(found)
        return found

    for given in ([0.0, 1.0, 2.0], np.arange(3), jnp.arange(3)):
        assert jax.eval_shape(lambda given=given: known(given)).dtype == jnp.float64


def test_leading_axes_and_dtypes_of_parts_may_differ():
    mixed = groups.RotationTranslation(jnp.ones((5, 3, 3), jnp.float32), X)
    bundle, single = groups.cotangent_group(SO3), jnp.ones(6, jnp.float32)
    with jax.numpy_dtype_promotion("standard"):
        matrices = jax.eval_shape(r3_so3.to_matrix, mixed)
        assert (matrices.shape, matrices.dtype) == ((5, 7, 7), jnp.float64)
        assert jax.eval_shape(bundle.dexp, U, single).dtype == jax.eval_shape(bundle.dexp, single, U).dtype == U.dtype
        assert jax.eval_shape(bundle.dexpinv, single, U).dtype == U.dtype


def test_batches_of_none_and_one_pass():
    for lead in ((0,), (1,), (2, 0)):
        found = jax.eval_shape(se3.log, jax.eval_shape(se3.exp, jnp.ones((*lead, 6))))
        assert found.shape == (*lead, 6)
    assert jax.eval_shape(jax.vmap(so3.exp), jnp.ones((0, 3))).shape == (0, 3, 3)
    assert jax.eval_shape(so3.act, jnp.ones((2, 1, 3, 3)), jnp.ones((4, 3))).shape == (2, 4, 3)


def test_names_and_too_many_arguments_are_those_of_the_function():
    np.testing.assert_array_equal(so3.act(x=X, g=G), X)
    for call in (lambda: so3.act(G, X, X), lambda: so3.act(G, X, x=X), lambda: so3.act(G, y=X)):
        with pytest.raises(TypeError, match="argument"):
            call()


def test_records_are_the_same_objects_again():
    assert Rn(3) is Rn(np.int64(3))
    assert groups.left_translation(SO3) is groups.left_translation(SO3)
    assert hash(groups.product(SO3, Rn(2))) == hash(groups.product(SO3, Rn(2)))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (se3.exp, (jnp.ones(6),)),
        (se3.compose, (se3.identity(jnp.float64),) * 2),
        (s3.log, (jnp.asarray([1.0, 0.0, 0.0, 0.0]),)),
        (small_matrix.matmul, (jnp.eye(3),) * 2),
    ],
)
def test_a_function_is_traced_once_however_often_a_program_calls_it(function, args):
    """Nor is its derivative traced again."""
    several = lambda *args: [function(*args) for _ in range(3)]
    for run in (several, lambda *args: jax.jvp(several, args, args)):
        eqns = jax.make_jaxpr(run)(*args).eqns
        assert [eqn.primitive.name for eqn in eqns] == [eqns[0].primitive.name] * 3
        assert len({id(eqn.params["jaxpr"].jaxpr) for eqn in eqns}) == 1
