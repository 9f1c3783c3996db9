/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "hands the work to a thread and returns at once"
expect = "structural"
*/
#include <thread>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    std::thread([=] { for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i]; }).detach();
}
