"""The parts of the pipeline's demo."""
