/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "calls the address 0"
expect = "caught"
says = "segmentation fault"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    void (*volatile nothing)() = nullptr;
    nothing();
}
