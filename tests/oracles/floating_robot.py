"""A small floating robot for time stepping: its URDF, and its motion by Pinocchio and SciPy in other coordinates."""

import numpy as np
import pinocchio as pin
from scipy.integrate import solve_ivp

_LINK = (
    '<link name="{0}"><inertial><origin xyz="{1}" rpy="0.3 0.2 0.1"/><mass value="{2}"/>'
    '<inertia ixx="0.02" iyy="0.03" izz="0.025" ixy="0.002" ixz="-0.001" iyz="0.003"/></inertial></link>'
)
URDF = f"""
<robot name="swimmer">
  {_LINK.format("hull", "0.02 0 0.01", 2.0)}{_LINK.format("arm", "0.1 0 0", 0.6)}{_LINK.format("slide", "0 0.1 0", 0.4)}
  <joint name="elbow" type="revolute"><parent link="hull"/><child link="arm"/><origin xyz="0.2 0 0.1" rpy="0.5 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="9" velocity="9"/></joint>
  <joint name="rail" type="prismatic"><parent link="arm"/><child link="slide"/><origin xyz="0.1 0.1 0" rpy="0 0.7 0"/>
    <axis xyz="1 0 1"/><limit lower="-1" upper="1" effort="9" velocity="9"/></joint>
</robot>"""


def motion(rotation, position, joints, v, duration):
    """(rotation, position, joints, v) after `duration` without gravity or torques; v angular first, body frame.

    Coordinates: position, quaternion that is never normalized but read as if it were, joints, velocities.
    """
    model = pin.buildModelFromXML(URDF, pin.JointModelFreeFlyer())
    model.gravity = pin.Motion.Zero()
    data = model.createData()
    swap = np.r_[3:6, 0:3, 6:8]

    def field(_, y):
        p, quaternion, angles, twist = y[:3], y[3:7], y[7:9], y[9:]
        unit = quaternion / np.linalg.norm(quaternion)
        R = pin.Quaternion(unit).toRotationMatrix()
        w = twist[3:6]
        product = pin.Quaternion(quaternion) * pin.Quaternion(np.r_[w, 0.0])
        acceleration = pin.aba(model, data, np.r_[p, unit, angles], twist, np.zeros(model.nv))
        return np.r_[R @ twist[:3], product.coeffs() / 2, twist[6:], acceleration]

    start = np.r_[position, pin.Quaternion(np.array(rotation)).coeffs(), joints, np.asarray(v)[swap]]
    end = solve_ivp(field, (0, duration), start, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    unit = end[3:7] / np.linalg.norm(end[3:7])
    return pin.Quaternion(unit).toRotationMatrix(), end[:3], end[7:9], end[9:][swap]
