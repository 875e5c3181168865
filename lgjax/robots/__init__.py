"""What a robot's file holds besides its mechanism: actuators, sensors, and the record of all of it."""
