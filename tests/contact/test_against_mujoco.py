"""A compliant ball beside MuJoCo's: equal motions as far as the laws are, which gravity and slow slip bring apart."""

import pytest

pytest.importorskip("mujoco")

from benchmarks import compliant_contact


def test_an_elastic_ball_bounces_and_a_sliding_one_rolls_as_in_mujoco():
    frequency = 200
    elastic, rolls = compliant_contact.main(("elastic", "rolls"), (frequency,))
    # between two impacts of 2 m/s the weight, which MuJoCo lifts, takes 0.5 % of their time
    assert elastic["height m"] < 0.005 * 0.2
    weight = compliant_contact.G / frequency**2
    assert rolls["height m"] < 1.1 * weight  # by so much it presses our ball in
    assert rolls["distance m"] < 1e-5
    assert rolls["speed m/s"] < 0.005
    assert rolls["spin rad/s"] < 0.005 / compliant_contact.RADIUS * 2.5  # what 1 m/s of a ball's slip changes more
