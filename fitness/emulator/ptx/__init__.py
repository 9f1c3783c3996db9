"""Inline PTX in words of C++: `assembly` finds it in a kernel's text, `reading` reads it, `instructions` say it.

What its instructions do stands in ../ptx.hpp.
"""
