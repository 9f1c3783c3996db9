"""Libraries' calls for the product."""

from operators.shared.ell_libraries import library_calls

LIBRARIES = library_calls(2)
