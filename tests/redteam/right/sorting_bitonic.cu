/*! evo
[[buffer]]
name = "keys"
dtype = "ACC"
shape = ["next_pow2(n)"]

[[launch]]
kernel = "begin"
grid = ["ceil_div(next_pow2(n), 256)"]
block = [256]
args = ["x", "keys", "n", "next_pow2(n)"]

[[launch]]
kernel = "exchange"
group = "steps"
grid = ["ceil_div(next_pow2(n), 256)"]
block = [256]
args = ["keys", "i", "next_pow2(n)"]

[group.steps]
repeat = "ceil_log2(n) * (ceil_log2(n) + 1) // 2"

[[launch]]
kernel = "end"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["keys", "x", "n"]
*/
/* redteam
operator = "sorting"
what = "a network of exchanges, filled up to a power of two; every launch finds out which one it is"
*/
extern "C" __global__ void begin(const T* x, ACC* keys, int n, int padded) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < padded) keys[i] = i < n ? load(x[i]) : __int_as_float(0x7f800000);
}
extern "C" __global__ void exchange(ACC* keys, int step, int padded) {
    int stage = 0;
    while (step > stage) step -= ++stage;
    const int distance = 1 << (stage - step), i = blockIdx.x * 256 + threadIdx.x, other = i ^ distance;
    if (i >= padded || other < i) return;
    const bool up = (i & (2 << stage)) == 0;
    const ACC a = keys[i], b = keys[other];
    if (up ? a > b : a < b) keys[i] = b, keys[other] = a;
}
extern "C" __global__ void end(const ACC* keys, T* x, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) x[i] = store(keys[i]);
}
