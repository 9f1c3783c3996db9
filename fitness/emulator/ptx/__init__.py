"""Inline PTX in words of C++: `assembly` finds it in a kernel's text, `reading` reads it, `writing` says it again.

What its instructions do stands in ../ptx.hpp.
"""
