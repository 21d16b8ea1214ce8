"""The checks of the gate but for the fit: one module a check, and what a check needs for itself."""
