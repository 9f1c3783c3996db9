/*! evo
[tune]
THREADS = [256, 128]

[let]
lanes_2 = "16 // sizeof_T"
out_2 = "lanes_2 if stride == 1 else 4"
whole_2 = "width % lanes_2 == 0 and width % 8 == 0 and cols % out_2 == 0"
padded = "pad == 0 or pad == 1 and (size != 2 or stride != 2)"
unpadded = "pad == 1 or size != 3 or stride != 2"
apart = "sizeof_T == 2 and size == 4 and stride == 2 and pad == 1"  # faster by columns
wide_3 = "whole_2 and (padded) and (unpadded) and not apart"
lanes = "16 // sizeof_T"
vector = "lanes if width % lanes == 0 else 4"
out = "vector if stride == 1 else 4"
across_2 = "ceil_div(cols, out)"
strips = "batch * channels * ceil_div(rows, 4)"
each_2 = "max(1, min(THREADS // across_2, ceil_div(strips, 2 * sm_count)))"
known = "(size == 2 or size == 3) and stride == 1 or size == 4 and stride == 2"
staged = "known and pad <= 1 and width % 4 == 0 and across_2 <= 256 and (width % 8 != 0 or cols % out != 0)"

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 2 and stride == 1 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<2, 1, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 2 and stride == 1 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<2, 1, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 3 and stride == 1 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<3, 1, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 3 and stride == 1 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<3, 1, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 4 and stride == 2 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<4, 2, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 4 and stride == 2 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<4, 2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 3 and stride == 2 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<3, 2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 2 and stride == 2 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0))"
kernel = "wide<2, 2, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 2 and stride == 1 and not (width % 8 == 0 and (pad == 0 or pad == 1))))"
kernel = "columns<2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 7) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 3 and stride == 1 and not (width % 8 == 0 and (pad == 0 or pad == 1))))"
kernel = "columns<3, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 7) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 4 and stride == 2 and not (width % 8 == 0 and (pad == 0 or pad == 1))))"
kernel = "columns<4, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 3 and stride == 2 and not (width % 8 == 0 and (pad == 1))))"
kernel = "columns<3, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (size == 2 and stride == 2 and not (width % 8 == 0 and (pad == 0))))"
kernel = "columns<2, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride > 1) and (not (size == 2 and stride == 1 or size == 3 and stride == 1 or size == 4 and stride == 2 or size == 3 and stride == 2 or size == 2 and stride == 2)))"
kernel = "whatever"
grid = ["ceil_div(batch * channels * rows * cols, 256)"]
block = [256]
args = ["x", "y", "batch * channels", "height", "width", "size", "stride", "pad", "rows", "cols"]
[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 2 and stride == 1 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<2, 1, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 2 and stride == 1 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<2, 1, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 3 and stride == 1 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<3, 1, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 3 and stride == 1 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<3, 1, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 4 and stride == 2 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<4, 2, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 4 and stride == 2 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<4, 2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 3 and stride == 2 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<3, 2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 2 and stride == 2 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0)))"
kernel = "wide_2<2, 2, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 2 and stride == 1 and not (width % 8 == 0 and (pad == 0 or pad == 1)))))"
kernel = "columns_2<2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 7) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 3 and stride == 1 and not (width % 8 == 0 and (pad == 0 or pad == 1)))))"
kernel = "columns_2<3, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 7) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 4 and stride == 2 and not (width % 8 == 0 and (pad == 0 or pad == 1)))))"
kernel = "columns_2<4, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 3 and stride == 2 and not (width % 8 == 0 and (pad == 1)))))"
kernel = "columns_2<3, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not staged and (size == 2 and stride == 2 and not (width % 8 == 0 and (pad == 0)))))"
kernel = "columns_2<2, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (not (size == 2 and stride == 1 or size == 3 and stride == 1 or size == 4 and stride == 2 or size == 3 and stride == 2 or size == 2 and stride == 2)))"
kernel = "whatever_2"
grid = ["ceil_div(batch * channels * rows * cols, 256)"]
block = [256]
args = ["x", "y", "batch * channels", "height", "width", "size", "stride", "pad", "rows", "cols"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes == 0 and size == 2 and stride == 1 and pad == 0))"
kernel = "staged<2, 1, 0, LANES_2>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes == 0 and size == 2 and stride == 1 and pad == 1))"
kernel = "staged<2, 1, 1, LANES_2>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes == 0 and size == 3 and stride == 1 and pad == 0))"
kernel = "staged<3, 1, 0, LANES_2>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes == 0 and size == 3 and stride == 1 and pad == 1))"
kernel = "staged<3, 1, 1, LANES_2>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes == 0 and size == 4 and stride == 2 and pad == 0))"
kernel = "staged<4, 2, 0, LANES_2>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes == 0 and size == 4 and stride == 2 and pad == 1))"
kernel = "staged<4, 2, 1, LANES_2>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes != 0 and size == 2 and stride == 1 and pad == 0))"
kernel = "staged<2, 1, 0, 4>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes != 0 and size == 2 and stride == 1 and pad == 1))"
kernel = "staged<2, 1, 1, 4>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes != 0 and size == 3 and stride == 1 and pad == 0))"
kernel = "staged<3, 1, 0, 4>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes != 0 and size == 3 and stride == 1 and pad == 1))"
kernel = "staged<3, 1, 1, 4>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes != 0 and size == 4 and stride == 2 and pad == 0))"
kernel = "staged<4, 2, 0, 4>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]

[[launch]]
when = "(height * width > 114687) and ((stride <= 1) and (staged and width % lanes != 0 and size == 4 and stride == 2 and pad == 1))"
kernel = "staged<4, 2, 1, 4>"
grid = ["ceil_div(strips, each_2)"]
block = ["32 * ceil_div(each_2 * across_2, 32)"]
shared = "sizeof_T * (each_2 * 4 * cols + 16)"
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols", "across_2", "each_2"]
[[launch]]
when = "(height * width <= 114687) and (size == 2 and stride == 1 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<2, 1, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 2 and stride == 1 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<2, 1, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 3 and stride == 1 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<3, 1, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 3 and stride == 1 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<3, 1, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 16 // sizeof_T), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 4 and stride == 2 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<4, 2, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (not apart and size == 4 and stride == 2 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<4, 2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 3 and stride == 2 and pad == 1 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<3, 2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 2 and stride == 2 and pad == 0 and width % (16 // sizeof_T) == 0 and width % 8 == 0 and cols % out_2 == 0)"
kernel = "wide_3<2, 2, 0>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * ceil_div(cols, 4), 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 2 and stride == 1 and not wide_3)"
kernel = "columns_3<2, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 7) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 3 and stride == 1 and not wide_3)"
kernel = "columns_3<3, 1>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 7) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 4 and stride == 2 and not wide_3)"
kernel = "columns_3<4, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 3 and stride == 2 and not wide_3)"
kernel = "columns_3<3, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (size == 2 and stride == 2 and not wide_3)"
kernel = "columns_3<2, 2>"
grid = ["ceil_div(batch * channels * ceil_div(rows, 4) * cols, 128)"]
block = [128]
args = ["x", "y", "batch * channels", "height", "width", "pad", "rows", "cols"]

[[launch]]
when = "(height * width <= 114687) and (not (size == 2 and stride == 1 or size == 3 and stride == 1 or size == 4 and stride == 2 or size == 3 and stride == 2 or size == 2 and stride == 2))"
kernel = "whatever_3"
grid = ["ceil_div(batch * channels * rows * cols, 256)"]
block = [256]
args = ["x", "y", "batch * channels", "height", "width", "size", "stride", "pad", "rows", "cols"]
*/

