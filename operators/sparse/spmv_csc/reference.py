"""Sparse matrix (CSC) times dense vector.

The rows of a column come in any order and may repeat; columns and rows may be empty.
"""

from operators.shared.csc import cancel as cancel
from operators.shared.csc import data_dims as data_dims
from operators.shared.csc import inputs as inputs
from operators.shared.csc import library as library
from operators.shared.csc import magnitude as magnitude
from operators.shared.csc import prepare as prepare
from operators.shared.csc import reference as reference
from operators.shared.csc import relations as relations
