"""What a kernel keeps for its derivative is a constant there, on every way and in every mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution import batched
from lgjax.execution._jax import jaxprs_in
from lgjax.execution.kept import keep, keeps, known, linearized
from lgjax.execution.kernels import native


def root(x):
    """sqrt(x) by a loop, with the derivative of the implicit function."""

    @jax.custom_jvp
    def found(x):
        halve = lambda y: 0.5 * (y + x / y)
        return jax.lax.while_loop(lambda y: abs(y * y - x) > 1e-12 * x, halve, 1.0 + 0.5 * x)

    @found.defjvp
    def _(primals, tangents):
        y = keep(found(*primals))
        return y, 0.5 * tangents[0] / y

    return found(x)


@jax.custom_jvp
def at(y, x):
    """The known root y of x."""
    return y


@at.defjvp
def _(primals, tangents):
    y = at(*primals)
    return y, 0.5 * tangents[1] / y


@jax.custom_jvp
def root_and_more(x):
    """root(x) and a function of it, which the derivative computes again from the root that is kept."""
    return (y := root(x)), jnp.sin(y) * x


@root_and_more.defjvp
def _(primals, tangents):
    found = root_and_more(*primals)
    y = keep(found[0])
    again, along = jax.jvp(lambda x: (z := at(y, x), jnp.sin(z) * x), primals, tangents)
    return known(found, again), along


CASES = {
    "one system": lambda f: f,
    "a batch": lambda f: jax.vmap(f, (0, None)),
    "a batch of batches": lambda f: jax.vmap(jax.vmap(f, (0, None)), (0, 0)),
}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_of_the_function_itself(case, in_place):
    def through(step):
        def last(x, t):
            state, _ = jax.lax.scan(lambda s, _: (step(s, t), None), (x, jnp.zeros((), jnp.int32)), None, 5)
            return state[0]

        return last

    scalar = lambda x: jax.vmap(root)(x)
    plain = through(lambda s, t: (jnp.sin(scalar(2.0 + s[0] ** 2)) + t * s[0][::-1], s[1] + 1))
    kernel = through(batched(lambda s, t: (jnp.sin(scalar(2.0 + s[0] ** 2)) + t * s[0][::-1], s[1] + 1), in_place))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7, 3)))
    shape = {"one system": x[0, 0], "a batch": x[0], "a batch of batches": x}[case]
    t = jnp.asarray([0.3, 0.5]) if case == "a batch of batches" else jnp.asarray(0.3)
    for derivative in (jax.jacfwd, jax.jacrev):  # a second derivative would have to differentiate what is kept
        got, expected = (jax.jit(CASES[case](derivative(f)))(shape, t) for f in (kernel, plain))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_results_that_follow_from_what_is_kept_have_derivatives_of_any_order(case):
    """Twice in reverse and once more forward; the function of the results makes their values part of the derivative."""
    step = lambda x, t: jnp.sum(jnp.prod(jnp.stack(root_and_more(2.0 + x[0] ** 2)), 0) * t)
    plain = lambda x, t: (lambda z: jnp.sqrt(z) * jnp.sin(jnp.sqrt(z)) * z * t)(2.0 + x[0] ** 2)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 7, 3)))
    shape = {"one system": x[0, 0], "a batch": x[0], "a batch of batches": x}[case]
    t = jnp.asarray([0.3, 0.5]) if case == "a batch of batches" else jnp.asarray(0.3)
    for f in (jax.grad, lambda g: jax.jacfwd(jax.grad(g)), lambda g: jax.jacrev(jax.jacfwd(g))):
        got = jax.jit(CASES[case](f(batched(step))))(shape, t)
        np.testing.assert_allclose(got, CASES[case](f(plain))(shape, t), rtol=1e-9, atol=1e-10)


def test_a_kernel_has_such_results_once_and_its_derivative_has_no_search():
    jaxpr = jax.make_jaxpr(lambda x: root_and_more(x)[1] ** 2)(2.0).jaxpr
    values, along, _, _ = linearized(jaxpr, [0], [True])
    names = lambda jaxpr: [eqn.primitive.name for eqn in _all(jaxpr)]
    assert names(values).count("sin") == 1 == names(along).count("sin")
    assert "while" in names(values)
    assert "while" not in names(along)


def _all(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in(eqn):
            yield from _all(inner)


def test_marks_are_found_where_they_are():
    assert keeps(jax.make_jaxpr(jax.jit(lambda x: jax.lax.cond(x > 0, keep, lambda x: x, x)))(1.0).jaxpr)
    assert not keeps(jax.make_jaxpr(jnp.sin)(1.0).jaxpr)
    assert native.usable()
