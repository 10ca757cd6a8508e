"""The parts of the demo, which `demo.py` runs in order."""
