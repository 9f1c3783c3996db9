"""Functions of a user's own repository: recorded, taken out as operators, and put back with a kernel."""
