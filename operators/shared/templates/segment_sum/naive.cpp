/*! evo
[[launch]]
kernel = "segment_sum"
args = ["offsets", "x", "y", "segments"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void segment_sum(const int* offsets, const T* x, T* y, int segments) {
    for (int s = 0; s < segments; s++) {
        ACC sum = 0;
        for (int i = offsets[s]; i < offsets[s + 1]; i++) sum += load(x[i]);
        y[s] = store(sum);
    }
}
