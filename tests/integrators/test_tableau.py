"""Order conditions by rooted trees, and the messages of tableaux that break them."""

import pytest

from lgjax.integrators import RK4, RK6, CommutatorFreeTable, Flow, Tableau
from lgjax.integrators.tableau import check_order, rooted_trees


def test_there_are_as_many_rooted_trees_as_cayley_counted():
    assert [len(rooted_trees(n)) for n in range(1, 8)] == [1, 1, 2, 4, 9, 20, 48]


def test_orders_are_exact():
    with pytest.raises(ValueError, match="of order 5"):
        check_order(RK4.a, RK4.b, 5, "RK4")
    with pytest.raises(ValueError, match="of order 7"):
        check_order(RK6.a, RK6.b, 7, "RK6")


def test_a_broken_condition_is_named_with_its_residual():
    with pytest.raises(ValueError, match=r"mine: the condition b\.\(c\) = 1/2 of order 2 is off by 0\.1,"):
        Tableau(a=((), (1.0,)), b=(0.4, 0.6), c=(0.0, 1.0), order=2, name="mine")
    with pytest.raises(ValueError, match=r"condition b\.\(1\) = 1/1 of order 1 is off by -0\.1"):
        Tableau(a=((),), b=(0.9,), c=(0.0,), order=1)
    with pytest.raises(ValueError, match=r"embedded.*b\.\(1\)"):
        Tableau(a=((),), b=(1.0,), c=(0.0,), order=1, b_hat=(0.5,), order_hat=1)


def test_malformed_tableaux_are_refused():
    with pytest.raises(ValueError, match=r"row 1 of a sums to 0\.5, c\[1\] is 1\.0"):
        Tableau(a=((), (0.5,)), b=(0.5, 0.5), c=(0.0, 1.0), order=1)
    with pytest.raises(ValueError, match=r"row 0 of a is \(0\.5,\); an explicit method has 0 entries"):
        Tableau(a=((0.5,),), b=(1.0,), c=(0.5,), order=1)
    with pytest.raises(ValueError, match="b has 1 entries, c has 2"):
        Tableau(a=((),), b=(1.0,), c=(0.0, 1.0), order=1)
    with pytest.raises(ValueError, match="finite"):
        Tableau(a=((),), b=(float("nan"),), c=(0.0,), order=1)
    with pytest.raises(TypeError, match="mine: b must be a row of numbers, got 'half'"):
        Tableau(a=((),), b="half", c=(0.0,), order=1, name="mine")
    with pytest.raises(TypeError, match="mine: the order must be a Python integer"):
        Tableau(a=((),), b=(1.0,), c=(0.0,), order=1.5, name="mine")
    with pytest.raises(TypeError, match="update must be a Flow, got 'last'"):
        CommutatorFreeTable(stages=(Flow(),), update="last", order=1)
    with pytest.raises(ValueError, match="not explicit"):
        Tableau(a=RK4.a, b=RK4.b, c=RK4.c, order=4, brackets=((1, 0.5, 0, 1),))


def test_full_rows_are_accepted_and_trimmed():
    full = tuple(tuple(row) + (0.0,) * (4 - len(row)) for row in RK4.a)
    assert Tableau(a=full, b=RK4.b, c=RK4.c, order=4, name="RK4") == RK4
    assert hash(Tableau(a=full, b=RK4.b, c=RK4.c, order=4, name="RK4")) == hash(RK4)
