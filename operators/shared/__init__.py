"""Parts that operators share: forms of operator.toml (`like = "elementwise"`) and functions for reference.py."""
