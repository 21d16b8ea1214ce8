"""How right planning is: figures that others measured, what planning says of the same cases, and the difference."""
