"""Every driver says what became of a run by flags that mean success at 0 and share NOT_FINITE."""

import enum

import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax.adapters.environment import EnvironmentStatus
from lgjax.collisions import BounceStatus
from lgjax.contact import ContactStatus
from lgjax.dynamics.inverse_kinematics import IKStatus
from lgjax.dynamics.loops import LoopStatus
from lgjax.integrators import Status
from lgjax.maximal import Status as MaximalStatus
from lgjax.numerics.status import Flags, flag
from lgjax.shapes import DistanceStatus
from lgjax.simulate.control import OptimizeStatus
from lgjax.simulate.identification import IdentifyStatus
from lgjax.simulate.rollout import Trajectory

STATUSES = (
    Status, MaximalStatus, LoopStatus, ContactStatus, BounceStatus, IKStatus, OptimizeStatus, IdentifyStatus,
    EnvironmentStatus, DistanceStatus,
)  # fmt: skip


def test_no_status_is_left_out():
    assert set(STATUSES) == set(Flags.__subclasses__())


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.__module__)
def test_success_is_zero_and_not_finite_the_same_everywhere(status):
    assert issubclass(status, enum.IntFlag)
    assert status(0).name in ("OK", "CONVERGED")
    assert status.NOT_FINITE == 1
    assert all(member.value.bit_count() == 1 for member in status)


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.__module__)
def test_a_status_is_printed_by_its_names(status):
    name = status.__name__
    first, second = list(status)[:2]
    for found in (str(status.NOT_FINITE), f"{status.NOT_FINITE}", f"{status(1)}"):
        assert found == f"{name}.NOT_FINITE"
    assert str(first | second) == f"{name}.{first.name}|{second.name}"
    assert f"{status.NOT_FINITE:03d}" == "001"
    assert issubclass(status, enum.IntFlag)


def test_a_flag_is_set_where_its_condition_holds():
    found = jit(lambda bad: flag(Status.MAX_STEPS, bad) | flag(Status.NOT_FINITE, ~bad))(jnp.asarray([True, False]))
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, [Status.MAX_STEPS, Status.NOT_FINITE])


def test_dependent_constraints_are_no_failure_of_a_rollout():
    told = lambda status: bool(Trajectory(None, None, None, jnp.int32(status)).success)
    assert told(0)
    assert told(LoopStatus.REDUNDANT)
    assert told(ContactStatus.AT_ONCE)
    assert not told(ContactStatus.AT_ONCE | ContactStatus.NOT_SOLVED)
    assert not told(LoopStatus.NOT_FINITE)
    assert not told(LoopStatus.REDUNDANT | LoopStatus.OPEN)