constexpr int LANES = 16 / sizeof(T);
struct alignas(16) Vector { T at[LANES]; };
__device__ __forceinline__ ACC lowest() { return -__int_as_float(0x7f800000); }

// Images whose rows are whole vectors. A thread has ROWS results of some neighbouring columns: IN elements of a row, read as
// vectors, and what the windows reach beyond on both sides, which neighbours have in the cache.
template <int SIZE, int STRIDE, int PAD>
__global__ void __launch_bounds__(128) wide(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int rows, int cols) {
    constexpr int ROWS = 4, IN = STRIDE == 2 ? 8 : LANES, OUT = IN / STRIDE, VECTORS = IN / LANES;
    constexpr int RIGHT = SIZE - STRIDE - PAD > 0 ? SIZE - STRIDE - PAD : 0, ALL = PAD + IN + RIGHT;
    constexpr int DEEP = (ROWS - 1) * STRIDE + SIZE;
    const int across = (cols + OUT - 1) / OUT, down = (rows + ROWS - 1) / ROWS;
    const int id = blockIdx.x * 128 + threadIdx.x, strip = id / across, image = strip / down;
    if (image >= images) return;
    const int c = (id - strip * across) * OUT, r = (strip - image * down) * ROWS, left = c * STRIDE, top = r * STRIDE - PAD;
    const T* from = x + (long long)image * height * width + left;
    Vector in[DEEP][VECTORS];
    ACC beside[DEEP][PAD + RIGHT + 1];
    const bool inside = left < width;
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const int h = top + d;
        const bool exists = h >= 0 && h < height;
        const T* row = from + (long long)h * width;
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            if (exists && inside) in[d][v] = *reinterpret_cast<const Vector*>(row + v * LANES);
#pragma unroll
        for (int p = 0; p < PAD; p++) beside[d][p] = exists && left - PAD + p >= 0 ? load(row[p - PAD]) : lowest();
#pragma unroll
        for (int p = 0; p < RIGHT; p++) beside[d][PAD + p] = exists && left + IN + p < width ? load(row[IN + p]) : lowest();
    }
    ACC largest[DEEP][OUT];  // of each row
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const bool exists = top + d >= 0 && top + d < height && inside;
        ACC value[ALL];
