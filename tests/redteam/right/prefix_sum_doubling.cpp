/*! evo
[[buffer]]
name = "even"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "odd"
dtype = "ACC"
shape = ["n"]

[[launch]]
kernel = "copy"
args = ["x", "even", "n"]

[[launch]]
kernel = "add"
args = ["even if i % 2 == 0 else odd", "odd if i % 2 == 0 else even", "2 ** i", "n"]
group = "passes"

[group.passes]
repeat = "ceil_log2(n)"

[[launch]]
kernel = "copy"
args = ["even if ceil_log2(n) % 2 == 0 else odd", "y", "n"]
*/
/* redteam
operator = "prefix_sum"
what = "sums of twice as many elements in every launch"
*/
extern "C" void copy(const T* x, ACC* y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i];
}
extern "C" void add(const ACC* from, ACC* to, int distance, int n) {
#pragma omp parallel for simd num_threads(2)
    for (int i = 0; i < n; i++) to[i] = i < distance ? from[i] : from[i - distance] + from[i];
}
