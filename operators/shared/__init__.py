"""What operators have in common: forms of operator.toml (`like = "elementwise"`) and functions for reference.py."""