#pragma unroll
        for (int i = 0; i < ALL; i++) {
            if (i < PAD) value[i] = beside[d][i];
            else if (i >= PAD + IN) value[i] = beside[d][i - IN];
            else value[i] = exists ? load(in[d][(i - PAD) / LANES].at[(i - PAD) % LANES]) : lowest();
        }
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            largest[d][o] = value[o * STRIDE];
#pragma unroll
            for (int s = 1; s < SIZE; s++) largest[d][o] = fmaxf(largest[d][o], value[o * STRIDE + s]);
        }
    }
    T* to = y + ((long long)image * rows + r) * cols + c;
    const bool whole = cols % OUT == 0;
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        if (r + e >= rows) break;
        struct alignas(OUT * sizeof(T)) Results { T at[OUT]; } result;
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            ACC found = largest[e * STRIDE][o];
#pragma unroll
            for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s][o]);
            result.at[o] = store(found);
        }
        if (whole) {
            *reinterpret_cast<Results*>(to + (long long)e * cols) = result;
        } else {
#pragma unroll
            for (int o = 0; o < OUT; o++)
                if (c + o < cols) to[(long long)e * cols + o] = result.at[o];
        }
    }
}

// Any other images: neighbouring threads have neighbouring columns, each some results below each other.
template <int SIZE, int STRIDE>
__global__ void __launch_bounds__(128) columns(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int pad, int rows, int cols) {
    constexpr int ROWS = STRIDE == 1 ? 7 : 4, DEEP = (ROWS - 1) * STRIDE + SIZE;
    const int down = (rows + ROWS - 1) / ROWS, id = blockIdx.x * 128 + threadIdx.x, strip = id / cols, image = strip / down;
    if (image >= images) return;
    const int c = id - strip * cols, r = (strip - image * down) * ROWS, left = c * STRIDE - pad, top = r * STRIDE - pad;
    const T* from = x + (long long)image * height * width + left;
    const T none = store(lowest());
    T in[DEEP][SIZE];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const bool exists = top + d >= 0 && top + d < height;
        const T* row = from + (long long)(top + d) * width;
#pragma unroll
        for (int s = 0; s < SIZE; s++) {
            in[d][s] = none;
            if (exists && left + s >= 0 && left + s < width) in[d][s] = row[s];
        }
    }
    ACC largest[DEEP];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        largest[d] = load(in[d][0]);
#pragma unroll
        for (int s = 1; s < SIZE; s++) largest[d] = fmaxf(largest[d], load(in[d][s]));
    }
    T* to = y + ((long long)image * rows + r) * cols + c;
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        ACC found = largest[e * STRIDE];
#pragma unroll
        for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s]);
        if (r + e < rows) to[(long long)e * cols] = store(found);
    }
}

