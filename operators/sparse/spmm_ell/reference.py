"""Sparse matrix (ELL) times dense matrix.

Row-major; the columns of a row come in any order and may repeat; column -1 pads what is left of a row, whose values are
arbitrary.
"""

from operators.shared.ell import cancel as cancel
from operators.shared.ell import inputs as inputs
from operators.shared.ell import library as library
from operators.shared.ell import magnitude as magnitude
from operators.shared.ell import prepare as prepare
from operators.shared.ell import reference as reference
from operators.shared.ell import relations as relations
