"""Analytic functions of ad on SE(3), in closed form, for `se3.dexp`, its inverse and `function_of_ad`."""

import jax

from lgjax.numerics import small_matrix as sm

Array = jax.Array


def by_cross_products(
    u: tuple[Array, Array], x: tuple[Array, Array],
    first: Array, second: Array, first_rate: Array, second_rate: Array, zeroth: float = 1.0,
) -> tuple[Array, Array]:  # fmt: skip
    """φ(ad_u) x for an analytic φ with φ(0) = zeroth; all twists as angular and linear part.

    first, second and their rates are g_1, g_2, g̃_1, g̃_2 at |ω|, of shape (...).  Source: [celledoni2021] section 2.3.
    """
    (w, v), (b, c) = u, x
    wb, wc, vb = sm.cross(w, b), sm.cross(w, c), sm.cross(v, b)
    wwb = sm.cross(w, wb)
    rho = sm.dot(w, v)
    b, c = (b, c) if zeroth == 1.0 else (zeroth * b, zeroth * c)
    angular = b + sm.scale(first, wb) + sm.scale(second, wwb)
    linear = (
        c
        + sm.scale(first, vb + wc)
        + sm.scale(second, sm.cross(v, wb) + sm.cross(w, vb + wc))
        + sm.scale(rho, sm.scale(first_rate, wb) + sm.scale(second_rate, wwb))
    )
    return angular, linear
