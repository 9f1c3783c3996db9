/*! evo
[group.again]
repeat = 4096
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
group = "again"
when = "n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n or n"
*/
/* redteam
operator = "axpb"
tries = "repeats a launch with a formula that takes long to work out"
expect = "structural"
says = "terms; a group repeats too often"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
