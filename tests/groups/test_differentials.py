"""Differentials of exp, log and cay, and derivatives of the maps themselves, at zero and across the switches."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from lgjax.groups import S3, SE3, SO3, function_of_ad
from tests.groups.cases import CASES, DTYPES, GROUPS, SWITCHES, close, eps, vectors
from tests.oracles import matrix_groups as oracle

each_group = pytest.mark.parametrize("name", GROUPS)
each_matrix_group = pytest.mark.parametrize("name", CASES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)

# Where derivatives are tested: at zero, where people start, and on both sides of each switch.
POINTS = (0.0, 1e-9, 1e-4, 0.5, *(m * (1 + side) for m in SWITCHES for side in (-1e-3, 1e-3)), 3.1)


@each_matrix_group
@each_dtype
def test_dexp_and_dexpinv_are_their_series(name, dtype):
    case = CASES[name]
    u, x = vectors(case.group, dtype), vectors(case.group, dtype, 1)
    pairs = list(zip(np.asarray(u, np.float64), np.asarray(x, np.float64)))
    jacobians = [oracle.dexp_matrix(oracle.ad_matrix(case.hat, a)) for a, _ in pairs]
    close(case.group.dexp(u, x), np.stack([m @ b for m, (_, b) in zip(jacobians, pairs)]), 10 * eps(dtype))
    expected = np.stack([np.linalg.solve(m, b) for m, (_, b) in zip(jacobians, pairs)])
    close(case.group.dexpinv(u, x), expected, 20 * eps(dtype))


@each_group
@each_dtype
def test_dexpinv_inverts_dexp(name, dtype):
    group = GROUPS[name]
    u, x = vectors(group, dtype), vectors(group, dtype, 1)
    close(group.dexpinv(u, group.dexp(u, x)), x, 40 * eps(dtype))
    close(group.dexp(u, group.dexpinv(u, x)), x, 40 * eps(dtype))


@each_group
@each_dtype
def test_ad_of_exp_is_the_quotient_of_left_and_right_jacobian(name, dtype):
    group = GROUPS[name]
    u, x = vectors(group, dtype), vectors(group, dtype, 1)
    close(group.Ad(group.exp(u), x), group.dexp(u, group.dexpinv(-u, x)), 40 * eps(dtype))


@each_matrix_group
def test_dexp_is_the_derivative_of_exp(name):
    """d/dt exp(u + t v) = hat(dexp(u, v)) exp(u), and the same sentence for cay and dcay."""
    case = CASES[name]
    group = case.group
    u, v = vectors(group, jnp.float64), vectors(group, jnp.float64, 1)
    for f, df in ((group.exp, group.dexp), (group.cay, group.dcay)):
        # log of the quotient is smooth, its derivative at the identity is the identity.
        def quotient(t, f=f):
            return group.log(group.compose(f(u + t * v), group.inverse(f(u))))

        zero, one = jnp.zeros((), jnp.float64), jnp.ones((), jnp.float64)
        rate = jax.jit(lambda q=quotient: jax.jvp(q, (zero,), (one,))[1])()  # noqa: B023
        close(rate, df(u, v), 1e-13)


@each_matrix_group
@each_dtype
def test_cayley_is_its_formula(name, dtype):
    case = CASES[name]
    group = case.group
    u, x = vectors(group, dtype), vectors(group, dtype, 1)
    halves = [case.hat(row) / 2 for row in np.asarray(u, np.float64)]
    expected = np.stack([np.linalg.solve(np.eye(len(m)) - m, np.eye(len(m)) + m) for m in halves])
    if name == "S3":  # the unit quaternion over the Cayley rotation, whose half angle has tangent |u|/2
        expected = np.stack([(np.eye(4) + 2 * m) / np.linalg.det(np.eye(4) + 2 * m) ** 0.25 for m in halves])
    close(case.matrix(group.cay(u)), expected, 8 * eps(dtype))
    close(group.cayinv(group.cay(u)), u, 20 * eps(dtype))
    close(group.dcayinv(u, group.dcay(u, x)), x, 20 * eps(dtype))
    close(group.dcay(u, group.dcayinv(u, x)), x, 20 * eps(dtype))


@pytest.mark.parametrize("name", ["SO3", "S3"])
def test_derivatives_of_exp_are_those_of_the_matrix_exponential(name):
    case = CASES[name]
    group = case.group

    def jacobian(a):
        """Columns d exp(a)[e_i] as matrices, by the oracle."""
        left = oracle.dexp_matrix(oracle.ad_matrix(case.hat, a))
        return np.stack([case.hat(left[:, i]) @ oracle.exp_matrix(case.hat(a)) for i in range(group.dim)], axis=-1)

    def value(a):
        return group.exp(a)

    def entries(columns):
        """Of a quaternion's matrix the first column, which is the quaternion."""
        return columns if name == "SO3" else columns[:, 0]

    first = jax.jit(jax.jacfwd(value))
    second = jax.jit(jax.jacfwd(jax.jacrev(value)))
    for u in np.asarray(vectors(group, jnp.float64, 0, POINTS)):
        close(first(u), entries(jacobian(u)), 1e-13)
        h = 1e-4
        steps = h * np.eye(group.dim)
        difference = np.stack([(jacobian(u + d) - jacobian(u - d)) / (2 * h) for d in steps], axis=-1)
        close(second(u), entries(difference), 2e-8)


