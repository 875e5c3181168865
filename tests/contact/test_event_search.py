"""The search for the time of an event: roots of any kind in a bounded number of looks, and bounces in closed form."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact.event_search import Search
from lgjax.multibody.build import Body, Joint, build
from tests.contact.test_closed_forms import FLOOR
from tests.contact.test_event_driven import bounced

DT = 0.02  # s, longest time of a search
LOOKS = 110  # two for each halving of DT down to round-off, and a few


def looked_for(guard, dtype):
    """Where the search finds that guard (t) ends being positive, within DT, and the number of looks; NaN: nowhere."""
    width = jnp.asarray(4 * jnp.finfo(dtype).eps * DT, dtype)

    def look(carry):
        search, at, n, _ = carry
        at = jnp.where(search.active, search.next(width), at)
        g = guard(at)
        search = search.after(at, g)
        return search, at, n + 1, search.found(g, width) | ~search.active

    first = Search.idle(dtype), jnp.asarray(DT, dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    search, at, n, _ = jax.lax.while_loop(lambda c: ~c[3] & (c[2] < 2 * LOOKS), look, first)
    return jnp.where(search.active | (guard(at) == 0), at, jnp.nan), n


# guards of t (s) with a root a (s), speed u (m/s), and a size r (m) of whose digits they are
GUARDS = {
    "a gap of few digits": lambda t, a, u, r: (r + u * (a - t)) - r,
    "one that never rounds to zero": lambda t, a, u, r: (r + u * (a - t)) - r + 0.03 * jnp.finfo(r.dtype).eps * r,
    "a triple root": lambda t, a, u, r: (a - t) * (a - t) * (a - t),
    "a jump": lambda t, a, u, r: jnp.where(t < a, u, -r),
    "a jump to nearly zero": lambda t, a, u, r: jnp.where(t < a, 1e6 * r, -1e-30 * u),
    "smooth": lambda t, a, u, r: u * (a - t) * (2 + (a - t) / DT),
    "fast decay": lambda t, a, u, r: jnp.exp(-2500 * t) - jnp.exp(-2500 * a),
    "zero between two times": lambda t, a, u, r: u * (jnp.maximum(a - t, 0) - jnp.maximum(t - 0.5 * (a + DT), 0)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GUARDS)
def test_a_search_ends_at_the_root_after_few_looks(name, dtype):
    draw = np.random.default_rng(0)
    share = np.concatenate([draw.uniform(0, 0.99, 100), 10 ** draw.uniform(-9, -0.1, 100)])
    a, u, r = (
        jnp.asarray(x, dtype) for x in (DT * share, 10 ** draw.uniform(-5, 2, 200), 10 ** draw.uniform(-2, 2, 200))
    )
    found, looks = jax.jit(jax.vmap(lambda a, u, r: looked_for(lambda t: GUARDS[name](t, a, u, r), dtype)))(a, u, r)
    there = np.asarray(GUARDS[name](jnp.full_like(a, DT), a, u, r) < 0)  # few digits may hide a root
    assert np.sum(there) > 150
    assert looks.max() <= LOOKS
    if name == "a gap of few digits":
        assert looks.max() <= 50
        assert np.median(looks) <= 12
    a, u, r, found, eps = *(np.asarray(x, float) for x in (a, u, r, found)), np.finfo(dtype).eps
    room = 4 * eps * DT + {
        "a gap of few digits": eps * r / u,
        "one that never rounds to zero": eps * r / u,
        "a triple root": np.cbrt(np.finfo(dtype).tiny),  # below it the guard is zero
        "fast decay": eps * np.exp(2500 * a) / 2500,
        "zero between two times": 0.5 * (DT - a),
    }.get(name, 0.0)
    assert np.all(np.abs(found - a)[there] <= (room + 0 * a)[there])


def test_a_guard_that_vanishes_at_once_at_the_end_or_nowhere():
    at_once, looks = looked_for(lambda t: -t, np.float64)
    assert at_once <= 4 * np.finfo(float).eps * DT
    assert looks <= LOOKS
    assert looked_for(lambda t: DT - t, np.float64) == (DT, 1)
    assert np.isnan(looked_for(lambda t: 1 + t, np.float64)[0])


RAIL = Body("ball", None, Joint("height", "prismatic", (0.0, 0.0, 1.0)), mass=1.5, inertia=0.01 * np.eye(3))
RADII = np.array([0.05, 0.07, 0.1, 0.11, 0.13, 0.17, 0.2, 0.23, 0.3, 0.31, 0.5, 0.77])
HEIGHTS = np.array([1.0, 0.3, 0.7, 1.0, 0.5, 1.3, 0.9, 1.1, 0.2, 2.0, 0.6, 0.4])
RESTITUTIONS = np.array([0.5, 0.5, 0.2, 0.5, 0.7, 0.5, 0.6, 0.5, 0.8, 0.3, 0.5, 0.5])


@cache
def dropped(dtype):
    """Times, gaps, rates and status of balls that fall along a rail and bounce, over 2 s"""
    model = build([RAIL]).astype(dtype)
    rtol, atol = (1e-10, 1e-12) if dtype == np.float64 else (1e-5, 1e-6)
    method = lgjax.contact.EventDriven(rtol, atol)

    def run(radius, height, e):
        shape = {"ball": lgjax.shapes.sphere(radius)}
        here = lgjax.Contacts(model, FLOOR, shape, friction=0.0, restitution=0.5).replace(restitution=e)
        q = lgjax.configuration(model, joints=(radius + height)[None])
        path = lgjax.rollout(model, q, jnp.zeros(1, dtype), None, DT, 100, method, contacts=here)
        return path.ts, path.q.joints[:, 0] - radius, path.v[:, 0], path.status

    numbers = (jnp.asarray(x, dtype) for x in (RADII, HEIGHTS, RESTITUTIONS))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(*numbers))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_balls_of_any_size_rest_at_the_end_of_their_bounces(dtype):
    ts, gaps, rates, status = dropped(dtype)
    exact = dtype == np.float64
    assert not np.any(status)
    for k, (radius, height, e) in enumerate(zip(RADII, HEIGHTS, RESTITUTIONS, strict=True)):
        heights, end = bounced(ts[k].astype(float), height, e)
        np.testing.assert_allclose(gaps[k], heights, atol=2e-6 if exact else 5e-5, err_msg=f"ball {k}")
        resting = (np.abs(rates[k]) < 1e-9) & (np.abs(gaps[k]) < 1e-9 * radius + (0 if exact else 1e-6))
        first = ts[k][np.argmax(resting)]
        assert np.all(resting[ts[k] >= first]), k
        assert end - DT < first < end + DT if end < 2 - DT else not np.any(resting[:-1]), (k, first, end)
