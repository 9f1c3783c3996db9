/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "stops its process instead of ending it"
expect = "caught"
needs = ['system_call']
machine = "x86_64"
says = "did not finish|forbidden"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = system_call<234>(system_call<39>(), system_call<39>(), 19) == 0;
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