@pytest.mark.parametrize(
    ("group", "function"),
    [
        *((SO3, f) for f in ("exp", "dexp", "dexpinv", "cay", "dcayinv")),
        *((SE3, f) for f in ("exp", "dexp", "dexpinv")),
    ],
)
def test_float32_derivatives_agree_with_float64(group, function):
    """First and second, forward over reverse, within 60 eps at zero and on both sides of each switch."""
    f = getattr(group, function)

    def value(a, b):
        leaves = jax.tree.leaves(f(a) if function in ("exp", "cay") else f(a, b))
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    first = jax.jacrev(value)
    derivatives = jax.jit(jax.vmap(lambda a, b: (first(a, b), jax.jacfwd(first)(a, b))))
    u, x = vectors(group, jnp.float32, 0, POINTS), vectors(group, jnp.float32, 1, POINTS)
    single = derivatives(u, x)
    double = derivatives(u.astype(jnp.float64), x.astype(jnp.float64))
    assert all(np.all(np.isfinite(leaf)) for leaf in single)
    close(single, double, 60 * eps(jnp.float32))
    h = 1e-5
    u64, x64 = u.astype(jnp.float64), x.astype(jnp.float64)
    for i in range(group.dim):
        step = h * jnp.eye(group.dim, dtype=jnp.float64)[i]
        ahead, behind = derivatives(u64 + step, x64), derivatives(u64 - step, x64)
        close(double[1][..., i], (ahead[0] - behind[0]) / (2 * h), 1e-8)


@pytest.mark.parametrize("group", [SO3, S3, SE3], ids=repr)
@each_dtype
def test_log_undoes_exp_to_second_order(group, dtype):
    """The Jacobian of log∘exp is the identity and its Hessian vanishes, up to half turns."""
    f = lambda a: group.log(group.exp(a))
    u = vectors(group, dtype, 0, POINTS)
    first, second = jax.jit(jax.vmap(lambda a: (jax.jacrev(f)(a), jax.jacfwd(jax.jacrev(f))(a))))(u)
    close(first, jnp.broadcast_to(jnp.eye(group.dim), first.shape), 60 * eps(dtype))
    close(second, jnp.zeros_like(second), 200 * eps(dtype))


@pytest.mark.parametrize("group", [SO3, S3, SE3], ids=repr)
@each_dtype
def test_derivative_of_log_is_dexpinv(group, dtype):
    """d/dδ log(exp(δ) exp(u)) at δ = 0 is dexpinv(u, .)."""
    u = vectors(group, dtype, 0, POINTS)
    zero = jnp.zeros((group.dim,), dtype)
    basis = jnp.eye(group.dim, dtype=dtype)

    def jacobian(a):
        return jax.jacfwd(lambda d: group.log(group.compose(group.exp(d), group.exp(a))))(zero)

    expected = jax.vmap(lambda a: jax.vmap(lambda e: group.dexpinv(a, e), out_axes=1)(basis))(u)
    close(jax.jit(jax.vmap(jacobian))(u), expected, 60 * eps(dtype))


BERNOULLI = [1.0, -1 / 2, 1 / 6, 0.0, -1 / 30, 0.0, 1 / 42, 0.0, -1 / 30, 0.0, 5 / 66, 0.0, -691 / 2730, 0.0, 7 / 6]
ANALYTIC = {  # φ by its series, and what it is of a matrix
    "exp": ([1 / math.factorial(k) for k in range(40)], scipy.linalg.expm),
    "dexp": ([1 / math.factorial(k + 1) for k in range(40)], oracle.dexp_matrix),
    "cubic": ([2.0, 0.5, -1.0, 0.25], lambda m: 2.0 * np.eye(len(m)) + 0.5 * m - m @ m + 0.25 * m @ m @ m),
    "constant": ([3.0], lambda m: 3.0 * np.eye(len(m))),
}


@each_matrix_group
@each_dtype
@pytest.mark.parametrize("phi", ANALYTIC)
def test_a_function_of_ad_is_that_function_of_the_matrix(name, dtype, phi):
    case = CASES[name]
    coefficients, of_matrix = ANALYTIC[phi]
    u, x = vectors(case.group, dtype), vectors(case.group, dtype, 1)
    u = u * jnp.minimum(1.0, 3.0 / jnp.linalg.norm(u, axis=-1, keepdims=True))
    pairs = list(zip(np.asarray(u, np.float64), np.asarray(x, np.float64)))
    expected = np.stack([of_matrix(oracle.ad_matrix(case.hat, a)) @ b for a, b in pairs])
    found = function_of_ad(case.group, coefficients, u, x)
    assert found.dtype == dtype
    close(found, expected, 400 * eps(dtype))


@each_group
def test_a_function_of_ad_with_the_coefficients_of_a_differential_is_that_one(name):
    group = GROUPS[name]
    u, x = 0.1 * vectors(group, jnp.float64), vectors(group, jnp.float64, 1)
    u = u * jnp.minimum(1.0, 0.3 / jnp.linalg.norm(u, axis=-1, keepdims=True))
    series = [b / math.factorial(k) for k, b in enumerate(BERNOULLI)]
    close(function_of_ad(group, series, u, x), group.dexpinv(u, x), 1e-13)


def test_a_function_of_ad_has_derivatives_at_zero_and_checks_its_arguments():
    series, zero, x = ANALYTIC["exp"][0], jnp.zeros(6), jnp.arange(6.0)
    jacobian = jax.jacrev(lambda u: function_of_ad(SE3, series, u, x))(zero)
    close(jacobian, np.stack([SE3.ad(e, x) for e in jnp.eye(6)], axis=1), 1e-15)
    assert np.all(np.isfinite(jax.hessian(lambda u: function_of_ad(SE3, series, u, x))(zero)))
    with pytest.raises(ValueError, match=r"u has shape \(3,\), the algebra of SE3 takes"):
        function_of_ad(SE3, series, jnp.zeros(3), x)
    with pytest.raises(ValueError, match="coefficients"):
        function_of_ad(SE3, [1.0, np.nan], zero, x)
