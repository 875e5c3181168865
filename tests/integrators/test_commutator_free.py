"""Order conditions by ordered forests, compositions, and the messages of both."""

import numpy as np
import pytest

from lgjax.groups import vector_space
from lgjax.integrators import (
    CF3,
    CF4,
    CommutatorFree,
    CommutatorFreeTable,
    Composition,
    Flow,
    Method,
    MuntheKaas,
    SymplecticLie,
    Tableau,
    suzuki,
    triple_jump,
)
from lgjax.integrators.commutator_free import exact_coefficient, ordered_forests


def test_there_are_as_many_ordered_forests_as_catalan_counted():
    assert [len(ordered_forests(n)) for n in range(6)] == [1, 1, 2, 5, 14, 42]


def test_the_exact_flow_has_the_coefficients_of_its_series():
    """1/2 for both forests of two nodes; of three, f f f has 1/6 and the tall tree 1/6, the rest sum up to 1."""
    assert [exact_coefficient(f) for f in ordered_forests(2)] == [0.5, 0.5]
    assert exact_coefficient(((), (), ())) == pytest.approx(1 / 6)
    assert exact_coefficient((((((),),)),)) == pytest.approx(1 / 6)


def test_orders_are_exact():
    for table in (CF3, CF4):
        with pytest.raises(ValueError, match=f"condition of order {table.order + 1}"):
            CommutatorFreeTable(table.stages, table.update, table.order + 1)


def test_a_classical_tableau_alone_does_not_make_a_commutator_free_method():
    """RK4 with one exponential per stage satisfies the classical conditions and no more than order 2 of these."""
    one = lambda *row: Flow((row,))
    stages = (Flow(), one(0.5), one(0.0, 0.5), one(0.0, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"the condition of order 3 for the forest .* is off by"):
        CommutatorFreeTable(stages, one(1 / 6, 1 / 3, 1 / 3, 1 / 6), 4)


def test_malformed_tables_are_refused():
    with pytest.raises(ValueError, match="first stage must be Flow"):
        CommutatorFreeTable((Flow(((1.0,),)),), Flow(((1.0,),)), 1)
    with pytest.raises(ValueError, match="not yet known"):
        CommutatorFreeTable((Flow(), Flow(((0.5, 0.5),))), Flow(((1.0,),)), 1)
    with pytest.raises(ValueError, match="finite"):
        CommutatorFreeTable((Flow(),), Flow(((float("nan"),),)), 1)
    with pytest.raises(ValueError, match=r"off by -0\.1"):
        CommutatorFreeTable((Flow(),), Flow(((0.9,),)), 1)
    with pytest.raises(ValueError, match="needs an order_hat"):
        CommutatorFreeTable((Flow(),), Flow(((1.0,),)), 1, Flow(((1.0,),)))
    with pytest.raises(TypeError, match="takes a CommutatorFreeTable, got 'CF4'"):
        CommutatorFree("CF4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="CF4 has no embedded method"):
        CommutatorFree(CF4).embedded_step(vector_space(1), lambda t, y: y, 0.0, 1.0, 1.0, ())


def test_methods_are_values():
    assert CommutatorFree(CF4) == CommutatorFree(CF4)
    assert hash(triple_jump(SymplecticLie(0.5))) == hash(triple_jump(SymplecticLie(0.5)))
    assert len(suzuki(SymplecticLie(0.5), 6).weights) == 25


def test_tables_and_tableaux_of_lists_are_values():
    table = CommutatorFreeTable((Flow(), Flow([[0.5]])), Flow([[0.0, 1.0]]), 2)
    tableau = Tableau(a=[[], [0.5]], b=[0.0, 1.0], c=[0.0, 0.5], order=2, brackets=[[2, 0.0, 0, 1]])
    assert hash(CommutatorFree(table)) == hash(CommutatorFree(table))
    assert hash(MuntheKaas(tableau)) == hash(MuntheKaas(tableau))
    with pytest.raises(ValueError, match="the coefficient of bracket"):
        Tableau(a=[[], [0.5]], b=[0.0, 1.0], c=[0.0, 0.5], order=2, brackets=[[2, np.nan, 0, 1]])


class Still(Method):
    """A method without an order."""

    symmetric = True

    def init(self, space, field, t, y):
        return ()

    def step(self, space, field, t, y, h, carry):
        return y, carry


def test_compositions_need_the_order_of_their_method():
    for compose in (triple_jump, lambda method: Composition(method, (1.0,), 2)):
        with pytest.raises(TypeError, match="Still has no `order`"):
            compose(Still())


def test_compositions_refuse_what_cannot_work():
    with pytest.raises(ValueError, match="symmetric methods"):
        triple_jump(SymplecticLie(1.0))
    with pytest.raises(ValueError, match="power 3 is off by"):
        Composition(SymplecticLie(0.5), (0.5, 0.5), 4)
    with pytest.raises(ValueError, match="power 1 is off by"):
        Composition(SymplecticLie(0.5), (0.5, 0.6, 0.5), 2)
    with pytest.raises(ValueError, match="read the same from both ends"):
        Composition(SymplecticLie(0.5), (0.3, 0.7), 2)
    with pytest.raises(ValueError, match="must be even and above"):
        suzuki(SymplecticLie(0.5), 5)
    with pytest.raises(ValueError, match="theta must be a number from 0 to 1, got 2"):
        SymplecticLie(2)
