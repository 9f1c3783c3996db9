/*! evo
[[launch]]
kernel = "reverse"
grid = ["ceil_div(n, 128)"]
block = [128]
args = ["x", "y", "n"]
*/
/* redteam
operator = "reverse_array"
what = "from the end, turned within warps, as bits"
*/
template <int SIZE> struct Word { typedef unsigned Type; };
template <> struct Word<2> { typedef unsigned short Type; };
typedef Word<sizeof(T)>::Type Bits;

extern "C" __global__ void reverse(const T* in, T* out, int n) {
    const Bits* x = reinterpret_cast<const Bits*>(in);
    Bits* y = reinterpret_cast<Bits*>(out);
    const long long end = n - (blockIdx.x * 128ll + threadIdx.x / 32 * 32), lane = threadIdx.x % 32, from = end - 32 + lane;
    const unsigned mine = from >= 0 && from < n ? x[from] : 0u, other = __shfl_sync(~0u, mine, 31 - lane);
    const long long to = n - end + lane;
    if (to < n && end - 1 - lane >= 0) y[to] = Bits(other);
}
