"""What both arms share: the stepper, the loop, the seam to a backend, the audit."""
