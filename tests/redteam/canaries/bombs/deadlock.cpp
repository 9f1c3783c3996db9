/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "waits for a lock that it holds"
expect = "caught"
says = "did not finish"
*/
__attribute__((noinline)) static void enter(int& turn) {
#pragma omp critical
    turn++;
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
#pragma omp critical
    {
        int turn = n;
        enter(turn);
        for (int i = 0; i < n; i++) y[i] = turn > 0 ? alpha * x[i] + b[i] : 0;
    }
}