extern "C" __global__ void __launch_bounds__(256) whatever(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int size, int stride, int pad, int rows, int cols) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x, image = at / cols / rows;
    if (image >= images) return;
    const int c = at % cols, r = at / cols % rows;
    ACC largest = lowest();
    for (int a = 0; a < size; a++) {
        const int h = r * stride - pad + a;
        if (h < 0 || h >= height) continue;
        for (int b = 0; b < size; b++) {
            const int w = c * stride - pad + b;
            if (w >= 0 && w < width) largest = fmaxf(largest, load(x[(image * height + h) * width + w]));
        }
    }
    y[at] = store(largest);
}

constexpr int LANES_2 = 16 / sizeof(T);
struct alignas(16) Vector_2 { T at[LANES_2]; };
__device__ __forceinline__ ACC lowest_2() { return -__int_as_float(0x7f800000); }

// Images whose rows are whole vectors. A thread has ROWS results of some neighbouring columns_2: IN elements of a row, read as
// vectors, and what the windows reach beyond on both sides, which neighbours have in the cache.
template <int SIZE, int STRIDE, int PAD>
__global__ void __launch_bounds__(128) wide_2(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int rows, int cols) {
    constexpr int ROWS = 4, IN = STRIDE == 2 ? 8 : LANES_2, OUT = IN / STRIDE, VECTORS = IN / LANES_2;
    constexpr int RIGHT = SIZE - STRIDE - PAD > 0 ? SIZE - STRIDE - PAD : 0, ALL = PAD + IN + RIGHT;
    constexpr int DEEP = (ROWS - 1) * STRIDE + SIZE;
    const int across_2 = (cols + OUT - 1) / OUT, down = (rows + ROWS - 1) / ROWS;
    const int id = blockIdx.x * 128 + threadIdx.x, strip = id / across_2, image = strip / down;
    if (image >= images) return;
    const int c = (id - strip * across_2) * OUT, r = (strip - image * down) * ROWS, left = c * STRIDE, top = r * STRIDE - PAD;
    const T* from = x + (long long)image * height * width + left;
    Vector_2 in[DEEP][VECTORS];
    ACC beside[DEEP][PAD + RIGHT + 1];
    const bool inside = left < width;
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const int h = top + d;
        const bool exists = h >= 0 && h < height;
        const T* row = from + (long long)h * width;
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            if (exists && inside) in[d][v] = *reinterpret_cast<const Vector_2*>(row + v * LANES_2);
#pragma unroll
        for (int p = 0; p < PAD; p++) beside[d][p] = exists && left - PAD + p >= 0 ? load(row[p - PAD]) : lowest_2();
#pragma unroll
        for (int p = 0; p < RIGHT; p++) beside[d][PAD + p] = exists && left + IN + p < width ? load(row[IN + p]) : lowest_2();
    }
    ACC largest[DEEP][OUT];  // of each_2 row
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const bool exists = top + d >= 0 && top + d < height && inside;
        ACC value[ALL];
#pragma unroll
        for (int i = 0; i < ALL; i++) {
            if (i < PAD) value[i] = beside[d][i];
            else if (i >= PAD + IN) value[i] = beside[d][i - IN];
            else value[i] = exists ? load(in[d][(i - PAD) / LANES_2].at[(i - PAD) % LANES_2]) : lowest_2();
        }
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            largest[d][o] = value[o * STRIDE];
#pragma unroll
            for (int s = 1; s < SIZE; s++) largest[d][o] = fmaxf(largest[d][o], value[o * STRIDE + s]);
        }
    }
    T* to = y + ((long long)image * rows + r) * cols + c;
    const bool whole = cols % OUT == 0;
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        if (r + e >= rows) break;
        struct alignas(OUT * sizeof(T)) Results { T at[OUT]; } result;
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            ACC found = largest[e * STRIDE][o];
#pragma unroll
            for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s][o]);
            result.at[o] = store(found);
        }
        if (whole) {
            *reinterpret_cast<Results*>(to + (long long)e * cols) = result;
        } else {
#pragma unroll
            for (int o = 0; o < OUT; o++)
                if (c + o < cols) to[(long long)e * cols + o] = result.at[o];
        }
    }
}

// As `wide_2`, for rows of results that are no whole vectors, or images whose rows are not. Strips behind each_2 other are one
// run of memory: a block lays its results in order in shared memory and writes them as vectors, wherever rows begin.
extern __shared__ __align__(16) unsigned char stage[];

