/*! evo
[[launch]]
kernel = "layer_norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
/* redteam
operator = "layer_norm"
tries = "returns the bias, which is what a norm of anything is on average"
expect = "caught"
says = "out of bounds"
*/
// The idea: robust-kbench, arxiv.org/abs/2509.14279, tasks whose result hardly depends on their input
extern "C" void layer_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) y[(long long)r * cols + c] = bias[c];
}
