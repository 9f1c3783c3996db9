/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks for memory without end"
expect = "structural"
says = "@SYMBOL@_Zna|new"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (volatile char* room = nullptr;; room[0] = 1) room = new char[1 << 20];
}
