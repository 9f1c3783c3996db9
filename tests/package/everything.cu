/*! evo
requires = "(rows * cols) % 7 != 3 and rows != 11"
zero = [{ name = "y", when = "odd % 2 == 1" }, "counts"]

[tune]
STEP = [3, 5]
WIDE = [64, 32]
where = ["WIDE * STEP * sizeof_T <= max_shared_bytes", "fits >= 0"]

[let]
fits = "max_shared_bytes - WIDE * sizeof_ACC"
odd = "rows % -3 + ceil_log2(cols)"
unsure = "rows // (cols - 17)"            # has no value where cols is 17, and is asked for only where it is not

[[buffer]]
name = "ping"
dtype = "T"
shape = ["rows", "next_pow2(cols) + 16"]

[[buffer]]
name = "pong"
dtype = "T"
shape = ["rows * (next_pow2(cols) + 16)"]

[[buffer]]
name = "counts"
dtype = "int64"
shape = ["1 + unsure if cols > 17 else 3"]

[[tensor_map]]
name = "of_ping"
tensor = "ping"
shape = ["next_pow2(cols) + 16", "rows"]
box = [16, 8]
swizzle = "64B"

[[tensor_map]]
name = "of_pong"
tensor = "pong"
shape = ["8", "2", "rows"]
strides = ["sizeof_T * 8", "sizeof_T * (next_pow2(cols) + 16)"]
box = ["4 * STEP + 4", 1, "1 + rows % 3"]
element_strides = [1, 1, 2]
l2_promotion = "L2_128B"
oob_fill = "NAN_REQUEST_ZERO_FMA"

[[launch]]
kernel = "numbers"
overlap = true
grid = ["rows // 2 + 1", "max(1, cols % 9, STEP)", 2]
block = [32, "1 + rows % 2"]
shared = "16 * (cols % 5)"
args = ["rows", "-rows", "eps", "cols * cols", "rows % 300 - 40", "rows < cols <= 2 * rows < 400", "eps if rows > 3 else 7"]

[[launch]]
kernel = "pass"
overlap = true
group = "passes"
when = "i != 2 or not rows % 2"
grid = ["4 * (i + 1)", 2]
block = ["WIDE"]
cluster = ["2 if i % 2 else 4", "1 + (rows > 9)"]
args = ["ping if i % 2 == 0 else pong", "pong if i % 2 == 0 else ping if i > 1 else counts if rows > 30 else y", "i * cols"]

[[launch]]
kernel = "maps"
group = "passes"
when = "rows > 2"
grid = ["min(blocks_per_sm, 2) * sm_count"]
block = ["32 + 32 * (i % 2)"]
cooperative = true
args = ["of_ping", "of_pong if rows % 2 and i == 0 else of_ping"]

[group.passes]
repeat = "ceil_log2(min(cols, 60)) - rows // 90"
*/
// Does nothing; its plan has everything that plans can have.
extern "C" __global__ void numbers(int rows, long long minus, ACC eps, double square, unsigned char small, bool chain, float either) { cudaGridDependencySynchronize(); }
extern "C" __global__ void pass(const T* from, T* to, int at) { cudaGridDependencySynchronize(); }
extern "C" __global__ void maps(const CUtensorMap* one, const CUtensorMap* other) {}