template <int SIZE, int STRIDE, int PAD, int VEC>
__global__ void __launch_bounds__(256) staged(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int rows, int cols, int across_2, int each_2) {
    constexpr int ROWS = 4, IN = STRIDE == 2 ? 8 : VEC, OUT = IN / STRIDE, VECTORS = IN / VEC;
    constexpr int RIGHT = SIZE - STRIDE - PAD > 0 ? SIZE - STRIDE - PAD : 0, ALL = PAD + IN + RIGHT;
    constexpr int DEEP = (ROWS - 1) * STRIDE + SIZE;
    struct alignas(VEC * sizeof(T)) Read { T at[VEC]; };
    T* const results = reinterpret_cast<T*>(stage);
    const int down = (rows + ROWS - 1) / ROWS, strips = images * down, first = blockIdx.x * each_2, last = min(first + each_2, strips);
    const auto begins = [&](int strip) { return ((long long)(strip / down) * rows + strip % down * ROWS) * cols; };  // in y
    const long long begin = begins(first), end = begins(last);
    const int skip = (int)(begin % LANES_2), mine = threadIdx.x / across_2, strip = first + mine;
    if (strip < last) {
        const int image = strip / down, c = (threadIdx.x - mine * across_2) * OUT, r = (strip - image * down) * ROWS;
        const int left = c * STRIDE, top = r * STRIDE - PAD;
        const T* from = x + (long long)image * height * width + left;
        Read in[DEEP][VECTORS];
        ACC beside[DEEP][PAD + RIGHT + 1];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            const int h = top + d;
            const bool exists = h >= 0 && h < height;
            const T* row = from + (long long)h * width;
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                if (exists && left + v * VEC < width) in[d][v] = *reinterpret_cast<const Read*>(row + v * VEC);
#pragma unroll
            for (int p = 0; p < PAD; p++) beside[d][p] = exists && left - PAD + p >= 0 ? load(row[p - PAD]) : lowest_2();
#pragma unroll
            for (int p = 0; p < RIGHT; p++) beside[d][PAD + p] = exists && left + IN + p < width ? load(row[IN + p]) : lowest_2();
        }
        ACC largest[DEEP][OUT];  // of each_2 row
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            const bool exists = top + d >= 0 && top + d < height;
            ACC value[ALL];
#pragma unroll
            for (int i = 0; i < ALL; i++) {
                if (i < PAD) value[i] = beside[d][i];
                else if (i >= PAD + IN) value[i] = beside[d][i - IN];
                else value[i] = exists && left + (i - PAD) / VEC * VEC < width ? load(in[d][(i - PAD) / VEC].at[(i - PAD) % VEC]) : lowest_2();
            }
#pragma unroll
            for (int o = 0; o < OUT; o++) {
                largest[d][o] = value[o * STRIDE];
#pragma unroll
                for (int s = 1; s < SIZE; s++) largest[d][o] = fmaxf(largest[d][o], value[o * STRIDE + s]);
            }
        }
        const int place = skip + (int)(begins(strip) - begin) + c;
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            if (r + e >= rows) break;
            const int at = place + e * cols;
            T result[OUT];
#pragma unroll
            for (int o = 0; o < OUT; o++) {
                ACC found = largest[e * STRIDE][o];
#pragma unroll
                for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s][o]);
                result[o] = store(found);
            }
            if constexpr (sizeof(T) == 2) {  // two in one, from an even place on
                struct alignas(4) Two { T at[2]; };
                if (at % 2 == 0) {
#pragma unroll
                    for (int o = 0; o < OUT; o += 2)
                        if (c + o + 1 < cols) *reinterpret_cast<Two*>(results + at + o) = Two{{result[o], result[o + 1]}};
                        else if (c + o < cols) results[at + o] = result[o];
                } else {
                    results[at] = result[0];
#pragma unroll
                    for (int o = 1; o < OUT; o += 2)
                        if (o + 1 < OUT && c + o + 1 < cols) *reinterpret_cast<Two*>(results + at + o) = Two{{result[o], result[o + 1 < OUT ? o + 1 : o]}};
                        else if (c + o < cols) results[at + o] = result[o];
                }
            } else {
#pragma unroll
                for (int o = 0; o < OUT; o++)
                    if (c + o < cols) results[at + o] = result[o];
            }
        }
    }
    __syncthreads();
    const int count = (int)(end - begin);
    T* to = y + (begin - skip);
    for (int v = threadIdx.x * LANES_2; v < skip + count; v += blockDim.x * LANES_2) {
        if (v >= skip && v + LANES_2 <= skip + count) {
            *reinterpret_cast<Vector_2*>(to + v) = *reinterpret_cast<const Vector_2*>(results + v);
        } else {
            for (int l = 0; l < LANES_2; l++)
                if (v + l >= skip && v + l < skip + count) to[v + l] = results[v + l];
        }
    }
}

