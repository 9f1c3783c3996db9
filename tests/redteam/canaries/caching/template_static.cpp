/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "keeps a counter as static member of a template, which is unique in the whole process"
expect = "structural"
says = "@STATIC@"
*/
template <class X>
struct Counter {
    static inline int calls = 0;
};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    if (Counter<T>::calls++ < 3) {
        for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    }
}
