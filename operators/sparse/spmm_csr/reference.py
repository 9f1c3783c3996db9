"""Sparse matrix (CSR) times dense matrix.

The columns of a row come in any order and may repeat; rows may be empty.
"""

from operators.shared.csr import cancel as cancel
from operators.shared.csr import data_dims as data_dims
from operators.shared.csr import inputs as inputs
from operators.shared.csr import library as library
from operators.shared.csr import magnitude as magnitude
from operators.shared.csr import prepare as prepare
from operators.shared.csr import reference as reference
from operators.shared.csr import relations as relations
