"""Changes policies and their test objects in small ways: policies come in, and the numbers of caught changes go out."""
