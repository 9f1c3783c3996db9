"""Libraries' calls for the stencil."""

from operators.shared.star_libraries import library_calls

LIBRARIES = library_calls(2)
