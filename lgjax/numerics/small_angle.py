"""Coefficient functions of the squared angle: the only small-angle switch of the library.

Every map on SO(3) and SE(3) is a combination of powers of ``hat`` whose coefficients are entire in
s = θ².  They all belong to one family, the Stumpff functions

    c_k(s) = Σ_j (-s)^j / (2j + k)!,   c_0 = cos θ,  c_1 = sin θ / θ,  c_2 = (1 - cos θ) / θ²,  c_3 = (θ - sin θ) / θ³,

which is closed under differentiation, c_k' = (k c_{k+2} - c_{k+1}) / 2.  That rule is given to JAX, so a
derivative of any order, forward or reverse, is again a combination of accurately evaluated members and never
the derivative of a quotient near zero.

Each member is a polynomial below a cut-off and a closed form above it.  The closed form of c_k loses digits like
1 / s^(k/2 - 1), the polynomial needs more terms the higher the cut-off; cut-offs grow with k, and the number of terms
follows from cut-off, k and the machine epsilon of the dtype.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp

Array = jax.Array

# c_0 to c_2 have no cancellation: their polynomial only guards the division at zero.  From k = 3 on the closed form is
# the recursion c_k = (1/(k-2)! - c_{k-2}) / s; these cut-offs keep its loss to a few units in the last place.
_CUTOFFS = {3: 2.0, 4: 4.0, 5: 10.0, 6: 10.0, 7: 25.0, 8: 25.0}
_FAR_CUTOFF = 60.0


def cutoff(k: int, dtype: jax.typing.DTypeLike) -> float:
    """The value of s at which c_k changes from polynomial to closed form."""
    if k <= 2:
        return float(jnp.finfo(dtype).eps)
    return _CUTOFFS.get(k, _FAR_CUTOFF)


def _number_of_terms(k: int, s: float, eps: float) -> int:
    """Terms after which the series of c_k, relative to its first term, is below eps / 16 at s."""
    j, term = 0, 1.0
    while term > eps / 16.0 or j < 2:
        term *= s / ((2 * j + k + 1) * (2 * j + k + 2))
        j += 1
    return j


def _polynomial(k: int, terms: int, s: Array) -> Array:
    """Horner evaluation of the first terms of the series of c_k."""
    total = jnp.full_like(s, (-1.0) ** (terms - 1) / math.factorial(2 * terms - 2 + k))
    for j in reversed(range(terms - 1)):
        total = total * s + (-1.0) ** j / math.factorial(2 * j + k)
    return total


def _closed_form(k: int, s: Array) -> Array:
    """c_k for s > 0 from the sine and cosine of the half angle, which all members share."""
    half = 0.5 * jnp.sqrt(s)
    if k == 0:
        sine = jnp.sin(half)
        return 1.0 - 2.0 * sine * sine
    if k == 1:
        return jnp.sin(half) * jnp.cos(half) / half
    if k == 2:
        ratio = jnp.sin(half) / half
        return 0.5 * ratio * ratio
    return (1.0 / math.factorial(k - 2) - _closed_form(k - 2, s)) / s


@partial(jax.custom_jvp, nondiff_argnums=(0,))
@partial(jax.jit, static_argnums=0)
def stumpff(k: int, s: Array) -> Array:
    """The Stumpff function c_k(s) = Σ_j (-s)^j / (2j + k)! of s = θ² >= 0, elementwise.

    k is a static integer >= 0.  Relative error a few eps (absolute near the zeros of c_0 and c_1); derivatives of
    every order are finite and as accurate, including at s = 0.
    """
    s = jnp.asarray(s)
    switch = cutoff(k, s.dtype)
    near = s < switch
    # Each branch sees an argument it is good at, so neither can put an inf or NaN into the other's derivative.
    small = jnp.where(near, s, jnp.zeros_like(s))
    large = jnp.where(near, jnp.ones_like(s), s)
    terms = _number_of_terms(k, switch, float(jnp.finfo(s.dtype).eps))
    return jnp.where(near, _polynomial(k, terms, small), _closed_form(k, large))


@stumpff.defjvp
def _stumpff_jvp(k: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (s,), (ds,) = primals, tangents
    return stumpff(k, s), 0.5 * stumpff_rate(k, s) * ds


@partial(jax.jit, static_argnums=0)
def stumpff_rate(k: int, s: Array) -> Array:
    """(1/θ) d/dθ of c_k, that is 2 dc_k/ds = k c_{k+2} - c_{k+1}."""
    if k == 0:
        return -stumpff(1, s)
    return k * stumpff(k + 2, s) - stumpff(k + 1, s)


@jax.jit
def cotc(s: Array) -> Array:
    """(1 - (θ/2) cot(θ/2)) / θ² as a function of s = θ², the second coefficient of dexpinv; singular at θ = 2π.

    Written as (c_3 - 2 c_4) / (2 c_2), a quotient without cancellation or a zero in it for θ < 2π.
    Source: [celledoni2021] section 2.3, g_2.
    """
    return (stumpff(3, s) - 2.0 * stumpff(4, s)) / (2.0 * stumpff(2, s))


@jax.jit
def cotc_rate(s: Array) -> Array:
    """(1/θ) d/dθ of `cotc`.  Source: [celledoni2021] section 2.3, g̃_2 for dexpinv.

    With D = (c_3 - 2 c_4) / (2 c_2) the chain rule gives 2 D' = (5 c_5 - c_4 - 8 c_6) / (2 c_2) + 2 D².
    """
    d = cotc(s)
    c4, c5, c6 = stumpff(4, s), stumpff(5, s), stumpff(6, s)
    return (5.0 * c5 - c4 - 8.0 * c6) / (2.0 * stumpff(2, s)) + 2.0 * d * d


@jax.jit
def arctan_ratio(t: Array) -> Array:
    """arctan(√t) / √t for 0 <= t <= 3 - 2√2, elementwise: the angle behind a tangent.

    The bound is tan²(π/8), which halving an angle of at most π three times always reaches, so that a polynomial serves
    the whole range and its derivatives need no rule of their own.
    """
    t = jnp.asarray(t)
    bound = 3.0 - 2.0 * math.sqrt(2.0)
    # Three further terms keep the second derivative of the truncated series as accurate as its value.
    terms = 3 + math.ceil(math.log(float(jnp.finfo(t.dtype).eps)) / math.log(bound))
    total = jnp.full_like(t, (-1.0) ** (terms - 1) / (2 * terms - 1))
    for j in reversed(range(terms - 1)):
        total = total * t + (-1.0) ** j / (2 * j + 1)
    return total


_TANH_CUTOFF = 0.25  # the series of tanh(√s) / √s converges below (π/2)²


@jax.jit
def tanh_ratio(s: Array) -> Array:
    """tanh(√s) / √s of s >= 0, elementwise, with accurate first and second derivatives, including at s = 0."""
    s = jnp.asarray(s)
    near = s < _TANH_CUTOFF
    small, root = jnp.where(near, s, jnp.zeros_like(s)), jnp.sqrt(jnp.where(near, jnp.ones_like(s), s))
    terms = 3 + math.ceil(math.log(float(jnp.finfo(s.dtype).eps)) / math.log(_TANH_CUTOFF * 4 / math.pi**2))
    series = [1.0]  # from tanh' = 1 - tanh²
    for k in range(1, terms):
        series.append(-sum(series[i] * series[k - 1 - i] for i in range(k)) / (2 * k + 1))
    total = jnp.full_like(s, series[-1])
    for coefficient in reversed(series[:-1]):
        total = total * small + coefficient
    return jnp.where(near, total, jnp.tanh(root) / root)


@jax.jit
def rotation_vector_ratio(q0: Array, x: Array) -> Array:
    """Ratio r with rotation vector = r v for a quaternion (q0, v), q0 >= 0, x = |v|², of any positive length.

    2 arctan2(|v|, q0) / |v| after two halvings of the half angle, both free of cancellation; finite at x = 0 and at
    q0 = 0 (half turns).
    """
    length = q0 + jnp.sqrt(q0 * q0 + x)
    t = x / (length * length)
    secant = 1.0 + jnp.sqrt(1.0 + t)
    return 8.0 * arctan_ratio(t / (secant * secant)) / (length * secant)


@jax.jit
def norm(x: Array) -> Array:
    """Euclidean length (...) of a vector (..., n), with derivative zero instead of NaN at the origin."""
    square = jnp.sum(x * x, axis=-1)
    origin = square == 0  # false for NaN, which passes through
    return jnp.where(origin, jnp.zeros_like(square), jnp.sqrt(jnp.where(origin, jnp.ones_like(square), square)))


@jax.jit
def length_and_direction(x: Array) -> tuple[Array, Array]:
    """Length (...) and unit vector (..., n) of x; both are zero, with derivative zero, at the origin and next to it.

    The vector is divided by a constant of its own size first, so that no power of a short length leaves the range of
    the dtype. Next to the origin second derivatives, of the size of 1 / |x|², would leave it themselves.
    """
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1))
    info = jnp.finfo(x.dtype)
    origin = size < (float(info.tiny) / float(info.eps)) ** 0.5  # false for NaN, which passes through
    size = jnp.where(origin, jnp.ones_like(size), size)
    scaled = x / size[..., None]
    length = norm(jnp.where(origin[..., None], jnp.ones_like(x), scaled))
    zero = jnp.zeros_like(size)
    return (
        jnp.where(origin, zero, size * length),
        jnp.where(origin[..., None], zero[..., None], scaled / length[..., None]),
    )
