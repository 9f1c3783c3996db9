/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[buffer]]
name = "other"
dtype = "T"
shape = ["n"]

[[launch]]
kernel = "merge"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x if i % 2 == 0 else other", "other if i % 2 == 0 else x", "2 ** i", "n"]
group = "pass"

[[launch]]
kernel = "copy"
when = "max(ceil_log2(n), 1) % 2 == 1"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["other", "x", "n"]

[group.pass]
repeat = "max(ceil_log2(n), 1)" # a copy at least
*/

// Merges neighbouring runs of sorted elements, with one thread per element: its place is its own in its run, plus how
// many of the other run come before it.
extern "C" __global__ void merge(const T* from, T* to, int width, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    int run = at / width;
    long long begin = (long long)(run ^ 1) * width;
    int low = begin < n ? begin : n, high = begin + width < n ? begin + width : n, first = low;
    ACC value = load(from[at]);
    while (low < high) {
        int middle = low + (high - low) / 2;
        ACC rival = load(from[middle]);
        if (run % 2 ? rival <= value : rival < value) low = middle + 1;
        else high = middle;
    }
    to[(long long)(run & ~1) * width + at % width + (low - first)] = from[at];
}

extern "C" __global__ void copy(const T* from, T* to, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) to[at] = from[at];
}
