"""Parts of a Robot from the description of its file: loops, forces, actuators, sensors, contacts, keyframes."""
