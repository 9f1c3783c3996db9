/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "calls what has a name of a hundred thousand letters, each pair of which may be a type in two ways"
expect = "structural"
says = "it calls|undefined"
*/
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define N0 sisisisi
#define N1 JOIN(N0, N0)
#define N2 JOIN(N1, N1)
#define N3 JOIN(N2, N2)
#define N4 JOIN(N3, N3)
#define N5 JOIN(N4, N4)
#define N6 JOIN(N5, N5)
#define N7 JOIN(N6, N6)
#define N8 JOIN(N7, N7)
#define N9 JOIN(N8, N8)
#define N10 JOIN(N9, N9)
#define N11 JOIN(N10, N10)
#define N12 JOIN(N11, N11)
#define N13 JOIN(N12, N12)
#define N14 JOIN(N13, N13)
#define NAME JOIN(__a, JOIN(N14, x))
extern "C" void NAME();

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (n < 0) NAME();
}
