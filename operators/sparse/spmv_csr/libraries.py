"""Libraries' calls for the product."""

from operators.shared.csr_libraries import library_calls

LIBRARIES = library_calls(1)
