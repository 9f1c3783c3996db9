"""Sparse matrix (COO) times dense vector.

Entries come in any order and may repeat, which adds them up; rows may be empty.
"""

from operators.shared.coo import cancel as cancel
from operators.shared.coo import data_dims as data_dims
from operators.shared.coo import inputs as inputs
from operators.shared.coo import library as library
from operators.shared.coo import magnitude as magnitude
from operators.shared.coo import prepare as prepare
from operators.shared.coo import reference as reference
from operators.shared.coo import relations as relations
