"""Sentences that hold in every Lie group."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.groups import S3, SE3, SO3, Rn, product, s3, so3
from tests.groups.cases import CASES, DTYPES, GROUPS, MAGNITUDES, close, eps, vectors
from tests.oracles import matrix_groups as oracle

each_group = pytest.mark.parametrize("name", GROUPS)
each_matrix_group = pytest.mark.parametrize("name", CASES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)


def same_element(group, g, h, tolerance):
    if group.name == "S3":  # two quaternions stand for one rotation
        g = jnp.where(jnp.sum(g * h, axis=-1, keepdims=True) < 0, -g, g)
    close(g, h, tolerance)


@each_group
@each_dtype
def test_group_axioms(name, dtype):
    group = GROUPS[name]

    def terms(a, b, c):
        g, h, k = group.exp(a), group.exp(b), group.exp(c)
        one = group.identity(dtype, (a.shape[0],))
        return (
            (group.compose(group.compose(g, h), k), group.compose(g, group.compose(h, k))),
            (group.compose(g, group.inverse(g)), one),
            (group.compose(group.inverse(g), g), one),
            (group.compose(one, g), g),
            (group.compose(g, one), g),
        )

    for left, right in terms(*(vectors(group, dtype, seed) for seed in range(3))):
        close(left, right, 20 * eps(dtype))


@each_group
@each_dtype
def test_exp_log_is_the_identity(name, dtype):
    group = GROUPS[name]
    u = vectors(group, dtype)
    g = group.exp(u)
    back = jax.jit(group.log)(g)
    same_element(group, group.exp(back), g, 20 * eps(dtype))
    short = np.repeat(np.array(MAGNITUDES) < 3.1, 2)
    close(back[short], u[short], 10 * eps(dtype))


@each_matrix_group
@each_dtype
def test_exp_is_the_matrix_exponential(name, dtype):
    case = CASES[name]
    u = vectors(case.group, dtype)
    expected = np.stack([oracle.exp_matrix(case.hat(row)) for row in np.asarray(u, np.float64)])
    close(case.matrix(case.group.exp(u)), expected, 8 * eps(dtype))


@each_group
@each_dtype
def test_ad_is_a_homomorphism(name, dtype):
    group = GROUPS[name]
    g, h, x = group.exp(vectors(group, dtype, 0)), group.exp(vectors(group, dtype, 1)), vectors(group, dtype, 2)
    close(group.Ad(group.compose(g, h), x), group.Ad(g, group.Ad(h, x)), 40 * eps(dtype))
    close(group.Ad(group.inverse(g), group.Ad(g, x)), x, 40 * eps(dtype))


@each_matrix_group
@each_dtype
def test_ad_of_exp_is_exp_of_ad(name, dtype):
    case = CASES[name]
    u, x = vectors(case.group, dtype), vectors(case.group, dtype, 1)
    expected = [
        oracle.series_exp(oracle.ad_matrix(case.hat, a)) @ b
        for a, b in zip(np.asarray(u, np.float64), np.asarray(x, np.float64))
    ]
    close(case.group.Ad(case.group.exp(u), x), np.stack(expected), 20 * eps(dtype))


@each_matrix_group
@each_dtype
def test_bracket_is_the_commutator_and_hat_has_an_inverse(name, dtype):
    case = CASES[name]
    group = case.group
    x, y = vectors(group, dtype), vectors(group, dtype, 1)
    expected = [oracle.ad_matrix(case.hat, a) @ b for a, b in zip(np.asarray(x, np.float64), np.asarray(y, np.float64))]
    close(group.ad(x, y), np.stack(expected), 8 * eps(dtype))
    close(group.vee(group.hat(x)), x, 0.0)
    if group.name != "S3":
        close(group.hat(x), np.stack([case.hat(row) for row in np.asarray(x, np.float64)]), 0.0)
    else:
        close([oracle.left_quaternion(q) for q in np.asarray(group.hat(x))], [case.hat(r) for r in np.asarray(x)], 0.0)


@each_group
@each_dtype
def test_normalize_leaves_elements_and_their_tangents_as_they_are(name, dtype):
    group = GROUPS[name]
    u = vectors(group, dtype)
    along = lambda x: jax.jvp(group.exp, (u,), (x,))
    g, tangent = along(vectors(group, dtype, 1))
    found, its_tangent = jax.jvp(group.normalize, (g,), (tangent,))
    close(found, g, 4 * eps(dtype))
    for a, b in zip(jax.tree.leaves(its_tangent), jax.tree.leaves(tangent), strict=True):
        np.testing.assert_allclose(a, b, atol=40 * eps(dtype) * np.abs(b).max())


def test_normalize_finds_the_nearest_rotation_and_quaternion():
    u = vectors(SO3, jnp.float64)
    off = 1e-5 * np.random.default_rng(0).standard_normal((len(u), 3, 3))
    R, q = so3.exp(u) + off, s3.exp(u) * (1 + 1e-5)
    U, _, Vt = np.linalg.svd(R)
    close(so3.normalize(R), U @ Vt, 1e-8)
    close(s3.normalize(q), s3.exp(u), 1e-9)


@each_group
@each_dtype
def test_duals_are_transposes(name, dtype):
    group = GROUPS[name]
    u = vectors(group, dtype)
    basis = jnp.eye(group.dim, dtype=dtype)
    pairs = (("Ad", "coAd", group.exp(u)), ("ad", "coad", u), ("dexp", "codexp", u), ("dexpinv", "codexpinv", u))
    for primal, dual, first in pairs:
        columns = jax.vmap(getattr(group, primal), (None, 0), 1)(
            first, jnp.broadcast_to(basis[:, None], (group.dim, *u.shape))
        )
        co_columns = jax.vmap(getattr(group, dual), (None, 0), 1)(
            first, jnp.broadcast_to(basis[:, None], (group.dim, *u.shape))
        )
        close(columns, jnp.swapaxes(co_columns, -1, -2), 10 * eps(dtype))


@each_group
@each_dtype
def test_dtype_is_kept_and_never_weak(name, dtype):
    group = GROUPS[name]

    def every_function(u, v):
        g, h = group.exp(u), group.exp(v)
        return {
            "identity": group.identity(dtype),
            "inverse": group.inverse(g),
            "compose": group.compose(g, h),
            "exp": g,
            "log": group.log(g),
            "hat": group.hat(u),
            "vee": group.vee(group.hat(u)),
            "cay": group.cay(u),
            "cayinv": group.cayinv(g),
            "distance": group.distance(g, h),
            "normalize": group.normalize(g),
            **{f: getattr(group, f)(g, v) for f in ("Ad", "coAd")},
            **{f: getattr(group, f)(u, v) for f in ("ad", "coad", "dexp", "dexpinv", "codexp", "codexpinv")},
            **{f: getattr(group, f)(u, v) for f in ("dcay", "dcayinv")},
        }

    results = jax.eval_shape(every_function, vectors(group, dtype), vectors(group, dtype, 1))
    for function, result in results.items():
        for leaf in jax.tree.leaves(result):
            assert leaf.dtype == dtype, function
            assert not leaf.weak_type, function


@each_group
def test_leading_axes_broadcast_and_vmap_is_a_loop(name):
    group = GROUPS[name]
    u = vectors(group, jnp.float64)[:6].reshape(2, 3, group.dim)
    v = vectors(group, jnp.float64, 1)[6:9]  # (3, dim) against (2, 3, dim)
    whole = group.dexpinv(u, v)
    close(whole, jax.vmap(jax.vmap(group.dexpinv), (0, None))(u, v), 1e-15)
    close(whole[1, 2], group.dexpinv(u[1, 2], v[2]), 1e-15)
    g, h = group.exp(u), group.exp(v)
    close(group.Ad(g, v), jax.vmap(jax.vmap(group.Ad), (0, None))(g, v), 1e-15)
    close(group.compose(g, h), jax.vmap(jax.vmap(group.compose), (0, None))(g, h), 1e-15)
    assert group.distance(g, h).shape == (2, 3)
    assert [leaf.shape[:2] for leaf in jax.tree.leaves(group.identity(jnp.float32, (2, 3)))] == [(2, 3)] * len(
        jax.tree.leaves(g)
    )


@each_group
def test_distance_is_a_metric_with_finite_gradient(name):
    group = GROUPS[name]
    u = vectors(group, jnp.float64, 3, (0.4,))
    g, h = group.exp(u[0]), group.exp(u[1])
    assert group.distance(g, g) < 1e-15
    np.testing.assert_allclose(group.distance(g, h), group.distance(h, g), rtol=1e-14)
    if name != "product":
        step = 1e-3 * u[1]
        moved = group.compose(g, group.exp(step))
        np.testing.assert_allclose(group.distance(g, moved), np.linalg.norm(step), rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda a: group.distance(group.exp(a), g)))(u[0])
    assert np.all(np.isfinite(gradient))


def test_records_are_values():
    assert Rn(3) is Rn(3)
    assert product(SO3, Rn(2)) is product(SO3, Rn(2))
    again = replace(SE3)  # another object with the same fields
    assert again is not SE3
    assert again == SE3
    assert hash(again) == hash(SE3)
    assert len({again, SE3, SO3}) == 2
    assert SO3 != S3
    assert product(SO3, Rn(2)).dim == 5
    with pytest.raises(ValueError, match=r"u has shape \(4,\), expected \(\.\.\., 5\)"):
        product(SO3, Rn(2)).exp(jnp.zeros((4,), jnp.float64))
    with pytest.raises(ValueError, match="got -1"):
        Rn(-1)


@each_dtype
def test_quaternions_and_matrices_are_the_same_rotations(dtype):
    u, x = vectors(SO3, dtype), vectors(SO3, dtype, 1)
    q, g = s3.exp(u), so3.exp(u)
    close(s3.to_rotation(q), g, 8 * eps(dtype))
    same_element(S3, s3.from_rotation(g), q, 8 * eps(dtype))
    close(s3.act(q, x), so3.act(g, x), 20 * eps(dtype))
    r = s3.exp(x)
    close(s3.to_rotation(s3.compose(q, r)), so3.compose(g, so3.exp(x)), 20 * eps(dtype))
    close(s3.log(-q), s3.log(q), 0.0)


def test_pose_composes_with_names_that_cancel():
    u = vectors(SE3, jnp.float64)
    a, b = SE3.exp(u), SE3.exp(u[::-1])
    x = vectors(SO3, jnp.float64, 5)
    close((a @ b).act(x), a.act(b.act(x)), 1e-14)
    close(a.inverse().act(a.act(x)), x, 1e-14)
