/*! evo
[[launch]]
kernel = "scores"
args = ["q", "keys", "y", "rows", "cols", "depth"]
*/
extern "C" void scores(const T* q, const T* keys, T* y, int rows, int cols, int depth) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            ACC sum = 0;
            for (int d = 0; d < depth; d++) sum += load(q[(long)r * depth + d]) * load(keys[(long)c * depth + d]);
            y[(long)r * cols + c] = store(sum);
        }
}
