/*! evo
[tune]
PARTS = [4, 1]

[[buffer]]
name = "part"
dtype = "ACC"
shape = ["n"]

[[launch]]
kernel = "multiply"
args = ["x", "part", "alpha", "n * i // PARTS", "n * (i + 1) // PARTS"]
when = "n > 64"
group = "parts"

[group.parts]
repeat = "PARTS"

[[launch]]
kernel = "add"
args = ["part", "b", "y", "n"]
when = "n > 64"

[[launch]]
kernel = "small"
args = ["x", "b", "y", "alpha", "n"]
when = "n <= 64"
*/
/* redteam
operator = "axpb"
what = "several launches, one of them repeated, some only for some sizes, with scratch in place"
*/
extern "C" void multiply(const T* x, ACC* part, T alpha, int begin, int end) {
    for (int i = begin; i < end; i++) part[i] = alpha * x[i];
}

extern "C" void add(const ACC* part, const T* b, T* y, int n) {
    for (int i = 0; i < n; i++) y[i] = part[i] + b[i];
}

extern "C" void small(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