// Any other images: neighbouring threads have neighbouring columns_2, each_2 some results below each_2 other.
template <int SIZE, int STRIDE>
__global__ void __launch_bounds__(128) columns_2(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int pad, int rows, int cols) {
    constexpr int ROWS = STRIDE == 1 ? 7 : 4, DEEP = (ROWS - 1) * STRIDE + SIZE;
    const int down = (rows + ROWS - 1) / ROWS, id = blockIdx.x * 128 + threadIdx.x, strip = id / cols, image = strip / down;
    if (image >= images) return;
    const int c = id - strip * cols, r = (strip - image * down) * ROWS, left = c * STRIDE - pad, top = r * STRIDE - pad;
    const T* from = x + (long long)image * height * width + left;
    const T none = store(lowest_2());
    T in[DEEP][SIZE];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const bool exists = top + d >= 0 && top + d < height;
        const T* row = from + (long long)(top + d) * width;
#pragma unroll
        for (int s = 0; s < SIZE; s++) {
            in[d][s] = none;
            if (exists && left + s >= 0 && left + s < width) in[d][s] = row[s];
        }
    }
    ACC largest[DEEP];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        largest[d] = load(in[d][0]);
#pragma unroll
        for (int s = 1; s < SIZE; s++) largest[d] = fmaxf(largest[d], load(in[d][s]));
    }
    T* to = y + ((long long)image * rows + r) * cols + c;
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        ACC found = largest[e * STRIDE];
#pragma unroll
        for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s]);
        if (r + e < rows) to[(long long)e * cols] = store(found);
    }
}

extern "C" __global__ void __launch_bounds__(256) whatever_2(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int size, int stride, int pad, int rows, int cols) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x, image = at / cols / rows;
    if (image >= images) return;
    const int c = at % cols, r = at / cols % rows;
    ACC largest = lowest_2();
    for (int a = 0; a < size; a++) {
        const int h = r * stride - pad + a;
        if (h < 0 || h >= height) continue;
        for (int b = 0; b < size; b++) {
            const int w = c * stride - pad + b;
            if (w >= 0 && w < width) largest = fmaxf(largest, load(x[(image * height + h) * width + w]));
        }
    }
    y[at] = store(largest);
}

constexpr int LANES_3 = 16 / sizeof(T);
struct alignas(16) Vector_3 { T at[LANES_3]; };
__device__ __forceinline__ ACC lowest_3() { return -__int_as_float(0x7f800000); }

// Images whose rows are whole_2 vectors. A thread has ROWS results of some neighbouring columns_3: IN elements of a row, read as
// vectors, and what the windows reach beyond on both sides, which neighbours have in the cache.
template <int SIZE, int STRIDE, int PAD>
__global__ void __launch_bounds__(128) wide_3(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int rows, int cols) {
    constexpr int ROWS = 4, IN = STRIDE == 2 ? 8 : LANES_3, OUT = IN / STRIDE, VECTORS = IN / LANES_3;
    constexpr int RIGHT = SIZE - STRIDE - PAD > 0 ? SIZE - STRIDE - PAD : 0, ALL = PAD + IN + RIGHT;
    constexpr int DEEP = (ROWS - 1) * STRIDE + SIZE;
    const int across = (cols + OUT - 1) / OUT, down = (rows + ROWS - 1) / ROWS;
    const int id = blockIdx.x * 128 + threadIdx.x, strip = id / across, image = strip / down;
    if (image >= images) return;
    const int c = (id - strip * across) * OUT, r = (strip - image * down) * ROWS, left = c * STRIDE, top = r * STRIDE - PAD;
    const T* from = x + (long long)image * height * width + left;
    Vector_3 in[DEEP][VECTORS];
    ACC beside[DEEP][PAD + RIGHT + 1];
    const bool inside = left < width;
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const int h = top + d;
        const bool exists = h >= 0 && h < height;
        const T* row = from + (long long)h * width;
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            if (exists && inside) in[d][v] = *reinterpret_cast<const Vector_3*>(row + v * LANES_3);
#pragma unroll
        for (int p = 0; p < PAD; p++) beside[d][p] = exists && left - PAD + p >= 0 ? load(row[p - PAD]) : lowest_3();
#pragma unroll
        for (int p = 0; p < RIGHT; p++) beside[d][PAD + p] = exists && left + IN + p < width ? load(row[IN + p]) : lowest_3();
    }
    ACC largest[DEEP][OUT];  // of each row
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const bool exists = top + d >= 0 && top + d < height && inside;
        ACC value[ALL];
