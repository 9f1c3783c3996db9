/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[buffer]]
name = "a_values"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "a_indices"
dtype = "int32"
shape = ["n"]

[[buffer]]
name = "b_values"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "b_indices"
dtype = "int32"
shape = ["n"]

[[launch]]
kernel = "number"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "a_values", "a_indices", "n"]

[[launch]]
kernel = "merge"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = [
    "a_values if i % 2 == 0 else b_values", "a_indices if i % 2 == 0 else b_indices",
    "b_values if i % 2 == 0 else a_values", "b_indices if i % 2 == 0 else a_indices", "2 ** i", "n",
]
group = "pass"

[[launch]]
kernel = "take"
grid = ["ceil_div(k, BLOCK)"]
block = ["BLOCK"]
args = [
    "a_values if ceil_log2(n) % 2 == 0 else b_values", "a_indices if ceil_log2(n) % 2 == 0 else b_indices",
    "values", "indices", "k",
]

[group.pass]
repeat = "ceil_log2(n)"
*/

// Sorts all elements with their indices, a launch per level of merging, and takes the first ones.
extern "C" __global__ void number(const T* x, ACC* values, int* indices, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    values[at] = load(x[at]);
    indices[at] = at;
}

// One thread per element: its place is its own in its run, plus how many of the other run come before it.
extern "C" __global__ void merge(const ACC* values, const int* indices, ACC* to_values, int* to_indices, int width,
                                 int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    int run = at / width, index = indices[at];
    long long begin = (long long)(run ^ 1) * width;
    int low = begin < n ? begin : n, high = begin + width < n ? begin + width : n, first = low;
    ACC value = values[at];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (values[middle] > value || (values[middle] == value && indices[middle] < index)) low = middle + 1;
        else high = middle;
    }
    long long place = (long long)(run & ~1) * width + at % width + (low - first);
    to_values[place] = value;
    to_indices[place] = index;
}

extern "C" __global__ void take(const ACC* from_values, const int* from_indices, T* values, int* indices, int k) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= k) return;
    values[at] = store(from_values[at]);
    indices[at] = from_indices[at];
}
