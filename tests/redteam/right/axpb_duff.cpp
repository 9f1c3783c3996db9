/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
what = "with a switch into a loop and a table of functions"
*/
static T sum(T a, T b) { return a + b; }
static T same(T a, T) { return a; }
static T (*const TABLE[])(T, T) = {sum, same};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    int i = 0;
    switch (n % 4) {
        case 0: while (i < n) { y[i] = TABLE[0](alpha * x[i], b[i]); i++;
        case 3: y[i] = TABLE[0](alpha * x[i], b[i]); i++;
        case 2: y[i] = TABLE[0](alpha * x[i], b[i]); i++;
        case 1: y[i] = TABLE[0](alpha * x[i], b[i]); i++; }
    }
}
