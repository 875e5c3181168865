"""Contents of a robot's file besides its mechanism: actuators, sensors, and the record of all of it."""
