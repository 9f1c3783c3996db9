/*! evo
[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["ceil_div(n, 128)"]

[[launch]]
kernel = "within"
args = ["x", "sums", "n"]

[[launch]]
kernel = "across"
args = ["x", "sums", "y", "n"]
*/
/* redteam
operator = "prefix_sum"
what = "sums of blocks first, each block from its end, then every block from the sum before it"
*/
extern "C" void within(const T* x, ACC* sums, int n) {
#pragma omp parallel for num_threads(2)
    for (int block = 0; block < (n + 127) / 128; block++) {
        const int end = block * 128 + 128 < n ? block * 128 + 128 : n;
        ACC sum = 0;
        for (int i = end - 1; i >= block * 128; i--) sum += x[i];
        sums[block] = sum;
    }
}

extern "C" void across(const T* x, const ACC* sums, T* y, int n) {
    ACC before = 0;
    for (int block = 0; block < (n + 127) / 128; block++) {
        ACC sum = 0;
        for (int i = block * 128; i < n && i < block * 128 + 128; i++) y[i] = before + (sum += x[i]);
        before += sums[block];
    }
}