#pragma unroll
        for (int i = 0; i < ALL; i++) {
            if (i < PAD) value[i] = beside[d][i];
            else if (i >= PAD + IN) value[i] = beside[d][i - IN];
            else value[i] = exists ? load(in[d][(i - PAD) / LANES_3].at[(i - PAD) % LANES_3]) : lowest_3();
        }
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            largest[d][o] = value[o * STRIDE];
#pragma unroll
            for (int s = 1; s < SIZE; s++) largest[d][o] = fmaxf(largest[d][o], value[o * STRIDE + s]);
        }
    }
    T* to = y + ((long long)image * rows + r) * cols + c;
    const bool whole_2 = cols % OUT == 0;
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        if (r + e >= rows) break;
        struct alignas(OUT * sizeof(T)) Results { T at[OUT]; } result;
#pragma unroll
        for (int o = 0; o < OUT; o++) {
            ACC found = largest[e * STRIDE][o];
#pragma unroll
            for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s][o]);
            result.at[o] = store(found);
        }
        if (whole_2) {
            *reinterpret_cast<Results*>(to + (long long)e * cols) = result;
        } else {
#pragma unroll
            for (int o = 0; o < OUT; o++)
                if (c + o < cols) to[(long long)e * cols + o] = result.at[o];
        }
    }
}

// Any other images: neighbouring threads have neighbouring columns_3, each some results below each other.
template <int SIZE, int STRIDE>
__global__ void __launch_bounds__(128) columns_3(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int pad, int rows, int cols) {
    constexpr int ROWS = STRIDE == 1 ? 7 : 4, DEEP = (ROWS - 1) * STRIDE + SIZE;
    const int down = (rows + ROWS - 1) / ROWS, id = blockIdx.x * 128 + threadIdx.x, strip = id / cols, image = strip / down;
    if (image >= images) return;
    const int c = id - strip * cols, r = (strip - image * down) * ROWS, left = c * STRIDE - pad, top = r * STRIDE - pad;
    const T* from = x + (long long)image * height * width + left;
    const T none = store(lowest_3());
    T in[DEEP][SIZE];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        const bool exists = top + d >= 0 && top + d < height;
        const T* row = from + (long long)(top + d) * width;
#pragma unroll
        for (int s = 0; s < SIZE; s++) {
            in[d][s] = none;
            if (exists && left + s >= 0 && left + s < width) in[d][s] = row[s];
        }
    }
    ACC largest[DEEP];
#pragma unroll
    for (int d = 0; d < DEEP; d++) {
        largest[d] = load(in[d][0]);
#pragma unroll
        for (int s = 1; s < SIZE; s++) largest[d] = fmaxf(largest[d], load(in[d][s]));
    }
    T* to = y + ((long long)image * rows + r) * cols + c;
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        ACC found = largest[e * STRIDE];
#pragma unroll
        for (int s = 1; s < SIZE; s++) found = fmaxf(found, largest[e * STRIDE + s]);
        if (r + e < rows) to[(long long)e * cols] = store(found);
    }
}

extern "C" __global__ void __launch_bounds__(256) whatever_3(const T* __restrict__ x, T* __restrict__ y, int images, int height, int width, int size, int stride, int pad, int rows, int cols) {
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x, image = at / cols / rows;
    if (image >= images) return;
    const int c = at % cols, r = at / cols % rows;
    ACC largest = lowest_3();
    for (int a = 0; a < size; a++) {
        const int h = r * stride - pad + a;
        if (h < 0 || h >= height) continue;
        for (int b = 0; b < size; b++) {
            const int w = c * stride - pad + b;
            if (w >= 0 && w < width) largest = fmaxf(largest, load(x[(image * height + h) * width + w]));
        }
    }
    y[at] = store(largest);
}
