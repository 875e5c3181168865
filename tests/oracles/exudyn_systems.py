"""The heavy top, the slider-crank and the Puma in Exudyn; of the library it shares the numbers of the Puma alone."""

import warnings

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import exudyn as exu
    import exudyn.utilities as eu

NODES = {
    "RV": exu.NodeType.RotationRotationVector,
    "EP": exu.NodeType.RotationEulerParameters,
    "Rxyz": exu.NodeType.RotationRxyz,
}
ALONG_X = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # columns y, z, x


class Mechanism:
    """A multibody system being put together, and solved."""

    def __init__(self, node="RV", gravity=(0.0, 0.0, -9.81)):
        self.gravity = gravity
        self.container = exu.SystemContainer()
        self.mbs = self.container.AddSystem()
        self.node = NODES[node]
        self.ground = self.mbs.AddObject(eu.ObjectGround())

    def body(self, mass, inertia, position, rotation, velocity, omega):
        """omega in world axes."""
        return self.mbs.CreateRigidBody(
            inertia=eu.RigidBodyInertia(mass=mass, inertiaTensor=np.diag(inertia)),
            nodeType=self.node,
            referencePosition=np.array(position),
            referenceRotationMatrix=np.array(rotation),
            initialVelocity=np.array(velocity, float),
            initialAngularVelocity=np.array(omega, float),
            gravity=list(self.gravity),
        )

    def marker(self, body, point):
        return self.mbs.AddMarker(eu.MarkerBodyRigid(bodyNumber=body, localPosition=np.array(point, float)))

    def joint(self, a, point_a, b, point_b, axes, frame_a=None, frame_b=None):
        """axes: which of three translations and three rotations, in frame_a, are held."""
        eye = np.eye(3)
        frames = [eye if f is None else f for f in (frame_a, frame_b)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.mbs.AddObject(
                eu.GenericJoint(
                    markerNumbers=[self.marker(a, point_a), self.marker(b, point_b)],
                    constrainedAxes=axes,
                    rotationMarker0=frames[0],
                    rotationMarker1=frames[1],
                )
            )

    def solve(self, end, steps, modified=False, rtol=1e-8, variant="standard", spectral_radius=0.9):
        """Integrate by one of the two Lie group methods; returns the number of Newton iterations."""
        self.mbs.Assemble()
        settings = exu.SimulationSettings()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings.solutionSettings.writeSolutionToFile = False
            settings.linearSolverType = exu.LinearSolverType.EXUdense
        time = settings.timeIntegration
        time.numberOfSteps, time.endTime, time.verboseMode = steps, end, 0
        time.newton.useModifiedNewton = modified
        time.newton.relativeTolerance = rtol
        time.generalizedAlpha.spectralRadius = spectral_radius
        time.generalizedAlpha.lieGroupSimplifiedKinematicRelations = variant == "standard"
        self.mbs.SolveDynamic(settings)
        return self.mbs.sys["dynamicSolver"].it.newtonStepsCount

    def output(self, body, kind, point=(0.0, 0.0, 0.0)):
        return np.array(self.mbs.GetObjectOutputBody(body, kind, list(point), exu.ConfigurationType.Current))

    def position(self, body):
        return self.output(body, exu.OutputVariableType.Position)

    def rotation(self, body):
        return self.output(body, exu.OutputVariableType.RotationMatrix).reshape(3, 3)


def heavy_top(node="RV"):
    m, w = Mechanism(node), np.array([0.0, 150.0, -4.61538])
    arm = np.array([0.0, 1.0, 0.0])
    body = m.body(15.0, (0.234375, 0.46875, 0.234375), arm, np.eye(3), np.cross(w, arm), w)
    m.joint(m.ground, (0, 0, 0), body, -arm, [1, 1, 1, 0, 0, 0])
    return m, body


def slider_crank(node="RV", speed=6.0, gravity=(0.0, 0.0, -9.81)):
    """speed: of the crank at the start, rad/s."""
    m, s = Mechanism(node, gravity), speed / 6.0
    a, b, c = np.array([0.0, 0.1, 0.12]), np.array([0.0, 0.1, 0.2]), np.array([0.2, 0.0, 0.0])
    x, y = (c - b) / 0.3, np.array([0.0, -2.0, 1.0]) / np.sqrt(5.0)
    rod_frame = np.stack([x, y, np.cross(x, y)], axis=1)
    still, turn = (0.0, 0.0, 0.0), s * np.array([1.92, -0.96, 0.48])
    crank = m.body(0.12, (1e-4, 1e-4, 1e-5), (a + b) / 2, np.eye(3), (0.0, -0.24 * s, 0.0), (6.0 * s, 0.0, 0.0))
    rod = m.body(0.5, (4e-4, 4e-3, 4e-3), (b + c) / 2, rod_frame, (0.12 * s, -0.24 * s, 0.0), turn)
    slider = m.body(2.0, (1e-4, 1e-4, 1e-4), c, np.eye(3), (0.24 * s, 0.0, 0.0), still)
    m.joint(m.ground, a, crank, (0, 0, -0.04), [1, 1, 1, 1, 1, 0], ALONG_X, ALONG_X)
    m.joint(crank, (0, 0, 0.04), rod, (-0.15, 0, 0), [1, 1, 1, 0, 0, 0])
    # Frames whose z axes are, in the slider, x, and in the rod normal to it: a held rotation about z keeps x0 and y1
    # at right angles.  x0 is the slider's x axis, y1 the rod's y axis.
    m.joint(slider, (0, 0, 0), rod, (0.15, 0, 0), [1, 1, 1, 0, 0, 1], np.eye(3), np.eye(3))
    m.joint(m.ground, (0, 0, 0), slider, (0, 0, 0), [0, 1, 1, 1, 1, 1])
    return m, slider


def _controller(profile):
    """PD torque towards an angle and rate given as floats."""

    def torque(mbs, t, item, rotation, rate, stiffness, damping, offset):
        del mbs, item, offset
        target, target_rate = profile(t)
        return stiffness * (rotation - target) + damping * (rate - target_rate)

    return torque


def puma560(system, profiles, stiffness, damping, start):
    """From a list of (mass, moments, position, rotation, point_a, point_b, frame_b) of the links in their start."""
    m = Mechanism()
    before = m.ground
    bodies = []
    for i, (mass, moments, position, rotation, point_a, point_b, frame_b) in enumerate(system):
        body = m.body(mass, moments, position, rotation, (0, 0, 0), (0, 0, 0))
        m.joint(before, point_a, body, point_b, [1, 1, 1, 1, 1, 0], np.eye(3), frame_b)
        markers = [m.marker(before, point_a), m.marker(body, point_b)]
        data = m.mbs.AddNode(eu.NodeGenericData(numberOfDataCoordinates=1, initialCoordinates=[float(start[i])]))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m.mbs.AddObject(
                eu.ObjectConnectorTorsionalSpringDamper(
                    markerNumbers=markers,
                    nodeNumber=data,
                    rotationMarker0=np.eye(3),
                    rotationMarker1=np.array(frame_b),
                    stiffness=stiffness[i],
                    damping=damping[i],
                    springTorqueUserFunction=_controller(profiles[i]),
                )
            )
        before = body
        bodies.append(body)
    return m, bodies
