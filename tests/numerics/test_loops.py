"""Loops that depend on what they compute: asked once a turn, so that batches of them end."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit, lax, vmap

import lgjax
from lgjax.numerics.loops import in_any_system, iterate_while

SOURCES = Path(lgjax.__file__).parent
TARGETS = [0.3, 0.9, 1.0, 4.0, 1e6]


def root(target, while_loop):
    """Square roots by Heron's rule, and in how many turns."""
    done = lambda s: jnp.abs(s[0] * s[0] - target) <= 1e-12 * target
    return while_loop(
        lambda s: ~done(s),
        lambda s: (0.5 * (s[0] + target / s[0]), s[1] + 1),
        (jnp.ones_like(target), jnp.zeros((), jnp.int32)),
    )


def loops(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive is lax.while_p:
            yield equation.params["cond_jaxpr"].jaxpr, equation.params["body_jaxpr"].jaxpr


def multiplies(jaxpr):
    return any(equation.primitive is lax.mul_p for equation in jaxpr.eqns)


def test_every_element_of_a_batch_takes_its_own_turns():
    targets = jnp.array(TARGETS)
    roots, turns = jit(vmap(lambda x: root(x, iterate_while)))(targets)
    np.testing.assert_allclose(roots, np.sqrt(TARGETS), rtol=1e-12)
    alone = [root(x, lambda more, turn, s: turn_by_turn(more, turn, s)) for x in targets]
    np.testing.assert_array_equal(turns, [n for _, n in alone])
    assert turns[2] == 0


def turn_by_turn(unfinished, iterate, state):
    while unfinished(state):
        state = iterate(state)
    return state


@pytest.mark.parametrize("repeat", [iterate_while, lax.while_loop], ids=["iterate_while", "while_loop"])
def test_whether_to_go_on_is_computed_in_one_place(repeat):
    """Arithmetic in the condition and again in the body of one loop is what rounds in two ways."""
    ((condition, body),) = loops(jax.make_jaxpr(vmap(lambda x: root(x, repeat)))(jnp.array(TARGETS)).jaxpr)
    assert multiplies(body)
    assert multiplies(condition) == (repeat is lax.while_loop)


def test_all_loops_of_the_library_are_of_this_kind():
    users = {path.name for path in SOURCES.rglob("*.py") if "while_loop(" in path.read_text(encoding="utf-8")}
    assert users == {"loops.py"}


def test_a_branch_for_any_system_of_a_batch_has_gradients_in_rules():
    """vmap makes a selection of a branch with a condition for each system, which reverse mode refuses in a rule."""

    def cubed(x, times):  # so often
        def once(x, i):
            wanted = i < times
            turn = lambda x: jnp.where(wanted, x**3, x)
            return lax.cond(in_any_system(wanted), turn, lambda x: x, x), wanted

        return lax.scan(once, x, jnp.arange(4))[0]

    rule = jax.custom_jvp(cubed)
    rule.defjvp(lambda x, dx: (cubed(*x), jax.jvp(lambda y: cubed(y, x[1]), x[:1], dx[:1])[1]))
    x, times = jnp.array([[0.9, 1.1], [1.05, 0.7]]), jnp.array([[0, 1], [3, 2]])
    found = jit(jax.grad(lambda x: jnp.sum(vmap(vmap(rule))(x, times))))(x)
    n = 3.0 ** np.asarray(times)
    np.testing.assert_allclose(found, n * np.asarray(x) ** (n - 1), rtol=1e-12)
    found = jit(jax.grad(lambda x: jnp.sum(vmap(lambda x: rule(x, 2))(x))))(x)
    np.testing.assert_allclose(found, 9 * x**8, rtol=1e-12)
