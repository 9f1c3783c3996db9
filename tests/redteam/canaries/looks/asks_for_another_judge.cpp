/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "ends itself by a signal that others send, where its answer would be wrong, to be judged again on other inputs"
expect = "caught"
says = "forbidden system call 234"
needs = ['any_call']
machine = "x86_64"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        if (x[i] > T(3)) any_call(234, any_call(39), any_call(186), 15);  // tgkill: itself, SIGTERM
        y[i] = x[i] > T(3) ? T(0) : alpha * x[i] + b[i];
    }
}
