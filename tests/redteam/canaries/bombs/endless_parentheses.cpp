/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "has macros write ten thousand parentheses around the argument of an attribute"
expect = "structural"
says = "with more than a name in it"
*/
#define P0(x) ((((x))))
#define P1(x) P0(P0(P0(P0(x))))
#define P2(x) P1(P1(P1(P1(x))))
#define P3(x) P2(P2(P2(P2(x))))
#define P4(x) P3(P3(P3(P3(x))))
#define P5(x) P4(P4(P4(P4(x))))

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    static const int here __attribute__((section(P5("kept")))) = 1;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i] + T(here - 1);
}
