"""A robot file with a part of every kind that `load_robot` makes something of."""

TEXT = """<mujoco>
<option density="1.2" viscosity="0.01" wind="0.3 0 0.1"/>
<worldbody>
  <geom type="plane" size="5 5 .1" friction="0.6"/>
  <body name="trunk" pos="0 0 1" gravcomp="0.4"><joint type="free" armature="0.02"/>
    <geom type="box" size=".2 .1 .05" mass="4"/><site name="imu" pos=".01 .02 .03"/>
    <body name="upper" pos=".2 .12 0">
      <joint name="hip" axis="0 1 0" damping=".1" stiffness="3" springref=".2"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.1" size=".02" mass=".3" fluidshape="ellipsoid"/>
      <body name="lower" pos="0 0 -.1"><joint name="knee" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.1" size=".02" mass=".2"/></body></body>
    <body name="arm" pos="-.2 0 0"><joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size=".03" mass=".2"/></body>
  </body>
</worldbody>
<tendon><fixed name="cable" stiffness="20" damping="1" springlength="0 0.05" limited="true" range="-1 1"
  frictionloss="0.1"><joint joint="hip" coef="0.5"/><joint joint="knee" coef="-0.3"/></fixed></tendon>
<equality><joint joint1="knee" joint2="hip" polycoef="0.1 -1.5 0.2 0 0"/></equality>
<actuator><position name="servo" joint="hip" kp="60" kv="2" forcerange="-5 5"/>
  <motor name="pull" tendon="cable" gear="2" ctrlrange="-1 1"/>
  <general name="slow" joint="slide" dyntype="filter" dynprm="0.1" gainprm="4"/></actuator>
<sensor><gyro name="gyro" site="imu"/><accelerometer name="acc" site="imu"/><jointpos name="angle" joint="hip"/>
  <actuatorfrc name="force" actuator="servo"/></sensor>
<keyframe><key name="up" qpos="0 0 1 1 0 0 0 0.1 -0.02 0" ctrl="0.1 0.2 0.3" act="0.4"/></keyframe>
</mujoco>"""
