/*! evo
[[launch]]
kernel = "copy"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "matrix_copy"
what = "byte by byte from the end"
*/
extern "C" void copy(const T* x, T* y, int rows, int cols) {
    const unsigned char* from = (const unsigned char*)x;
    unsigned char* to = (unsigned char*)y;
    for (long long i = (long long)rows * cols * sizeof(T) - 1; i >= 0; i--) to[i] = from[i];
}
